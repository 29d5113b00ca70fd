"""Tables with a category of thousands of levels (Sigrist 2023): mean squared error of five folds.

By default settings, where the most frequent levels of a category are columns; with an effect for
each level, as the guide to mixed models has it; and with an effect for each level beside a linear
prior mean, or beside boosted trees.
"""

from __future__ import annotations

import gzip
import json

import jax
import numpy as np
import pandas as pd

import latentgp as lgp
from common import Results, of_intervals, parser

# Target and categories of a table.
TABLES = {"wages": ("ln_wage", ["idcode"]), "imdb": ("score", ["director_id", "type_id"])}
BY = "latentgp", "latentgp, formula", "latentgp, linear mean", "latentgp, trees"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, help="learn from so many rows of a fold alone")
    arguments.add_argument("--by", nargs="+", choices=BY, default=BY)
    options = arguments.parse_args()
    frames, folds = {}, {}
    for name in options.sets or TABLES:
        frame = pd.read_csv(options.folder / f"{name}.csv.gz")
        for column in TABLES[name][1]:
            frame[column] = "level " + frame[column].astype(str)
        with gzip.open(options.folder / f"{name}.folds.json.gz", "rt") as file:
            frames[name], folds[name] = frame, json.load(file)

    def fit(name: str, seed: int, by: str) -> dict:
        (target, categories), frame = TABLES[name], frames[name]
        learned = np.isin(np.arange(len(frame)), np.array(folds[name][seed]) - 1)
        train, test = frame[learned], frame[~learned]
        if options.rows is not None:
            train = train.sample(options.rows, random_state=seed)
        if by in BY[2:]:
            return of_effects(train, test, target, categories, by == BY[3])
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


def of_effects(train, test, target: str, categories: list[str], trees: bool) -> dict:
    """Scores with an effect for each level, beside trees or a linear mean of standardised columns.

    Gaps are zeros, as in the published results.
    """
    learned, y = train[target].to_numpy(), test[target].to_numpy()
    codes = [pd.factorize(pd.concat([train[c], test[c]]))[0] for c in categories]
    others = [c for c in train if c not in (target, *categories)]
    numbers = pd.concat([train[others], test[others]]).fillna(0).to_numpy(float)
    if not trees:
        spread = numbers[: len(train)].std(axis=0)
        numbers = (numbers - numbers[: len(train)].mean(axis=0))[:, spread > 0] / spread[spread > 0]
        numbers = np.column_stack([numbers, np.ones(len(numbers))])
    X, groups = np.column_stack([*codes, numbers]), len(categories)
    variance, level = learned.var(), learned.mean()
    kernel = sum(0.3 * variance * lgp.kernels.SameGroup().on(g) for g in range(groups))
    data, noise = lgp.Data(X[: len(train)], learned - level), lgp.Gaussian(0.3 * variance)
    settings = {"key": jax.random.key(0), "method": lgp.CollapsedVI(lgp.groups.SparseEffects())}
    if trees:
        fit = lgp.groups.Boosting().fit(lgp.LatentGP(kernel, noise), data, **settings)
    else:
        fixed = lgp.kernels.FixedEffects(100 * variance).on(range(groups, X.shape[1]))
        fit = lgp.fit(lgp.LatentGP(kernel + fixed, noise), data, **settings)
    law = fit.posterior.predict(X[len(train) :])
    lower, upper = law.interval(0.95)
    return {
        "rows": len(train),
        "inputs": X.shape[1],
        "mse": np.mean((y - level - law.mean) ** 2),
        **of_intervals(y, lower + level, upper + level),
        "method": "CollapsedVI",
    }


if __name__ == "__main__":
    main()
