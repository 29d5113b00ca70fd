"""What is even in f has two modes, and the prior mean between them is no answer of any method.

The evidence is by a grid over all latents of two rows; one Gaussian loses log 2 of it and what its
shape costs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp

KEY = jax.random.key(0)
X = np.array([0.0, 1.0])
LOSS = 1.5  # nats: log 2 for the mode that one Gaussian leaves out, the rest for its shape


def normal(y, f, variance):
    return -0.5 * ((y - f) ** 2 / variance + jnp.log(2 * jnp.pi * variance))


def square(y, f):
    return normal(y, f[0] ** 2, 0.16)


CASES = {
    "square": (square, [1.5, 2.5], 1, 1.0),
    "size": (lambda y, f: normal(y, jnp.abs(f[0]), 0.01), [1.5, 1.2], 1, 1.0),
    "rate": (lambda y, f: y * jnp.log(f[0] ** 2) - f[0] ** 2 - jnp.log(24.0), [4.0, 4.0], 1, 4.0),
    "cosine": (lambda y, f: normal(y, jnp.cos(f[0]), 0.04), [-0.9, -0.8], 1, 4.0),
    "product": (lambda y, f: normal(y, f[0] * f[1], 0.04), [-1.5, -1.2], 2, 1.0),
}


def evidence(log_prob, y, latents, variance):
    """By the trapezoidal rule in the white coordinates of all latents."""
    grid = np.linspace(-6, 6, 1201 if latents == 1 else 49)
    white = np.stack(np.meshgrid(*[grid] * 2 * latents, indexing="ij"), -1).reshape(-1, latents, 2)
    K = variance * np.exp(-0.5 * (X[:, None] - X) ** 2)
    f = white @ np.linalg.cholesky(K).T
    log = -0.5 * np.sum(white**2, axis=(1, 2)) - latents * np.log(2 * np.pi)
    with np.errstate(divide="ignore"):
        log = log + sum(np.asarray(log_prob(y[n], f[:, :, n].T)) for n in range(2))
    return np.logaddexp.reduce(log) + 2 * latents * np.log(grid[1] - grid[0])


def fitted(name, method):
    log_prob, y, latents, variance = CASES[name]
    model = lgp.LatentGP(lgp.RBF(1.0, variance), lgp.CustomLikelihood(log_prob, latents))
    data = lgp.Data(X, y)
    return lgp.fit(model, data, method=method, key=KEY, learn_hyperparameters=False)


@pytest.mark.parametrize("name", CASES)
def test_variational_inference_ends_in_a_mode_of_what_is_even(name):
    bound = float(fitted(name, lgp.VariationalInference()).posterior.log_evidence)
    exact = evidence(*CASES[name])
    assert exact - LOSS < bound < exact


@pytest.mark.parametrize(
    "method",
    [
        lgp.VariationalInference(lgp.Inducing(2)),
        lgp.VariationalInference(lgp.Neighbours(1)),
        lgp.Laplace(),
        lgp.ExpectationPropagation(),
        lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(2))),
        lgp.BlackBoxVI(estimator="score"),
        lgp.BlackBoxVI(estimator="reparameterised"),
        lgp.BlackBoxVI(optimiser="alternating"),
        lgp.BlackBoxVI(components=2, estimator="score"),
    ],
    ids=lambda method: f"{type(method).__name__}, {getattr(method, 'estimator', '')}",
)
def test_no_method_stays_between_the_modes(method):
    fit = fitted("square", method)
    assert abs(float(fit.posterior.log_evidence) - evidence(*CASES["square"])) < LOSS
    assert fit.diagnostics.converged


@pytest.mark.parametrize("coupling", ["sites", "whitened"])
def test_a_gaussian_of_the_density_is_around_a_mode(coupling):
    fit = fitted("square", lgp.DensityApproximation(coupling=coupling))
    mean, variance = fit.posterior.predict_f(X)
    np.testing.assert_allclose(mean, [1.18, 1.54], atol=0.03)  # of one mode, by the grid
    assert np.all(variance < 0.05)


@pytest.mark.slow
def test_random_features_end_in_a_mode():
    fit = fitted("square", lgp.RandomFeatureVI(200))
    assert float(fit.posterior.log_evidence) > evidence(*CASES["square"]) - 2 * LOSS


def test_hyperparameters_are_learned_in_the_mode():
    x = np.linspace(0, 6, 40)
    y = np.sin(x) ** 2 + 0.05 * np.random.default_rng(0).normal(size=40)
    likelihood = lgp.CustomLikelihood(lambda y, f: normal(y, f[0] ** 2, 0.0025))
    model = lgp.LatentGP(lgp.RBF(1.0, 1.0), likelihood)
    fit = lgp.fit(model, lgp.Data(x, y), method=lgp.VariationalInference(), key=KEY)
    assert fit.diagnostics.converged
    np.testing.assert_allclose(np.abs(fit.posterior.mean_f([[1.5], [4.7]])), 1, atol=0.06)
    assert float(fit.posterior.log_evidence) > 30


def test_log_evidence_and_its_slope_are_those_of_the_mode():
    log_prob, y, *_ = CASES["square"]
    model = lgp.LatentGP(lgp.RBF(1.0, 1.0), lgp.CustomLikelihood(log_prob))
    data = lgp.Data(X, y)
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(lgp.log_evidence)(model, data, lgp.Laplace())
        step = 1e-4
        ends = [
            float(lgp.log_evidence(lgp.replace(model, {"kernel.variance": v}), data, lgp.Laplace()))
            for v in (1 - step, 1 + step)
        ]
    exact = evidence(*CASES["square"])
    assert exact - LOSS < float(value) < exact
    assert float(slope.kernel.variance) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-4)


class TravelTimes(lgp.Likelihood):
    """Thickness over velocity of three layers, whose means are one."""

    latent_size = 6
    output_shape = (3,)

    def log_prob(self, y, f, side):
        depths = jnp.arange(1, 4) * (1 + 0.15 * f[:3])
        times = jnp.diff(depths, prepend=0.0) / (1 + 0.15 * f[3:])
        return jnp.sum(normal(y, times, 0.005**2))


def test_a_bound_of_sharp_ratios_starts_at_the_mode():
    """Sites from the prior's marginals, a hundred times as wide as the noise, lead nowhere."""
    generator = np.random.default_rng(0)
    inputs = np.arange(6.0)
    K = np.exp(-0.5 * (inputs[:, None] - inputs) ** 2) + 1e-9 * np.eye(6)
    f = np.linalg.cholesky(K) @ generator.normal(size=(6, 6))
    depths = np.arange(1, 4) * (1 + 0.15 * f[:, :3])
    times = np.diff(depths, prepend=0.0, axis=1) / (1 + 0.15 * f[:, 3:])
    data = lgp.Data(inputs, times + 0.005 * generator.normal(size=(6, 3)))
    model = lgp.LatentGP(lgp.RBF(1.0), TravelTimes())
    bound, mode = (
        lgp.fit(model, data, method=method, key=KEY, learn_hyperparameters=False)
        for method in (lgp.VariationalInference(), lgp.Laplace(coupled=True))
    )
    assert bound.diagnostics.converged
    assert mode.diagnostics.converged
    own, other = (fit.posterior.predict_f(inputs) for fit in (bound, mode))
    deviation = np.sqrt(other.variance)
    assert np.abs((own.mean - other.mean) / deviation).max() < 0.5  # it is skewed
    np.testing.assert_allclose(np.sqrt(own.variance), deviation, rtol=0.1)
