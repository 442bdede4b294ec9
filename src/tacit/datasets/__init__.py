"""Data to learn on: generators with a known truth, and loaders of checksummed files.

Loaders read from the folder named by the environment variable TACIT_DATA. Nothing is downloaded.
"""

from tacit.datasets.generators import (
    Generated,
    adni_shaped_tasks,
    group_sparse_tasks,
    low_rank_tasks,
    related_tasks,
)
from tacit.datasets.leaf import Leaf, read_leaf
from tacit.datasets.loaders import (
    Activities,
    DailyLoad,
    Digits,
    RealEstate,
    School,
    TaskData,
    Writers,
    load_femnist_writers,
    load_har,
    load_household_power,
    load_landmine,
    load_mnist_by_writer,
    load_real_estate,
    load_school,
)
from tacit.datasets.lsoa import read_lsoa2

__all__ = [
    "Activities",
    "DailyLoad",
    "Digits",
    "Generated",
    "Leaf",
    "RealEstate",
    "School",
    "TaskData",
    "Writers",
    "adni_shaped_tasks",
    "group_sparse_tasks",
    "load_femnist_writers",
    "load_har",
    "load_household_power",
    "load_landmine",
    "load_mnist_by_writer",
    "load_real_estate",
    "load_school",
    "low_rank_tasks",
    "read_leaf",
    "read_lsoa2",
    "related_tasks",
]
