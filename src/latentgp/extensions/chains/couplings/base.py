"""The contract of a coupling."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import Coordinates, Kind, coordinates_at
from latentgp.extensions.chains.information import information_of_targets
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.models import LatentGP
from latentgp.typing import Array, Coefs, HyperMatrix, HyperVector, RandomKey, Scalar


class Place(NamedTuple):
    """Hyper-parameters, and the latent functions in coordinates that belong to them."""

    vector: HyperVector  # unconstrained hyper-parameters
    eps: Coefs  # standard normal coordinates of the latent functions
    coordinates: Coordinates  # what they mean under these hyper-parameters
    # further coordinates whose likelihoods are averaged with that of `eps`; none but in
    # pseudo-marginal schemes
    others: Float[Array, "S Q M"]
    # whose mean exponential is the estimate of a pseudo-marginal scheme relative to the approximate
    # evidence; None where they follow from the coordinates
    log_weights: Float[Array, "S"] | None = None


class Coupling(eqx.Module):
    """Parameterisation: what of the latent functions is held while hyper-parameters move."""

    kind: ClassVar[Kind] = "whitened"  # of coordinates that latent functions move in

    def others(self, eps: Coefs, key: RandomKey) -> Float[Array, "S Q M"]:
        """Further coordinates that a chain starts with."""
        return no_others(eps)

    def selected(self, target: WhiteTarget, at: Place, key: RandomKey) -> Place:
        """The place with a draw of f given hyper-parameters as its coordinates."""
        return at

    @abstractmethod
    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> Any:
        """Held coordinates, drawn from their law given the place where they are random."""

    def here(
        self, target: WhiteTarget, at: Place, held: Any, differentiable: bool
    ) -> tuple[Scalar, Place]:
        """Value of `density` at the present hyper-parameters."""
        return self.density(target, at.vector, held, differentiable)

    @abstractmethod
    def density(
        self, target: WhiteTarget, vector: HyperVector, held: Any, differentiable: bool
    ) -> tuple[Scalar, Place]:
        """Log density of hyper-parameters given what is held, in nats, and the place there."""

    def information(self, target: WhiteTarget, at: Place, held: Any) -> HyperMatrix:
        """Expected Fisher information of hyper-parameters by the sites, the metric of moves."""
        return information_of_targets(target, at.vector, at.coordinates.precision)

    def coordinates(
        self, target: WhiteTarget, vector: HyperVector, differentiable: bool = False
    ) -> Coordinates:
        """The coordinates in which the latent functions move."""
        model = target.space.to_model(vector)
        kind, anchor = self.kind, target.anchor
        assert anchor is not None
        return coordinates_at(target, model, kind, anchor, differentiable=differentiable)


def no_others(eps: Coefs) -> Float[Array, "0 Q M"]:
    """No further coordinates."""
    return jnp.zeros((0, *eps.shape), eps.dtype)


def log_joint(target: WhiteTarget, at: Place) -> Scalar:
    """Log density of hyper-parameters and all coordinates, relative to N(eps | 0, I), in nats."""
    model = target.space.to_model(at.vector)
    residual = jax.scipy.special.logsumexp(residuals(target, model, at))
    residual = residual - math.log(1 + len(at.others))
    value = target.space.log_prior(at.vector) + at.coordinates.log_evidence + residual
    return jnp.where(jnp.isnan(value), -jnp.inf, value)


def residuals(target: WhiteTarget, model: LatentGP, at: Place) -> Float[Array, "S"]:
    """Log densities of all coordinates relative to the standard normal, in nats; `eps` first."""
    own = at.coordinates.residual(target, model, at.eps)[None]
    if not len(at.others):
        return own
    more = jax.vmap(lambda eps: at.coordinates.residual(target, model, eps))(at.others)
    return jnp.concatenate([own, more])


def chosen(target: WhiteTarget, at: Place, key: RandomKey) -> Place:
    """The place with one of all coordinates, taken by its weight, as that of f."""
    weights = residuals(target, target.space.to_model(at.vector), at)
    one = jax.random.categorical(key, jnp.where(jnp.isnan(weights), -jnp.inf, weights))
    everything = jnp.concatenate([at.eps[None], at.others])
    return at._replace(eps=everything[one], others=everything.at[one].set(at.eps)[1:])
