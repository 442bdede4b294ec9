"""Attacks on the files of a fitted folder, on tables, on declarations and on checkpoints."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import Answer, Attack, answer, spoilt, spoilt_json, spoilt_tensors

from tacit import folder
from tacit.errors import InvalidInput

RANGES = """[columns.age]
type = "number"
low = 4
high = 19
missing = 11
[columns.sex]
type = "categories"
categories = ["f", "m"]
[columns.score]
type = "number"
low = 0
high = 70
"""
OPTIONS = ("--task", "school", "--target", "score", "--epsilon", 1, "--seed", 0)
SPOILT = {
    folder.CERTIFICATE: spoilt_json,
    folder.SEAL: spoilt_json,
    folder.RUN: spoilt_json,
    folder.LOCAL: spoilt_json,
    folder.MODEL: spoilt_tensors,
    folder.PUBLIC_PAGE: spoilt,
}
"""How each file of a folder of the trusted side is spoilt."""


def pupils(rng: random.Random, n_schools: int = 6) -> str:
    rows = [
        f"s{i % n_schools},{rng.randrange(4, 20)},{rng.choice('fm')},{rng.uniform(20, 60):.2f}"
        for i in range(10 * n_schools)
    ]
    return "\n".join(["school,age,sex,score", *rows]) + "\n"


def desk(home: Path, rng: random.Random) -> str:
    """A table, its ranges, a fitted folder and a hand-out; returns the key's fingerprint."""
    (home / "pupils.csv").write_text(pupils(rng))
    (home / "ranges.toml").write_text(RANGES)
    said = fitted(home, home / "pupils.csv", home / "ranges.toml", home / "model")
    assert said.code == 0, said
    out = answer("hand-out", home / "model", "--task", "s1", "--out", home / "s1", "--json")
    return str(json.loads(out.out)["fingerprint"])


def fitted(home: Path, table: Path, ranges: Path, out: Path) -> Answer:
    ledger = ("--ledger", home / "ledger.sqlite", "--dataset", "pupils")
    return answer("fit", table, *OPTIONS, "--ranges", ranges, "--out", out, *ledger)


# --- the files of a folder -----------------------------------------------------------------------


def spoilt_folder(name: str, home: Path, rng: random.Random) -> Iterator[str]:
    """One file of a folder of the trusted side is spoilt: verify sees it, and nobody is told
    anything by a model that is not the one that was fitted."""
    desk(home, rng)
    model, table = home / "model", home / "pupils.csv"
    file, often = model / name, 1.0 if name == folder.LOCAL else 0.1  # pages are long
    kept, usual = file.read_bytes(), answer("predict", model, table).out
    while True:
        content = SPOILT[name](kept, rng)
        file.write_bytes(content)
        verified, predicted = answer("verify", model), answer("predict", model, table)
        shown = _shown(model, home / "pages") if rng.random() < often else verified
        yield _first(
            verified.problem or predicted.problem or shown.problem,
            "a wrong verdict" * (verified.code != _right_verdict(name, kept, content)),
            "other predictions" * (predicted.code == 0 and predicted.out != usual),
            about=(name, content),
        )


def _shown(model: Path, pages: Path) -> Answer:
    return answer("report", model, "--no-open", "--out", pages)


def _right_verdict(name: str, before: bytes, after: bytes) -> int:
    """1 where a file changed that is sealed. run.json is not, but what it says of the ledger, the
    run and the data must be so; what is measured at home is nobody else's affair."""
    if name == folder.LOCAL or before == after:
        return 0
    if name != folder.RUN:
        return 1
    with contextlib.suppress(InvalidInput):
        then, now = (folder.parsed(content, Path(name)) for content in (before, after))
        free = ("options", "complete")
        same = {k: v for k, v in now.items() if k not in free} == {
            k: v for k, v in then.items() if k not in free
        }
        kinds = type(now.get("options")), type(now.get("complete", False))
        return int(not same or kinds != (dict, bool))
    return 1


def forged_hand_out(home: Path, rng: random.Random) -> Iterator[str]:
    """Somebody without the key changes a hand-out, takes signatures off and seals it again: it is
    never taken for the key's, and no model with a NaN is used."""
    from tacit.certificate import seal
    from tacit.certificate.documents import rendered, signed

    key, table = desk(home, rng), home / "pupils.csv"
    table.write_text("\n".join(pupils(rng, 1).replace("s0", "s1").splitlines()[:6]) + "\n")
    while True:
        shutil.rmtree(home / "forged", ignore_errors=True)
        forged = Path(shutil.copytree(home / "s1", home / "forged"))
        name = rng.choice((folder.CERTIFICATE, folder.MODEL))
        content = SPOILT[name]((forged / name).read_bytes(), rng)
        (forged / name).write_bytes(content)
        with contextlib.suppress(ValueError, RecursionError):  # what cannot be sealed is not
            document = json.loads((forged / folder.CERTIFICATE).read_bytes())
            (forged / folder.CERTIFICATE).write_bytes(rendered(signed(document, None)))
            seal(forged, None, tasks=["s1"])
        by_key = answer("verify", forged, "--key", key)
        anybody, predicted = answer("verify", forged), answer("predict", forged, table)
        yield _first(
            by_key.problem or anybody.problem or predicted.problem,
            "believed to be the key's" * (by_key.code == 0),
            "a prediction that is no number" * (predicted.code == 0 and not _finite(predicted.out)),
            about=(name, content),
        )


