"""Regression sets of the UCI repository: twenty published splits, and splits with a gap.

Splits of a tenth are those of Hernández-Lobato & Adams (2015) where the file has them, else drawn;
a gap is the middle third of the rows along one input, held out (Foong et al. 2019). Negative log
predictive density and root mean square error in the units of y, beside LightGBM and NGBoost.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

import latentgp as lgp
from boosting import PEERS, predicted
from common import Results, of_intervals, parser

SETS = "boston", "concrete", "energy", "kin8nm", "power", "protein", "wine_white"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--gaps", type=int, default=0, help="gap splits a set, one an input")
    arguments.add_argument("--most-rows", type=int, help="leave larger sets out")
    arguments.add_argument("--by", nargs="+", default=["latentgp", *PEERS])
    options = arguments.parse_args()
    data = {}
    for name in options.sets or SETS:
        with np.load(options.folder / f"{name}.npz", allow_pickle=True) as file:
            X, y = file["X"].astype(float), file["y"].astype(float).ravel()
            masks = file["split_test_mask"].T if "split_test_mask" in file else ()
        if options.most_rows is None or len(y) <= options.most_rows:
            data[name] = X, y, masks

    def fit(name: str, seed: int, by: str) -> dict:
        own, _, kind = name.partition(" ")
        X, y, masks = data[own]
        test = gap(X, seed) if kind else tenth(len(y), masks, seed)
        X_test, y_test, X, y = X[test], y[test], X[~test], y[~test]
        if by == "latentgp":
            regressor = lgp.GPRegressor(random_state=0).fit(X, y)
            mean = regressor.predict(X_test)
            lower, upper = regressor.predict_interval(X_test, 0.95)
            density = regressor.log_predictive_density(X_test, y_test)
            said = {"method": type(regressor.method_).__name__}
        else:
            mean, deviation, lower, upper = predicted(by, X, y, X_test)
            density, said = norm.logpdf(y_test, mean, deviation), {}
        return {
            "rows": len(y),
            "inputs": X.shape[1],
            "nlpd": -np.mean(density),
            "rmse": np.sqrt(np.mean((y_test - mean) ** 2)),
            **of_intervals(y_test, lower, upper),
            **said,
        }

    jobs = [(n, seed, by) for n in data for seed in range(options.seeds) for by in options.by]
    jobs += [
        (f"{n} gap", column, by)
        for n in data
        for column in range(min(options.gaps, data[n][0].shape[1]))
        for by in options.by
    ]
    Results("uci", options.out).fill(jobs, fit)


def tenth(rows: int, masks: np.ndarray, seed: int) -> np.ndarray:
    """The held-out rows of a split, as the file has them or drawn, (N,)."""
    if seed < len(masks):
        return masks[seed]
    chosen = np.random.default_rng(seed).permutation(rows)[: rows // 10]
    return np.isin(np.arange(rows), chosen)


def gap(X: np.ndarray, column: int) -> np.ndarray:
    """The middle third along an input, (N,)."""
    place = np.argsort(np.argsort(X[:, column], kind="stable"), kind="stable")
    return (place >= len(X) // 3) & (place < 2 * len(X) // 3)


if __name__ == "__main__":
    main()
