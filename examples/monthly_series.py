"""A monthly series: a trend, a season whose period is known, and a forecast with intervals.

Run it with `python examples/monthly_series.py`.
"""

import numpy as np

import latentgp as lgp
from latentgp import metrics

generator = np.random.default_rng(0)
month = np.arange(108.0)
sales = 200 + 0.8 * month + 25 * np.sin(2 * np.pi * month / 12) + generator.normal(0, 5, 108)
seen, later = month < 96, month >= 96

# Values are where the search starts, in the units of the series; the period stays.
trend = lgp.RBF(lengthscale=60.0, variance=2000.0)
season = lgp.Periodic(period=12.0, variance=500.0)
regressor = lgp.GPRegressor(trend + season, frozen=["kernel.parts[1].period"], random_state=0)
regressor.fit(month[seen, None], sales[seen])
print(lgp.summary(regressor.model_))
assert regressor.model_.kernel.parts[1].period == 12

mean = regressor.predict(month[later, None])
lower, upper = regressor.predict_interval(month[later, None], level=0.9)
for row in zip(month[later], mean, lower, upper, sales[later], strict=True):
    print("month {:3.0f}: {:5.1f} [{:5.1f}, {:5.1f}], it was {:5.1f}".format(*row))
error = metrics.root_mean_squared_error(sales[later], mean)
print(f"RMSE of the year ahead {error:.1f}, of its noise 5")
assert error < 10
assert metrics.interval_coverage(sales[later], lower, upper) >= 0.7
