# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Rules: how the rows of data enter as Gaussian sites."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Likelihood, Marginals
from latentgp.representations.base import LatentPosterior
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import Block, Rows
from latentgp.typing import Array, PerRow, RowLatents, Scalar

_FARTHEST = 3.0  # in prior standard deviations, what the first sites may move a latent


class SiteRule(eqx.Module):
    """Rule that turns the data into Gaussian sites, and the objective of its updates.

    Unless overridden the objective is a lower bound on the log evidence, E log p(y | f) - KL, which
    updates raise.
    """

    # the objective is a lower bound whatever the sites, which rows add terms to
    is_variational: ClassVar[bool] = True

    step_size: eqx.AbstractVar[float]  # how far an update goes towards new sites, in (0, 1]

    @abstractmethod
    def sites(self, likelihood: Likelihood, rows: Rows, marginals: Any, current: Any) -> Any:
        """New sites for f ~ N(mean, diag(variance)), row weights not yet applied.

        Where the rule is `coupled`, marginals are joint ones and the sites couple a row's latents.
        `current` are the sites contained in these marginals, without row weights.

        Their `log_constant` is such that `sites.expected(marginals)` is the rule's value of (or
        lower bound on) E log p(y | f), or, for moments, that prior times sites has the approximate
        evidence as its integral.
        """

    @property
    def coupled(self) -> bool:
        """Whether its sites couple the latents of a row."""
        return False

    @property
    def power(self) -> float:
        """Power of p(f given u) in the sites, see `SiteForm`: 0 variational, 1 FITC."""
        return 0.0

    def is_bound(self, likelihood: Likelihood) -> bool:
        """Whether the objective is a lower bound on the log evidence, to rounding."""
        return self.is_variational

    def terms(self, sites: Any, target: Any, marginals: AnyMarginals, offset: RowLatents) -> PerRow:
        """Terms of the objective by row, in nats; E log p(y | f) unless overridden.

        Of sites and the target, the new ones that the rule makes, both with row weights. Marginals
        are of g = f - offset, the offset the prior means of f.
        """
        return target.expected(marginals.shifted(offset))

    def objective(self, terms: PerRow, posterior: LatentPosterior) -> Scalar:
        """Objective of the updates, in nats, from `terms` and the posterior that was read.

        The lower bound unless overridden.
        """
        return jnp.sum(terms) - posterior.kl

    def merit(self, objective: Scalar, squared_step: Scalar) -> Scalar:
        """Merit that no accepted update may lower; the objective unless overridden.

        The squared step is how far the next update of all sites goes, in nats.
        """
        return objective

    def change(self, merit: Scalar, rise: Scalar, step_size: Scalar) -> Scalar:
        """Distance from the fixed point: the rise of a full step unless overridden.

        The merit is the greater one of before and after the last update, in which it rose so.
        """
        return rise * self.step_size / step_size

    def accelerates(self, likelihood: Likelihood) -> bool:
        """Whether updates gain by secants through past ones."""
        return True

    def reads_variances(self, likelihood: Likelihood) -> bool:
        """Whether its updates depend on the posterior's variances; so unless overridden."""
        return True

    def at_the_mode(self) -> "SiteRule | None":
        """The rule that expands log p(y | f) at the mode, where updates seek a mode; else None.

        Its sites give the posterior. Its evidence is not stationary in the mode, so that the
        derivative in the hyper-parameters has an implicit term.
        """
        return None

    def signed(self, likelihood: Likelihood) -> bool:
        """Whether precisions can be negative."""
        if self.coupled:
            return not likelihood.is_jointly_log_concave
        return not likelihood.is_log_concave

    def shares_precisions(self, likelihood: Likelihood) -> bool:
        """Whether a row's sites have one precision for all latents; not unless overridden."""
        return False

    def improper_cavities(self, marginals: AnyMarginals, current: Any) -> Bool[Array, "N"]:
        """Rows with improper cavities, whose sites are kept; none unless overridden.

        `current` are the sites contained in the marginals of f, without row weights.
        """
        return jnp.zeros(len(marginals.mean), bool)

    @abstractmethod
    def check(self, likelihood: Likelihood) -> None:
        """Raise InputError if the rule cannot make sites for this likelihood."""

    def sites_are_fixed(self, likelihood: Likelihood) -> bool:
        """Whether the sites are the likelihood itself, whatever the marginals of f.

        Unless overridden of one that is Gaussian in all latents of a row, if there is one or sites
        couple them.
        """
        return likelihood.is_jointly_gaussian and (self.coupled or likelihood.latent_size == 1)

    def opening(self, likelihood: Likelihood) -> "SiteRule":
        """The rule that makes the first sites; this one unless overridden."""
        return self

    @property
    def first_updates(self) -> int:
        """Number of updates by which each row alone makes its first sites."""
        return 1

    def start(self, likelihood: Likelihood, rows: Rows, prior: Marginals) -> Marginals:
        """Marginals for the first sites: the prior around likely latents unless overridden.

        Latents without a unit, such as logarithms, are spread over their typical size at most:
        under a vaguer prior, as of fixed effects, the mean of exp(f) says nothing.
        """
        likely = likelihood.latent_start(rows.y, rows.side)
        mean = prior.mean if likely is None else prior.mean.at[:, 0].set(likely)
        sizes = np.asarray(likelihood.latent_scale(np.inf), mean.dtype)  # infinite in units of y
        return Marginals(mean, jnp.minimum(prior.variance, sizes**2))

    def first(self, sites: Sites, marginals: Marginals) -> Sites:
        """First sites after adjustment, before there is a posterior; unchanged unless overridden.

        Marginals have the mean that they were made for, and the variance of the prior.
        """
        return sites

    def blocks(self, likelihood: Likelihood) -> tuple[Block, ...]:
        """Groups of latents whose sites are updated together, in order; all at once by default."""
        return (tuple(range(likelihood.latent_size)),)


def within_reach(sites: Sites, marginals: Marginals) -> Sites:
    """Sites that alone move no latent by more than three prior standard deviations.

    Far below its mode a log density like that of a count has a great slope and the curvature of a
    small one: from where the whole step leads, exp(f) is beyond repair. So it is with rows of a
    great weight, which no prior holds back.
    """
    mean, variance = marginals
    slope, spread = sites.slope(mean), jnp.sqrt(variance)
    if isinstance(sites, CoupledSites):
        alone = JointMarginals.independent(marginals).given(*sites[:2])
        moves = jnp.abs(alone.mean - mean) / spread
        share = jnp.minimum(1.0, _FARTHEST / jnp.max(moves, axis=1, keepdims=True))
        return sites._replace(linear=sites.linear + (share - 1) * slope)
    most = _FARTHEST * (1 / spread + sites.precision * spread)
    return sites._replace(linear=sites.linear + jnp.clip(slope, -most, most) - slope)


def sites_by_chunks(
    of_chunk: Callable[..., Sites], likelihood: Likelihood, parts: tuple[Any, ...], columns: int
) -> Sites:
    """Sites that a function of the likelihood and rows of parts makes, so many numbers a row."""

    def chunk(carry: None, chunk: Any, real: Bool[Array, "B"]) -> tuple[None, Sites]:
        return carry, of_chunk(likelihood, *chunk)

    return scan_rows(chunk, None, parts, columns=columns, in_cache=True)[1]
