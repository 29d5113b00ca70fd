"""Sites of rows whose latents are partly left open by the inducing variables."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import Marginals
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.inducing.natural_parameters import Statistics
from latentgp.representations.inducing.posterior import (
    InducingPosterior,
    RowSites,
    no_rows,
    residuals,
)
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.variables import Centres
from latentgp.typing import Array, Scalar


class ProjectedSites(NamedTuple):
    """Sites for g = k' K_mm^-1 u that are left of sites for f = g + e, e ~ N(0, residual).

    Bui, Yan & Turner (2017, 4): with power a they are [E_e site(g + e)^a]^(1 / a).
    """

    linear: Float[Array, "Q B"]
    precision: Float[Array, "Q B"]
    loss: Float[Array, "Q B"]  # minus twice the log of the factor that does not depend on g

    @classmethod
    def of(
        cls,
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        residual: Float[Array, "#Q B"],
        power: float | Float[Array, "B"],
    ) -> "ProjectedSites":
        """For a power from zero, which is the variational bound, or one above zero for each row."""
        if np.ndim(power) == 0 and not power:
            return cls(linear, precision, precision * residual)
        shrunk = power * precision * residual
        loss = jnp.log1p(shrunk) / power - power * linear**2 * residual / (1 + shrunk)
        return cls(linear / (1 + shrunk), precision / (1 + shrunk), loss)


def row_marginals(
    residual: Float[Array, "#Q B"],
    marginals: Marginals,
    linear: Float[Array, "B Q"],
    precision: Float[Array, "B Q"],
    power: float,
) -> Marginals:
    """Marginals of rows' f whose own sites^power tell about its variance given u, too."""
    mean, variance = marginals
    residual = residual.T
    shrunk = 1 + power * precision * residual
    shift = power * residual * (linear - precision * mean) / shrunk
    given = jnp.maximum(variance - residual, 0.0) / shrunk**2
    return Marginals(mean + shift, given + residual / shrunk)


class RowsAlone(NamedTuple):
    """What rows of single sites give: sums, marginals of f, and their part of the evidence."""

    prior_precision: Float[Array, "#Q M M"] | None  # K_mm^-1, where sites are projected by it
    power: float

    def none(self, latents: int, centres: Centres) -> tuple[Statistics, int]:
        """Sums over no rows, and the numbers a row that adding to them takes."""
        return no_rows(latents, centres), len(centres)

    def add(self, sums: Statistics, rows: RowSites, real: Bool[Array, "B"]) -> Statistics:
        """Sums with rows added."""
        own, left = (rows.linear.T * real, rows.precision.T * real), self._residual(rows)
        return sums.add(rows.blocks, *ProjectedSites.of(*own, left, self.power))

    def marginals(self, posterior: InducingPosterior, rows: RowSites) -> Marginals:
        """Marginals of f at rows."""
        found = posterior.block_marginals(rows.blocks, rows.variances)
        if not self.power:
            return found
        return row_marginals(self._residual(rows), found, *rows[2:], self.power)

    def worth(
        self,
        posterior: InducingPosterior,
        slopes: Float[Array, "Q M M"],
        inverse: Float[Array, "#Q M M"],
        rows: RowSites,
        real: Bool[Array, "B"],
    ) -> Scalar:
        """The evidence by rows' blocks and K_mm^-1, less what is held; slopes are in the sums."""
        left = residuals(inverse, rows.blocks, rows.variances)
        own = rows.linear.T * real, rows.precision.T * real
        projected = ProjectedSites.of(*own, left, self.power)

        def of_latent(block, linear, precision, loss, slope, weights):
            products = sum_over_first((slope @ block) * block) @ precision
            return products + linear @ (weights @ block) - 0.5 * jnp.sum(loss)

        weights = posterior.mean_weights
        return jnp.sum(vmap_latents(of_latent, rows.blocks, *projected, slopes, weights))

    def _residual(self, rows: RowSites) -> Float[Array, "#Q B"]:
        """Rows' variance given u; without a power the whole prior variance, see `Statistics`."""
        if self.prior_precision is None:
            return rows.variances
        return residuals(self.prior_precision, rows.blocks, rows.variances)
