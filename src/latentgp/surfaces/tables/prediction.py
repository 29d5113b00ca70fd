"""Predictions for tables larger than memory: part by part, each written whole or not at all."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from latentgp._version import __version__
from latentgp.errors import InputError
from latentgp.runtime.hashing import digest
from latentgp.runtime.progress import Callback, Run, RunControl, RunProgress
from latentgp.runtime.writing import writing, written_whole
from latentgp.surfaces.files.pieces import TableFiles
from latentgp.surfaces.tables import check_table_path, once, write_table
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.rows import Frames

_MARK = "made-of.txt"
_LARGE_BYTES, _LARGE_NUMBERS = 50_000_000, 10_000_000


def predict_files(
    model: TableModel,
    path: str | Path,
    out: str | Path,
    *,
    with_inputs: bool = False,
    callback: Callback | None = None,
    verbose: int = 0,
    **settings: Any,
) -> int:
    """Predict every row of tables that need not fit in memory, in their order.

    The parts of a run that was interrupted are kept beside `out`, and the same call goes on from
    them. Memory is that of one part: at most 65,536 rows of Parquet, some 8 MB of CSV.

    `settings` are those of `TableModel.predict`; `with_inputs` keeps the tables' own columns.

    Returns:
        How many rows were predicted.

    Raises:
        InputError: files that cannot be read or predicted, with file and row; an ending that is
            not known, `out` among the rows, parts of other predictions; nothing can be written.
    """
    path = Path(path)
    out = check_table_path(out, path)
    frames = Frames(path, model.read_as_text)
    parts = out.with_name(out.name + ".parts")
    with writing(parts):
        _claim(parts, _identity(model, frames, with_inputs, settings))
    files = _files_in(parts)
    done = int(files[-1].stem) if files else 0
    predict = partial(model.predict, tell=once(), **settings)
    run = Run(RunControl(time.perf_counter(), callback, verbose=verbose))
    run.begins("predicting", done)
    try:
        for part in frames.after(done):
            predictions = part.convert(predict)
            if with_inputs:
                # Of the types they were read with: whole numbers beside gaps stay whole.
                predictions = beside(part.batch.to_pandas(types_mapper=pd.ArrowDtype), predictions)
            # Its name says how many rows are done.
            write_table(predictions, parts / f"{part.done:012d}{out.suffix.lower()}")
            made, details = part.done, {"rows": part.done}
            run.passed(RunProgress("predicting", made, frames.size, unit="row", details=details))
    finally:
        run.close()
    with written_whole(out) as joined:
        _join(_files_in(parts), joined)
    with writing(parts):  # those of a run that is killed meanwhile are no parts any more
        parts.rename(_aside(parts))
        shutil.rmtree(_aside(parts))
    return frames.size


def is_large(path: Path) -> bool:
    """Whether a table is better predicted part by part: a folder, or one of many numbers."""
    if path.is_dir():
        return True
    if path.suffix.lower() == ".csv" or not path.is_file():
        return path.is_file() and path.stat().st_size > _LARGE_BYTES
    files = TableFiles(path)
    return files.size * len(files.names) > _LARGE_NUMBERS


def beside(inputs: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """A table's own columns beside its predictions; InputError where their names meet."""
    index = [name for name in inputs.index.names if name is not None]
    inputs = inputs.reset_index(index) if index else inputs  # pandas', a column of the file
    predictions = predictions.add_prefix("predicted_").set_axis(inputs.index)
    for name in predictions.columns.intersection(inputs.columns):
        raise InputError(
            f"the table has a column {name!r} already: rename it, or predict without its columns"
        )
    return pd.concat([inputs, predictions], axis=1)


def _identity(model: TableModel, frames: Frames, *settings: Any) -> str:
    """A digest of what the parts must agree with."""
    estimator = model.estimator
    kind = type(estimator).__name__, getattr(estimator, "classes_", None), estimator.posterior_
    return digest(__version__, frames.identity(), settings, kind, model.encoder, model.side_columns)


def _claim(parts: Path, identity: str) -> None:
    """Make the folder of parts, or take it over if it was made for the same predictions."""
    mark, new = parts / _MARK, _aside(parts)
    if parts.exists():
        if mark.is_file() and mark.read_text() == identity:
            return
        raise InputError(
            f"{parts} holds parts of other predictions; remove it, or name another file to write."
        )
    shutil.rmtree(new, ignore_errors=True)  # of a run that was killed in these lines
    new.mkdir(parents=True)
    (new / _MARK).write_text(identity)
    new.rename(parts)


def _aside(parts: Path) -> Path:
    """Temporary name of the folder of parts while it is made or removed."""
    return parts.with_name(parts.name + ".partial")


def _files_in(parts: Path) -> list[Path]:
    return sorted(file for file in parts.iterdir() if file.stem.isdigit())


def _join(files: list[Path], out: Path) -> None:
    """One file of all parts, a part at a time."""
    if files[0].suffix == ".csv":
        with out.open("wb") as joined:
            for number, file in enumerate(files):
                with file.open("rb") as part:
                    if number:
                        part.readline()
                    shutil.copyfileobj(part, joined)
        return

    # A column may be empty in one part, and be of no type there.
    schemas = [pq.read_schema(file).remove_metadata() for file in files]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    with pq.ParquetWriter(out, schema) as writer:
        for file in files:
            writer.write_table(pq.ParquetFile(file).read().cast(schema))
