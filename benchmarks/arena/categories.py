"""Tables with a category of thousands of levels (Sigrist 2023): mean squared error of five folds.

By default settings, where the most frequent levels of a category are columns; and with an effect
for each level, as the guide to mixed models has it.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd

import latentgp as lgp
from common import Results, of_intervals, parser

# Target and categories of a table.
TABLES = {"wages": ("ln_wage", ["idcode"]), "imdb": ("score", ["director_id", "type_id"])}
BY = "latentgp", "latentgp, formula"


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


if __name__ == "__main__":
    main()
