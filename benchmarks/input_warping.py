"""Held-out log loss where inputs are normal scores by default, beside the same family without.

    python benchmarks/input_warping.py regression ../shared/data/concrete.npz ...
    python benchmarks/input_warping.py classes ../shared/data/shuttle.npz ...

Files have X and y. At most 800 rows of regression and 1,200 of classes are learned from, and 2,000
predicted; targets are in standard deviations. A line of JSON a set.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import latentgp as lgp

LEARNED = {"regression": 800, "classes": 1_200}
PREDICTED, SHARE = 2_000, 0.6


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("task", choices=list(LEARNED))
    arguments.add_argument("files", nargs="+", type=Path)
    options = arguments.parse_args()
    estimator = lgp.GPRegressor if options.task == "regression" else lgp.GPClassifier
    for path in options.files:
        with np.load(path, allow_pickle=True) as file:
            X, y = file["X"].astype(float), file["y"].ravel()
        if options.task == "regression":
            y = (y - y.mean()) / y.std()
        order = np.random.default_rng(1).permutation(len(y))
        size = min(LEARNED[options.task], int(SHARE * len(y)))
        learned, held_out = order[:size], order[size : size + PREDICTED]
        fitted = estimator(random_state=0).fit(X[learned], y[learned])
        choice = fitted.kernel_choice_
        line = {
            "set": path.stem,
            "rows": size,
            "kernel": "RBF" if choice is None else choice.family,
        }
        fits = {"default": fitted}
        if choice is not None and "of normal scores" in choice.family:
            plain = estimator(choice.family.split()[0].lower(), random_state=0)
            fits["without scores"] = plain.fit(X[learned], y[learned])
        for name, model in fits.items():
            density = model.log_predictive_density(X[held_out], y[held_out])
            line[name] = [-float(np.mean(density)), float(model.score(X[held_out], y[held_out]))]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
