"""A small part of the arena: SRBench's smallest sets beside 21 published systems.

La Cava et al. (2021): `train_test_split` of three quarters, inputs and targets standardised by the
training part, at most 10,000 rows of it; published R2 are medians of ten splits.
"""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError

OURS = "latentgp"
SEEDS = 23654, 15795, 860, 5390, 16850, 29910, 4426, 21962, 14423, 28020
MOST_ROWS = 10_000


def split(
    X: Float[np.ndarray, "N D"], y: Float[np.ndarray, " N"], seed: int
) -> tuple[np.ndarray, ...]:
    """Rows to learn from and to be predicted, in standard deviations of the former."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(X, y, train_size=0.75, random_state=seed)
    X, X_test, y, y_test = map(np.asarray, parts)
    if len(y) > MOST_ROWS:
        rows = np.random.default_rng(seed).choice(len(y), MOST_ROWS, replace=False)
        X, y = X[rows], y[rows]
    scale, spread = X.std(0), y.std()
    scale[scale == 0] = 1
    X_test, y_test = (X_test - X.mean(0)) / scale, (y_test - y.mean()) / spread
    return (X - X.mean(0)) / scale, (y - y.mean()) / spread, X_test, y_test


def ranked(scores: Mapping[str, float]) -> dict[str, float]:
    """Ranks from the highest score, rounded to three digits; equal ones share the mean rank."""
    values = {system: round(value, 3) for system, value in scores.items()}
    return {
        system: 1
        + sum(other > value for other in values.values())
        + (sum(other == value for other in values.values()) - 1) / 2
        for system, value in values.items()
    }


def mean_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean rank of each system over the sets that it has a score of, the best first."""
    ranks: dict[str, list[float]] = defaultdict(list)
    for of_set in scores.values():
        for system, rank in ranked(of_set).items():
            ranks[system].append(rank)
    return dict(sorted(((s, mean(own)) for s, own in ranks.items()), key=lambda pair: pair[1]))


def published(folder: Path) -> dict[str, dict[str, float]]:
    """R2 of each system on each set.

    Raises:
        InputError: the folder has no table of SRBench.
    """
    path = folder / "published.csv"
    if not path.is_file() or not any(folder.glob("*.npz")):
        raise InputError(
            f"{folder} has no table of SRBench: give the folder with published.csv and a file "
            "SET.npz of X and y for each set, or the folder above it"
        )
    found: dict[str, dict[str, float]] = defaultdict(dict)
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["r2_test"] not in ("", "NA", "nan"):
                found[row["dataset"]][row["algorithm"]] = float(row["r2_test"])
    return found


def run_arena(folder: Path, sets: int, tell: Callable[[str], Any] = print) -> None:
    """Fit the smallest sets by default settings: a line a set, then the mean ranks."""
    from latentgp.surfaces.estimators.regressor import GPRegressor

    if not (folder / "published.csv").is_file():
        folder = folder / "srbench"
    others, started, scores = published(folder), time.perf_counter(), {}
    paths = sorted(folder.glob("*.npz"), key=lambda path: (path.stat().st_size, path.name))
    line = "{:30} {:>5} {:>6} {:>8} {:>19} {:>5} {:>5}".format
    tell(line("set", "rows", "R2", "rank", "best published", "in 95%", "s"))
    for path in paths[:sets]:
        began = time.perf_counter()
        with np.load(path) as file:
            X, y, X_test, y_test = split(file["X"].astype(float), file["y"].ravel(), SEEDS[0])
        regressor = GPRegressor(random_state=0).fit(X, y)
        lower, upper = regressor.predict_interval(X_test, 0.95)
        r2 = 1 - float(np.mean((y_test - regressor.predict(X_test)) ** 2) / np.var(y_test))
        own = others.get(path.stem, {})
        scores[path.stem] = own | {OURS: r2}
        rank = f"{ranked(scores[path.stem])[OURS]:g} of {len(own) + 1}"
        best = "{} {:.3f}".format(*max(own.items(), key=lambda pair: pair[1])) if own else ""
        held = f"{100 * np.mean((y_test >= lower) & (y_test <= upper)):.0f} %"
        seconds = f"{time.perf_counter() - began:.1f}"
        tell(line(path.stem, len(y), f"{r2:.3f}", rank, best, held, seconds))
    ranks = ", ".join(f"{name} {rank:.1f}" for name, rank in mean_ranks(scores).items())
    tell(f"Mean ranks: {ranks}.")
    tell(f"Done in {time.perf_counter() - started:.0f} s; all tables: docs/arena.md.")
