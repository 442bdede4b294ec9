"""Makes the benchmarks' data files from their public originals, and says whether they are the same.

    python benchmarks/convert_data.py ORIGINALS TACIT_DATA

Put into ORIGINALS what you have of these, by the names that their publishers gave them; nothing is
downloaded. What is found is converted, and reported in one JSON line: ``same`` where the file has
the SHA-256 that the loaders ask for (with another zlib it may differ, though the arrays do not).

- ``school.mat`` of jiayuzhou/MALSAR, ``school_1_indexes.mat`` ... ``school_10_indexes.mat`` of
  tjanez/PyMTL
- ``LandmineData.mat`` of Duke, or of daizhongxiang/Federated_Bayesian_Optimization
- ``Real estate valuation data set.xlsx`` of UCI (needs polars' reader: pip install fastexcel)
- ``mytest.json.zip`` of s-huu/PMTL, data/femnist/data/test
- MNIST's four idx files, unpacked, and ``qmnist-{train,test}-labels-idx2-int.gz`` of
  facebookresearch/qmnist

Not made here: HAR's 186 features of inertial signals, and a household's power by hour.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat

from tacit.datasets.loaders import FILES

Array = npt.NDArray[Any]
SCHOOL = [
    "year1985",
    "year1986",
    "year1987",
    "pct_free_school_meals",
    "pct_VR1_band",
    "female",
    "male",
    "VR3",
    "VR1",
    "VR2",
    "ESWI",
    "African",
    "Arab",
    "Bangladeshi",
    "Caribbean",
    "Greek",
    "Indian",
    "Pakistani",
    "SE_Asian",
    "Turkish",
    "Other",
    "school_mixed",
    "school_boys",
    "school_girls",
    "maintained",
    "church_of_england",
    "roman_catholic",
    "bias",
]


def stacked(cells: Array) -> tuple[Array, Array]:
    """MATLAB's one cell a task, as rows and the task of each."""
    rows = list(cells.ravel())
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(cell) for cell in rows])


def school(folder: Path) -> dict[str, Array]:
    """139 schools, with the ten published splits."""
    data = loadmat(folder / "school.mat")
    X, task = stacked(data["X"])
    y, _ = stacked(data["Y"])
    splits = [train_rows(folder / f"school_{k}_indexes.mat", len(X)) for k in range(1, 11)]
    return {
        "X": X.astype("u1", order="C"),
        "y": y.ravel().astype("f4"),
        "task": task.astype("u1"),
        "train_splits": np.stack(splits),
        "feature_names": np.array(SCHOOL),
    }


def train_rows(path: Path, rows: int) -> Array:
    """One split as a mask of rows; ``tr`` counts from one."""
    mask = np.zeros(rows, bool)
    mask[loadmat(path)["tr"].ravel().astype(int) - 1] = True
    return mask


def landmine(folder: Path) -> dict[str, Array]:
    """29 fields."""
    data = loadmat(folder / "LandmineData.mat")
    X, task = stacked(data["feature"])
    y, _ = stacked(data["label"])
    return {"X": X.astype("f4"), "y": y.ravel().astype("i1"), "task": task.astype("i1")}


def real_estate(folder: Path) -> dict[str, Array]:
    """414 houses, without their number."""
    import polars as pl

    table = pl.read_excel(folder / "Real estate valuation data set.xlsx").drop("No")
    return {
        "X": table[:, :6].to_numpy().astype("f8"),
        "y": table[:, 6].to_numpy().astype("f8"),
        "feature_names": np.array(table.columns[:6]),
        "target_name": np.array(table.columns[6]),
    }


def femnist(folder: Path) -> dict[str, Array]:
    """The test part of 206 writers, as bytes."""
    with zipfile.ZipFile(folder / "mytest.json.zip") as archive:
        leaf = json.loads(archive.read("mytest.json"))
    writers = [leaf["user_data"][user] for user in leaf["users"]]
    X = np.concatenate([np.array(writer["x"]) for writer in writers])
    sizes = [len(writer["y"]) for writer in writers]
    return {
        "X": np.rint(X * 255).astype("u1").reshape(-1, 28, 28),
        "y": np.concatenate([writer["y"] for writer in writers]).astype("u1"),
        "task": np.repeat(np.arange(len(writers)), sizes).astype("u1"),
    }


def mnist(folder: Path) -> dict[str, Array]:
    """MNIST in its own order, with the writer and the series of each digit."""
    arrays: dict[str, Array] = {}
    for part, name in [("train", "train"), ("test", "t10k")]:
        images = (folder / f"{name}-images-idx3-ubyte").read_bytes()[16:]
        labels = (folder / f"{name}-labels-idx1-ubyte").read_bytes()[8:]
        packed = (folder / f"qmnist-{part}-labels-idx2-int.gz").read_bytes()
        about = np.frombuffer(gzip.decompress(packed)[12:], ">i4").reshape(-1, 8)[: len(labels)]
        arrays |= {
            f"X_{part}": np.frombuffer(images, "u1").reshape(-1, 28, 28),
            f"y_{part}": np.frombuffer(labels, "u1"),
            f"writer_{part}": about[:, 2].astype("i2"),
            f"hsf_{part}": about[:, 1].astype("u1"),
        }
    return arrays


CONVERTERS = {
    "school_ilea.npz": school,
    "landmine.npz": landmine,
    "real_estate_taiwan.npz": real_estate,
    "femnist_pmtl_testpart.npz": femnist,
    "mnist_by_writer.npz": mnist,
}


def main(originals: Path, data: Path) -> None:
    """Converts what is there."""
    data.mkdir(parents=True, exist_ok=True)
    for name, arrays in CONVERTERS.items():
        try:
            found = arrays(originals)
        except FileNotFoundError as missing:
            print(json.dumps({"file": name, "missing": Path(str(missing.filename)).name}))
            continue
        np.savez_compressed(data / name, **found)  # type: ignore[arg-type]  # arrays, not its flag
        digest = hashlib.sha256((data / name).read_bytes()).hexdigest()
        print(json.dumps({"file": name, "same": digest == FILES[name].sha256, "sha256": digest}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
