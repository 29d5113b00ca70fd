"""Rules: how the rows of data enter as Gaussian sites."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.representations.base import LatentPosterior
from latentgp.sites.gaussian import Block, GaussianSites, Rows
from latentgp.typing import Array


class SiteRule(eqx.Module):
    """How the data enter as Gaussian sites, and what updates of these sites seek.

    Unless overridden the objective is a lower bound on the log evidence, E log p(y | f) - KL, which
    updates raise.

    Attributes:
        step_size: how far an update goes towards new sites, in (0, 1].
    """

    step_size: eqx.AbstractVar[float]

    @abstractmethod
    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals, current: GaussianSites
    ) -> GaussianSites:
        """New sites for f ~ N(mean, diag(variance)), row weights not yet applied.

        Their `log_constant` is such that `sites.expected(marginals)` is the rule's value of
        (or lower bound on) E log p(y | f), or, for moments, that prior times sites has the
        approximate evidence as its integral.

        Args:
            likelihood: of the rows.
            rows: targets and side information.
            marginals: of f at the rows.
            current: the sites that this belief contains, without row weights.
        """

    @property
    def power(self) -> float:
        """Of the prior variance given the inducing variables, see `configured_for`; in [0, 1]."""
        return 0.0

    @property
    def is_variational(self) -> bool:
        """Whether the objective is a lower bound whatever the sites, which rows add terms to."""
        return True

    def is_bound(self, likelihood: Likelihood) -> bool:
        """Whether the objective is a lower bound on the log evidence, to rounding."""
        return self.is_variational

    def terms(
        self,
        sites: GaussianSites,
        target: GaussianSites,
        marginals: Marginals,
        offset: Float[Array, "N Q"],
    ) -> Float[Array, "N"]:
        """What the rows contribute to the objective, in nats; E log p(y | f) unless overridden.

        Args:
            sites: of the posterior that is read, with row weights.
            target: the new sites that the rule makes of it, with row weights.
            marginals: of g = f - offset at the rows.
            offset: prior means of f at the rows.
        """
        return target.expected(marginals.shifted(offset))

    def objective(self, terms: Float[Array, "N"], posterior: LatentPosterior) -> Float[Array, ""]:
        """What updates seek, in nats: the lower bound unless overridden.

        Args:
            terms: of the rows, see `terms`.
            posterior: that was read.
        """
        return jnp.sum(terms) - posterior.kl

    def merit(
        self, objective: Float[Array, ""], squared_step: Float[Array, ""]
    ) -> Float[Array, ""]:
        """What no update may lower, else it is taken back; the objective unless overridden.

        Args:
            objective: see `objective`.
            squared_step: how far the next update of all sites goes, squared, in nats.
        """
        return objective

    def change(
        self, merit: Float[Array, ""], rise: Float[Array, ""], step_size: Float[Array, ""]
    ) -> Float[Array, ""]:
        """How far updates are from standing still: the rise of a full step unless overridden.

        Args:
            merit: the greater one of before and after the last update.
            rise: of the merit in the last update.
            step_size: of the last update.
        """
        return rise * self.step_size / step_size

    def accelerates(self, likelihood: Likelihood) -> bool:
        """Whether updates gain by secants through past ones."""
        return True

    def at_the_mode(self) -> "SiteRule | None":
        """The rule that expands log p(y | f) at the mode, where updates seek a mode; else None.

        Its sites give the posterior. Its evidence is not stationary in the mode, so that the
        derivative in the hyper-parameters has an implicit term.
        """
        return None

    def signed(self, likelihood: Likelihood) -> bool:
        """Whether precisions can be negative."""
        return not likelihood.is_log_concave

    def shares_precisions(self, likelihood: Likelihood) -> bool:
        """Whether a row's sites have one precision for all latents; not unless overridden."""
        return False

    def improper_cavities(
        self, variance: Float[Array, "N Q"], current: GaussianSites
    ) -> Bool[Array, "N"]:
        """Which rows keep their sites as their cavities are improper; none unless overridden.

        Args:
            variance: of f at the rows.
            current: the sites that this belief contains, without row weights.
        """
        return jnp.zeros(len(variance), bool)

    @abstractmethod
    def check(self, likelihood: Likelihood) -> None:
        """Raise InputError if the rule cannot make sites for this likelihood."""

    @abstractmethod
    def sites_are_fixed(self, likelihood: Likelihood) -> bool:
        """Whether the sites are the likelihood itself, whatever the marginals of f."""

    def opening(self, likelihood: Likelihood) -> "SiteRule":
        """The rule that makes the first sites; this one unless overridden."""
        return self

    @property
    def first_updates(self) -> int:
        """How many updates of each row alone make its first sites."""
        return 1

    def start(self, likelihood: Likelihood, rows: Rows, prior: Marginals) -> Marginals:
        """What the first sites are made for: the prior around likely latents unless overridden."""
        likely = likelihood.latent_start(rows.y, rows.side)
        return prior if likely is None else prior._replace(mean=prior.mean.at[:, 0].set(likely))

    def first(self, sites: GaussianSites, marginals: Marginals) -> GaussianSites:
        """What the first sites become before there is a posterior; themselves unless overridden.

        Args:
            sites: the first ones.
            marginals: the mean that they were made for, and the variance of the prior.
        """
        return sites

    def blocks(self, likelihood: Likelihood) -> tuple[Block, ...]:
        """Which latents' sites are updated together, in order; all at once unless overridden."""
        return (tuple(range(likelihood.latent_size)),)
