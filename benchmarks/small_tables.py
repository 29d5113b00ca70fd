"""Coverage and log density of held-out rows of small tables, and by deviations that verdicts say.

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
WAYS = "as they are", "as the verdict says"
SPLITS, FOLDS = 4, 5


def scores(folder: Path, name: str) -> np.ndarray:
    """Of each way the negative log density a row, and the share of rows in 95 % intervals."""
    target, most = TABLES[name]
    found = []
    for split in range(SPLITS):
        table = pd.read_csv(folder / f"{name}.csv").dropna(subset=[target])
        table = table if most is None else table.sample(most, random_state=split)
        fold_of = np.random.default_rng(split).permutation(len(table)) % FOLDS
        for fold in range(FOLDS):
            others, rows = table[fold_of != fold], table[fold_of == fold]
            model = lgp.TableModel.fit(others, target, random_state=0)
            law = model.predict(rows)
            chosen = model.estimator.kernel_choice_
            factor = 1.0 if chosen is None else chosen.widening
            for deviation in (law["std"], np.sqrt(factor) * law["std"]):
                z = (rows[target] - law["mean"]) / deviation
                found.append((-norm.logpdf(z) + np.log(deviation), np.abs(z) < norm.ppf(0.975)))
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
