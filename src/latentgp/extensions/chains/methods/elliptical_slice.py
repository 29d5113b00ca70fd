"""Elliptical slice sampling."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.extensions.chains.coordinates import starting_point
from latentgp.extensions.chains.loop import Sampler
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.target import Position, WhiteTarget
from latentgp.methods.base import usual_method
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.typing import Array

_MOST_SHRINKS = 100  # of a bracket that halves on average: below rounding long before


class EllipticalSlice(SamplingMethod):
    """Elliptical slice sampling (Murray, Adams & MacKay 2010): any likelihood, nothing to tune.

    A step moves the white coefficients along an ellipse through the present ones and a draw of the
    prior, to a point whose likelihood is above a random share of the present one's. It needs no
    gradient and is never rejected. Hyper-parameters that are to be learned are learned by
    `VariationalInference` and then held. With `Inducing` the target is the free-form variational
    posterior of the inducing variables.

    Args:
        representation: `Dense()`, `Neighbours(...)` or `Inducing(...)`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: steps of each chain that are thrown away.
        thin: keeps every `thin`-th state.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 2.0, 7.0])
        >>> method = lgp.EllipticalSlice(chains=2, draws=100)
        >>> result = lgp.fit(model, rows, key=jax.random.key(0), method=method)
        >>> result.posterior.predict([0.0, 2.0]).mean.shape
        (2,)
    """

    samples_hyperparameters: ClassVar[bool] = False

    representation: Representation = Dense()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=5)

    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        if not model.likelihood.is_positive:
            raise InputError(
                f"{type(model.likelihood).__name__} gives some targets a density of zero, from "
                f"which a slice cannot recover; use {usual_method(model.likelihood)}."
            )

    def sampler(self, target: WhiteTarget) -> "EllipticalSliceSampler":
        return EllipticalSliceSampler(target)

    def starting_method(self) -> SiteMethod:
        return VariationalInference(self.representation)


class EllipticalSliceState(NamedTuple):
    """A chain's state: white coefficients, and the log likelihood there."""

    white: Float[Array, "Q M"]
    log_likelihood: Float[Array, ""]


class EllipticalSliceSampler(Sampler):
    """The transition at fixed hyper-parameters."""

    target: WhiteTarget

    def init(self, key: Key[Array, ""]) -> EllipticalSliceState:
        white = starting_point(self.target, key).white
        return EllipticalSliceState(white, self._log_likelihood(white))

    def step(
        self, state: EllipticalSliceState, key: Key[Array, ""]
    ) -> tuple[EllipticalSliceState, dict[str, Array]]:
        key_prior, key_level, key_angle, key_shrink = jax.random.split(key, 4)
        white, dtype = state.white, state.white.dtype
        other = jax.random.normal(key_prior, white.shape, dtype)
        level = state.log_likelihood + jnp.log(jax.random.uniform(key_level, dtype=dtype))
        first = jax.random.uniform(key_angle, dtype=dtype, maxval=2 * jnp.pi)

        def at(angle: Array) -> EllipticalSliceState:
            there = white * jnp.cos(angle) + other * jnp.sin(angle)
            return EllipticalSliceState(there, self._log_likelihood(there))

        def is_below(carry: tuple) -> Array:
            there, *_, shrinks = carry
            return ~(there.log_likelihood > level) & (shrinks < _MOST_SHRINKS)

        def shrink(carry: tuple) -> tuple:
            _, angle, low, high, shrinks = carry
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            own = jax.random.fold_in(key_shrink, shrinks)
            angle = jax.random.uniform(own, dtype=dtype, minval=low, maxval=high)
            return at(angle), angle, low, high, shrinks + 1

        bracket = (at(first), first, first - 2 * jnp.pi, first, 0)
        there, *_, shrinks = jax.lax.while_loop(is_below, shrink, bracket)
        moved = there.log_likelihood > level
        after = jax.tree.map(lambda new, old: jnp.where(moved, new, old), there, state)
        statistics = {
            "acceptance_rate": jnp.ones((), dtype),
            "diverging": jnp.zeros((), bool),
            "n_steps": shrinks + 1,
            "lp": after.log_likelihood - 0.5 * jnp.sum(after.white**2),
        }
        return after, statistics

    def position(self, state: EllipticalSliceState) -> Position:
        return Position(jnp.zeros(0, state.white.dtype), state.white)

    def moved(self, state: EllipticalSliceState, position: Position) -> EllipticalSliceState:
        return EllipticalSliceState(position.white, self._log_likelihood(position.white))

    def _log_likelihood(self, white: Float[Array, "Q M"]) -> Float[Array, ""]:
        return self.target.log_likelihood(self.target.space.model, white)
