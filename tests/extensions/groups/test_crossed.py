"""Crossed effects by conjugate gradients against dense algebra."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import FixedEffects
from latentgp.kernels.parts import parts_of
from latentgp.representations import Dense, log_evidence
from latentgp.sites.gaussian import GaussianSites
from pupils import KERNELS, KEY, ONE, X1, new_rows, rows_of, same, sites_of

pytestmark = pytest.mark.usefixtures("x64")


def crossed(X, kernel, **settings):
    own = lgp.groups.SparseEffects(exact=False, **settings)
    return own.initialise(X, None, kernel, KEY)


def test_crossed_effects_have_the_mean_of_dense_algebra():
    kernel, X = KERNELS["slopes"], rows_of()
    sites, new = sites_of(len(X)), new_rows(X)
    found, dense = (
        r.condition(kernel, X, sites) for r in (crossed(X, kernel, probes=400), Dense())
    )
    np.testing.assert_allclose(found.mean(new), dense.mean(new), atol=1e-5)
    np.testing.assert_allclose(found.covariance(new), dense.covariance(new), atol=1e-5)
    ours, theirs = found.marginals(new).variance, dense.marginals(new).variance
    np.testing.assert_allclose(ours, theirs, rtol=0.3)
    np.testing.assert_allclose(found.kl, dense.kl, rtol=0.05)
    assert found.complaints == ()
    assert "conjugate gradients" in found.notes[0]
    assert "means over 400 probe vectors" in found.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slopes", "smooth beside"])
def test_coefficients_beside_crossed_effects_have_exact_variances(name):
    """As by elimination, with few probe vectors: of f in rows where coefficients alone count."""
    kernel, X = KERNELS[name], rows_of()
    sites, number = sites_of(len(X)), len(parts_of(kernel))
    shares = np.zeros((3, number))
    shares[:, 0] = 1.0
    rows = np.zeros((3, 5))
    rows[:, ONE], rows[:, X1] = [1, 0, 1], [0, 1, 0.5]
    new = np.column_stack([rows, shares])
    found, exact = (
        own.initialise(X, None, kernel, KEY).condition(kernel, X, sites).telling_parts(number)
        for own in (
            lgp.groups.SparseEffects(20, exact=False, probes=4),
            lgp.groups.SparseEffects(20, exact=True),
        )
    )
    ours, theirs = found.marginals(new).variance, exact.marginals(new).variance
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_estimated_variances_are_at_least_their_errors():
    """Of fewer probe vectors than coefficients some are below zero; the error is in the notes."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 60, 600)
    second = (7 * first + rng.integers(0, 9, 600)) % 50
    covariates = rng.normal(size=(60, 10))[first], rng.normal(size=(50, 10))[second]
    X = np.column_stack([*covariates, first, second]).astype(float)
    kernel = FixedEffects(100.0).on(*range(20)) + same(20) + same(21)
    shares = np.eye(3)[[1, 2]].repeat(60, axis=0)
    levels = np.zeros((120, 22))
    levels[:60, 20], levels[60:, 21] = np.arange(60), np.arange(60) % 50
    new = np.concatenate([levels, shares], axis=1)
    sites = GaussianSites(jnp.zeros((600, 1)), jnp.full((600, 1), 25.0), jnp.zeros(600))
    found = crossed(X, kernel, probes=2).condition(kernel, X, sites)
    exact = lgp.groups.SparseEffects(exact=True).initialise(X, None, kernel, KEY)
    truth, ours = (
        own.telling_parts(3).marginals(new).variance[:, 0]
        for own in (exact.condition(kernel, X, sites), found)
    )
    assert np.min(ours) > 0
    off = np.sqrt(np.mean((np.sqrt(ours) - np.sqrt(truth)) ** 2) / np.mean(truth))
    told = float(found.notes[0].split("off by ")[1].split("%")[0]) / 100
    assert 0.5 * told < off < 2 * told


def test_estimates_are_within_their_errors():
    """Of 100 keys, at least 95 within four standard errors of the evidence."""
    kernel, X = KERNELS["nested and crossed"], rows_of(300)
    sites = sites_of(300, 1)
    dense = Dense().condition(kernel, X, sites)
    own = crossed(X, kernel, probes=16)

    def of_key(data):
        found = dataclasses.replace(own, key=data).condition(kernel, X, sites)
        return found.log_evidence, found.evidence_error

    keys = jax.random.key_data(jax.random.split(jax.random.key(1), 100))
    found, error = jax.jit(lambda keys: jax.lax.map(of_key, keys))(keys)
    assert np.mean(np.abs(found - dense.log_evidence) <= 4 * error) >= 0.95
    assert np.max(error) < 3.0


def test_the_slope_by_probes_is_near_that_of_dense_algebra():
    kernel, X = KERNELS["nested and crossed"], rows_of(300)
    sites, space = sites_of(300, 1), ParameterSpace(kernel)
    vector = jnp.asarray(space.to_vector())

    def slope(representation):
        return jax.grad(lambda v: log_evidence(representation, space.to_model(v), X, sites))(vector)

    np.testing.assert_allclose(
        slope(crossed(X, kernel, probes=4000)), slope(Dense()), rtol=0.05, atol=0.05
    )


def test_solves_that_do_not_end_are_said():
    kernel, X = KERNELS["slopes"], rows_of()
    found = crossed(X, kernel, max_steps=1).condition(kernel, X, sites_of(len(X)))
    assert "did not converge in 1 steps" in found.complaints[0]
