"""Linear systems of Gaussian processes of a few rows, and their matrices."""

import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.extensions.iterative.solvers.conjugate_gradients import begun_at
from latentgp.extensions.iterative.solvers.operators import (
    TiledCovariance,
    noisy_system,
    site_system,
)
from latentgp.extensions.iterative.solvers.solution import norms

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


def truncation_variance(
    operator, right, *, threshold, weights, preconditioner, tolerance, max_steps=1000
):
    """The variance of every number of an estimate of `ulisse`, by two runs to the end.

    With c_j = w_0 ... w_j the estimate takes c_j d_j with probability 1 / c_j, and never d_k for
    k > j without d_j. So E[c_j c_k 1_j 1_k] = c_min(j, k), and the variance is the sum over j of
    (c_j - 1) (d_j^2 + 2 d_j (d_{j+1} + d_{j+2} + ...)). Arguments are those of `ulisse`.
    """
    state, move = begun_at(operator, right, preconditioner, None, tolerance)

    def step(now):
        before, whole, total, factor, late, steps = now
        after = move(before)
        reached = (late >= 0) | (norms(after.residual) <= threshold)
        late = jnp.where(reached, late + 1, -1)
        w = jnp.where(late >= 0, weights(jnp.maximum(late, 0)), 1.0)
        factor = jnp.where(before.active, factor * w, factor)
        increment = after.length * before.direction
        part = increment**2 + 2 * increment * (whole - after.value)
        return after, whole, total + (factor - 1) * part, factor, late, steps + 1

    @jax.jit
    def run(whole):
        ones, early = jnp.ones(right.shape[1]), jnp.full(right.shape[1], -1)
        begun = state, whole, jnp.zeros_like(right), ones, early, jnp.asarray(0)
        end = jax.lax.while_loop(
            lambda now: jnp.any(now[0].active) & (now[-1] < max_steps), step, begun
        )
        return end[0].value, end[2]

    return run(run(state.value)[0])[1]
