"""Linear systems of Gaussian processes of a few rows, and their matrices."""

import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.extensions.iterative.solvers.operators import (
    TiledCovariance,
    noisy_system,
    site_system,
)

SIZE = 24
_generator = np.random.default_rng(3)
X = _generator.uniform(-2, 2, (SIZE, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * _generator.normal(size=SIZE)
PRECISION = np.where(np.arange(SIZE) % 7 == 0, 0.0, _generator.gamma(1.0, 2.0, SIZE))
NOISE = _generator.uniform(0.02, 0.1, SIZE)
LENGTHSCALE, VARIANCE = np.array([0.9, 1.6]), 1.3


def kernel():
    """A kernel of two inputs."""
    return lgp.RBF(lengthscale=jnp.asarray(LENGTHSCALE), variance=jnp.asarray(VARIANCE))


def covariance():
    """Its Gram matrix in tiles of which the last is not full."""
    return TiledCovariance(kernel(), X, tile=7)


def gram():
    """The same by NumPy."""
    scaled = X / LENGTHSCALE
    squared = np.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
    return VARIANCE * np.exp(-0.5 * squared)


def systems():
    """Both systems by name."""
    return {
        "noise": noisy_system(covariance(), jnp.asarray(NOISE)),
        "sites": site_system(covariance(), jnp.asarray(PRECISION)),
    }


def dense(name, K):
    """A system's matrix with K in place of its covariance."""
    if name == "noise":
        return K + np.diag(NOISE)
    root = np.sqrt(PRECISION)
    return np.eye(SIZE) + root[:, None] * K * root


def matrix(operator):
    """All entries, in NumPy."""
    return np.asarray(operator.times(jnp.eye(operator.size, dtype=operator.dtype)))
