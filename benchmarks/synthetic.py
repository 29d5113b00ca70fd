"""Tables of any number of rows: 28 inputs, two classes, in Parquet files of 500,000 rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

INPUTS = 28
TARGET = "label"
FILE_ROWS = 500_000
GROUP_ROWS = 50_000


def rows(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal inputs, shape (N, 28), float32, and classes that eight of them decide on."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((number, INPUTS), dtype=np.float32)
    f = 2 * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.7 * X[:, 3] - 0.5 * X[:, 4] ** 2
    f += np.cos(2 * X[:, 5]) + 0.3 * X[:, 6] * X[:, 7]
    return X, (rng.random(number) < 1 / (1 + np.exp(-f))).astype(np.int8)


def write(folder: Path, number: int, seed: int = 0) -> None:
    """A folder of files; nothing is done where it is there already."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    for part, start in enumerate(range(0, number, FILE_ROWS)):
        X, y = rows(min(FILE_ROWS, number - start), seed + part)
        columns = {f"x{column:02}": X[:, column] for column in range(INPUTS)} | {TARGET: y}
        path = folder / f"part-{part:04}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=GROUP_ROWS)
