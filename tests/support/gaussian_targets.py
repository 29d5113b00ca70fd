"""Log densities to approximate, whose best Gaussians are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Quadratic(eqx.Module):
    """A Gaussian log density up to its constant."""

    mean: Array
    precision: Array

    def __call__(self, x):
        return -0.5 * (x - self.mean) @ self.precision @ (x - self.mean)


class NoisyQuadratic(eqx.Module):
    """One whose gradient has noise of covariance noise^2 times the precision."""

    target: Quadratic
    root: Array
    noise: float = eqx.field(static=True)

    def __call__(self, x, key):
        disturbed = self.root @ jax.random.normal(key, x.shape, x.dtype)
        return self.target(x) + self.noise * disturbed @ x


def quadratic(dimension, condition, seed=0):
    """The target of Galy-Fajou (2022, 6.4.1), with its mean and covariance."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    scale = 10 ** (np.log10(condition) * np.arange(dimension) / max(dimension - 1, 1) - 1)
    mean = rng.normal(size=dimension)
    covariance, precision = (turn * scale) @ turn.T, (turn / scale) @ turn.T
    return Quadratic(mean, precision), mean, covariance


def banana(x):
    """The two-dimensional target of Galy-Fajou (2022, 6.4.4)."""
    return -0.5 * (0.01 * x[0] ** 2 + 0.1 * (x[1] + 0.1 * x[0] ** 2 - 10) ** 2)


def logistic_regression():
    """A posterior of two weights, far from Gaussian."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=8) > 0, 1.0, -1.0)

    def log_density(w):
        return jnp.sum(jax.nn.log_sigmoid(y * (X @ w))) - 0.5 * jnp.sum(w**2) / 4

    return log_density
