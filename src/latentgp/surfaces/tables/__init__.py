"""From a table of mixed columns to an array of numbers, the same way at training and prediction.

`read_table` and `write_table` know CSV and Parquet, `split_target` takes the target out,
`guess_task` says what kind of target it is, and `TableEncoder` turns the rest into float64. A value
means the same wherever it is stored: "3", 3 and 3.0 are one number, and one of the
`MISSING_MARKERS` in a text column is a missing value in Parquet as in CSV. How text writes numbers
and dates otherwise, such as "1.234,50 €" and "31.12.2024", is recognised and kept; digits with
zeros in front, such as "01067", are codes.
"""

from latentgp.surfaces.files.csv import MISSING_MARKERS
from latentgp.surfaces.tables.columns import CategoryColumn, NumberColumn
from latentgp.surfaces.tables.encoder import TableEncoder
from latentgp.surfaces.tables.files import check_table_path, read_table, write_table
from latentgp.surfaces.tables.targets import SplitTable, TaskGuess, guess_task, split_target
from latentgp.surfaces.tables.values import once

__all__ = [
    "MISSING_MARKERS",
    "CategoryColumn",
    "NumberColumn",
    "SplitTable",
    "TableEncoder",
    "TaskGuess",
    "check_table_path",
    "guess_task",
    "once",
    "read_table",
    "split_target",
    "write_table",
]
