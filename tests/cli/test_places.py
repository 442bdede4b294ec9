"""Where a ledger may be kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit.cli import places

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Desk

LINE = "36 35 98:0 / {point} rw,noatime shared:1 - {kind} server:/export rw"


def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *mounted: tuple[Path, str]) -> None:
    """A system on which these file systems are mounted, the first of all at the root."""
    written = [LINE.format(point=str(p).replace(" ", "\\040"), kind=kind) for p, kind in mounted]
    (tmp_path / "mountinfo").write_text("\n".join([LINE.format(point="/", kind="ext4"), *written]))
    monkeypatch.setattr(places, "MOUNTS", tmp_path / "mountinfo")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "afs", "ceph", "lustre", "glusterfs", "fuse.sshfs"]
)
def test_a_network_file_system_is_refused_and_another_place_can_be_named(
    kind: str, desk: Desk, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far away").mkdir()
    mount(tmp_path, monkeypatch, (tmp_path / "far away", kind))
    table = desk.table.rename(tmp_path / "far away" / "pupils.csv")
    arguments = ["fit", table, *desk.fit()[2:]]
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert kind in done.err
    assert "--ledger" in done.err
    assert [path.name for path in table.parent.iterdir()] == ["pupils.csv"]
    if kind == "nfs4":
        assert command(*arguments, "--ledger", tmp_path / "l.sqlite").code == 0


def test_the_innermost_mount_decides_and_the_last_of_equals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, inner = tmp_path / "home", tmp_path / "home" / "own"
    inner.mkdir(parents=True)
    mount(tmp_path, monkeypatch, (inner, "btrfs"), (home, "nfs"), (home, "nfs4"))
    assert places.file_system(inner) == "btrfs"
    assert places.file_system(home) == "nfs4"
    assert places.file_system(tmp_path) == "ext4"
    assert places.file_system(tmp_path / "homework") == "ext4"


def test_where_the_system_tells_nothing_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MOUNTS", tmp_path / "nothing")
    assert places.file_system(tmp_path) is None
    places.require_place(tmp_path / "l.sqlite")
