"""Anderson acceleration of site updates: where several past updates point to."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.likelihoods.base import Marginals
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array

# Of many rows and latents fewer: the history is what takes most memory there.
_UPDATES_KEPT, _UPDATES_KEPT_OF_MANY = 8, 2
_MANY = 1 << 16
_RIDGE = 1e-12


class Update(NamedTuple):
    """Sites, their plain update, and the marginals that it was made from."""

    sites: GaussianSites
    target: GaussianSites
    marginals: Marginals


class History(NamedTuple):
    """Differences between updates that followed each other, the oldest overwritten.

    Attributes:
        moves: of the sites' linear terms and precisions, shape (H, 2, N, Q); zero where unused.
        changes: of the updates' residuals, target less sites, likewise.
        count: how many there have been.
    """

    moves: Float[Array, "H 2 N Q"]
    changes: Float[Array, "H 2 N Q"]
    count: Int[Array, ""]

    @classmethod
    def empty(cls, like: GaussianSites) -> "History":
        """No updates yet."""
        kept = _UPDATES_KEPT if like.linear.size <= _MANY else _UPDATES_KEPT_OF_MANY
        nothing = jnp.zeros((kept, 2, *like.linear.shape), like.linear.dtype)
        return cls(nothing, nothing, jnp.zeros((), jnp.int32))

    def between(self, before: Update, after: Update) -> "History":
        """This history and one more difference."""
        slot = self.count % len(self.moves)
        move = _parameters(after.sites) - _parameters(before.sites)
        change = _residual(after) - _residual(before)
        return History(
            self.moves.at[slot].set(move), self.changes.at[slot].set(change), self.count + 1
        )


def accelerated(
    history: History,
    update: Update,
    step_size: float | Float[Array, ""],
    *,
    signed: bool = False,
) -> GaussianSites:
    """Anderson-accelerated step: the secant with the smallest residual, then a step from there.

    Anderson (1965, 4.1). Without history it is a damped step. Precisions stay at zero or above
    unless they are signed.
    """
    changes = jax.lax.map(lambda change: _white(update, change), history.changes)
    gram = jnp.einsum("akni,bkni->ab", changes, changes)
    slopes = jnp.einsum("akni,kni->a", changes, _white(update, _residual(update)))
    norms = jnp.sqrt(jnp.diagonal(gram))
    norms = jnp.where(norms > 0, norms, 1.0)
    correlations = gram / jnp.outer(norms, norms) + _RIDGE * jnp.eye(len(gram), dtype=gram.dtype)
    weights = jnp.linalg.solve(correlations, slopes / norms) / norms
    along = jnp.einsum("a,akni->kni", weights, history.moves + step_size * history.changes)
    plain = update.sites.damped(update.target, step_size)
    linear, precision = _parameters(plain) - along
    precision = precision if signed else jnp.maximum(precision, 0.0)
    return GaussianSites(linear, precision, plain.log_constant)


def residual_norm(update: Update) -> Float[Array, ""]:
    """Squared length of a plain update: about twice the KL divergence between its marginals."""
    return jnp.sum(_white(update, _residual(update)) ** 2)


def _white(update: Update, parameters: Float[Array, "2 N Q"]) -> Float[Array, "2 N Q"]:
    """Differences of sites by the Fisher information of N(mean, variance): units do not matter."""
    linear, precision = parameters
    mean, variance = update.marginals
    spread = jnp.sqrt(variance)
    return jnp.stack(
        [
            spread * (linear - mean * precision),
            jnp.sqrt(0.5) * variance * precision,
        ]
    )


def _parameters(sites: GaussianSites) -> Float[Array, "2 N Q"]:
    return jnp.stack([sites.linear, sites.precision])


def _residual(update: Update) -> Float[Array, "2 N Q"]:
    return _parameters(update.target) - _parameters(update.sites)
