"""The two folders that ``tacit encode fit`` writes, and the files of people's cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DEVICE, COLLECTOR = "device", "collector"
"""The folders in a folder that ``fit`` wrote."""


def is_pair(directory: Path) -> bool:
    """Does the folder hold both, as ``fit`` wrote them?"""
    return (directory / DEVICE).is_dir() and (directory / COLLECTOR).is_dir()


def part_of(directory: Path, name: str) -> Path:
    """The folder of that name where ``fit`` wrote both, or the one that was handed over alone."""
    from tacit.cli.loading import require_folder

    place = directory / name if is_pair(directory) else directory
    require_folder(place)
    return place


def require_new(out: Path) -> None:
    """Refuse before anything is spent what could not be written, or would be lost."""
    from tacit.errors import InvalidInput

    if out.exists():
        raise InvalidInput(f"{out} is there already; choose another --out")
    if not out.absolute().parent.is_dir():
        raise InvalidInput(f"there is no folder {out.absolute().parent} to write {out.name} into")


def write_cells(out: Path, named: dict[str, Any], numbers: dict[str, Any]) -> None:
    """A CSV file of named cells and numbers, in which no spreadsheet computes."""
    import polars

    from tacit import files
    from tacit.cli.predict import without_formulas

    frame = without_formulas(polars.DataFrame(named | numbers))
    files.replace_file(out, frame.write_csv().encode())
