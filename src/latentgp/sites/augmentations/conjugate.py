"""Likelihoods of Gaussian noise are Gaussian sites already."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PyTree

from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.likelihoods.gaussian import Gaussian
from latentgp.likelihoods.least_squares import LeastSquares
from latentgp.sites.augmentations.base import Augmentation, augmentation_of
from latentgp.sites.gaussian import Block, GaussianSites
from latentgp.typing import PerRow, RandomKey, RowLatents


class Conjugate(Augmentation[Gaussian | LeastSquares]):
    """No auxiliary variable: N(y | f, s) as a function of f, term by term.

    Of classes by least squares, y is their indicators.
    """

    sites_are_fixed: ClassVar[bool] = True
    shares_precisions: ClassVar[bool] = True

    def fits(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, Gaussian | LeastSquares)

    def expected_sites(self, marginals: Marginals) -> GaussianSites:
        likelihood, rows = self.likelihood, self.rows
        if isinstance(likelihood, LeastSquares):
            y, noise = likelihood.indicators(rows.y), likelihood.noise_variance
        else:
            noise = likelihood.total_noise_variance(rows.side)
            y, noise = rows.y[:, None], jnp.broadcast_to(noise, rows.y.shape)[:, None]
        noise = jnp.broadcast_to(noise, y.shape)
        constants = -0.5 * (jnp.log(2 * jnp.pi * noise) + y**2 / noise)
        return GaussianSites(y / noise, 1 / noise, jnp.sum(constants, axis=1))

    def draw(self, f: RowLatents, key: RandomKey, block: Block) -> PyTree:
        return ()

    def conditional_sites(self, auxiliary: PyTree, f: RowLatents, block: Block) -> GaussianSites:
        return self.expected_sites(Marginals.known(f))

    def log_conditional(self, auxiliary: PyTree, f: RowLatents, block: Block) -> PerRow:
        return jnp.zeros_like(self.rows.y)


for _kind in (Gaussian, LeastSquares):
    augmentation_of.register(_kind, lambda likelihood: Conjugate())
