"""SRBench's black-box sets (La Cava et al. 2021): R2 beside 21 published systems.

`train_test_split` of three quarters by its ten seeds, inputs and targets standardised by the
training part, at most 10,000 rows of it.
"""

from __future__ import annotations

import numpy as np

import latentgp as lgp
from common import Results, of_intervals, parser
from latentgp.surfaces.cli.arena import SEEDS, split


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


if __name__ == "__main__":
    main()
