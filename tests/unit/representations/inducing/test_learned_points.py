"""Inducing points that a search moves with the hyper-parameters."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from learned_points import check_slopes_in_points
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

KERNEL, KEY = lgp.RBF([0.6, 2.0], variance=1.3), jax.random.key(0)
X = np.random.default_rng(3).uniform(-2, 2, (60, 2)) * [1.0, 50.0]
X[:, 1] /= 50.0
F = np.sin(3 * X[:, 0]) + 0.3 * X[:, 1]
Y = F + 0.1 * np.random.default_rng(4).normal(size=60)
CASES = {
    "collapsed": (lgp.Gaussian(0.05), Y, lgp.CollapsedVI, {}),
    "fitc": (lgp.Gaussian(0.05), Y, lgp.CollapsedVI, {"approximation": "fitc"}),
    "variational": (lgp.Bernoulli(), (Y > 0) * 1.0, lgp.VariationalInference, {}),
    "augmented": (lgp.Bernoulli(), (Y > 0) * 1.0, lgp.AugmentedVI, {}),
    "moments": (lgp.Bernoulli(), (Y > 0) * 1.0, lgp.ExpectationPropagation, {}),
}


@pytest.mark.parametrize("name", ["collapsed", *slow_parameters(*list(CASES)[1:])])
def test_slopes_in_points_are_finite_differences(name):
    likelihood, y, method, settings = CASES[name]
    model, data = lgp.LatentGP(KERNEL, likelihood), lgp.Data(X, y)
    own = lgp.Inducing(4, learn_points=True, **settings)
    check_slopes_in_points(model, data, method, own)


def test_learned_points_raise_the_bound_and_are_handed_out():
    """Far above what a search of hyper-parameters alone ends at, and the bound of those points."""
    model, data = lgp.LatentGP(KERNEL, lgp.Gaussian(0.05)), lgp.Data(X, Y)
    few = lgp.Inducing(points=X[:5])
    moving = lgp.Inducing(points=X[:5], learn_points=True)
    held, learned = (
        lgp.fit(model, data, method=lgp.CollapsedVI(own), key=KEY) for own in (few, moving)
    )
    bounds = [float(each.posterior.log_evidence) for each in (held, learned)]
    assert bounds[1] > bounds[0] + 5
    points = np.asarray(learned.posterior.latent.centres)
    assert np.abs(points - X[:5]).max() > 0.1
    again = lgp.CollapsedVI(lgp.Inducing(points=points))
    fixed = lgp.fit(learned.model, data, method=again, key=KEY, learn_hyperparameters=False)
    assert float(fixed.posterior.log_evidence) == pytest.approx(bounds[1], abs=1e-6)


@pytest.mark.parametrize("method", [lgp.Laplace, lgp.GibbsSampling])
def test_points_are_not_learned_where_there_is_no_bound(method):
    own, data = lgp.Inducing(4, learn_points=True), lgp.Data(X, (Y > 0) * 1.0)
    with pytest.raises(lgp.InputError, match=r"learn_points|points that are held"):
        lgp.fit(lgp.LatentGP(KERNEL, lgp.Bernoulli()), data, method=method(own), key=KEY)


def test_batches_have_an_option_of_their_own():
    own = lgp.VariationalInference(lgp.Inducing(4, learn_points=True))
    with pytest.raises(lgp.InputError, match="points that are held"):
        lgp.Stochastic(own)


def test_features_have_no_points_to_learn():
    with pytest.raises(lgp.InputError, match="leave learn_points out"):
        lgp.Inducing(features=lgp.BSplines(10), learn_points=True)


def test_categories_of_points_are_kept_to_the_last_bit():
    """Nothing has a derivative along them, and other codes would be other categories."""
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.uniform(-2, 2, 80), rng.integers(0, 4, 80)]).astype(float)
    y = np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.1 * rng.normal(size=80)
    kernel = lgp.RBF(0.7).on(0) * lgp.Categorical(4).on(1)
    own = lgp.Inducing(points=rows[:12], learn_points=True)
    fit = lgp.fit(
        lgp.LatentGP(kernel, lgp.Gaussian(0.1)),
        lgp.Data(rows, y),
        method=lgp.CollapsedVI(own),
        key=KEY,
        restarts=1,
        max_evaluations=15,
    )
    points = np.asarray(fit.posterior.latent.centres)
    np.testing.assert_array_equal(points[:, 1], rows[:12, 1])
    assert np.abs(points[:, 0] - rows[:12, 0]).max() > 0.01


def test_points_are_learned_where_no_hyper_parameter_is():
    model, data = lgp.LatentGP(KERNEL, lgp.Gaussian(0.05)), lgp.Data(X, Y)
    settings = {"key": KEY, "learn_hyperparameters": False}
    held, learned = (
        lgp.fit(model, data, method=lgp.CollapsedVI(own), **settings).posterior
        for own in (lgp.Inducing(points=X[:5]), lgp.Inducing(points=X[:5], learn_points=True))
    )
    assert float(learned.log_evidence) > float(held.log_evidence) + 5


def test_further_rows_keep_points_that_were_learned():
    own = lgp.Inducing(5, learn_points=True)
    first = lgp.GPRegressor(representation=own, random_state=0).fit(X[:40], Y[:40])
    later = first.partial_fit(X[40:], Y[40:])
    assert later.score(X, Y) > 0.8
    with pytest.raises(lgp.InputError, match="points that are held"):
        lgp.BlackBoxVI(own)
