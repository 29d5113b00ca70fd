"""What neighbours leave out, against dense linear algebra, and neighbours of sums."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.divergence import Roots, divergence_of
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.search import (
    NOBODY,
    earlier_neighbours,
    neighbours_of,
    order_of,
    parts_apart,
    varies_apart,
)
from latentgp.sites.gaussian import GaussianSites

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(0)
_rng = np.random.default_rng(0)
X = _rng.uniform(0, 1, (400, 3))
PARTS = lgp.Matern32(lengthscale=0.02, variance=1.0).on(0, 1) + lgp.Matern52(0.3).on(2)
PLACES = lgp.Matern32(lengthscale=0.3)


def variances(K, order, sets=None):
    """Of each row given some of the rows before it, all unless given."""
    found = np.zeros(len(K))
    for place, row in enumerate(order):
        those = order[:place] if sets is None else sets[row][sets[row] != NOBODY]
        weights = np.linalg.solve(K[np.ix_(those, those)], K[those, row])
        found[row] = K[row, row] - weights @ K[those, row]
    return found


def variances_of_last(K, rows):
    return 1 / np.linalg.inv(K[np.ix_(rows, rows)])[-1, -1]


def gram(kernel, rows):
    return np.asarray(kernel.gram(jnp.asarray(rows), jnp.asarray(rows)))


@pytest.mark.parametrize("rank", [0, 5])
@pytest.mark.parametrize("latent", [False, True])
def test_of_few_rows_it_is_the_divergence(rank, latent):
    """All rows are in the sample, and all before each are looked at."""
    rows, kernel = X[:100], lgp.Matern32(lengthscale=[0.5, 0.3, 1.0])
    order = order_of(rows[:90], "random")  # the others have no weight
    near = np.full((100, 4), NOBODY)
    near[:90] = earlier_neighbours(rows[:90], order, 4)
    K = gram(kernel, rows)
    features = 0.9 * np.linalg.cholesky(K)[:, :rank]
    K = K - features @ features.T
    own = _rng.uniform(0.5, 3.0, 100)
    if latent:
        others = np.full(100, 1e4)
        K += np.diag(1 / others**2)
        less = [1 + own**2 * (variances(K, order, sets) - 1e-8) for sets in (near, None)]
    else:
        others = own
        B = np.eye(100) + own[:, None] * K * own
        less = [variances(B, order, sets) for sets in (near, None)]
    expected = 0.5 * np.sum(np.log(less[0][order] / less[1][order]))
    roots = Roots(others[None], own[None])
    ours = divergence_of(kernel, rows, near[:, None], order, roots, jnp.asarray(features)[None])
    assert ours.nats == pytest.approx(expected, rel=1e-6)
    assert (ours.error, ours.rows, ours.neighbours) == (0.0, 90, 4)


@pytest.mark.parametrize("rank", [0, 3])
def test_each_neighbour_is_the_one_that_says_the_most(rank):
    """Of what points leave, if there are any."""
    rows, kernel = X[:60], PARTS
    order = order_of(rows, "random")
    K = gram(kernel, rows)
    features = 0.9 * np.linalg.cholesky(K)[:, :rank]
    near = neighbours_of(kernel, rows, order, 5, "correlation", jnp.asarray(features))
    K = K - features @ features.T + 0.01 * np.diag(np.diag(K))
    for place in (3, 20, 29):  # all before are candidates
        row, before, taken = order[place], list(order[:place]), []
        for _ in range(min(5, place)):
            left = [variances_of_last(K, [*taken, one, row]) for one in before]
            taken.append(before.pop(int(np.argmin(left))))
        np.testing.assert_array_equal(near[row][: len(taken)], taken)
        assert np.all(near[row][len(taken) :] == NOBODY)


def test_parts_that_see_different_columns():
    inputs = jnp.asarray(X)
    assert len(parts_apart(2.0 * PARTS + 1.0, inputs)) == 2
    assert len(parts_apart(lgp.RBF() + lgp.RBF().on(2), inputs)) == 2
    for kernel in (lgp.RBF() + lgp.Matern32(), lgp.RBF() + 1.0, lgp.RBF().on(0) * lgp.RBF().on(1)):
        assert parts_apart(kernel, inputs) == ()
    time = lgp.kernels.TemporalDecay(2)
    for kernel in (
        PARTS,
        lgp.RBF().on(0) * lgp.RBF().on(1),
        lgp.kernels.Gneiting(PLACES.on(0, 1), time),
    ):
        assert varies_apart(kernel, inputs)
    warped = lgp.kernels.InputWarping.by_scores(lgp.RBF(np.ones(3)), X, range(3))
    of_one = lgp.kernels.MetricKernel(
        lgp.OnSphere(lgp.RBF()).on(0, 1), lgp.kernels.OtherColumns((2,))
    )
    for kernel in (lgp.RBF(np.ones(3)), 2.0 * PLACES.on(0, 1) + 1.0, warped, of_one):
        assert not varies_apart(kernel, inputs)


def divergence_of_targets(prior, exact):
    """Of N(0, exact) from N(0, prior)."""
    product = np.linalg.solve(prior, exact)
    return 0.5 * (np.trace(product) - len(prior) - np.linalg.slogdet(product)[1])


def prior_of(kernel, rows, order, near):
    """Covariance of latents under their neighbours."""
    K = gram(kernel, rows) + 1e-9 * np.eye(len(rows))
    B, D = np.eye(len(rows)), variances(K, order, near)
    for row, those in enumerate(near):
        those = those[those != NOBODY]
        B[row, those] -= np.linalg.solve(K[np.ix_(those, those)], K[those, row])
    inverse = np.linalg.inv(B)
    return inverse * D @ inverse.T


@pytest.mark.parametrize("latent", [False, True])
def test_a_sum_of_parts_is_searched_by_its_kernel_and_what_is_left_is_said(latent):
    """The verdict warns of a bad search, with its size; the usual one is better."""
    noise, left = 0.2, []
    exact = gram(PARTS, X) + noise * np.eye(len(X))
    model = lgp.LatentGP(PARTS, lgp.Gaussian(noise))
    y = np.linalg.cholesky(exact) @ np.random.default_rng(1).normal(size=len(X))
    for search in ("scaled", None):
        own = (LatentNeighbours if latent else lgp.Neighbours)(10, search=search)
        own = own.initialise(X, None, PARTS, KEY).for_rows(X, None, PARTS)
        found: Any = own.found
        order, near = np.asarray(found.order), np.asarray(found.rows)[:, 0]
        if latent:
            prior = prior_of(PARTS, X, order, near)
            true = divergence_of_targets(prior + noise * np.eye(len(X)), exact)
        else:
            true = 0.5 * np.sum(np.log(variances(exact, order, near) / variances(exact, order)))
        sites = GaussianSites(y[:, None] / noise, np.full((len(X), 1), 1 / noise), np.zeros(len(X)))
        posterior: Any = own.condition(PARTS, jnp.asarray(X), sites)
        assert 0.5 * true < posterior.divergence.nats < 1.5 * true
        assert float(posterior.trace_term) == posterior.divergence.nats
        how = "about" if latent else "at least"
        assert f"exact one by {how} " in posterior.divergence.sentence
        left.append(true)
    assert left[1] < 0.7 * left[0]
    method = (lgp.Laplace if latent else lgp.ExactGP)(lgp.Neighbours(10, search="scaled"))
    fit = lgp.fit(model, lgp.Data(X, y), method=method, key=KEY, learn_hyperparameters=False)
    said: Any = fit.diagnostics
    assert "Given 10 neighbours each, rows have a law that diverges" in said.verdict
    assert "The representation leaves about" in said.verdict
    assert 0.5 * left[0] < said.trace_term < 1.5 * left[0]


@pytest.mark.parametrize("method", [lgp.ExactGP, lgp.Laplace])
def test_of_a_plain_field_little_is_left_out(method):
    y = np.sin(6 * X[:, 0]) + 0.3 * _rng.normal(size=400)
    model = lgp.LatentGP(PLACES, lgp.Gaussian(0.1))
    held = {"key": KEY, "learn_hyperparameters": False}
    fit = lgp.fit(model, lgp.Data(X[:, :2], y), method=method(lgp.Neighbours(20)), **held)
    assert "The representation leaves" not in fit.diagnostics.verdict
    assert "Given 20 neighbours each, rows have a law that diverges" in fit.diagnostics.verdict


@pytest.mark.parametrize("method", [lgp.ExactGP, lgp.Laplace])
def test_a_rotation_of_the_inputs_changes_nothing(method):
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    y = np.sin(6 * X[:, 0])
    model = lgp.LatentGP(PLACES, lgp.Gaussian(0.1))
    held = {"key": KEY, "learn_hyperparameters": False, "method": method(lgp.Neighbours(5))}
    mixed = _rng.permutation(400)
    tables = (X[:, :2], y), (X[:, :2] @ turn.T, y), (X[mixed, :2], y[mixed])
    fits = [lgp.fit(model, lgp.Data(*table), **held) for table in tables]
    values = [fit.posterior.log_evidence.value for fit in fits]
    np.testing.assert_allclose(values[1:], values[0], rtol=1e-9)


def test_a_new_input_sees_rows_near_by_each_part():
    y = X[:, 2]
    model = lgp.LatentGP(PARTS, lgp.Gaussian(0.1))
    held = {"key": KEY, "learn_hyperparameters": False}
    fit = lgp.fit(model, lgp.Data(X, y), method=lgp.ExactGP(lgp.Neighbours(6)), **held)
    exact = lgp.fit(model, lgp.Data(X, y), method=lgp.ExactGP(), **held)
    new = _rng.uniform(0, 1, (50, 3))
    ours, theirs = (f.posterior.predict_f(new) for f in (fit, exact))
    latent = fit.posterior.latent
    near = np.asarray(latent.rows._nearest(PARTS, jnp.asarray(new)))
    depth = np.abs(np.asarray(latent.X)[:, 2] - new[:, 2, None])
    depth[:, np.asarray(latent.absent)] = np.inf  # padding
    for row, closest in zip(near, np.argsort(depth, axis=1)[:, :10], strict=True):
        assert set(closest) <= set(row)
        own = row[row != NOBODY]
        assert len(own) == len(set(own))
    assert np.mean(ours.variance) < 1.2 * np.mean(theirs.variance)
