"""Predictions for tables larger than memory: part by part, each written whole or not at all."""

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from latentgp.errors import InputError
from latentgp.table_model import TableModel
from latentgp.table_rows import Frames
from latentgp.tables import write_table

if TYPE_CHECKING:
    import pandas as pd

_MARK = "made-of.txt"


class PredictionProgress(NamedTuple):
    """What a callback is told after every part.

    Attributes:
        rows: predicted so far, those of an earlier run included.
        total: rows in all.
    """

    rows: int
    total: int


def predict_files(
    model: TableModel,
    path: str | Path,
    out: str | Path,
    *,
    level: float = 0.95,
    mean_only: bool = False,
    with_inputs: bool = False,
    callback: Callable[[PredictionProgress], Any] | None = None,
) -> int:
    """Predict every row of tables that need not fit in memory, in their order.

    The parts of a run that was interrupted are kept beside `out`, and the same call goes on from
    them. Memory is that of one part, of at most 65,536 rows.

    Args:
        model: fitted.
        path: a CSV or Parquet file, or a folder of them.
        out: where to write predictions, ending in .csv or .parquet.
        level: probability that an interval holds.
        mean_only: the mean of numbers and counts alone, which is several times faster.
        with_inputs: keep the tables' own columns.
        callback: told of progress.

    Returns:
        How many rows were predicted.

    Raises:
        InputError: files that cannot be read, an ending that is not known.
    """
    out = Path(out)
    if out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{out} does not end in .csv, .parquet or .pq: pass one of these")
    frames = Frames(path)
    parts = out.with_name(out.name + ".parts")
    _claim(parts, _identity(model, path, level, mean_only, with_inputs))
    rows, files = 0, []
    for number, frame in enumerate(frames):
        file = parts / f"{number:08d}{out.suffix.lower()}"
        files.append(file)
        if not file.exists():
            predictions = _of_frame(model, frame, level, mean_only, with_inputs)
            partial = file.with_name(f"partial-{file.name}")
            write_table(predictions, partial)
            partial.replace(file)
        rows += len(frame)
        if callback is not None:
            callback(PredictionProgress(rows, frames.size))
    partial = out.with_name("partial-" + out.name)
    _join(files, partial)
    partial.replace(out)
    shutil.rmtree(parts)
    return rows


def show_progress(progress: PredictionProgress) -> None:
    """One line on standard error, written over."""
    end = "\n" if progress.rows == progress.total else ""
    print(f"\r{progress.rows:,} of {progress.total:,} rows", end=end, file=sys.stderr, flush=True)


def _of_frame(
    model: TableModel, frame: "pd.DataFrame", level: float, mean_only: bool, with_inputs: bool
) -> "pd.DataFrame":
    import pandas as pd

    predictions = model.predict(frame, level, mean_only=mean_only)
    if with_inputs:
        predictions = pd.concat([frame, predictions.add_prefix("predicted_")], axis=1)
    return predictions


def _identity(model: TableModel, path: str | Path, *settings: Any) -> str:
    """A digest of what the parts must agree with."""
    import jax
    import numpy as np

    path = Path(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    digest = hashlib.sha256(f"{stats} {settings}".encode())
    for leaf in jax.tree.leaves(model.estimator.posterior_):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _claim(parts: Path, identity: str) -> None:
    """Make the folder of parts, or take it over if it was made for the same predictions."""
    mark = parts / _MARK
    if parts.exists():
        if mark.is_file() and mark.read_text() == identity:
            return
        raise InputError(
            f"{parts} holds parts of other predictions; remove it, or name another file to write."
        )
    parts.mkdir(parents=True)
    mark.write_text(identity)


def _join(files: list[Path], out: Path) -> None:
    """One file of all parts, a part at a time."""
    if out.suffix.lower() == ".csv":
        with out.open("wb") as joined:
            for number, file in enumerate(files):
                with file.open("rb") as part:
                    if number:
                        part.readline()
                    shutil.copyfileobj(part, joined)
        return
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, pq.read_schema(files[0])) as writer:
        for file in files:
            writer.write_table(pq.read_table(file, schema=writer.schema))
