"""What the arena's scripts share: a file of results that is gone on with, and scores.

A script takes a folder of data, fits by default settings, and appends one JSON line a fit to
`benchmarks/results/arena/TABLE.jsonl`; a fit whose line is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "arena"


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every table takes."""
    found = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    found.add_argument("folder", type=Path, help="of the table's data")
    found.add_argument("--out", type=Path, help="the file of results; one a table by default")
    found.add_argument("--sets", nargs="+", help="of these names alone")
    found.add_argument("--seeds", type=int, default=1, help="how many splits a set (%(default)s)")
    return found


class Results:
    """Lines of a file, one a fit; those of fits that failed are not kept."""

    def __init__(self, table: str, path: Path | None) -> None:
        self.path = path or RESULTS / f"{table}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lines = read(self.path)
        self._known = {self._key(line) for line in self.lines}

    @staticmethod
    def _key(line: dict[str, Any]) -> tuple[str, int, str]:
        return line["set"], line["seed"], line["by"]

    def fill(self, jobs: Iterable[tuple[str, int, str]], fit: Callable[..., dict]) -> None:
        """Carry out the fits that are not there, and append each as it is done."""
        for job in jobs:
            if job in self._known:
                continue
            started = time.perf_counter()
            try:
                scores = fit(*job)
            except Exception:
                traceback.print_exc()
                print(f"{job}: failed", file=sys.stderr)
                continue
            names = dict(zip(("set", "seed", "by"), job, strict=True))
            line = names | {"seconds": time.perf_counter() - started} | scores
            line = {name: _short(value) for name, value in line.items()}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self.lines.append(line)
            self._known.add(job)
            print(json.dumps(line), flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


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
