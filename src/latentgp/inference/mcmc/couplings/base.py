"""The contract of a coupling."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.coordinates import Coordinates, coordinates_at
from latentgp.inference.mcmc.target import WhiteTarget
from latentgp.typing import Array


class Place(NamedTuple):
    """Hyper-parameters, and the latent functions in coordinates that belong to them.

    Attributes:
        vector: unconstrained hyper-parameters, shape (P,).
        eps: standard normal coordinates of the latent functions, shape (Q, M).
        coordinates: what they mean under these hyper-parameters.
    """

    vector: Float[Array, "P"]
    eps: Float[Array, "Q M"]
    coordinates: Coordinates


class Coupling(eqx.Module):
    """Parameterisation: what of the latent functions is held while hyper-parameters move.

    Attributes:
        whitened: whether the latent functions move in prior white coordinates; else in those of
            the sites of Laplace's approximation.
    """

    whitened: ClassVar[bool] = True

    @abstractmethod
    def held(self, target: WhiteTarget, at: Place, key: Key[Array, ""]) -> Any:
        """What is held, drawn from its law given the place where it is random."""

    def here(
        self,
        target: WhiteTarget,
        at: Place,
        held: Any,
        anchor: Float[Array, "N Q"],
        differentiable: bool,
    ) -> tuple[Float[Array, ""], Place]:
        """What `density` gives at the present hyper-parameters."""
        return self.density(target, at.vector, held, anchor, differentiable)

    @abstractmethod
    def density(
        self,
        target: WhiteTarget,
        vector: Float[Array, "P"],
        held: Any,
        anchor: Float[Array, "N Q"],
        differentiable: bool,
    ) -> tuple[Float[Array, ""], Place]:
        """Log density of hyper-parameters given what is held, in nats, and the place there."""

    def coordinates(
        self,
        target: WhiteTarget,
        vector: Float[Array, "P"],
        anchor: Float[Array, "N Q"],
        differentiable: bool = False,
    ) -> Coordinates:
        """The coordinates in which the latent functions move."""
        model = target.space.to_model(vector)
        kind = "whitened" if self.whitened else "sites"
        return coordinates_at(target, model, kind, anchor, differentiable=differentiable)


def log_joint(target: WhiteTarget, at: Place) -> Float[Array, ""]:
    """Log density of hyper-parameters and coordinates, with respect to N(eps | 0, I), in nats."""
    model = target.space.to_model(at.vector)
    residual = at.coordinates.residual(target, model, at.eps)
    value = target.space.log_prior(at.vector) + at.coordinates.log_evidence + residual
    return jnp.where(jnp.isnan(value), -jnp.inf, value)
