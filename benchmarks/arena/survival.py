"""Survival by default settings, beside 21 learners of Burk et al. (arXiv 2406.04098).

Harrell's concordance of medians of held-out rows, folds as given, `--seeds` of them a set.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import latentgp as lgp
from common import Results, parser


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--most-rows", type=int, help="leave larger sets out")
    arguments.add_argument("--likelihood", default="auto", help="the law (%(default)s)")
    arguments.add_argument("--rows", type=int, help="learn from so many rows at most")
    options = arguments.parse_args()
    frames, folds = {}, {}
    for path in sorted(options.folder.glob("*cv.csv")):
        name = path.name.partition(".")[0]
        frame = pd.read_csv(options.folder / f"{name}.csv")
        wanted = not options.sets or name in options.sets
        if wanted and (options.most_rows is None or len(frame) <= options.most_rows):
            frames[name], folds[name] = frame, pd.read_csv(path)

    def fit(name: str, seed: int, by: str) -> dict:
        frame, fold = frames[name].copy(), folds[name]
        fold = fold[fold.iteration == seed + 1]
        frame["time"] = np.maximum(frame["time"].astype(float), 1e-3)
        train, test = (
            frame.iloc[fold.row_id[fold.set == part].to_numpy() - 1] for part in ("train", "test")
        )
        if options.rows is not None:
            train, test = (
                part.sample(min(len(part), most), random_state=0)
                for part, most in ((train, options.rows), (test, 3 * options.rows))
            )
        settings = {"likelihood": options.likelihood, "random_state": 0, "verbose": 0}
        model = lgp.TableModel.fit(train, "time", side_columns={"event": "status"}, **settings)
        scores = model.evaluate(test)
        return {
            **{"rows": len(train), "inputs": frame.shape[1] - 2},
            "harrell_c": scores["concordance index of medians"],
            "log_density": -scores["negative log predictive density"],
            "coverage": scores["95 % interval coverage"],
        }

    jobs = [
        (name, seed, "latentgp")
        for seed in range(options.seeds)
        for name in frames
        if seed < folds[name].iteration.max()
    ]
    Results("survival", options.out).fill(jobs, fit)


if __name__ == "__main__":
    main()
