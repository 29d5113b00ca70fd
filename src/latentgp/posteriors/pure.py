"""Posterior as pure functions of JAX arrays, for the user's `grad`, `jit` and `vmap`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.likelihoods.joint import jointly
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.prior_paths import PosteriorPaths, posterior_paths
from latentgp.representations.variables import Centres
from latentgp.runtime.x64 import public
from latentgp.typing import Array, Inputs, RandomKey, RowLatents


# No modules of Equinox: bound methods of theirs cannot be hashed, so jax.jit(pure.mean) would fail.
@stored
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PurePosterior:
    """Posterior as pure JAX, from `posterior.as_jax()`: prior mean included, users' units.

    It is a pytree: close over it, or pass it to a function under `jax.jit`. Computations are in the
    precision of the inputs: make these inside `jax.enable_x64(True)` where single precision will
    not do, for variances near the data above all.

    Attributes:
        model: with the hyper-parameters of the posterior.
        latent: the Gaussian posterior of the latent functions' zero-mean part.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> pure = fit.posterior.as_jax()
        >>> slope = jax.grad(lambda x: pure.mean(x[None, None])[0])
        >>> float(slope(0.5).round(2))
        0.75
    """

    model: LatentGP
    latent: LatentPosterior

    @public
    def mean(self, X: Inputs) -> Float[Array, "N *Q"]:
        """Means of the latent functions, shape (N,), or (N, Q) for Q > 1."""
        return self._of_latents(self.latent.mean(X) + self.model.mean(X))

    @public
    def variance(self, X: Inputs) -> Float[Array, "N *Q"]:
        """Variances of the latent functions, shape (N,), or (N, Q) for Q > 1."""
        return self._of_latents(self.latent.marginals(X).variance)

    @public
    def covariance(self, X: Inputs) -> Float[Array, "*Q N N"]:
        """Joint covariances of the latent functions, shape (N, N), or (Q, N, N) for Q > 1."""
        covariance = self.latent.covariance(X)
        latents = self.model.likelihood.latent_size
        covariance = jnp.broadcast_to(covariance, (latents, *covariance.shape[1:]))
        return covariance[0] if latents == 1 else covariance

    @public
    def predict(self, X: Inputs, **side_information: Any) -> tuple[Array, Array]:
        """Means and variances of y, each of shape (N,), or (N, P) for P outputs.

        Args:
            X: inputs.
            side_information: what the likelihood reads a row, as in `Data`.
        """
        marginals = self.latent.marginals(X).shifted(self.model.mean(X))
        side = {name: jnp.asarray(values) for name, values in side_information.items()}
        likelihood, independent, side = jointly(self.model.likelihood, marginals, side)
        return likelihood.predictive_moments(independent, side)

    @public
    def paths(self, key: RandomKey, number: int = 1, features: int = 1024) -> "PurePaths":
        """Draws of the latent functions as functions, as `Posterior.sample_paths` makes them.

        Args:
            key: random key.
            number: of draws S.
            features: how many for each latent function.

        Raises:
            InputError: the kernel has no spectral features.
        """
        own, latents = (self.latent, self.model.kernel), self.model.likelihood.latent_size
        paths = posterior_paths(*own, key, latents=latents, features=features, number=number)
        return PurePaths(self.model, self.latent.centres, paths, number)

    def _of_latents(self, values: RowLatents) -> Float[Array, "N *Q"]:
        return values[:, 0] if self.model.likelihood.latent_size == 1 else values


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PurePaths:
    """Draws of the latent functions, each a function that can be differentiated.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> paths = fit.posterior.as_jax().paths(jax.random.key(1), number=3)
        >>> jax.vmap(jax.grad(lambda x: paths(x[None, None])[0, 0]))(jax.numpy.ones(2)).shape
        (2,)
    """

    model: LatentGP
    centres: Centres
    draws: PosteriorPaths
    number: int = dataclasses.field(metadata={"static": True})

    @public
    def __call__(self, X: Inputs) -> Float[Array, "S N *Q"]:
        """Values at every row of X, shape (S, N), or (S, N, Q) for Q > 1."""
        values = self.draws(self.model.kernel, self.centres, X)[: self.number]
        values = values + self.model.mean(X)
        return values[..., 0] if self.model.likelihood.latent_size == 1 else values
