"""Settings inside modules by scikit-learn's names, for grid searches."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latentgp as lgp

X = np.linspace(0, 5, 24)[:, None]
Y = np.sin(3 * X[:, 0])
HELD = {"random_state": 0, "learn_hyperparameters": False}


def test_a_grid_over_a_kernel_is_the_grid_over_kernels():
    """It ended in "'RBF' object has no attribute 'set_params'"."""
    values = [0.1, 0.5, 3.0]
    named = GridSearchCV(
        lgp.GPRegressor(lgp.RBF(), **HELD),
        {"kernel__lengthscale": values},
        cv=2,
        error_score="raise",
    ).fit(X, Y)
    whole = GridSearchCV(
        lgp.GPRegressor(**HELD), {"kernel": [lgp.RBF(value) for value in values]}, cv=2
    ).fit(X, Y)
    scores = named.cv_results_["mean_test_score"]
    np.testing.assert_array_equal(scores, whole.cv_results_["mean_test_score"])
    assert len(set(scores)) == 3
    assert named.best_estimator_.kernel.lengthscale == values[int(np.argmax(scores))]


def test_settings_inside_modules_are_listed_set_and_cloned():
    kernel = lgp.RBF() + lgp.Matern32(lengthscale=2.0)
    method = lgp.CollapsedVI(lgp.Inducing(7))
    estimator = lgp.GPRegressor(kernel, likelihood=lgp.Gaussian(0.3), method=method)
    known = estimator.get_params()
    assert known["kernel__parts__1__lengthscale"] == 2.0
    assert known["likelihood__noise_variance"] == 0.3
    assert known["method__representation__number"] == 7
    assert "kernel__parts" not in estimator.get_params(deep=False)
    other = clone(estimator).set_params(
        kernel__parts__0__lengthscale=5.0,
        likelihood__noise_variance=0.5,
        method__representation__number=3,
        restarts=2,
    )
    assert repr(other.kernel.parts[0]) == "RBF(lengthscale=5.0, variance=1.0)"
    assert repr(other.kernel.parts[1]) == repr(kernel.parts[1])
    assert other.likelihood.noise_variance == 0.5
    assert (other.method.representation.number, other.restarts) == (3, 2)
    assert repr(estimator.kernel) == repr(kernel)  # modules are replaced, not changed
    both = clone(estimator).set_params(kernel__variance=3.0, kernel=lgp.RBF())
    assert both.kernel.variance == 3.0
    pipe = make_pipeline(StandardScaler(), estimator)
    pipe.set_params(gpregressor__kernel__parts__0__variance=9.0)
    assert estimator.kernel.parts[0].variance == 9.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kernel__length": 1.0}, "kernel__length cannot be set, .* it has lengthscale, variance"),
        ({"kernel__lengthscale": -1.0}, "lengthscale"),
        ({"method__number": 3}, "method is \"?'?auto.* give another method"),
        ({"n_inducing__number": 3}, "n_inducing is None"),
        ({"nothing__here": 3}, "Invalid parameter 'nothing'"),
    ],
)
def test_wrong_names_end_in_a_sentence(given, says):
    with pytest.raises(ValueError, match=says):
        lgp.GPRegressor(lgp.RBF()).set_params(**given)
