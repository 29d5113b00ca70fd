"""What every Gaussian approximation of a log density must keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from gaussian_targets import Quadratic, quadratic
from latentgp.extensions.flows import (
    SWAG,
    Approximation,
    BatchAndMatch,
    BayesianLearningRule,
    Descent,
    EfficientLowRank,
    FactorCovariance,
    FullRank,
    GaussianFlow,
    GaussianParticleFlow,
    LaplaceApproximation,
    MeanField,
    Pathfinder,
    RMSProp,
    SteinVariational,
    VariationalOnlineNewton,
)

KEY = jax.random.key(0)
METHODS = {
    "particle flow": GaussianParticleFlow(steps=50),
    "particle flow, few": GaussianParticleFlow(particles=2, optimiser=RMSProp(), steps=50),
    "Gaussian flow": GaussianFlow(steps=50),
    "Gaussian flow, rank 1": GaussianFlow(rank=1, steps=50),
    "mean field": MeanField(steps=50),
    "full rank": FullRank(steps=50),
    "factor covariance": FactorCovariance(steps=50),
    "efficient low rank": EfficientLowRank(steps=50),
    "Bayesian learning rule": BayesianLearningRule(steps=50),
    "batch and match": BatchAndMatch(steps=50),
    "online Newton": VariationalOnlineNewton(steps=50),
    "Stein": SteinVariational(particles=4, steps=50),
    "SWAG": SWAG(rank=3, every=2, steps=50),
    "Laplace": LaplaceApproximation(steps=50),
    "Pathfinder": Pathfinder(steps=5, memory=3, samples=10),
}
TARGET, MEAN, COVARIANCE = quadratic(3, 10.0)


TRACED = []


class Counted(Quadratic):
    """Counts how often it is traced."""

    def __call__(self, x):
        TRACED.append(x.shape)
        return super().__call__(x)


@pytest.mark.always
def test_every_approximation_is_checked():
    assert {type(m).__name__ for m in METHODS.values()} == concrete_classes(Approximation)


@pytest.mark.parametrize("name", METHODS)
def test_an_approximation_conforms(name):
    """Shapes and dtypes; equal bits by the key; nothing traced anew for the same shapes."""
    method = METHODS[name]
    target = Counted(TARGET.mean.astype(np.float32), TARGET.precision.astype(np.float32))
    found = lgp.gaussian_approximation(target, 3, method, key=KEY, start=np.zeros(3, np.float32))
    assert found.mean.dtype == np.float32
    assert found.mean.shape == (3,)
    assert np.asarray(found.covariance.dense()).dtype == np.float32
    draws = found.sample(KEY, 7)
    assert (draws.shape, draws.dtype) == ((7, 3), np.float32)
    assert found.free_energy.shape == (found.steps,)
    assert np.isfinite(found.free_energy).all()
    assert found.gradient_evaluations >= found.steps
    assert type(method).__name__ in found.verdict
    assert TRACED
    del TRACED[:]
    moved = Counted(target.mean + np.float32(0.1), target.precision)
    again = lgp.gaussian_approximation(target, 3, method, key=KEY, start=np.zeros(3, np.float32))
    lgp.gaussian_approximation(moved, 3, method, key=KEY, start=np.zeros(3, np.float32))
    assert not TRACED
    np.testing.assert_array_equal(found.mean, again.mean)
    np.testing.assert_array_equal(found.covariance.factor, again.covariance.factor)


@pytest.mark.parametrize("name", ["particle flow", "mean field", "online Newton", "Stein", "SWAG"])
def test_what_estimates_a_log_density(name):
    def log_density(x, key):
        return TARGET(x) + 0.1 * jax.random.normal(key, x.shape) @ x

    found = lgp.gaussian_approximation(log_density, 3, METHODS[name], key=KEY, stochastic=True)
    assert np.isfinite(found.mean).all()
    assert np.isnan(found.change).all()


@pytest.mark.parametrize("name", ["Laplace", "Pathfinder", "batch and match"])
def test_what_needs_the_log_density_itself_refuses_an_estimate(name):
    with pytest.raises(lgp.InputError, match="needs the log density itself"):
        lgp.gaussian_approximation(
            lambda x, key: -x @ x, 3, METHODS[name], key=KEY, stochastic=True
        )


def cliff(x):
    """NaN beyond one, where steps lead to."""
    return jnp.where(x[0] < 1.0, 5.0 * x[0] - 0.5 * jnp.sum(x**2), jnp.nan)


def test_a_step_to_nan_is_not_made_and_said():
    method = GaussianParticleFlow(optimiser=Descent(0.1), steps=100)
    found = lgp.gaussian_approximation(cliff, 3, method, key=KEY, start_std=0.1)
    assert 1 <= found.steps < 100
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.free_energy).all()
    assert not found.converged
    assert "stopped before a step that gave NaN" in found.verdict


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"log_density": lambda x: jnp.nan * x[0]}, "finite; give another start"),
        ({"log_density": lambda x: -jnp.inf + x[0]}, "is -inf at the start"),
        ({"log_density": lambda x: -(x**2)}, "must give one number, got"),
        ({"log_density": lambda x: -x @ jnp.eye(2) @ x}, "failed on an array of shape"),
        ({"log_density": lambda x, key: -x @ x}, "check dimension and stochastic"),
        ({"dimension": 0}, "dimension must be a whole number"),
        ({"start": [0.0, 0.0]}, "start must have shape"),
        ({"start": [0.0, 0.0, np.nan]}, "start must be finite"),
        ({"start_std": 0.0}, "start_std must be above 0"),
        ({"method": "flow"}, "method must be an approximation"),
        ({"method": GaussianParticleFlow(structure=(1, 1))}, "blocks of 2 dimensions"),
        ({"method": GaussianFlow(rank=4)}, "rank must be at most the dimension 3"),
        ({"method": FactorCovariance(rank=4)}, "rank must be at most the dimension 3"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(arguments, words):
    settings = {"log_density": TARGET, "dimension": 3, "key": KEY, **arguments}
    with pytest.raises(lgp.InputError, match=words) as caught:
        lgp.gaussian_approximation(
            settings.pop("log_density"), settings.pop("dimension"), **settings
        )
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GaussianParticleFlow(particles=1), "particles must be at least 2, got 1"),
        (lambda: GaussianParticleFlow(structure="rows"), "structure must be"),
        (lambda: GaussianParticleFlow(metric="Fisher"), "metric must be one of"),
        (lambda: GaussianFlow(structure="mean-field", rank=2), "has a diagonal and no rank"),
        (lambda: SteinVariational(particles=1), "particles must be at least 2"),
        (lambda: SteinVariational(kernel="Matern"), "kernel must be one of"),
        (lambda: SWAG(rank=1), "rank must be at least 2"),
        (lambda: SWAG(warmup=1.0), "warmup must be in"),
        (lambda: MeanField(steps=0), "steps must be at least 1"),
        (lambda: BayesianLearningRule(rate=2.0), "rate must be in"),
        (lambda: BatchAndMatch(samples=1), "samples must be at least 2"),
        (lambda: BatchAndMatch(rate=0.0), "rate must be above 0"),
        (lambda: VariationalOnlineNewton(momentum=1.0), "momentum must be in"),
        (lambda: RMSProp(rate=0.0), "rate must be above 0"),
    ],
)
def test_settings_outside_their_range_are_refused(make, words):
    with pytest.raises(lgp.InputError, match=words):
        make()


def test_densities_of_points():
    found = lgp.gaussian_approximation(TARGET, 3, METHODS["Laplace"], key=KEY)
    assert np.ndim(found.log_prob(MEAN)) == 0
    assert found.log_prob(np.zeros((4, 3))).shape == (4,)
    with pytest.raises(lgp.InputError, match="x must have shape"):
        found.log_prob(np.zeros(2))
