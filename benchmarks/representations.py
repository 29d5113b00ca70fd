"""Inducing points beside nearest neighbours, and what tells which is better: the table of "auto".

    .venv/bin/python benchmarks/representations.py --data-dir DATA

Regression with Gaussian noise, Matérn-5/2 with a length-scale for each input, hyper-parameters
learned, each representation from the same start; `--only` takes others too. Held-out density, RMSE,
share of targets in their 90 % intervals, processor seconds of a fit (compilation included) and the
nats a row that the bound of the inducing points leaves (`diagnostics.trace_term`).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import numpy as np

import latentgp as lgp
from data import regression

SETS = ("power", "protein", "wine_white", "airline_delay", "kin8nm", "kin40k_std_split", "creep")
MOST = 12_000
KINDS = ("points", "neighbours", "both", "dense", "matrix-free")


def scores(name: str, method: lgp.Method, split: tuple[np.ndarray, ...]) -> lgp.Fit:
    """A fit, and a line of its scores."""
    X, y, X_test, y_test = split
    columns = X.shape[1]
    model = lgp.LatentGP(lgp.Matern52(np.full(columns, columns**0.5)), lgp.Gaussian(0.1))
    start = time.process_time()
    fit = lgp.fit(model, lgp.Data(X, y), key=jax.random.key(0), method=method)
    seconds = time.process_time() - start
    predictive = fit.posterior.predict(X_test)
    lower, upper = predictive.interval(0.9)
    nlpd = -np.mean(predictive.log_prob(y_test))
    rmse = np.sqrt(np.mean((predictive.mean - y_test) ** 2))
    inside = np.mean((lower <= y_test) & (y_test <= upper))
    left = getattr(fit.diagnostics, "trace_term", 0.0) / len(y)
    noise = float(fit.model.likelihood.noise_variance)
    print(
        f"| {name} | {len(y)} x {columns} | {nlpd:.4f} | {rmse:.4f} | {inside:.3f} | "
        f"{seconds:.0f} | {left:.4f} | {noise:.4f} |",
        flush=True,
    )
    return fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=["points", "neighbours"], choices=KINDS)
    parser.add_argument("--rows", type=int, default=MOST, help="at most, to train on")
    options = parser.parse_args()
    print("| | rows | NLPD | RMSE | in 90 % | s | nats left a row | noise variance |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.sets:
        with np.load(options.data_dir / f"{name}.npz", allow_pickle=False) as file:
            rows = len(file["y"])
        split = regression(options.data_dir, name, min(options.rows, int(0.8 * rows)))
        split = split._replace(X_test=split.X_test[:2000], y_test=split.y_test[:2000])
        finite = all(np.isfinite(part).all() for part in split)
        if not finite:
            raise SystemExit(f"{name} has values that are not numbers")
        number, near = options.points, options.neighbours
        methods = {
            "points": (f"{number} points", lgp.CollapsedVI(lgp.Inducing(number))),
            "neighbours": (f"{near} neighbours", lgp.ExactGP(lgp.Neighbours(near))),
            "both": ("both", lgp.ExactGP(lgp.Neighbours(near, inducing=200))),
            "dense": ("dense", lgp.ExactGP()),
            "matrix-free": ("by solves", lgp.ExactGP(lgp.MatrixFree())),
        }
        for kind in options.only:
            label, method = methods[kind]
            scores(f"{name}, {label}", method, split)


if __name__ == "__main__":
    main()
