"""Sites by matching moments: expectation propagation and its powers."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Likelihood, Marginals
from latentgp.likelihoods.joint import turned
from latentgp.numerics.quadrature import prediction_nodes
from latentgp.numerics.small_matrices import small_cholesky, small_eigh, small_solve_lower
from latentgp.representations.base import LatentPosterior
from latentgp.representations.needs import Needs
from latentgp.site_inference.rules.base import SiteRule, sites_by_chunks
from latentgp.site_inference.rules.laplace import LaplaceRule
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, PerRow, RowLatents, Scalar

_NARROWER = 1e-3  # than the marginal, a variance too small for the nodes to tell
_FIRST_UPDATES = 10


class MomentRule(SiteRule):
    """Power expectation propagation, parallel and damped (Minka 2001, 2004).

    A cavity is the marginal of f over the row's site to the power. The new site to the power has,
    times the cavity, the moments of cavity times p(y | f)^power. Of several latents each has a site
    of its own, given the others' cavities. The objective is the approximate evidence, and an update
    is taken back if the next one would go farther.
    """

    is_variational: ClassVar[bool] = False

    step_size: float = eqx.field(static=True, default=0.8)
    # in (0, 1]; 1 is expectation propagation, towards 0 it becomes variational inference
    power: float = eqx.field(static=True, default=1.0)  # pyright: ignore[reportIncompatibleMethodOverride]

    coupled: bool = eqx.field(static=True, default=False)  # pyright: ignore[reportIncompatibleMethodOverride]

    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: AnyMarginals, current: Sites
    ) -> Sites:
        if self.sites_are_fixed(likelihood):
            return LaplaceRule(coupled=self.coupled).sites(likelihood, rows, marginals, current)
        parts = rows, marginals, current
        if self.coupled:
            numbers = likelihood.latent_size * turned(likelihood).nodes
            return sites_by_chunks(self._coupled_sites, likelihood, parts, numbers)
        numbers = prediction_nodes(likelihood.latent_size)[0].size
        return sites_by_chunks(self._chunk_sites, likelihood, parts, numbers)

    def _chunk_sites(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals, current: GaussianSites
    ) -> GaussianSites:
        mean, variance = marginals
        power = self.power
        share = self._cavity_share(variance, current)
        improper = share < _rounding(share)
        share = jnp.where(improper, 1.0, share)
        cavity_mean = (mean - power * current.linear * variance) / share
        cavity = Marginals(jnp.where(improper, mean, cavity_mean), variance / share)

        def total(cavity: Marginals) -> tuple[Array, Array]:
            values = likelihood.log_expected_power(rows.y, cavity, rows.side, power, marginals)
            return jnp.sum(values), values

        (slope, in_variance), log_mass = jax.grad(total, has_aux=True)(cavity)
        # Moments of the tilted law by derivatives of its mass; the site is what they add.
        curvature = 2 * in_variance - slope**2
        shrunk = 1 + cavity.variance * curvature
        # Where all the mass is at one node, that is where to look more closely.
        shrunk = jnp.where(shrunk < _rounding(shrunk), _NARROWER * share, shrunk)
        precision = jnp.where(improper, current.precision, -curvature / shrunk / power)
        linear = (slope - curvature * cavity.mean) / shrunk / power
        linear = jnp.where(improper, current.linear, linear)
        if not self.signed(likelihood):
            precision = jnp.maximum(precision, 0.0)
        raised = GaussianSites(power * linear, power * precision, jnp.zeros_like(log_mass))
        log_site = _log_expected(raised, cavity)
        return GaussianSites(linear, precision, (log_mass - log_site) / power)

    def _coupled_sites(
        self, likelihood: Likelihood, rows: Rows, marginals: JointMarginals, current: CoupledSites
    ) -> CoupledSites:
        """By the moments of the tilted law in all latents of a row."""
        power, identity = self.power, jnp.eye(likelihood.latent_size, dtype=rows.y.dtype)
        cavity, improper = self._cavity(marginals, current)
        moments = turned(likelihood).tilted(rows.y, cavity, rows.side, power, marginals)
        log_mass, (mean, covariance) = moments
        mean, covariance = jax.lax.stop_gradient((mean, covariance))
        # In units of the cavity's root R: what the tilted law has more than N(0, I).
        root = cavity.root()
        away = small_solve_lower(root, (mean - cavity.mean)[:, :, None])
        half = small_solve_lower(root, covariance)
        inner = small_solve_lower(root, jnp.swapaxes(half, 1, 2))
        values, vectors = small_eigh(0.5 * (inner + jnp.swapaxes(inner, 1, 2)))
        values = jnp.where(values < _rounding(values), _NARROWER, values)
        white = 1 / values - 1
        if not self.signed(likelihood):
            white = jnp.maximum(white, 0.0)
        back = jnp.swapaxes(vectors, 1, 2) @ small_solve_lower(root, identity + 0 * root)
        precision = jnp.swapaxes(back, 1, 2) @ (white[:, :, None] * back)
        pull = (1 + white)[:, :, None] * (jnp.swapaxes(vectors, 1, 2) @ away)
        linear = (jnp.swapaxes(back, 1, 2) @ pull)[:, :, 0]
        linear = linear + (precision @ cavity.mean[:, :, None])[:, :, 0]
        column, table = improper[:, None], improper[:, None, None]
        linear = jnp.where(column, current.linear, linear / power)
        precision = jnp.where(table, current.precision, precision / power)
        log_site = _log_expected_jointly(power * linear, power * precision, cavity)
        return CoupledSites(linear, precision, (log_mass - log_site) / power)

    def _cavity(
        self, marginals: JointMarginals, current: CoupledSites
    ) -> tuple[JointMarginals, Bool[Array, "N"]]:
        """Laws without a row's site to the power; the marginals where there is none."""
        power, root = self.power, marginals.root()
        turned_root = jnp.swapaxes(root, 1, 2)
        share, vectors = small_eigh(turned_root @ current.precision @ root)
        share = 1 - power * share
        improper = jnp.any(~(share >= _rounding(share)), axis=1)
        share = jnp.where(improper[:, None], 1.0, share)
        spread = root @ vectors
        covariance = (spread / share[:, None]) @ jnp.swapaxes(spread, 1, 2)
        pull = power * current.slope(marginals.mean)
        mean = marginals.mean - (covariance @ pull[:, :, None])[:, :, 0]
        return JointMarginals(
            jnp.where(improper[:, None], marginals.mean, mean), covariance
        ), improper

    def improper_cavities(self, marginals: AnyMarginals, current: Sites) -> Bool[Array, "N"]:
        if isinstance(marginals, JointMarginals):
            return self._cavity(marginals, cast(CoupledSites, current))[1]
        share = self._cavity_share(marginals.variance, cast(GaussianSites, current))
        return jnp.any(share < _rounding(share), axis=1)

    def _cavity_share(self, variance: RowLatents, current: GaussianSites) -> RowLatents:
        """Precision of the cavity as a share of the marginal's."""
        return 1 - self.power * current.precision * variance

    def terms(self, sites: Any, target: Any, marginals: AnyMarginals, offset: RowLatents) -> PerRow:
        """Log constants of the sites, which the posterior's evidence leaves out."""
        own = sites.about(offset)
        terms = target.expected(marginals.shifted(offset)) + own.log_constant
        return terms - own.expected(marginals)

    def objective(self, terms: PerRow, posterior: LatentPosterior) -> Scalar:
        """The approximate log evidence."""
        return jnp.sum(terms) + posterior.log_evidence

    def merit(self, objective: Scalar, squared_step: Scalar) -> Scalar:
        """Less the squared size of the next update: the evidence is stationary, but no maximum."""
        return -squared_step

    def change(self, merit: Scalar, rise: Scalar, step_size: Scalar) -> Scalar:
        return merit

    @property
    def first_updates(self) -> int:
        """Several, so that nodes come to lie where a row's likelihood is, however narrow."""
        return _FIRST_UPDATES

    def start(self, likelihood: Likelihood, rows: Rows, prior: Marginals) -> Marginals:
        return prior

    def signed(self, likelihood: Likelihood) -> bool:
        if self.coupled or likelihood.latent_size == 1:
            return super().signed(likelihood)
        # The other latents are integrated out, which leaves only a joint concavity as it is.
        return not likelihood.is_jointly_log_concave

    def check(self, likelihood: Likelihood) -> None:
        Needs(normalised=True).check("ExpectationPropagation", likelihood=likelihood)


