"""Coverage and log density of held-out rows of small tables: by default, and without integration.

    python benchmarks/small_tables.py FOLDER

FOLDER has R's data sets as CSV: swiss, longley, attitude, stackloss, rock, trees, airquality,
mtcars, npk, cars, chickwts of `datasets` and Boston of MASS as boston.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

import latentgp as lgp

# By name the target, and how many rows are drawn where there are more.
TABLES = {
    "swiss": ("Fertility", None),
    "longley": ("Employed", None),
    "attitude": ("rating", None),
    "stackloss": ("stack.loss", None),
    "rock": ("perm", None),
    "trees": ("Volume", None),
    "airquality": ("Ozone", 40),
    "mtcars": ("mpg", None),
    "npk": ("yield", None),
    "boston": ("medv", 40),
    "cars": ("dist", None),
    "chickwts": ("weight", None),
}
WAYS = "most probable", "the same, as the verdict says", "default"
SPLITS, FOLDS = 4, 5


def scores(folder: Path, name: str) -> np.ndarray:
    """Of each way the negative log density a row, and the share of rows in 95 % intervals.

    Densities are normal ones with the predicted moments.
    """
    target, most = TABLES[name]
    found = []
    for split in range(SPLITS):
        table = pd.read_csv(folder / f"{name}.csv").dropna(subset=[target])
        table = table if most is None else table.sample(most, random_state=split)
        fold_of = np.random.default_rng(split).permutation(len(table)) % FOLDS
        for fold in range(FOLDS):
            others, rows = table[fold_of != fold], table[fold_of == fold]
            settings = {"random_state": 0}
            mode = lgp.TableModel.fit(others, target, hyperparameters="optimise", **settings)
            chosen = mode.estimator.kernel_choice_
            factor = 1.0 if chosen is None else chosen.widening
            laws = mode.predict(rows), lgp.TableModel.fit(others, target, **settings).predict(rows)
            each = (laws[0], 1.0), (laws[0], factor**0.5), (laws[1], 1.0)
            for law, times in each:
                deviation, error = times * law["std"], rows[target] - law["mean"]
                below, above = (times * (law[end] - law["mean"]) for end in ("lower", "upper"))
                nats = np.log(deviation) - norm.logpdf(error / deviation)
                found.append((nats, (below <= error) & (error <= above)))
    each = [
        np.concatenate(found[way :: len(WAYS)], axis=1).mean(axis=1) for way in range(len(WAYS))
    ]
    return np.array(each)


def main(folder: Path) -> None:
    """Print a table, and means over the tables."""
    warnings.simplefilter("ignore")
    print("| table | " + " | ".join(f"{way}: nats, held" for way in WAYS) + " |")
    print("| --- |" + " --- |" * len(WAYS))
    all_of = [scores(folder, name) for name in TABLES]
    for name, each in zip([*TABLES, "mean"], [*all_of, np.mean(all_of, axis=0)], strict=True):
        print(f"| {name} | " + " | ".join(f"{nats:.3f}, {held:.3f}" for nats, held in each) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
