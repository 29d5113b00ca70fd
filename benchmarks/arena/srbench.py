"""SRBench's black-box sets (La Cava et al. 2021): R2 beside 21 published systems.

`train_test_split` of three quarters by its ten seeds, inputs and targets standardised by the
training part, at most 10,000 rows of it.
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split

import latentgp as lgp
from common import Results, of_intervals, parser

SEEDS = 23654, 15795, 860, 5390, 16850, 29910, 4426, 21962, 14423, 28020
MOST_ROWS = 10_000


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--most-rows", type=int, help="leave larger sets out")
    options = arguments.parse_args()
    data = {}
    for path in sorted(options.folder.glob("*.npz")):
        if options.sets and path.stem not in options.sets:
            continue
        with np.load(path) as file:
            if options.most_rows is None or len(file["y"]) <= options.most_rows:
                data[path.stem] = file["X"].astype(float), file["y"].astype(float).ravel()

    def fit(name: str, seed: int, by: str) -> dict:
        X, y, X_test, y_test = split(*data[name], seed)
        regressor = lgp.GPRegressor(random_state=0).fit(X, y)
        lower, upper = regressor.predict_interval(X_test, 0.95)
        error = y_test - regressor.predict(X_test)
        return {
            "rows": len(y),
            "inputs": X.shape[1],
            "r2": 1 - np.mean(error**2) / np.var(y_test),
            "nlpd": -np.mean(regressor.log_predictive_density(X_test, y_test)),
            **of_intervals(y_test, lower, upper),
            "model": str(regressor.model_.kernel)[:200],
            "method": type(regressor.method_).__name__,
            "kernel": regressor.kernel_choice_.reason,
            "reason": regressor.method_reason_,
        }

    jobs = [(name, seed, "latentgp") for seed in SEEDS[: options.seeds] for name in data]
    Results("srbench", options.out).fill(jobs, fit)


def split(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Rows to learn from and to be predicted, in standard deviations of the former."""
    X, X_test, y, y_test = train_test_split(X, y, train_size=0.75, random_state=seed)
    if len(y) > MOST_ROWS:
        rows = np.random.default_rng(seed).choice(len(y), MOST_ROWS, replace=False)
        X, y = X[rows], y[rows]
    scale, spread = X.std(0), y.std()
    scale[scale == 0] = 1
    X_test, y_test = (X_test - X.mean(0)) / scale, (y_test - y.mean()) / spread
    return (X - X.mean(0)) / scale, (y - y.mean()) / spread, X_test, y_test


if __name__ == "__main__":
    main()
