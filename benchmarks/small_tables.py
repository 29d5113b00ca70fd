"""Coverage and log density of held-out rows of small tables, with and without a wider deviation.

    python benchmarks/small_tables.py FOLDER

FOLDER has R's data sets as CSV: swiss, longley, attitude, stackloss, rock, trees, airquality,
mtcars, npk, cars, chickwts of `datasets` and Boston of MASS as boston.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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
# The weak priors by a mapping that changes none: the most probable hyper-parameters as they are.
WAYS = {"as they are": {"priors": {}}, "wider": {}}
SPLITS, FOLDS = 4, 5


def scores(folder: Path, name: str, settings: dict[str, Any]) -> tuple[float, float, float]:
    """Negative log density a row, share of rows in 95 % intervals, seconds a fit."""
    target, most = TABLES[name]
    found, started = [], time.perf_counter()
    for split in range(SPLITS):
        table = pd.read_csv(folder / f"{name}.csv").dropna(subset=[target])
        table = table if most is None else table.sample(most, random_state=split)
        fold_of = np.random.default_rng(split).permutation(len(table)) % FOLDS
        for fold in range(FOLDS):
            rows = table[fold_of != fold]
            model = lgp.TableModel.fit(rows, target, random_state=0, **settings)
            own = model.evaluate(table[fold_of == fold])
            kept = own["negative log predictive density"], own["95 % interval coverage"]
            found.append((*kept, np.sum(fold_of == fold)))
    density, coverage, weights = np.array(found).T
    seconds = (time.perf_counter() - started) / len(found)
    nats, held = (float(np.average(each, weights=weights)) for each in (density, coverage))
    return nats, held, seconds


def main(folder: Path) -> None:
    """Print a table, and means over the tables."""
    warnings.simplefilter("ignore")
    print("| table | " + " | ".join(f"{way}: nats, held, seconds" for way in WAYS) + " |")
    print("| --- |" + " --- |" * len(WAYS))
    all_of = []
    for name in TABLES:
        each = [scores(folder, name, settings) for settings in WAYS.values()]
        all_of.append(each)
        cells = [f"{nats:.3f}, {held:.3f}, {seconds:.2f}" for nats, held, seconds in each]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    cells = [f"{nats:.3f}, {held:.3f}, {seconds:.2f}" for nats, held, seconds in np.mean(all_of, 0)]
    print("| mean | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
