"""What the arena's scripts share: a file of results that is gone on with, and scores.

A script takes a folder of data, fits by default settings, and appends one JSON line a fit to
`benchmarks/results/arena/TABLE.jsonl`; a fit whose line is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "arena"


def parser(description: str | None, *, folder: bool = True) -> argparse.ArgumentParser:
    """The arguments that every table takes."""
    found = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    if folder:
        found.add_argument("folder", type=Path, help="of the table's data")
    found.add_argument("--out", type=Path, help="the file of results; one a table by default")
    found.add_argument("--sets", nargs="+", help="of these names alone")
    found.add_argument("--seeds", type=int, default=1, help="how many splits a set (%(default)s)")
    return found


class Results:
    """Lines of a file, one a fit; a fit that failed has a line too, and is tried again."""

    def __init__(self, table: str, path: Path | None) -> None:
        self.path = path or RESULTS / f"{table}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._known = {_key(line) for line in read(self.path)}

    def fill(self, jobs: Iterable[tuple[str, int, str]], fit: Callable[..., dict]) -> None:
        """Carry out the fits that are not there, and append each as it is done."""
        for job in jobs:
            if job in self._known:
                continue
            started = time.perf_counter()
            names = dict(zip(("set", "seed", "by"), job, strict=True))
            try:
                scores = fit(*job)
            except Exception as error:
                traceback.print_exc()
                self._append(names | {"failure": f"{type(error).__name__}: {error}"})
                continue
            self._append(names | {"seconds": time.perf_counter() - started} | scores)

    def _append(self, line: dict[str, Any]) -> None:
        line = {name: _short(value) for name, value in line.items()}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def read(path: Path, *, failed: bool = False) -> list[dict[str, Any]]:
    """The lines of a file of results, or those of fits that failed; none where there is no file."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    done = {_key(line) for line in lines if "failure" not in line}
    if failed:
        return list({_key(x): x for x in lines if _key(x) not in done}.values())
    return [line for line in lines if "failure" not in line]


def _key(line: dict[str, Any]) -> tuple[str, int, str]:
    return line["set"], line["seed"], line["by"]


def of_intervals(
    y: np.ndarray, lower: np.ndarray, upper: np.ndarray, level: float = 0.95
) -> dict[str, float]:
    """Coverage and mean interval score (Gneiting & Raftery 2007, eq. 43)."""
    below, above = np.maximum(lower - y, 0), np.maximum(y - upper, 0)
    score = upper - lower + 2 / (1 - level) * (below + above)
    return {"coverage": np.mean((y >= lower) & (y <= upper)), "interval": np.mean(score)}


def crps_of_normal(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> float:
    """Mean continuous ranked probability score of normal laws (Gneiting & Raftery 2007, eq. 21)."""
    from scipy.stats import norm

    z = (y - mean) / std
    return float(np.mean(std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - np.pi**-0.5)))


def _short(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.6g}")
    return value
