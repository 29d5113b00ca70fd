# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""White coefficients v ~ N(0, I), and the latent functions given them.

With L L' = K at the centres and A = L^-1 k(C, X), the latent functions at X are

    g = A' v + e,   e ~ N(0, k(x, x) - |A_x|^2),  independent of v.

Where the centres are the rows themselves, A' = L and nothing is left open.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import differentiable_cholesky
from latentgp.numerics.sums import sum_over_first
from latentgp.numerics.triangular import inverse_of_lower, solve_lower
from latentgp.representations.latent_axis import latent_grams, vmap_latents
from latentgp.representations.variables import (
    Centres,
    covariance_of,
    cross_covariance,
    prior_variances,
)
from latentgp.typing import Array, Coefs, Inputs, RowLatents, Scalar


class Whitening(eqx.Module):
    """The map from white coefficients to the latent functions at some inputs."""

    centres: eqx.AbstractVar[Centres]  # of the coefficients, such as points of shape (M, D)
    residual: eqx.AbstractVar[Float[Array, "#Q N"]]  # prior variance given the coefficients
    jitter: eqx.AbstractVar[Scalar]  # the largest added to K at the centres; units of f squared

    @abstractmethod
    def conditional(self, white: Coefs) -> Marginals:
        """Conditional marginals of g given white coefficients."""

    def attached(self, representation: Any) -> "Whitening":
        """With what a representation holds of the rows, whatever the kernel; itself by default."""
        return self

    @abstractmethod
    def white_of(self, g: RowLatents) -> Float[Array, "Q N"]:
        """White coefficients of g, where there is one of them a row."""

    @abstractmethod
    def log_determinant(self, latents: int) -> Scalar:
        """Log-determinant of the map to g at the rows of so many latent functions."""


class WhiteningBySolves(Whitening):
    """That map by a sparse root, whose posterior given sites is found by solves."""

    @abstractmethod
    def posterior(
        self, linear: RowLatents, precision: RowLatents, tolerance: float
    ) -> tuple[Any, RowLatents]:
        """A root near one of the posterior covariance, and the mean of g, given sites of g.

        No precision is negative; the tolerance is that of the residual of the mean's solve.
        """

    @abstractmethod
    def attached_root(self, root: Any) -> Any:
        """Such a root with what the map holds of the rows, whatever the kernel."""


class DenseWhitening(Whitening):
    """That map by matrices."""

    centres: Centres
    lower: Float[Array, "#Q M M"]  # L
    features: Float[Array, "#Q M N"]  # A
    residual: Float[Array, "#Q N"]
    jitter: Scalar

    def conditional(self, white: Coefs) -> Marginals:
        mean = vmap_latents(lambda features, v: v @ features, self.features, white).T
        variance = jnp.broadcast_to(self.residual, (len(white), self.residual.shape[1])).T
        return Marginals(mean, variance)

    def white_of(self, g: RowLatents) -> Float[Array, "Q N"]:
        return vmap_latents(solve_lower, self.lower, g.T)

    def log_determinant(self, latents: int) -> Scalar:
        logs = jnp.log(jnp.diagonal(self.lower, axis1=1, axis2=2))
        return jnp.sum(jnp.broadcast_to(logs, (latents, logs.shape[1])))


def whitening_at_rows(kernel: LatentKernel, X: Inputs) -> DenseWhitening:
    """One coefficient a row: g = L v."""
    lower, jitter = vmap_latents(differentiable_cholesky, latent_grams(kernel, X))
    residual = jnp.zeros((len(lower), len(X)), lower.dtype)
    return DenseWhitening(X, lower, jnp.swapaxes(lower, 1, 2), residual, jnp.max(jitter))


def whitening_from(kernel: LatentKernel, centres: Centres, X: Inputs) -> DenseWhitening:
    """Coefficients at the centres; g at other inputs is its conditional given them."""
    lower, jitter = vmap_latents(differentiable_cholesky, covariance_of(kernel, centres))
    inverse = vmap_latents(inverse_of_lower, lower)  # for many columns quicker than solves
    features = inverse @ cross_covariance(kernel, centres, X)
    explained = vmap_latents(lambda features: sum_over_first(features**2), features)
    residual = jnp.maximum(prior_variances(kernel, centres, X) - explained, 0.0)
    return DenseWhitening(centres, lower, features, residual, jnp.max(jitter))
