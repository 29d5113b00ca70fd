"""Regression with intervals: what drives the progression of diabetes, and how sure are we?

Run it with `python examples/regression.py`; the data are bundled with scikit-learn.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from latentgp import GPRegressor, metrics

data = load_diabetes(scaled=False)
X, X_test, y, y_test = train_test_split(data.data, data.target, test_size=0.3, random_state=0)

# Nothing is standardised here: priors and starting values scale with the data.
regressor = GPRegressor(random_state=0, verbose=1).fit(X, y)

mean = regressor.predict(X_test)
lower, upper = regressor.predict_interval(X_test, level=0.9)
print(f"RMSE {metrics.root_mean_squared_error(y_test, mean):.1f}")
print(f"90 % intervals hold {100 * metrics.interval_coverage(y_test, lower, upper):.0f} %")
density = regressor.log_predictive_density(X_test, y_test)
print(f"negative log predictive density {-np.mean(density):.3f} nats")

# One length-scale an input, in its units; short ones, in standard deviations, matter most.
lengthscales = regressor.model_.kernel.lengthscale / X.std(axis=0)
for index in np.argsort(lengthscales)[:3]:
    print(f"{data.feature_names[index]:4s} length-scale {lengthscales[index]:.1f} deviations")
