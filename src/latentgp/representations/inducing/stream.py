"""The summary of data seen so far by inducing variables, which streaming updates start from."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Float

from latentgp.errors import warn_user
from latentgp.kernels import LatentKernel
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.numerics.triangular import inverse_of_lower
from latentgp.representations.inducing.natural_parameters import (
    Memory,
    ProjectedPrior,
    WhiteSites,
    for_all,
    of_each,
)
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
    white: WhiteSites  # sites of L^-1 u, of all latents together where rows tied them
    constant: Scalar
    signed: bool = eqx.field(static=True, default=False)

    @property
    def usual_representation(self) -> Any:
        return getattr(self.centres, "usual_representation", None)

    @property
    def latents(self) -> int:
        return len(self.white.linear) * self.together

    @property
    def together(self) -> int:
        """Number of latents that rows so far tied."""
        return self.white.together(len(self.centres))

    def for_sites(self, coupled: bool) -> "StreamingPrior":
        """The same of all latents together, or the nearest Gaussian of independent latents.

        The mean-field approximation (Bishop 2006, section 10.1.2) has the same means, and for each
        latent the precision that it has given the others; a warning says what it loses.
        """
        if coupled and self.together == 1:
            linear, precision = self.white
            tied = WhiteSites(linear.reshape(1, -1), for_all(precision, len(linear)))
            return dataclasses.replace(self, white=tied)
        return self if coupled or self.together == 1 else self._independent()

    def _independent(self) -> "StreamingPrior":
        linear, together = self.white.linear[0], self.together
        whole = self.white.factor()
        root, determinant = whole.inverse[0], jnp.sum(jnp.log(jnp.diagonal(whole.lower[0])))
        mean = root.T @ (root @ linear)
        own = of_each(self.white.precision, together)
        precision = own + jnp.eye(own.shape[1], dtype=own.dtype)
        alone = vmap_latents(cholesky, precision)
        means = mean.reshape(together, -1)
        white = WhiteSites(jnp.einsum("qab,qb->qa", precision, means), own)
        # The constant is such that the evidence falls by the divergence to that Gaussian.
        constant = self.constant + 0.5 * (mean @ linear - jnp.sum(means * white.linear))
        found = dataclasses.replace(self, white=white, constant=constant)
        if isinstance(constant, Tracer):
            return found

        def deviations(inverse: Array, root: Array) -> Array:
            turned = inverse_of_lower(inverse) @ root.T
            return jnp.sqrt(jnp.sum(turned**2, axis=1))

        given_others = vmap_latents(deviations, self.inverse, alone.inverse)
        spread = root @ for_all(vmap_latents(inverse_of_lower, self.inverse), together)[0].T
        marginal = jnp.sqrt(jnp.sum(spread**2, axis=0)).reshape(together, -1)
        kept = given_others / marginal
        lost = jnp.sum(jnp.log(jnp.diagonal(alone.lower, axis1=1, axis2=2))) - determinant
        warn_user(
            "The latent functions of the rows so far are remembered as independent ones, "
            f"{float(lost):.2g} nats from the posterior that correlates them: means are kept, "
            f"standard deviations are {1 - float(jnp.mean(kept)):.1%} smaller on average, "
            f"{1 - float(jnp.min(kept)):.1%} at most; go on with VariationalInference(coupled=True)"
            ", or fit with coupled=False for latents that are independent from the start."
        )
        return found

    def seen(self, kernel: LatentKernel, centres: Centres) -> "ProjectedPrior":
        """The summary projected on other variables, under another kernel."""
        cross = covariance_between(kernel, centres, self.centres)
        grams = covariance_of(kernel, self.centres)
        whole = (for_all(each, self.together) for each in (cross, grams, self.inverse))

        def see(cross, gram, inverse, sites):
            return cross @ inverse.T, jnp.sum(sites.precision * (inverse @ gram @ inverse.T))

        return ProjectedPrior(*vmap_latents(see, *whole, self.white))

    def memory(self, seen: "ProjectedPrior", prior: Factor) -> Memory:
        """The factor of white inducing variables that `seen` implies, given K_mm's factor."""

        def turned(inverse, turn, sites):
            return sites._turned(inverse @ turn)

        white = vmap_latents(turned, for_all(prior.inverse, self.together), seen.turn, self.white)
        lost = 0.5 * jnp.sum(seen.loss - jnp.trace(white.precision, axis1=1, axis2=2))
        return Memory(white, self.constant - lost, lost)
