"""Tables with a category of thousands of levels (Sigrist 2023): mean squared error of five folds.

By default settings, which have an effect for each level beside coefficients and a smooth function;
by a formula, as the guide to mixed models has it; and by a kernel, beside coefficients and a smooth
function of the columns of most values, or beside boosted trees. Each person of wages has a slope in
time in the latter two. Effects, and which columns trees split, were chosen by rows held out of
those of fold 0 that are learned from. GPBoost has the same effects, but that a person's level and
slope are independent, beside coefficients of all columns, or beside a hundred trees of the same
columns, by default settings.
"""

from __future__ import annotations

import functools
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from scipy.stats import norm, rankdata

import latentgp as lgp
from common import Results, of_intervals, parser

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Worker, start


class Table(NamedTuple):
    """Columns of a table by their roles."""

    target: str
    categories: tuple[str, ...]
    slope: str | None = None  # that effects of the first category have a slope in
    smooth: int = 0  # the most columns of a smooth function, those of most values
    trees_of_categories: bool = False  # whether trees split these too, as the numbers that they are


TABLES = {
    "wages": Table("ln_wage", ("idcode",), "t", smooth=4),
    "imdb": Table("score", ("director_id", "type_id"), smooth=3, trees_of_categories=True),
}
BY = "latentgp", "latentgp, formula", "latentgp, smooth", "latentgp, trees"
PEER = "GPBoost, linear", "GPBoost, trees"
_MANY_VALUES = 30  # of a column of a smooth function


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, help="learn from so many rows of a fold alone")
    arguments.add_argument("--by", nargs="+", choices=BY + PEER, default=BY)
    options = arguments.parse_args()
    frames, folds = {}, {}
    for name in options.sets or TABLES:
        frame = pd.read_csv(options.folder / f"{name}.csv.gz")
        with gzip.open(options.folder / f"{name}.folds.json.gz", "rt") as file:
            frames[name], folds[name] = frame, json.load(file)

    def fit(name: str, seed: int, by: str) -> dict:
        own, frame = TABLES[name], frames[name]
        target, categories = own.target, own.categories
        learned = np.isin(np.arange(len(frame)), np.array(folds[name][seed]) - 1)
        train, test = frame[learned], frame[~learned]
        if options.rows is not None:
            train = train.sample(options.rows, random_state=seed)
        if by in PEER:
            return of_peer(train, test, own, by == PEER[1])
        if by in BY[2:]:
            return of_effects(train, test, own, by == BY[3])
        levels = {c: "level " + frame[c].astype(str) for c in categories}
        train, test = (part.assign(**levels) for part in (train, test))
        formula = None
        if by != BY[0]:
            numbers = ", ".join(column for column in frame if column not in (target, *categories))
            groups = " + ".join(f"(1 | {column})" for column in categories)
            formula = f"{target} ~ gp({numbers}) + {groups}"
        model = lgp.TableModel.fit(
            train, None if formula else target, formula=formula, random_state=0
        )
        found, y = model.predict(test, 0.95), test[target].to_numpy()
        bounds = found["lower"].to_numpy(), found["upper"].to_numpy()
        return {
            "rows": len(train),
            "inputs": frame.shape[1] - 1,
            "mse": np.mean((y - found["mean"].to_numpy()) ** 2),
            **of_intervals(y, *bounds),
            "method": type(model.estimator.method_).__name__,
        }

    jobs = [(n, seed, by) for by in options.by for n in frames for seed in range(options.seeds)]
    Results("categories", options.out).fill(jobs, fit)


def inputs_of(own: Table, rows: pd.DataFrame) -> tuple[np.ndarray, int | None, list[int]]:
    """Levels before all other columns, the place of that of slopes, and the columns of trees.

    Gaps are zeros, as in the published results.
    """
    others = [c for c in rows if c not in (own.target, *own.categories)]
    X, groups = rows[[*own.categories, *others]].fillna(0).to_numpy(float), len(own.categories)
    slope = None if own.slope is None else groups + others.index(own.slope)
    if slope is not None:
        X[:, slope] = (X[:, slope] - X[:, slope].mean()) / X[:, slope].std()
    return X, slope, list(range(0 if own.trees_of_categories else groups, X.shape[1]))


