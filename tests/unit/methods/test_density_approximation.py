"""Gaussian approximations of models: exact where the posterior is Gaussian."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.approximations import MeanField
from problems import BINARY, KERNEL, SMOOTH, X, classification, mean_and_error, regression

KEY = jax.random.key(0)
POINTS = lgp.Inducing(points=X[:4] + 0.1)
DATA = lgp.Data(X, SMOOTH)


@pytest.mark.parametrize(
    ("method", "exact"),
    [
        (lgp.GaussianParticleFlow(), lgp.ExactGP()),
        (lgp.DensityApproximation(coupling="whitened"), lgp.ExactGP()),
        (
            lgp.DensityApproximation(representation=POINTS, coupling="whitened"),
            lgp.CollapsedVI(POINTS),
        ),
    ],
)
def test_gaussian_noise_is_exact(method, exact):
    """Hyper-parameters held: draws of f have the moments of the posterior in closed form."""
    settings = {"key": KEY, "learn_hyperparameters": False}
    found = lgp.fit(regression(), DATA, method=method, **settings)
    own = lgp.fit(regression(), DATA, method=exact, **settings).posterior.predict_f(X)
    f = found.posterior.f.reshape(-1, len(X))
    assert len(f) == 2000
    np.testing.assert_allclose(
        f.mean(axis=0), own.mean, atol=4.5 * np.sqrt(own.variance.max() / len(f))
    )
    np.testing.assert_allclose(f.var(axis=0), own.variance, rtol=4.5 * np.sqrt(2 / len(f)))
    assert found.diagnostics.converged
    assert "Pareto shape of importance weights" in found.diagnostics.verdict


@pytest.mark.slow
def test_hyperparameters_are_approximated_too():
    """In coordinates of sites, against NUTS."""
    model, data = classification(), lgp.Data(X, BINARY)
    found = lgp.fit(model, data, method=lgp.DensityApproximation(), key=KEY)
    assert "and settled" in found.diagnostics.verdict
    chains = lgp.fit(model, data, method=lgp.NUTS(draws=500, warmup=300), key=KEY)
    for path, draws in chains.posterior.hyperparameters.items():
        own = np.log(found.posterior.hyperparameters[path])
        mean, error = mean_and_error(np.log(draws)[..., None])
        spread = np.log(draws).std()
        assert abs(own.mean() - mean) < 4 * error + 0.25 * spread
        assert own.std() == pytest.approx(spread, rel=0.25)


def test_another_approximation_and_a_singular_one():
    settings = {"key": KEY, "learn_hyperparameters": False}
    model, data = classification(), lgp.Data(X, BINARY)
    small = lgp.DensityApproximation(MeanField(samples=5, steps=500), draws=50)
    found = lgp.fit(model, data, method=small, **settings)
    assert found.posterior.f.shape == (4, 50, len(X), 1)
    few = lgp.DensityApproximation(lgp.GaussianParticleFlow(particles=4), draws=50)
    singular = lgp.fit(model, data, method=few, **settings).diagnostics
    assert not singular.converged
    assert "covariance is singular" in singular.verdict


def test_what_it_cannot_do_is_refused():
    step = lgp.LatentGP(KERNEL, lgp.RobustMax(2))
    with pytest.raises(lgp.InputError, match="gradient to follow"):
        lgp.fit(step, lgp.Data(X, BINARY), method=lgp.GaussianParticleFlow(), key=KEY)
    with pytest.raises(lgp.InputError, match="blocks of 2 dimensions"):
        lgp.fit(regression(), DATA, method=lgp.GaussianParticleFlow(structure=(1, 1)), key=KEY)


def test_it_is_saved(tmp_path):
    method = lgp.DensityApproximation(MeanField(samples=2, steps=20), draws=10)
    found = lgp.fit(regression(), DATA, method=method, key=KEY, learn_hyperparameters=False)
    again = lgp.load(lgp.save(found, tmp_path / "fit"))
    np.testing.assert_array_equal(again.posterior.f, found.posterior.f)
    assert isinstance(again.diagnostics.method.approximation, MeanField)
