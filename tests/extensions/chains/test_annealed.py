"""Annealed importance sampling: unbiased, and of lower variance where the start is poor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.chains.coordinates import coordinates_at
from latentgp.extensions.chains.couplings.annealed import annealed_run
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals

RUNS, BATCH, TEMPERATURES = 16_000, 8, 8


@pytest.fixture(scope="module", autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def residual():
    """Of three counts relative to the prior, which is a poor approximation of their posterior."""
    model = lgp.LatentGP(lgp.RBF(0.8, 2.0), lgp.Poisson())
    data = lgp.Data(np.array([0.0, 0.7, 1.5]), np.array([9.0, 4.0, 0.0])).to_device()
    target = WhiteTarget.of(ParameterSpace(model), lgp.Dense(), data)
    coordinates = coordinates_at(target, model, "whitened", Marginals(*jnp.zeros((2, 3, 1))))
    return lambda eps: coordinates.residual(target, model, eps)


def runs(residual, temperatures):
    powers = jnp.arange(1, temperatures) / temperatures
    keys = jax.random.split(jax.random.key(temperatures), RUNS)

    def run(key):
        key_start, key_run = jax.random.split(key)
        return annealed_run(residual, jax.random.normal(key_start, (1, 3)), powers, key_run)

    ends, log_weights = jax.jit(jax.vmap(run))(keys)
    return np.asarray(ends)[:, 0], np.asarray(log_weights)


@pytest.fixture(scope="module")
def quadrature(residual):
    """E exp(r), and the mean of the coordinates under N(0, I) exp(r)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(50)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 1, 3)
    mass = np.prod(np.meshgrid(weights, weights, weights, indexing="ij"), axis=0).ravel()
    mass = mass * np.exp(np.asarray(jax.vmap(residual)(jnp.asarray(grid)))) / (2 * np.pi) ** 1.5
    return mass.sum(), mass @ grid[:, 0] / mass.sum()


@pytest.mark.parametrize("temperatures", [1, TEMPERATURES])
def test_the_estimate_is_unbiased(residual, quadrature, temperatures):
    ends, log_weights = runs(residual, temperatures)
    value, mean = quadrature
    weights = np.exp(log_weights)
    assert abs(weights.mean() - value) < 4.5 * weights.std() / RUNS**0.5
    off = weights[:, None] * (ends - mean)
    np.testing.assert_array_less(np.abs(off.mean(axis=0)), 4.5 * off.std(axis=0) / RUNS**0.5)


def test_its_logarithm_varies_less_than_that_of_importance_sampling(residual):
    def variance(temperatures):
        _, log_weights = runs(residual, temperatures)
        batches = log_weights.reshape(-1, BATCH)
        return np.var(np.log(np.mean(np.exp(batches), axis=1)))

    assert variance(TEMPERATURES) < 0.3 * variance(1)


def test_runs_backwards_are_those_that_ended_there(residual, quadrature):
    """Log weights of runs backwards from the posterior have the law of forward ones by weight."""
    value, _ = quadrature
    ends, log_weights = runs(residual, TEMPERATURES)
    share = np.exp(log_weights) / np.exp(log_weights).sum()
    chosen = np.random.default_rng(0).choice(RUNS, 4000, p=share)
    powers = jnp.arange(TEMPERATURES - 1, 0, -1) / TEMPERATURES
    keys = jax.random.split(jax.random.key(2), 4000)
    _, back = jax.jit(jax.vmap(lambda eps, key: annealed_run(residual, eps, powers, key)))(
        jnp.asarray(ends[chosen][:, None]), keys
    )
    forward, backward = (np.tanh(np.asarray(log) - np.log(value)) for log in (log_weights, back))
    expected = share @ forward
    # Ends drawn by weight among so many share the error of the average by weight.
    error = 2 * np.sum(share**2 * (forward - expected) ** 2) + backward.var() / 4000
    assert abs(backward.mean() - expected) < 4.5 * error**0.5
    assert abs(log_weights.mean() - back.mean()) > 1