@functools.cache
def _worker() -> tuple[Worker, Path]:
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    return Worker("gpboost", folder / "log"), folder


def of_peer(train: pd.DataFrame, test: pd.DataFrame, own: Table, trees: bool) -> dict:
    """Scores of GPBoost with an effect for each level, beside trees or coefficients."""
    worker, folder = _worker()
    folder = Path(tempfile.mkdtemp(dir=folder))
    X, slope, columns = inputs_of(own, pd.concat([train, test]))
    y, size = pd.concat([train, test])[own.target].to_numpy(float), len(train)
    for name, array in {"X": X, "y": y}.items():
        np.save(folder / f"{name}.npy", array[:size])
        np.save(folder / f"{name}_test.npy", array[size:])
    asked = {"groups": len(own.categories), "slope": slope, "columns": columns if trees else None}
    job = {"task": "effects", "folder": str(folder), "options": asked} | start(1, ard=False)
    reply = worker.run(job)
    if "failure" in reply:
        raise RuntimeError(f"GPBoost: {reply['failure']}")
    return {"rows": size, "inputs": X.shape[1], **reply, "version": worker.versions["gpboost"]}


def of_effects(train: pd.DataFrame, test: pd.DataFrame, own: Table, trees: bool) -> dict:
    """Scores with an effect for each level, beside trees or a smooth function."""
    learned, y = train[own.target].to_numpy(), test[own.target].to_numpy()
    X, slope, columns = inputs_of(own, pd.concat([train, test]))
    groups = len(own.categories)
    variance, level = learned.var(), learned.mean()
    kernel: Any = sum(0.3 * variance * lgp.kernels.SameGroup().on(g) for g in range(groups))
    if slope is not None:
        in_time = lgp.kernels.CorrelatedLinear([0.3 * variance, 0.1 * variance], [0.1])
        kernel = in_time.on(slope) * lgp.kernels.SameGroup().on(0)
    if not trees:
        numbers, smooth = shapes(X[:, groups:], own.smooth)
        X = np.column_stack([X[:, :groups], numbers, np.ones(len(X))])
        smooth += groups
        lines = [column for column in range(groups, X.shape[1]) if column not in smooth]
        fixed = lgp.kernels.FixedEffects(100 * variance).on(lines)
        kernel = kernel + fixed
        if len(smooth):
            along = lgp.Matern32(np.ones(len(smooth))).on(*smooth)
            kernel = kernel + 0.3 * variance * along
    data, noise = lgp.Data(X[: len(train)], learned - level), lgp.Gaussian(0.3 * variance)
    settings = {"key": jax.random.key(0), "method": lgp.CollapsedVI(lgp.groups.SparseEffects())}
    if trees:
        boosting = lgp.groups.Boosting(columns=tuple(columns))
        fit = boosting.fit(lgp.LatentGP(kernel, noise), data, **settings)
    else:
        fit = lgp.fit(lgp.LatentGP(kernel, noise), data, **settings)
    law = fit.posterior.predict(X[len(train) :])
    lower, upper = law.interval(0.95)
    return {
        "rows": len(train),
        "inputs": X.shape[1],
        "mse": np.mean((y - level - law.mean) ** 2),
        **of_intervals(y, lower + level, upper + level),
        "method": "CollapsedVI",
    }


def shapes(numbers: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised columns that vary, those of many values as normal scores, and where these are.

    The ones of most values are those of a smooth function.
    """
    values = np.array([len(np.unique(column)) for column in numbers.T])
    numbers, values = numbers[:, values > 1], values[values > 1]
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    smooth = np.sort(np.argsort(-values)[:most])
    smooth = smooth[values[smooth] > _MANY_VALUES]
    numbers[:, smooth] = norm.ppf((rankdata(numbers[:, smooth], axis=0) - 0.5) / len(numbers))
    return numbers, smooth


if __name__ == "__main__":
    main()
