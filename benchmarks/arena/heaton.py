"""Heaton et al. (2019): a day of satellite temperatures, beside twelve teams.

105,569 places to learn from, 42,740 held out in large gaps. Figures of the teams: their table 3.
"""

from __future__ import annotations

import time

import numpy as np

import latentgp as lgp
from common import Results, crps_of_normal, of_intervals, parser


def main() -> None:
    options = parser(__doc__).parse_args()
    with np.load(options.folder / "AllSatelliteTemps.npz") as file:
        places = np.stack([file["lon"], file["lat"]], axis=1).astype(float)
        known, true = file["train"].astype(float), file["true"].astype(float)
    train = np.isfinite(known)
    test = ~train & np.isfinite(true)
    X, y, X_test, y_test = places[train], known[train], places[test], true[test]

    def fit(name: str, seed: int, by: str) -> dict:
        started = time.perf_counter()
        regressor = lgp.GPRegressor(random_state=seed).fit(X, y)
        fitted = time.perf_counter()
        mean, std = regressor.predict(X_test, return_std=True)
        predicted = time.perf_counter()
        error = y_test - mean
        return {
            "rows": len(y),
            "fit_seconds": fitted - started,
            "predict_seconds": predicted - fitted,
            "mae": np.mean(abs(error)),
            "rmse": np.sqrt(np.mean(error**2)),
            "crps": crps_of_normal(y_test, mean, std),
            **of_intervals(y_test, *regressor.predict_interval(X_test, 0.95)),
            "model": str(regressor.model_),
            "reason": regressor.method_reason_,
        }

    Results("heaton", options.out).fill([("satellite", 0, "latentgp")], fit)


if __name__ == "__main__":
    main()
