"""Neighbours of a field beside fixed effects and groups, against dense linear algebra."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import FixedEffects, Matern32, SameGroup
from latentgp.kernels.parts import parts_of
from latentgp.representations import Dense, log_evidence
from latentgp.sites.gaussian import GaussianSites

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]

KEY = jax.random.key(0)
ONE, SLOPE, LON, LAT, GROUP = range(5)
FIXED = FixedEffects([100.0, 10.0]).on(ONE, SLOPE)
FIELD = Matern32(lengthscale=0.5, variance=0.8).on(LON, LAT)
KERNEL = FIXED + FIELD + 0.5 * SameGroup().on(GROUP)


def rows_of(number):
    rng = np.random.default_rng(0)
    places, group = rng.uniform(0, 1, (number, 2)), rng.integers(0, 9, number)
    return np.column_stack([np.ones(number), 3 + rng.normal(size=number), places, group])


def sites_of(number):
    rng = np.random.default_rng(1)
    linear, precision = rng.normal(size=(number, 1)), rng.uniform(0.3, 3.0, (number, 1))
    return GaussianSites(jnp.asarray(linear), jnp.asarray(precision), jnp.zeros(number))


def new_rows(number):
    """Other places; the last row is of a group that no row had."""
    new = rows_of(number + 6)[number:]
    new[-1, GROUP] = 99
    return new


def beside(own, number, points=5):
    """So many neighbours of what effects and a few points of the field leave."""
    return own(number, inducing=lgp.Inducing(features=lgp.inter_domain.PerPart(points)))


def ready(own, X):
    return own.initialise(X, None, KERNEL, KEY).for_rows(X, None, KERNEL)


@pytest.mark.parametrize("own", [lgp.Neighbours, LatentNeighbours])
def test_with_all_neighbours_it_is_dense_algebra(own):
    X, sites, new = rows_of(50), sites_of(50), new_rows(50)
    near = ready(beside(own, 49), X)
    found, dense = (r.condition(KERNEL, X, sites) for r in (near, Dense()))
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence, atol=1e-4)
    for ours, theirs in zip(found.marginals(new), dense.marginals(new), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    number = len(parts_of(KERNEL))
    parts = np.repeat(np.eye(number), len(new), axis=0)
    rows = np.column_stack([np.tile(new, (number, 1)), parts])
    both = (posterior.telling_parts(number).marginals(rows) for posterior in (found, dense))
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    space = ParameterSpace(KERNEL)
    vector = jnp.asarray(space.to_vector())

    def slopes(representation):
        def evidence(vector, sites):
            return log_evidence(representation, space.to_model(vector), X, sites)

        return jax.jit(jax.grad(evidence, (0, 1)))(vector, sites)

    both = zip(jax.tree.leaves(slopes(near)), jax.tree.leaves(slopes(Dense())), strict=True)
    for ours, theirs in both:
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("likelihood", [lgp.Gaussian(0.3), lgp.Bernoulli()])
def test_few_neighbours_are_near_dense_algebra(likelihood):
    """The field's alone are: coefficients and effects of groups are in no neighbour's law."""
    X, new, rng = rows_of(300), new_rows(300), np.random.default_rng(2)
    f = np.sin(5 * X[:, LON]) + 0.4 * X[:, GROUP] - 1.5 + 0.3 * rng.normal(size=300)
    y = f if isinstance(likelihood, lgp.Gaussian) else (f > 0).astype(float)
    model, data = lgp.LatentGP(KERNEL, likelihood), lgp.Data(X, y)
    method = lgp.ExactGP if isinstance(likelihood, lgp.Gaussian) else lgp.Laplace
    both: list[Any] = [
        lgp.fit(model, data, method=method(r), key=KEY, learn_hyperparameters=False).posterior
        for r in (beside(lgp.Neighbours, 20), Dense())
    ]
    ours, theirs = both
    assert abs(ours.evidence.value - theirs.evidence.value) < 1.0
    moments, expected = ours.predict_f(new), theirs.predict_f(new)
    np.testing.assert_allclose(moments.mean, expected.mean, atol=0.1)
    np.testing.assert_allclose(moments.variance, expected.variance, rtol=0.1)
    one, other = ours.coefficients(), theirs.coefficients()
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=0.05)
    away = np.abs(one.estimate - other.estimate) / other.standard_error
    assert np.max(away) < 0.2


NAMED = [
    ("neighbours", lgp.ExactGP(beside(lgp.Neighbours, 20, 50)), "z"),
    ("laplace-neighbours", lgp.Laplace(beside(LatentNeighbours, 20, 50)), "n"),
]


@pytest.mark.parametrize(("word", "method", "target"), NAMED)
def test_tables_with_groups_have_neighbours_by_the_same_word(word, method, target):
    rng, X = np.random.default_rng(3), rows_of(120)
    frame = pd.DataFrame(X[:, [SLOPE, LON, LAT]], columns=["x", "east", "north"])
    frame["g"] = [f"g{number:.0f}" for number in X[:, GROUP]]
    mean = 0.3 * frame["x"] + np.sin(5 * frame["east"]) + 0.2 * X[:, GROUP]
    frame["z"] = mean + 0.3 * rng.normal(size=120)
    frame["n"] = rng.poisson(np.exp(mean / 2))
    formula = f"{target} ~ x + gp(east, north) + (1 | g)"
    settings = {"formula": formula, "random_state": 0, "learn_hyperparameters": False}
    named, explicit = (lgp.TableModel.fit(frame, method=own, **settings) for own in (word, method))
    assert named.estimator.method_ == explicit.estimator.method_
    pd.testing.assert_frame_equal(named.predict(frame[:9]), explicit.predict(frame[:9]))
