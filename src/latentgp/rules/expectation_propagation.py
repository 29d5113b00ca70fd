"""Sites by matching moments: expectation propagation and its powers."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.likelihoods import Gaussian
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.numerics.quadrature import prediction_nodes
from latentgp.representations.base import LatentPosterior
from latentgp.rules.base import SiteRule
from latentgp.rules.laplace import LaplaceRule
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array

_NARROWER = 1e-3  # than the marginal, a variance too small for the nodes to tell
_FIRST_UPDATES = 10


class MomentRule(SiteRule):
    """Power expectation propagation, parallel and damped (Minka 2001, 2004).

    A cavity is the marginal of f over the row's site to the power. The new site to the power has,
    times the cavity, the moments of cavity times p(y | f)^power. Of several latents each has a site
    of its own, given the others' cavities. The objective is the approximate evidence, and an update
    is taken back if the next one would go farther.

    Attributes:
        power: in (0, 1]; 1 is expectation propagation, towards 0 it becomes variational inference.
    """

    step_size: float = eqx.field(static=True, default=0.8)
    power: float = eqx.field(static=True, default=1.0)  # pyright: ignore[reportIncompatibleMethodOverride]

    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals, current: GaussianSites
    ) -> GaussianSites:
        if self.sites_are_fixed(likelihood):
            return LaplaceRule().sites(likelihood, rows, marginals, current)

        def chunk(
            carry: None, chunk: tuple[Rows, Marginals, GaussianSites], real: Bool[Array, "B"]
        ) -> tuple[None, GaussianSites]:
            return carry, self._chunk_sites(likelihood, *chunk)

        numbers = prediction_nodes(likelihood.latent_size)[0].size
        parts = (rows, marginals, current)
        return scan_rows(chunk, None, parts, columns=numbers, in_cache=True)[1]

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

    def improper_cavities(
        self, variance: Float[Array, "N Q"], current: GaussianSites
    ) -> Bool[Array, "N"]:
        share = self._cavity_share(variance, current)
        return jnp.any(share < _rounding(share), axis=1)

    def _cavity_share(
        self, variance: Float[Array, "N Q"], current: GaussianSites
    ) -> Float[Array, "N Q"]:
        """Precision of the cavity as a share of the marginal's."""
        return 1 - self.power * current.precision * variance

    @property
    def is_variational(self) -> bool:
        return False

    def terms(
        self,
        sites: GaussianSites,
        target: GaussianSites,
        marginals: Marginals,
        offset: Float[Array, "N Q"],
    ) -> Float[Array, "N"]:
        """Log constants of the sites, which the posterior's evidence leaves out."""
        own = sites.about(offset)
        terms = target.expected(marginals.shifted(offset)) + own.log_constant
        return terms - own.expected(marginals)

    def objective(self, terms: Float[Array, "N"], posterior: LatentPosterior) -> Float[Array, ""]:
        """The approximate log evidence."""
        return jnp.sum(terms) + posterior.log_evidence

    def merit(
        self, objective: Float[Array, ""], squared_step: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Less the squared size of the next update: the evidence is stationary, but no maximum."""
        return -squared_step

    def change(
        self, merit: Float[Array, ""], rise: Float[Array, ""], step_size: Float[Array, ""]
    ) -> Float[Array, ""]:
        return merit

    @property
    def first_updates(self) -> int:
        """Several, so that nodes come to lie where a row's likelihood is, however narrow."""
        return _FIRST_UPDATES

    def start(self, likelihood: Likelihood, rows: Rows, prior: Marginals) -> Marginals:
        return prior

    def signed(self, likelihood: Likelihood) -> bool:
        if likelihood.latent_size == 1:
            return super().signed(likelihood)
        # The other latents are integrated out, which leaves only a joint concavity as it is.
        return not likelihood.is_jointly_log_concave

    def check(self, likelihood: Likelihood) -> None:
        if not likelihood.is_normalised:
            raise InputError(
                f"{type(likelihood).__name__} is a pseudo-likelihood, whose moments mean nothing; "
                "use VariationalInference or AugmentedVI."
            )

    def sites_are_fixed(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, Gaussian)


def _log_expected(sites: GaussianSites, marginals: Marginals) -> Float[Array, "N"]:
    """Log E exp(linear f - precision f^2 / 2) under f ~ N(mean, diag(variance))."""
    mean, variance = marginals
    linear, precision, _ = sites
    spread = 1 + variance * precision
    quadratic = 2 * linear * mean + linear**2 * variance - precision * mean**2
    return jnp.sum(0.5 * quadratic / spread - 0.5 * jnp.log(spread), axis=1)


def _rounding(like: Array) -> float:
    """Rounding error of differences from one."""
    return 1e3 * float(jnp.finfo(like.dtype).eps)
