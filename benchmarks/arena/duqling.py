"""Test functions of computer experiments (Rumsey et al. 2025), beside their laGP.

Fifty of duqling's sixty functions: a Latin hypercube of 1,000 inputs without noise, which is the
collection's default, 10,000 others to be predicted, and share of their variance left unexplained.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

import latentgp as lgp
from common import Results, of_intervals, parser
from functions import FUNCTIONS

ROWS, TEST_ROWS = 1_000, 10_000


def main() -> None:
    arguments = parser(__doc__, folder=False)
    arguments.add_argument("--noise", type=float, default=0.0, help="variance, of that of f")
    options = arguments.parse_args()
    names = options.sets or list(FUNCTIONS)

    def fit(name: str, seed: int, by: str) -> dict:
        inputs, function = FUNCTIONS[name]
        generator = np.random.default_rng([seed, inputs])
        X, X_test = (
            qmc.LatinHypercube(inputs, rng=generator).random(rows) for rows in (ROWS, TEST_ROWS)
        )
        y, y_test = function(X), function(X_test)
        y = y + np.sqrt(options.noise) * y.std() * generator.normal(size=ROWS)
        regressor = lgp.GPRegressor(random_state=seed).fit(X, y)
        lower, upper = regressor.predict_interval(X_test, 0.95)
        error = y_test - regressor.predict(X_test)
        return {
            "inputs": inputs,
            "noise": options.noise,
            "unexplained": np.mean(error**2) / np.var(y_test),
            **of_intervals(y_test, lower, upper),
            "method": type(regressor.method_).__name__,
            "kernel": regressor.kernel_choice_.reason,
        }

    jobs = [(name, seed, "latentgp") for seed in range(options.seeds) for name in names]
    Results("duqling", options.out).fill(jobs, fit)


if __name__ == "__main__":
    main()
