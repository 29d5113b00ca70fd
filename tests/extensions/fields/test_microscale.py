"""Variation at single places, `White` in the kernel, told apart from noise of measurements."""

from functools import cache

import jax
import numpy as np
import pytest

import latentgp as lgp
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(0)
PLACES, REPEATS = 125, 4
SMOOTH, MICROSCALE, NOISE = 1.0, 0.5, 0.2
KERNEL = lgp.Matern32(1.2, SMOOTH) + lgp.White(MICROSCALE)
METHODS = {
    "dense": lambda: lgp.ExactGP(),
    "neighbours": lambda: lgp.ExactGP(lgp.Neighbours(40)),
    "latent neighbours": lambda: lgp.Laplace(lgp.Neighbours(40)),
}


@cache
def repeated(seed=0):
    """Places measured several times, and what is there."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 8, (PLACES, 2))
    K = np.asarray(KERNEL.gram(places, places))
    there = np.linalg.cholesky(K) @ rng.normal(size=PLACES)
    X, f = np.repeat(places, REPEATS, axis=0), np.repeat(there, REPEATS)
    return places, there, lgp.Data(X, f + np.sqrt(NOISE) * rng.normal(size=len(f)))


def fitted(method, data, learn=True):
    start = lgp.Matern32(2.0) + lgp.White(0.1) if learn else KERNEL
    model = lgp.LatentGP(start, lgp.Gaussian(0.5 if learn else NOISE))
    return lgp.fit(model, data, method=METHODS[method](), key=KEY, learn_hyperparameters=learn)


@pytest.mark.parametrize("method", ["dense", *slow_parameters("neighbours", "latent neighbours")])
def test_repeated_places_tell_both_variances_apart(method):
    found = fitted(method, repeated()[2]).model
    microscale, noise = found.kernel.parts[1].variance, found.likelihood.noise_variance
    # What the simulated rows themselves say: deviations of 500 - 125, and of 125 differences.
    assert abs(np.log(noise / NOISE)) < 0.2
    assert abs(np.log(microscale / MICROSCALE)) < 0.4


@pytest.mark.parametrize("method", ["dense", *slow_parameters("neighbours", "latent neighbours")])
def test_f_has_the_microscale_at_seen_places_alone(method):
    """By dense algebra in NumPy; a place at a hair's breadth is another place."""
    places, _, data = repeated()
    posterior = fitted(method, data, learn=False).posterior
    new = np.concatenate([places[:5], places[:5] + 1e-6, [[4.0, 4.0], [90.0, 90.0]]])
    K, cross = (np.asarray(KERNEL.gram(np.asarray(data.X), Z)) for Z in (data.X, new))
    found = posterior.predict_f(new)
    A = np.linalg.solve(K + NOISE * np.eye(len(K)), np.column_stack([np.asarray(data.y), cross]))
    mean, variance = cross.T @ A[:, 0], SMOOTH + MICROSCALE - np.sum(cross * A[:, 1:], axis=0)
    tolerance = 1e-6 if method == "dense" else 0.03
    np.testing.assert_allclose(np.ravel(found.mean), mean, atol=tolerance)
    np.testing.assert_allclose(np.ravel(found.variance), variance, rtol=tolerance)
    assert np.all(variance[:5] < NOISE / REPEATS)
    assert np.all(variance[5:10] > MICROSCALE)
    noisy = posterior.predict(new)
    np.testing.assert_allclose(np.ravel(noisy.variance), np.ravel(found.variance) + NOISE)


@pytest.mark.parametrize("kind", ["noise", "counts"])
def test_more_repeats_than_neighbours(kind):
    """Rows at a place do not crowd out those of other places."""
    rng = np.random.default_rng(3)
    places = rng.uniform(0, 4, (15, 2))
    X, f = np.repeat(places, 12, axis=0), np.repeat(np.sin(places[:, 0]), 12)
    y = f + 0.4 * rng.normal(size=len(f)) if kind == "noise" else rng.poisson(np.exp(f))
    likelihood = lgp.Gaussian(NOISE) if kind == "noise" else lgp.Poisson()
    model = lgp.LatentGP(KERNEL, likelihood)
    new = np.concatenate([places[:2], places[:2] + 0.1])

    def found(method):
        settings = {"method": method, "key": KEY, "learn_hyperparameters": False}
        posterior = lgp.fit(model, lgp.Data(X, y), **settings).posterior
        return float(posterior.log_evidence), np.stack(posterior.predict_f(new))

    evidence, at_new = found(lgp.Laplace())
    ours, by_few = found(lgp.Laplace(lgp.Neighbours(10)))
    assert ours == pytest.approx(evidence, abs=0.5)
    np.testing.assert_allclose(by_few, at_new, atol=0.05)
