"""Public data sets, read from checksummed ``.npz`` files and never downloaded.

Put the files into one folder and name it in the environment variable TACIT_DATA, or pass
``path=`` (the folder, or the file itself). A file is used only if its SHA-256 is the one below.
Ranges are given only where they are public facts (a percentage, a pixel, the scale of an exam),
keyed by column index so that they fit the array X; nothing was measured on the data.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.arrays import Array, BoolArray, FloatArray, IntArray
from tacit.errors import DataUnavailable
from tacit.tasks import Column

ENVIRONMENT_VARIABLE = "TACIT_DATA"


class DataFile(NamedTuple):
    """A file that a loader reads, and the public GitHub repositories that it was made of."""

    sha256: str
    source: str


FILES = {
    "school_ilea.npz": DataFile(
        "116b010329bc40e624febe3d2995c21f81affae81acf020647e9fd588226ad27",
        "jiayuzhou/MALSAR at fb97515 (data/school.mat), splits of tjanez/PyMTL at 97dfc15",
    ),
    "household_power_daily_hourly.npz": DataFile(
        "c2a9cb4a565d912532809c89150b4ff4dc982ea3f6e30fc475b859bc421e7cc0",
        "parthshinde1221/Load-Forecasting-Simulator at 31d3913, "
        "missing minutes of TeshomeBalkew/HouseELctrcty_consumption_project at 7f87cda",
    ),
    "real_estate_taiwan.npz": DataFile(
        "ce34cd7309eace8109c668fc4dbfb7ebb7dcf635e1392e2715d62c55541812bc",
        "bandengasep/Python-A-B-Final-Assessment at a4323e8",
    ),
    "mnist_by_writer.npz": DataFile(
        "d76eda1a0b5ae00b9194e49b1691d688a53a2430eb090e14b9154c9e8820df31",
        "rasbt/mnist-pngs at d26bd33, writers of facebookresearch/qmnist at 9406136",
    ),
    "femnist_pmtl_testpart.npz": DataFile(
        "bd863328c0b060b879d3254d2762a35633bfd20cd83b0dacc5f8612ca93bccd4",
        "s-huu/PMTL at 9e849ad (data/femnist/data/test)",
    ),
    "har_uci_features.npz": DataFile(
        "150b5eac2f28ce381bbb687fc448c4e278c252e48683561e756c0d607d3acdd9",
        "TsingZ0/HtFL-OnDevice at a86eb75",
    ),
    "landmine.npz": DataFile(
        "603ea5acff842c7e8d6e249da041d582fa490418e27655dd3d89d7b9818ed97e",
        "daizhongxiang/Federated_Bayesian_Optimization at 30a4548 (LandmineData.mat)",
    ),
}

ByteArray = npt.NDArray[np.uint8]
PublicRanges = dict[str | int, Column]


@dataclass(frozen=True, eq=False, repr=False)
class TaskData:
    """Rows with a task each: ``est.fit(data.X, data.y, task=data.task)``."""

    X: FloatArray  # (N, d)
    y: FloatArray  # (N,)
    task: IntArray  # (N,), from 0
    feature_names: tuple[str, ...]
    ranges: PublicRanges


@dataclass(frozen=True, eq=False, repr=False)
class School(TaskData):
    """Students in schools, with the ten published random splits."""

    train_splits: BoolArray  # (10, N), the training part of each split


@dataclass(frozen=True, eq=False, repr=False)
class Activities(TaskData):
    """Windows of movement of people, each one of six activities."""

    class_names: tuple[str, ...]
    official_test_subject: BoolArray  # (N,), the nine people of the official test part


@dataclass(frozen=True, eq=False, repr=False)
class DailyLoad:
    """The electric load of one household, one row a day."""

    X: FloatArray  # (1417, 24), mean kW in each hour
    date: IntArray  # (1417,), yyyymmdd
    n_minutes: ByteArray  # (1417, 24), recorded minutes behind each mean


@dataclass(frozen=True, eq=False, repr=False)
class RealEstate:
    """Sold houses, without a task column."""

    X: FloatArray  # (414, 6)
    y: FloatArray  # (414,), price per unit area
    feature_names: tuple[str, ...]
    target_name: str


@dataclass(frozen=True, eq=False, repr=False)
class Writers:
    """Handwritten characters, one task per writer."""

    X: ByteArray  # (N, 28, 28), 0 to 255
    y: IntArray  # (N,), the class
    task: IntArray  # (N,), the writer
    pixel: Column = field(default_factory=lambda: Column(0.0, 255.0))


@dataclass(frozen=True, eq=False, repr=False)
class Digits:
    """MNIST by writer; nobody wrote in both parts."""

    train: Writers  # 60,000 digits, 539 writers
    test: Writers  # 10,000 digits, 297 writers


def load_school(path: str | Path | None = None) -> School:
    """Exam scores of 15,362 students in 139 London schools, 1985-87 (ILEA). 27 features.

    The constant last column of the published file is dropped. Public facts: two columns are
    percentages, the others are 0 or 1, and the score runs from 1 to 70.
    """
    data = _verified("school_ilea.npz", path)
    names = tuple(data["feature_names"].tolist())[:27]
    ranges: PublicRanges = {
        j: Column(0, 100) if name.startswith("pct_") else Column(0, 1)
        for j, name in enumerate(names)
    }
    return School(
        X=_floats(data["X"][:, :27]),
        y=_floats(data["y"]),
        task=_integers(data["task"]),
        feature_names=names,
        ranges=ranges | {"target": Column(1, 70)},
        train_splits=data["train_splits"],
    )


def load_landmine(path: str | Path | None = None) -> TaskData:
    """14,820 radar images in 29 fields, 9 features, mine (1) or clutter (0)."""
    data = _verified("landmine.npz", path)
    return TaskData(
        X=_floats(data["X"]),
        y=_floats(data["y"]),
        task=_integers(data["task"]),
        feature_names=tuple(f"x{j}" for j in range(9)),
        ranges={"target": Column(categories=(0, 1))},
    )


def load_har(path: str | Path | None = None) -> Activities:
    """10,299 windows of smartphone movement of 30 people, 186 features, 6 activities (UCI).

    These are not the 561 features of UCI, and they are not scaled. Neighbouring windows overlap by
    half, so a random split within a person is optimistic.
    """
    data = _verified("har_uci_features.npz", path)
    return Activities(
        X=_floats(data["X"]),
        y=_floats(data["y"]),
        task=_integers(data["task"]),
        feature_names=tuple(data["feature_names"].tolist()),
        ranges={"target": Column(categories=tuple(range(6)))},
        class_names=tuple(data["class_names"].tolist()),
        official_test_subject=data["official_test_subject"],
    )


def load_household_power(path: str | Path | None = None) -> DailyLoad:
    """Mean active power of one household by hour, 1,417 days of 2006-2010 (UCI)."""
    data = _verified("household_power_daily_hourly.npz", path)
    return DailyLoad(_floats(data["X"]), _integers(data["date"]), data["n_minutes"])


def load_real_estate(path: str | Path | None = None) -> RealEstate:
    """414 house sales in New Taipei City, 6 features, price per unit area (UCI, Yeh)."""
    data = _verified("real_estate_taiwan.npz", path)
    names = tuple(data["feature_names"].tolist())
    return RealEstate(_floats(data["X"]), _floats(data["y"]), names, str(data["target_name"]))


def load_mnist_by_writer(path: str | Path | None = None) -> Digits:
    """MNIST in its original order, with the writer of each digit; 0 is the background."""
    data = _verified("mnist_by_writer.npz", path)
    parts = (
        Writers(data[f"X_{p}"], _integers(data[f"y_{p}"]), _integers(data[f"writer_{p}"]))
        for p in ("train", "test")
    )
    return Digits(*parts)


def load_femnist_writers(path: str | Path | None = None) -> Writers:
    """6,237 characters of 206 writers, 62 classes (0-9, A-Z, a-z); 255 is the background.

    This is the test part only of the data of Hu, Wu, Smith, Private Multi-Task Learning: the
    paper's results cannot be had from it.
    """
    data = _verified("femnist_pmtl_testpart.npz", path)
    return Writers(data["X"], _integers(data["y"]), _integers(data["task"]))


def require_file(name: str) -> str:
    """The digest of a file that is there and the one meant; else DataUnavailable, in one line."""
    _content(name, None)
    return FILES[name].sha256


def _verified(name: str, path: str | Path | None) -> dict[str, Array]:
    """The arrays of a data file, after its bytes were checked."""
    with np.load(io.BytesIO(_content(name, path)), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _content(name: str, path: str | Path | None) -> bytes:
    file, expected = _location(name, path), FILES[name].sha256
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataUnavailable(
            f"{file} cannot be read ({error.strerror}): {_origin(name)}; {_ADVICE}"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DataUnavailable(
            f"{file} is not the published {name}: its SHA-256 is {found}, not as it must be; "
            f"get the file again: {_origin(name)}"
        )
    return content


def _origin(name: str) -> str:
    """Where the file is to be had, and what it must be."""
    expected, source = FILES[name]
    return f"it was made of {source} (GitHub), expected SHA-256 {expected}"


_ADVICE = (
    f"set the environment variable {ENVIRONMENT_VARIABLE} to the folder that holds the data files, "
    "or pass path=; nothing is downloaded"
)


def _location(name: str, path: str | Path | None) -> Path:
    folder = os.environ.get(ENVIRONMENT_VARIABLE, "") if path is None else path
    if not str(folder):
        raise DataUnavailable(f"where {name} is, is not known: {_origin(name)}; {_ADVICE}")
    place = Path(folder)
    return place if place.suffix == ".npz" else place / name


def _floats(values: Array) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _integers(values: Array) -> IntArray:
    return values.astype(np.int64)
