"""Gaussian sites that couple the latents of a row: one factor for each row."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.likelihoods.base import AnyMarginals, JointMarginals
from latentgp.modules import stored
from latentgp.numerics.small_matrices import small_eigh, small_with_values
from latentgp.sites.gaussian import Block, GaussianSites, damped, unweighted, weighted, worth
from latentgp.typing import Array, PerRow, RowLatents


@stored
class CoupledSites(NamedTuple):
    """Factors exp(linear' f - f' precision f / 2 + log_constant), one a row."""

    linear: RowLatents  # shape (N, Q), units one over f
    # symmetric, shape (N, Q, Q), units one over f squared; with negative eigenvalues only where a
    # rule says so
    precision: Float[Array, "N Q Q"]
    log_constant: PerRow  # shape (N,), in nats: the row's factor that does not depend on f

    worth, weighted, unweighted, damped = worth, weighted, unweighted, damped

    def with_columns(self, new: "CoupledSites", block: Block) -> "CoupledSites":
        """Refused: what couples latents belongs to no block of them."""
        raise InputError("Coupled sites are updated for all latents at once; use coupled=False.")

    def expected(self, marginals: JointMarginals) -> Array:
        """Expectation of each row's log factor under the marginals, shape (N,)."""
        mean, covariance = marginals
        pull = self.linear - 0.5 * _times(self.precision, mean)
        traces = jnp.sum(self.precision * covariance, axis=(1, 2))
        return jnp.sum(pull * mean, axis=1) - 0.5 * traces + self.log_constant

    def slope(self, f: RowLatents) -> RowLatents:
        """Gradients of the log factors."""
        return self.linear - _times(self.precision, f)

    def about(self, offset: RowLatents) -> "CoupledSites":
        """The same factors as functions of g = f - offset."""
        constant = self.expected(JointMarginals.known(offset))
        return CoupledSites(self.slope(offset), self.precision, constant)

    @classmethod
    def none(cls, like: RowLatents) -> "CoupledSites":
        """Factors of one."""
        nothing = jnp.zeros_like(like)
        return cls(nothing, jnp.zeros((*like.shape, like.shape[1]), like.dtype), nothing[:, 0])

    @classmethod
    def derivatives(cls, marginals: JointMarginals, like: PerRow) -> "CoupledSites":
        """Derivatives of the log integral of prior times sites, given the posterior's marginals."""
        mean, covariance = marginals
        squares = mean[:, :, None] * mean[:, None, :] + covariance
        return cls(mean, -0.5 * squares, jnp.ones_like(like))

    def proper(self) -> "CoupledSites":
        """Sites that leave a proper posterior for sure: no negative eigenvalue."""
        values, vectors = small_eigh(self.precision)
        held = small_with_values(vectors, jnp.maximum(values, 0.0))
        indefinite = jnp.any(values < 0, axis=1)[:, None, None]
        return self._replace(precision=jnp.where(indefinite, held, self.precision))

    @property
    def precisions(self) -> RowLatents:
        """Precision of each latent given the others."""
        return jnp.diagonal(self.precision, axis1=1, axis2=2)

    def table(self) -> Float[Array, "table N Q"]:
        """Linear terms and precisions side by side."""
        return jnp.concatenate([self.linear[None], jnp.moveaxis(self.precision, 1, 0)])

    def from_table(self, table: Float[Array, "table N Q"]) -> "CoupledSites":
        """Sites of another table, with these constants."""
        return CoupledSites(table[0], jnp.moveaxis(table[1:], 0, 1), self.log_constant)

    @staticmethod
    def white(
        table: Float[Array, "table N Q"], marginals: JointMarginals
    ) -> Float[Array, "table N Q"]:
        """A table of differences by the Fisher information: units do not matter."""
        precision, root = jnp.moveaxis(table[1:], 0, 1), marginals.root()
        turned = jnp.swapaxes(root, 1, 2)
        linear = _times(turned, table[0] - _times(precision, marginals.mean))
        spread = jnp.sqrt(0.5) * turned @ precision @ root
        return jnp.concatenate([linear[None], jnp.moveaxis(spread, 1, 0)])


def _times(matrices: Float[Array, "N Q Q"], vectors: RowLatents) -> RowLatents:
    return (matrices @ vectors[:, :, None])[:, :, 0]


Sites = GaussianSites | CoupledSites


def sites_of(linear: Array, precision: Array, log_constant: Array) -> Sites:
    """Sites of either kind, by the shape of their precisions."""
    kind = CoupledSites if precision.ndim == 3 else GaussianSites
    return kind(linear, precision, log_constant)


def negative_left_out(
    what: str, precision: Float[Array, "N Q *R"], marginals: AnyMarginals
) -> tuple[str, ...]:
    """Sentence on draws without the negative precisions of sites, if there are any. In NumPy.

    Without -n alone a variance v, of a latent or along an eigenvector, is v / (1 + n v).
    """
    precision, variance = np.asarray(precision), np.asarray(marginals.variance)
    if isinstance(marginals, JointMarginals):
        precision, axes = np.linalg.eigh(precision)
        variance = np.einsum("niq,nij,njq->nq", axes, np.asarray(marginals.covariance), axes)
    lack = np.max(np.maximum(-precision, 0.0) * variance, axis=1)
    if not np.any(lack > 0):
        return ()
    return (
        f"{what} leave out the negative precisions of {np.sum(lack > 0)} rows: at one of these "
        f"they have at most {1 / (1 + lack.max()):.2g} of the posterior's variance. Dense() and "
        "Inducing(...) leave out nothing.",
    )