def _finite(predictions: str) -> bool:
    rows = list(csv.DictReader(io.StringIO(predictions)))
    told = [row["prediction"] for row in rows if row["prediction"]]  # none of a row it cannot read
    return all(math.isfinite(float(prediction)) for prediction in told)


# --- tables and declarations ---------------------------------------------------------------------


def spoilt_ranges(home: Path, rng: random.Random) -> Iterator[str]:
    """The file of declared ranges is spoilt: refused, or a fit whose folder is sound."""
    (home / "pupils.csv").write_text(pupils(rng))
    while True:
        content = spoilt(RANGES.encode(), rng)
        (home / "ranges.toml").write_bytes(content)
        yield _fit_holds(home, home / "pupils.csv", content)


def spoilt_csv(home: Path, rng: random.Random) -> Iterator[str]:
    """A table of text is spoilt."""
    (home / "ranges.toml").write_text(RANGES)
    while True:
        content = spoilt(pupils(rng).encode(), rng)
        (home / "pupils.csv").write_bytes(content)
        yield _fit_holds(home, home / "pupils.csv", content)


def spoilt_parquet(home: Path, rng: random.Random) -> Iterator[str]:
    """A table of columns is spoilt."""
    import polars

    (home / "ranges.toml").write_text(RANGES)
    table = home / "pupils.parquet"
    polars.read_csv(io.StringIO(pupils(rng))).write_parquet(table)
    kept = table.read_bytes()
    while True:
        content = spoilt(kept, rng)
        table.write_bytes(content)
        yield _fit_holds(home, table, content)


def _fit_holds(home: Path, table: Path, content: bytes) -> str:
    """An answer, and where it is a model, one that is sound and finite."""
    out = home / "model"
    said = fitted(home, table, home / "ranges.toml", out)
    verified = answer("verify", out) if said.code == 0 else said
    if said.code == 0 and out.exists():
        shutil.rmtree(out)
    for left in home.glob("ledger.sqlite*"):
        left.unlink()
    return _first(
        said.problem or verified.problem,
        f"fitted, and then {verified.out}" * (said.code == 0 and verified.code != 0),
        "a folder is left" * out.exists(),
        about=(table.name, content),
    )


# --- checkpoints ---------------------------------------------------------------------------------


def spoilt_checkpoint(home: Path, rng: random.Random) -> Iterator[str]:
    """A checkpoint is spoilt: refused with an error of ours, or the same bits as before."""
    import torch

    from tacit.neural.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

    state = Checkpoint(3, torch.linspace(0, 1, 4)[None], 1.0, torch.arange(12.0).reshape(3, 4))
    file = home / "checkpoint"
    write_checkpoint(file, state, "run")
    kept = file.read_bytes()
    while True:
        content = spoilt_tensors(kept, rng)
        file.write_bytes(content)
        problem = ""
        try:
            back, run = read_checkpoint(file, state)
            same = torch.equal(back.centres, state.centres) and run == "run"
            same = same and torch.equal(torch.as_tensor(back.models), torch.arange(12.0).view(3, 4))
            same = same and (back.round, back.clip_norm) == (state.round, state.clip_norm)
            problem = "" if same else "another state was believed"
        except InvalidInput:
            pass
        except Exception as error:
            problem = repr(error)
        yield _first(problem, about=("checkpoint", content))


def _first(*problems: str, about: tuple[str, bytes]) -> str:
    """The first of the problems, with the file that led to it."""
    name, content = about
    found = next(filter(None, problems), "")
    return f"{found}; {name} was {content[:20_000]!r}" if found else ""


ATTACKS: dict[str, Attack] = {
    **{f"{name} of a folder": partial(spoilt_folder, name) for name in SPOILT},
    "a forged hand-out": forged_hand_out,
    "ranges": spoilt_ranges,
    "CSV": spoilt_csv,
    "Parquet": spoilt_parquet,
    "a checkpoint": spoilt_checkpoint,
}
"""Everything above, by what it attacks."""
