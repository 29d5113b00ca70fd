"""Kernels of counts and classes: held-out log loss by family, and what the evidence chooses.

    python benchmarks/kernel_families.py counts ../shared/data ../shared/arena/srbench
    python benchmarks/kernel_families.py classes ../shared/data KEEL

Sets of folders: `.npz` files with X and y, and for classes KEEL's `.dat` files. At most 400 rows
are learned from and 1,000 predicted; inputs are in standard deviations. A line of JSON a fit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import norm

import latentgp as lgp
from latentgp.choosing.kernels import usual_kernel
from latentgp.setup.priors import scales

FAMILIES = "rbf", "matern52", "matern32", "matern12"
LEARNED, PREDICTED, SEEDS = 400, 1_000, 2
CELLS = {"pp_bei": [(30, 20), (20, 10)], "pp_finpines": [(10, 10)], "pp_redwood": [(8, 8)]}
Table = tuple[str, np.ndarray, np.ndarray]


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("task", choices=["counts", "classes"])
    arguments.add_argument("folders", nargs="+", type=Path)
    options = arguments.parse_args()
    tables = counts if options.task == "counts" else classes
    for folder in options.folders:
        for name, X, y in tables(folder):
            for seed in range(SEEDS):
                measure = of_counts if options.task == "counts" else of_classes
                for line in measure(*split(X, y, seed)):
                    print(json.dumps({"set": name, "seed": seed} | line), flush=True)


def of_counts(X: np.ndarray, X_test: np.ndarray, y: np.ndarray, y_test: np.ndarray) -> Iterator:
    """Each family's loss, and the choice, by both laws; large counts are not Poisson's."""
    laws = {"poisson": lgp.Poisson(), "negative-binomial": lgp.LogNegativeBinomial()}
    data = lgp.Data(X, y).merged_rows().merged
    for law, likelihood in laws.items():
        if law == "poisson" and np.max(y) > 1_000:
            continue
        found = usual_kernel(data, likelihood, scales(lgp.LatentGP(lgp.RBF(), likelihood), data))
        kernels = dict(zip(FAMILIES, FAMILIES, strict=True))
        if found is not None:
            kernels[f"chosen: {found.family}"] = found.kernel
        for family, kernel in kernels.items():
            fitted = lgp.GPCountRegressor(
                kernel, likelihood=law, random_state=0, representation=lgp.Dense()
            ).fit(X, y)
            loss = -np.mean(fitted.log_predictive_density(X_test, y_test))
            yield {"law": law, "family": family} | scores(fitted, loss)


def of_classes(X: np.ndarray, X_test: np.ndarray, y: np.ndarray, y_test: np.ndarray) -> Iterator:
    """Each family's loss, that of one length-scale, and that of normal scores of the inputs."""
    one = lgp.RBF(lengthscale=np.sqrt(2 * X.shape[1]), variance=4.0)
    kinds = {family: (family, X, X_test) for family in FAMILIES}
    kinds["one length-scale"] = (one, X, X_test)
    kinds["normal scores"] = ("rbf", *normal_scores(X, X_test))
    for name, (kernel, seen, held_out) in kinds.items():
        fitted = lgp.GPClassifier(kernel, random_state=0, representation=lgp.Dense()).fit(seen, y)
        known = np.isin(y_test, fitted.classes_)
        loss = -np.mean(fitted.log_predictive_density(held_out[known], y_test[known]))
        yield {"family": name} | scores(fitted, loss)


def scores(fitted: lgp.GPClassifier | lgp.GPCountRegressor, loss: float) -> dict[str, float]:
    """Held-out loss a row, and the bound on the log evidence, in nats."""
    evidence = float(fitted.posterior_.log_evidence)
    return {"loss": round(float(loss), 4), "log_evidence": round(evidence, 2)}


def normal_scores(X: np.ndarray, X_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal quantiles of the ranks among the rows learned from, in standard deviations."""
    columns, places = [], []
    for column, place in zip(X.T, X_test.T, strict=True):
        order = np.sort(column)
        values = np.unique(column)
        ranks = np.searchsorted(order, values, "left") + np.searchsorted(order, values, "right")
        score = norm.ppf(ranks / (2 * len(column)))
        seen = np.interp(column, values, score)
        columns.append((seen - seen.mean()) / seen.std())
        places.append((np.interp(place, values, score) - seen.mean()) / seen.std())
    return np.array(columns).T, np.array(places).T


def split(X: np.ndarray, y: np.ndarray, seed: int) -> list[np.ndarray]:
    """Rows learned from and held out."""
    rows = np.random.default_rng(seed).permutation(len(y))[: LEARNED + PREDICTED]
    learned = min(LEARNED, 3 * len(rows) // 4)
    first, second = rows[:learned], rows[learned:]
    varies = X[first].std(0) > 0
    X = (X[:, varies] - X[first][:, varies].mean(0)) / X[first][:, varies].std(0)
    return [X[first], X[second], y[first], y[second]]


def counts(folder: Path) -> Iterator[Table]:
    """Targets that are whole numbers, nine or more of them, and points in cells."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            X, y = file["X"].astype(float), file["y"].astype(float)
        if path.stem in CELLS:
            for bins in CELLS[path.stem]:
                yield f"{path.stem} {bins}", *in_cells(X, bins)
        elif y.ndim == 1 and len(np.unique(y)) > 8 and are_counts(y) and np.all(np.isfinite(X)):
            yield path.stem, X, y


def are_counts(y: np.ndarray) -> bool:
    return bool(np.all(y == np.round(y)) and y.min() >= 0 and y.max() < 1e5)


def in_cells(points: np.ndarray, bins: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Middles of cells, and how many points are in each."""
    number, *edges = np.histogram2d(points[:, 0], points[:, 1], bins=bins)
    east, north = ((edge[1:] + edge[:-1]) / 2 for edge in edges)
    grid = np.meshgrid(east, north, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1), number.ravel()


def classes(folder: Path) -> Iterator[Table]:
    """Sets of two classes."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            X, y = file["X"].astype(float), file["y"].ravel()
        if len(np.unique(y)) == 2 and len(X) == len(y):
            known = np.all(np.isfinite(X), axis=1)
            yield path.stem, X[known], y[known]
    for path in sorted(folder.glob("*.dat")):
        lines = [line.split(",") for line in path.read_text().splitlines() if line[:1] != "@"]
        rows = [[cell.strip() for cell in line] for line in lines]
        *inputs, y = zip(*(row for row in rows if not {"?", "<null>"} & set(row)), strict=True)
        if len(set(y)) == 2:
            yield path.stem, np.column_stack([in_numbers(column) for column in inputs]), np.array(y)


def in_numbers(column: tuple[str, ...]) -> np.ndarray:
    """A column of numbers, or an indicator a category, one where there are two."""
    try:
        return np.array(column, float)[:, None]
    except ValueError:
        names = sorted(set(column))
        names = names[1:] if len(names) == 2 else names
        return (np.array(column)[:, None] == np.array(names)).astype(float)


if __name__ == "__main__":
    main()
