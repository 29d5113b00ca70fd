"""The summary of data seen so far by inducing variables, which streaming updates start from."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels import LatentKernel
from latentgp.numerics.cholesky import Factor
from latentgp.representations.inducing.natural_parameters import Memory, ProjectedPrior, WhiteSites
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.summary import DataSummary
from latentgp.representations.variables import Centres, covariance_between, covariance_of
from latentgp.typing import Array, Scalar


class StreamingPrior(DataSummary):
    """Summary of the data seen so far, for streaming updates (Bui, Nguyen & Turner 2017).

    It is a factor of the earlier posterior's inducing variables: white sites under the prior of
    that time.
    """

    centres: Centres
    inverse: Float[Array, "#Q earlier earlier"]  # of the factor of K_oo at that time
    white: WhiteSites  # sites of L^-1 u
    constant: Scalar
    signed: bool = eqx.field(static=True, default=False)

    @property
    def usual_representation(self) -> Any:
        return getattr(self.centres, "usual_representation", None)

    @property
    def latents(self) -> int:
        return len(self.white.linear)

    def seen(self, kernel: LatentKernel, centres: Centres) -> "ProjectedPrior":
        """The summary projected on other variables, under another kernel."""
        cross = covariance_between(kernel, centres, self.centres)
        grams = covariance_of(kernel, self.centres)

        def see(cross, gram, inverse, sites):
            return cross @ inverse.T, jnp.sum(sites.precision * (inverse @ gram @ inverse.T))

        return ProjectedPrior(*vmap_latents(see, cross, grams, self.inverse, self.white))

    def memory(self, seen: "ProjectedPrior", prior: Factor) -> Memory:
        """The factor of white inducing variables that `seen` implies, given K_mm's factor."""

        def turned(inverse, turn, sites):
            return sites._turned(inverse @ turn)

        white = vmap_latents(turned, prior.inverse, seen.turn, self.white)
        lost = 0.5 * jnp.sum(seen.loss - jnp.trace(white.precision, axis1=1, axis2=2))
        return Memory(white, self.constant - lost, lost)
