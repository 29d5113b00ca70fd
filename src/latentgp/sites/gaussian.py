"""Gaussian sites: one factor for each row and latent, shared by all site methods."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.likelihoods.base import Marginals, SideInformation
from latentgp.modules import stored
from latentgp.typing import Array, PerRow, RowLatents, Scalar

Block = tuple[int, ...]
SitesT = TypeVar("SitesT")


def worth(self: SitesT, marginals: Any) -> SitesT:
    """Sites whose expected log factor under the marginals is what `log_constant` is here."""
    own: Any = self
    value = own.log_constant
    sites = own._replace(log_constant=jnp.zeros_like(value))
    return sites._replace(log_constant=value - sites.expected(marginals))


def weighted(self: SitesT, weights: PerRow | None) -> SitesT:
    """Factors raised to the power of the row's weight: w equals w copies of the row."""
    if weights is None:
        return self
    return jax.tree.map(lambda part: weights.reshape(-1, *[1] * (part.ndim - 1)) * part, self)


def unweighted(self: SitesT, weights: PerRow | None) -> SitesT:
    """The factors that `weighted` makes these of; factors of one where the weight is zero."""
    if weights is None:
        return self
    return weighted(self, jnp.where(weights > 0, 1 / jnp.where(weights > 0, weights, 1.0), 0.0))


def damped(self: SitesT, new: SitesT, step: float | Scalar) -> SitesT:
    """A step from these sites towards new ones, in natural parameters."""
    return jax.tree.map(lambda old, to: old + step * (to - old), self, new)


@stored
class GaussianSites(NamedTuple):
    """Factors exp(linear f - precision f^2 / 2 + log_constant), one a row and latent."""

    linear: RowLatents  # shape (N, Q), units one over f
    # shape (N, Q), units one over f squared; negative only where a rule says so
    precision: RowLatents
    log_constant: PerRow  # shape (N,), in nats: the row's factor that does not depend on f

    worth, weighted, unweighted, damped = worth, weighted, unweighted, damped

    def with_columns(self, new: "GaussianSites", block: Block) -> "GaussianSites":
        """These sites with a block of latents, and the constants, taken from others."""
        chosen = np.isin(np.arange(self.linear.shape[1]), block)
        return GaussianSites(
            jnp.where(chosen, new.linear, self.linear),
            jnp.where(chosen, new.precision, self.precision),
            new.log_constant,
        )

    def expected(self, marginals: Marginals) -> Array:
        """Expectation of each row's log factor under f ~ N(mean, diag(variance)), shape (N,)."""
        mean, variance = marginals
        quadratic = self.linear * mean - 0.5 * self.precision * (mean**2 + variance)
        return jnp.sum(quadratic, axis=1) + self.log_constant

    def slope(self, f: RowLatents) -> RowLatents:
        """Gradients of the log factors."""
        return self.linear - self.precision * f

    def about(self, offset: RowLatents) -> "GaussianSites":
        """The same factors as functions of g = f - offset."""
        constant = self.expected(Marginals.known(offset))
        return GaussianSites(self.slope(offset), self.precision, constant)

    @classmethod
    def none(cls, like: RowLatents) -> "GaussianSites":
        """Factors of one."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like), jnp.zeros_like(like[:, 0]))

    @classmethod
    def derivatives(cls, marginals: Marginals, like: PerRow) -> "GaussianSites":
        """Derivatives of the log integral of prior times sites, given the posterior's marginals."""
        mean, variance = marginals
        return cls(mean, -0.5 * (mean**2 + variance), jnp.ones_like(like))

    def proper(self) -> "GaussianSites":
        """Sites that leave a proper posterior for sure."""
        return self._replace(precision=jnp.maximum(self.precision, 0.0))

    @property
    def precisions(self) -> RowLatents:
        """Precision of each latent."""
        return self.precision

    def table(self) -> Float[Array, "table N Q"]:
        """Linear terms and precisions side by side."""
        return jnp.stack([self.linear, self.precision])

    def from_table(self, table: Float[Array, "table N Q"]) -> "GaussianSites":
        """Sites of another table, with these constants."""
        return GaussianSites(table[0], table[1], self.log_constant)

    @staticmethod
    def white(table: Float[Array, "table N Q"], marginals: Marginals) -> Float[Array, "table N Q"]:
        """A table of differences by the Fisher information: units do not matter."""
        linear, precision = table
        mean, variance = marginals
        spread = jnp.sqrt(variance)
        return jnp.stack(
            [spread * (linear - mean * precision), jnp.sqrt(0.5) * variance * precision]
        )


@stored
class Rows(NamedTuple):
    """Rows as a site rule needs them: targets, weights, side information; no inputs."""

    y: Float[Array, "N *P"]
    weights: PerRow | None
    side: SideInformation
