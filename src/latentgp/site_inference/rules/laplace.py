"""Sites from derivatives at the mode: Newton's method and Laplace's approximation."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.likelihoods.base import (
    AnyMarginals,
    JointMarginals,
    Likelihood,
    Marginals,
    SideInformation,
)
from latentgp.numerics.small_matrices import small_eigh, small_with_values
from latentgp.representations.base import LatentPosterior
from latentgp.representations.needs import Needs
from latentgp.site_inference.rules.base import SiteRule, within_reach
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, Latents, PerRow, RowLatents, Scalar


class LaplaceRule(SiteRule):
    """Second-order expansion of log p(y | f) at the mean (Rasmussen & Williams 2006, 3.4).

    With g and -w the first and second derivative of log p(y | f), one latent at a time, at the
    mean m: precision w, linear g + w m. Sites of a search have |w|, which makes every short step
    towards them one that raises the density; the mode does not depend on it. (Zero in place of
    negative w does so too, by steps of K g that go far astray near an outlier.) The objective is
    log p(y | m) - (m - offset)' K^-1 (m - offset) / 2, the log density of the mean.
    """

    is_variational: ClassVar[bool] = False

    step_size: float = eqx.field(static=True, default=1.0)
    # whether precisions are held at zero or above
    held: bool = eqx.field(static=True, default=True)
    # whether the whole second derivative W of a row is used (the same, 3.5), in a search with
    # the absolute values of its eigenvalues
    coupled: bool = eqx.field(static=True, default=False)  # pyright: ignore[reportIncompatibleMethodOverride]
    # whether the posterior has the mean of the bound, see `MeanRule`, in place of the mode
    corrected: bool = eqx.field(static=True, default=False)

    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: AnyMarginals, current: Sites
    ) -> Sites:
        mean = marginals.mean
        value, slope, curvature = _derivatives(likelihood, rows, mean, self.coupled)
        precision = -curvature
        if self.coupled:
            if self.held and not likelihood.is_jointly_log_concave:
                values, vectors = small_eigh(precision)
                precision = small_with_values(vectors, jnp.abs(values))
            linear = slope + (precision @ mean[:, :, None])[:, :, 0]
            return CoupledSites(linear, precision, value).worth(JointMarginals.known(mean))
        precision = jnp.abs(precision) if self.held else precision
        linear = slope + precision * mean
        return GaussianSites(linear, precision, value).worth(Marginals.known(mean))

    def first(self, sites: Sites, marginals: Marginals) -> Sites:
        return within_reach(sites, marginals)

    @property
    def power(self) -> float:
        return 1.0

    def terms(
        self, sites: Sites, target: Any, marginals: AnyMarginals, offset: RowLatents
    ) -> PerRow:
        """The log density of y given the mean of f, and the row's part of that of the mean of g."""
        given_mean = target.expected(type(marginals).known(marginals.mean + offset))
        return given_mean + log_prior_of_mean(sites, marginals.mean, offset)

    def objective(self, terms: PerRow, posterior: LatentPosterior) -> Scalar:
        """The log density of the latents, but for the constant of their prior."""
        return jnp.sum(terms)

    def accelerates(self, likelihood: Likelihood) -> bool:
        """Only where a plain step is not Newton's own."""
        if self.coupled:
            return not likelihood.is_jointly_log_concave
        return not likelihood.is_log_concave or likelihood.latent_size > 1

    def reads_variances(self, likelihood: Likelihood) -> bool:
        """Only secants do, whose lengths are told by the Fisher information."""
        return self.accelerates(likelihood)

    def signed(self, likelihood: Likelihood) -> bool:
        return not self.held and super().signed(likelihood)

    def at_the_mode(self) -> "LaplaceRule":
        """The rule with the true curvature."""
        return dataclasses.replace(self, held=False)

    def check(self, likelihood: Likelihood) -> None:
        Needs(curvature=True).check("Laplace", likelihood=likelihood)


def log_prior_of_mean(sites: Sites, mean: RowLatents, offset: RowLatents) -> PerRow:
    """Each row's part of -m' K^-1 m / 2 for the posterior mean m of g: sites pull by K^-1 m."""
    return -0.5 * jnp.sum(mean * sites.slope(mean + offset), axis=1)


def _derivatives(
    likelihood: Likelihood, rows: Rows, f: RowLatents, jointly: bool
) -> tuple[PerRow, RowLatents, Float[Array, "N Q *Q"]]:
    """Log p(y | f), its gradient, and its second derivative in a row's f, whole or the diagonal."""

    def of_row(y: Array, f: Latents, side: SideInformation) -> tuple[Array, ...]:
        def value(f):
            return likelihood.log_prob(y, f, side)

        if jointly:
            return value(f), jax.grad(value)(f), jax.hessian(value)(f)

        def along(direction):
            slope, curvature = jax.jvp(jax.grad(value), (f,), (direction,))
            return slope, jnp.vdot(direction, curvature)

        slopes, curvatures = jax.vmap(along, out_axes=(None, 0))(jnp.eye(len(f), dtype=f.dtype))
        return value(f), slopes, curvatures

    return jax.vmap(of_row)(rows.y, f, dict(rows.side))
