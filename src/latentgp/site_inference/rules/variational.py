"""Sites from the gradient of the expected log likelihood: natural-gradient steps."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Likelihood, Marginals
from latentgp.likelihoods.joint import jointly, turned
from latentgp.numerics.quadrature import training_nodes
from latentgp.representations.base import LatentPosterior
from latentgp.representations.needs import Needs
from latentgp.site_inference.rules.base import SiteRule, sites_by_chunks, within_reach
from latentgp.site_inference.rules.expectation_propagation import MomentRule
from latentgp.site_inference.rules.laplace import LaplaceRule, log_prior_of_mean
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, Scalar


class VariationalRule(SiteRule):
    """Conjugate-computation variational inference (Khan & Lin 2017, eq. 14).

    With e(m, v) = E log p(y | f): precision = -2 de/dv and linear = de/dm + precision m. A damped
    step in these natural parameters is a natural-gradient step on q. Where the likelihood is
    not log-concave a precision can be negative.
    """

    step_size: float = eqx.field(static=True, default=0.7)
    coupled: bool = eqx.field(static=True, default=False)  # pyright: ignore[reportIncompatibleMethodOverride]

    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: AnyMarginals, current: Sites
    ) -> Sites:
        if self.sites_are_fixed(likelihood):
            return LaplaceRule(coupled=self.coupled).sites(likelihood, rows, marginals, current)
        of_chunk = self._coupled_sites if self.coupled else self._chunk_sites
        numbers = training_nodes(likelihood.latent_size)[0].size
        return sites_by_chunks(of_chunk, likelihood, (rows, marginals), numbers)

    def _chunk_sites(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals
    ) -> GaussianSites:
        def total(marginals: Marginals) -> tuple[Array, Array]:
            values = likelihood.expected_log_prob(rows.y, marginals, rows.side)
            return jnp.sum(values), values

        (in_mean, in_variance), values = jax.grad(total, has_aux=True)(marginals)
        precision = -2 * in_variance
        if not self.signed(likelihood):
            precision = jnp.maximum(precision, 0.0)
        linear = in_mean + precision * marginals.mean
        return GaussianSites(linear, precision, values).worth(marginals)

    def _coupled_sites(
        self, likelihood: Likelihood, rows: Rows, marginals: JointMarginals
    ) -> CoupledSites:
        def total(marginals: JointMarginals) -> tuple[Array, Array]:
            own, independent, side = jointly(likelihood, marginals, rows.side)
            values = own.expected_log_prob(rows.y, independent, side)
            return jnp.sum(values), values

        (in_mean, in_covariance), values = jax.grad(total, has_aux=True)(marginals)
        precision = -(in_covariance + jnp.swapaxes(in_covariance, 1, 2))
        sites = CoupledSites(in_mean, precision, values)
        if not self.signed(likelihood):
            sites = sites.proper()
        # Whatever they are, sites are worth their value: derivatives go through that alone.
        in_mean, precision, _ = jax.lax.stop_gradient(sites)
        linear = in_mean + (precision @ marginals.mean[:, :, None])[:, :, 0]
        return CoupledSites(linear, precision, values).worth(marginals)

    def is_bound(self, likelihood: Likelihood) -> bool:
        """Not where expectations are by quasi-Monte Carlo, which the search may exploit."""
        if self.coupled:
            return turned(likelihood).has_sure_bounds
        own = type(likelihood).expected_log_prob is not Likelihood.expected_log_prob
        return likelihood.latent_size <= 2 or own

    def opening(self, likelihood: Likelihood) -> SiteRule:
        """Matched moments, where a density has steps.

        There slopes say nothing of how far to go: those of many rows side by side, from a prior
        that spans a step, lead to where all are worse off.
        """
        return self if likelihood.is_continuous else MomentRule(coupled=self.coupled)

    def first(self, sites: Sites, marginals: Marginals) -> Sites:
        return within_reach(sites, marginals)

    def check(self, likelihood: Likelihood) -> None:
        Needs(positive=True).check("VariationalInference", likelihood=likelihood)


class MeanRule(VariationalRule):
    """Sites that move the mean alone, their precisions held: those of Laplace's approximation.

    Its fixed point is the mean that maximises the bound given the covariance (van Niekerk & Rue
    2024): the mode of a skewed posterior is off its mean, of classes by deviations.
    """

    step_size: float = eqx.field(static=True, default=1.0)

    @property
    def power(self) -> float:
        return 1.0

    def terms(self, sites: Any, target: Any, marginals: AnyMarginals, offset: Array) -> Array:
        """E log p(y | f) and the row's part of the log prior density of the mean."""
        expected = super().terms(sites, target, marginals, offset)
        return expected + log_prior_of_mean(sites, marginals.mean, offset)

    def objective(self, terms: Array, posterior: LatentPosterior) -> Scalar:
        """The bound, but for what the covariance alone says."""
        return jnp.sum(terms)

    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: AnyMarginals, current: Sites
    ) -> Sites:
        target: Any = super().sites(likelihood, rows, marginals, current)
        turn = target.slope(marginals.mean) - current.slope(marginals.mean)
        value = target.expected(marginals)
        return current._replace(linear=current.linear + turn, log_constant=value).worth(marginals)
