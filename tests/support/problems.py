"""Tiny problems, and the classes that a user would write, shared by the tests."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import constraints

import latentgp as lgp

_generator = np.random.default_rng(0)
X = _generator.normal(size=(11, 2))
SMOOTH = np.sin(X[:, 0]) + 0.1 * _generator.normal(size=11)
BINARY = (X[:, 1] > 0).astype(float)
BINARY[0] = 1 - BINARY[0]
KERNEL = 1.4 * lgp.RBF(lengthscale=0.6)


def regression(kernel=KERNEL, mean=None, noise_variance=0.3):
    """A model with Gaussian noise."""
    return lgp.LatentGP(kernel, lgp.Gaussian(noise_variance), mean or lgp.ZeroMean())


def classification(kernel=KERNEL, mean=None):
    """A model with binary targets."""
    return lgp.LatentGP(kernel, lgp.Bernoulli(), mean or lgp.ZeroMean())


class StudentT(lgp.Likelihood):
    """A user's likelihood with a parameter, and nothing but `log_prob`."""

    scale: Array = lgp.parameter(constraints.positive, default=1.0)
    degrees: ClassVar[float] = 7.0

    def log_prob(self, y, f, side):
        nu, z = self.degrees, (y - f[0]) / self.scale
        constant = jnp.log(jnp.asarray(_student_constant(nu), z.dtype))
        return constant - jnp.log(self.scale) - 0.5 * (nu + 1) * jnp.log1p(z**2 / nu)


def _student_constant(nu):
    from scipy.special import gamma

    return gamma((nu + 1) / 2) / gamma(nu / 2) / np.sqrt(nu * np.pi)


class Heteroscedastic(lgp.Likelihood):
    """A user's likelihood of two latents: y ~ N(f_1, exp(f_2 / 2)), and nothing but `log_prob`."""

    latent_size: ClassVar[int] = 2

    def log_prob(self, y, f, side):
        log_variance = 0.5 * f[1]
        return -0.5 * (
            jnp.log(2 * jnp.pi) + log_variance + (y - f[0]) ** 2 * jnp.exp(-log_variance)
        )


def mean_and_error(draws):
    """Means over chains and draws, and their standard errors from ten batches a chain."""
    chains, number = draws.shape[:2]
    batches = draws[:, : number // 10 * 10].reshape(chains * 10, number // 10, -1).mean(axis=1)
    return batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
