"""Trajectories of hyper-parameters and latent functions jointly, in coordinates of these."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import (
    Coordinates,
    Kind,
    coordinates_at,
    coordinates_at_centre,
    starting_point,
)
from latentgp.extensions.chains.copies import Copies
from latentgp.extensions.chains.couplings.base import Place, log_joint, no_others
from latentgp.extensions.chains.loop import Sampler
from latentgp.extensions.chains.target import Position, WhiteTarget
from latentgp.sites.augmentations import Automatic
from latentgp.typing import Array, Coefs, HyperVector, RandomKey, Scalar


class JointPosition(NamedTuple):
    """Position of a trajectory."""

    vector: HyperVector  # unconstrained hyper-parameters; H = 0 if they are fixed
    eps: Coefs  # coordinates of the latent functions; white ones are the prior's
    log_auxiliary: Float[Array, "auxiliaries"]  # logs of auxiliary variables; none unless augmented


class JointState(NamedTuple):
    """A chain's state: BlackJAX's, and the settings that the warm-up found."""

    hmc: Any
    settings: dict[str, Any]


class JointDensity(eqx.Module):
    """Log density of hyper-parameters and latent functions, in coordinates of these."""

    target: WhiteTarget  # the log density in white coefficients
    # the rows repeated by their weights if the auxiliary variables of a scale mixture are part of
    # it; else None
    copies: Copies | None
    coupling: Kind = eqx.field(static=True)  # the coordinates of the latent functions
    fixed: Coordinates | None  # the coordinates where hyper-parameters are held; else None

    @classmethod
    def of(cls, target: WhiteTarget, copies: Copies | None = None, **settings: Any) -> Any:
        """With the mode under the space's model as the anchor."""
        fixed = None
        if settings["coupling"] != "whitened":
            coordinates = coordinates_at_centre(target, settings["coupling"])
            fixed = None if target.space.size else coordinates
            target = dataclasses.replace(target, anchor=coordinates.marginals)
        return cls(target=target, copies=copies, fixed=fixed, **settings)

    def white(self, position: JointPosition) -> Position:
        """A position in white coefficients."""
        vector, eps, _ = position
        if self.coupling == "whitened":
            return Position(vector, eps)
        return Position(vector, self.coordinates(vector).white(eps))

    def eps_of(self, position: Position) -> Coefs:
        """Coordinates of a position in white coefficients."""
        if self.coupling == "whitened":
            return position.white
        return self.coordinates(position.vector).of_white(position.white)

    def coordinates(self, vector: HyperVector, differentiable: bool = False) -> Coordinates:
        """The coordinates of the latent functions under hyper-parameters."""
        if self.fixed is not None:
            return self.fixed
        target, kind, anchor = self.target, self.coupling, self.target.anchor
        assert anchor is not None
        model = target.space.to_model(vector)
        return coordinates_at(target, model, kind, anchor, differentiable=differentiable)

    def log_density(self, position: JointPosition) -> Scalar:
        """Log density of coordinates, hyper-parameters and auxiliary variables."""
        vector, eps, log_w = position
        if self.coupling != "whitened":
            coordinates = self.coordinates(vector, differentiable=True)
            place = Place(vector, eps, coordinates, no_others(eps))
            return log_joint(self.target, place) - 0.5 * jnp.sum(eps**2)
        total = self.target(Position(vector, eps))
        if self.copies is None:
            return total
        # p(y, w | f) = p(y | f) p(w | y, f), and the change of variables to log w.
        model = self.target.space.to_model(vector)
        f, _ = self.target.conditional(model, eps)
        law = Automatic().bind(model.likelihood, self.copies.rows).law(self.copies.spread(f))
        return total + jnp.sum(law.log_prob(jnp.exp(log_w)) + log_w)


class JointSampler(JointDensity, Sampler):
    """Hamiltonian trajectories of a chain's whole position."""

    adapts_in_init: ClassVar[bool] = True

    warmup: int = eqx.field(static=True)  # steps that adapt
    target_acceptance: float = eqx.field(static=True)  # that the step size is adapted to

    def init(self, key: RandomKey) -> JointState:
        key_start, key_w, key_run = jax.random.split(key, 3)
        vector, white = starting_point(self.target, key_start)
        rows = 0 if self.copies is None else len(self.copies.rows.y)
        auxiliary = jax.random.normal(key_w, (rows,), white.dtype)
        start = JointPosition(vector, self.eps_of(Position(vector, white)), auxiliary)
        return self.adapted(start, key_run)

    @abstractmethod
    def adapted(self, start: JointPosition, key: RandomKey) -> JointState:
        """The state after the warm-up."""

    def position(self, state: JointState) -> Position:
        return self.white(state.hmc.position)

    def moved(self, state: JointState, position: Position) -> JointState:
        import blackjax

        auxiliary = state.hmc.position.log_auxiliary
        there = JointPosition(position.vector, self.eps_of(position), auxiliary)
        hmc = blackjax.nuts.init(there, lambda at: self.log_density(at))
        return JointState(hmc, state.settings)
