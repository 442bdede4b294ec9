"""Tasks: ragged rows with one label per row, declared ranges and scaling, tables in.

>>> schema = as_schema({"x0": (0, 10)}, ["x0"])
>>> TaskSet.from_arrays([[0], [5], [10]], [1, 2, 3], task=["a", "b", "a"], schema=schema).X
array([[-1.],
       [ 1.],
       [ 0.]])
"""

from tacit.tasks.columns import Column
from tacit.tasks.labels import Classes, canonical_label
from tacit.tasks.ranges import Ranges, as_schema
from tacit.tasks.schema import Schema
from tacit.tasks.table_files import read_table
from tacit.tasks.tables import column_names
from tacit.tasks.taskset import TaskSet, task_codes

__all__ = [
    "Classes",
    "Column",
    "Ranges",
    "Schema",
    "TaskSet",
    "as_schema",
    "canonical_label",
    "column_names",
    "read_table",
    "task_codes",
]
