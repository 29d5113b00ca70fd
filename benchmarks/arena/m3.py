"""The M3 competition (Makridakis & Hibon 2000): forecasts of series beside its 24 methods.

A series as `TableModel.fit(frame, "value", time="date")` takes it, by default settings, with dates
of its own period (the first is made up, as the data have none) or numbers; its error is the mean
over the horizon of 200 |forecast - value| / (|forecast| + |value|), in percent.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd

import latentgp as lgp
from common import Results, of_intervals, parser


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--every", type=int, default=1, help="every so many series alone")
    options = arguments.parse_args()
    with gzip.open(options.folder / "m3.json.gz", "rt") as file:
        known = {series["id"]: series for series in json.load(file)[:: options.every]}

    def fit(name: str, seed: int, by: str) -> dict:
        series = known[name]
        past, future = np.array(series["x"], float), np.array(series["xx"], float)
        dates = times(series["period"], len(past) + len(future))
        frame = pd.DataFrame({"date": dates[: len(past)], "value": past})
        model = lgp.TableModel.fit(frame, "value", time="date", random_state=seed)
        found = model.predict(pd.DataFrame({"date": dates[len(past) :]}), 0.95)
        lower, upper = found["lower"].to_numpy(), found["upper"].to_numpy()
        return {
            "period": series["period"],
            "rows": len(past),
            "smape": smape(found["mean"].to_numpy(), future),
            **of_intervals(future, lower, upper),
        }

    names = [name for name in known if not options.sets or name in options.sets]
    Results("m3", options.out).fill([(name, 0, "latentgp") for name in names], fit)


def times(period: str, number: int) -> np.ndarray:
    """Beginnings of years, quarters or months; numbers of other series."""
    unit = {"YEARLY": "YS", "QUARTERLY": "QS", "MONTHLY": "MS"}.get(period)
    if unit is None:
        return np.arange(number, dtype=float)
    return pd.date_range("1970-01-01", periods=number, freq=unit).to_numpy()


def smape(forecast: np.ndarray, value: np.ndarray) -> float:
    """Symmetric mean absolute percentage error of a series (Makridakis & Hibon 2000)."""
    return np.mean(200 * abs(forecast - value) / (abs(forecast) + abs(value)))


if __name__ == "__main__":
    main()