def _log_expected(sites: GaussianSites, marginals: Marginals) -> PerRow:
    """Log E exp(linear f - precision f^2 / 2) under f ~ N(mean, diag(variance))."""
    mean, variance = marginals
    linear, precision, _ = sites
    spread = 1 + variance * precision
    quadratic = 2 * linear * mean + linear**2 * variance - precision * mean**2
    return jnp.sum(0.5 * quadratic / spread - 0.5 * jnp.log(spread), axis=1)


def _log_expected_jointly(
    linear: RowLatents, precision: Float[Array, "N Q Q"], marginals: JointMarginals
) -> PerRow:
    """Log E exp(linear' f - f' precision f / 2), 1 + root' precision root positive."""
    mean, root = marginals.mean, marginals.root()
    turned_root = jnp.swapaxes(root, 1, 2)
    inner = jnp.eye(mean.shape[1], dtype=mean.dtype) + turned_root @ precision @ root
    lower = small_cholesky(inner)
    pull = linear - (precision @ mean[:, :, None])[:, :, 0]
    half = small_solve_lower(lower, turned_root @ pull[:, :, None])[:, :, 0]
    at_mean = jnp.sum((linear + pull) * mean, axis=1)
    log_size = jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)), axis=1)
    return 0.5 * (at_mean + jnp.sum(half**2, axis=1)) - log_size


def _rounding(like: Array) -> float:
    """Rounding error of differences from one."""
    return 1e3 * float(jnp.finfo(like.dtype).eps)
