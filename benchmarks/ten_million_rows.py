"""Ten million rows of 28 inputs, from Parquet to a model and to predictions, by the command line.

The rows are made by this script (about 1.2 GB). `latentgp fit` learns from batches, `latentgp
predict` answers every row; of each the seconds, process start and compilation included, and the
most memory that was resident. The log loss is of rows that were not learned from.
"""

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from subprocess import Popen

import numpy as np
import pyarrow.parquet as pq

import synthetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where tables and model go")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--depth", type=int, default=1, help="above 1 a deep model")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder
    learned, fresh = folder / f"rows-{arguments.rows}", folder / "fresh"
    started = time.perf_counter()
    synthetic.write(learned, arguments.rows)
    synthetic.write(fresh, 100_000, seed=1_000_000)
    print(f"tables written in {time.perf_counter() - started:.0f} s", flush=True)
    model = folder / "model"
    shutil.rmtree(folder / "state", ignore_errors=True)  # a search that has ended would be taken up
    shutil.rmtree(folder / "cache", ignore_errors=True)  # programs kept would be taken over
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    fit = command(
        *("fit", learned, "--target", synthetic.TARGET, "--out", model),
        *("--batch-size", arguments.batch_size, "--depth", arguments.depth),
        *(("--n-inducing", arguments.inducing) if arguments.depth == 1 else ()),
        *("--epochs", arguments.epochs, "--checkpoint", folder / "state"),
    )
    predictions = folder / "predictions.parquet"
    predict = command("predict", model, learned, "--out", predictions)
    held_out = folder / "held-out.parquet"
    command("predict", model, fresh, "--out", held_out)
    y = pq.read_table(fresh).column(synthetic.TARGET).to_numpy()
    p = pq.read_table(held_out).to_pandas()["probability_1"].to_numpy()
    truth = np.where(y == 1, p, 1 - p)
    report = {
        "rows": arguments.rows,
        "fit": fit,
        "predict": predict,
        "predicted rows": pq.read_metadata(predictions).num_rows,
        "held-out log loss": float(-np.log(truth).mean()),
        "held-out error": float(np.mean((p > 0.5) != y)),
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


def command(*words: object) -> dict[str, float]:
    """Run `latentgp` with some words: seconds and MiB."""
    started = time.perf_counter()
    process = Popen([str(Path(sys.executable).parent / "latentgp"), *map(str, words)])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"latentgp {words[0]} ended with {process.returncode}")
    return {"seconds": time.perf_counter() - started, "peak MiB": usage.ru_maxrss / 1024}


if __name__ == "__main__":
    main()
