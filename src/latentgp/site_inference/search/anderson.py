"""Anderson acceleration of site updates: where several past updates point to."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.likelihoods.base import AnyMarginals
from latentgp.sites.coupled import Sites
from latentgp.typing import Array, Scalar

# Of many rows and latents fewer: the history is what takes most memory there.
_UPDATES_KEPT, _UPDATES_KEPT_OF_MANY = 8, 2
_MANY = 1 << 16
_RIDGE = 1e-12


class Update(NamedTuple):
    """Sites, their plain update, and the marginals that it was made from."""

    sites: Any
    target: Any
    marginals: AnyMarginals


class History(NamedTuple):
    """Differences between updates that followed each other, the oldest overwritten."""

    # of the sites' linear terms and precisions; the table has 2 entries, or 1 + Q of sites that
    # couple latents; zero where unused
    moves: Float[Array, "T table N Q"]
    changes: Float[Array, "T table N Q"]  # of the updates' residuals, target less sites, likewise
    count: Int[Array, ""]  # how many there have been

    @classmethod
    def empty(cls, like: Sites) -> "History":
        """No updates yet."""
        kept = _UPDATES_KEPT if like.linear.size <= _MANY else _UPDATES_KEPT_OF_MANY
        nothing = jnp.zeros((kept, *like.table().shape), like.linear.dtype)
        return cls(nothing, nothing, jnp.zeros((), jnp.int32))

    def between(self, before: Update, after: Update) -> "History":
        """This history and one more difference."""
        slot = self.count % len(self.moves)
        move = after.sites.table() - before.sites.table()
        change = _residual(after) - _residual(before)
        return History(
            self.moves.at[slot].set(move), self.changes.at[slot].set(change), self.count + 1
        )


def accelerated(
    history: History, update: Update, step_size: float | Scalar, *, signed: bool = False
) -> Any:
    """Anderson-accelerated step: the secant with the smallest residual, then a step from there.

    Anderson (1965, 4.1). Without history it is a damped step. Precisions stay at zero or above
    unless they are signed.
    """
    white = update.sites.white
    changes = jax.lax.map(lambda change: white(change, update.marginals), history.changes)
    gram = jnp.einsum("akni,bkni->ab", changes, changes)
    slopes = jnp.einsum("akni,kni->a", changes, white(_residual(update), update.marginals))
    norms = jnp.sqrt(jnp.diagonal(gram))
    norms = jnp.where(norms > 0, norms, 1.0)
    correlations = gram / jnp.outer(norms, norms) + _RIDGE * jnp.eye(len(gram), dtype=gram.dtype)
    weights = jnp.linalg.solve(correlations, slopes / norms) / norms
    along = jnp.einsum("a,akni->kni", weights, history.moves + step_size * history.changes)
    plain = update.sites.damped(update.target, step_size)
    moved = plain.from_table(plain.table() - along)
    return moved if signed else moved.proper()


def residual_norm(update: Update) -> Scalar:
    """Squared length of a plain update: about twice the KL divergence between its marginals."""
    return jnp.sum(update.sites.white(_residual(update), update.marginals) ** 2)


def _residual(update: Update) -> Float[Array, "table N Q"]:
    return update.target.table() - update.sites.table()
