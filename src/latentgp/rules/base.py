"""Rules: how the rows of data enter as Gaussian sites."""

from abc import abstractmethod
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import Likelihood
from latentgp.sites.gaussian import Block, GaussianSites, Rows
from latentgp.typing import Array

Goal = Literal["bound", "mode", "moments"]


class SiteRule(eqx.Module):
    """How the data enter as Gaussian sites, given what is believed about the latents.

    Attributes:
        step_size: how far an update goes towards new sites, in (0, 1].
        goal: what updates seek: the highest lower "bound" on the log evidence, the "mode" of the
            posterior density, or sites that do not change, by matching "moments".
        power: of the prior variance that a sparse representation leaves open, see
            `Representation.suited`.
    """

    step_size: eqx.AbstractVar[float]
    goal: ClassVar[Goal] = "bound"

    @abstractmethod
    def sites(
        self,
        likelihood: Likelihood,
        rows: Rows,
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
        current: GaussianSites,
    ) -> GaussianSites:
        """New sites for f ~ N(mean, diag(variance)), row weights not yet applied.

        Their `log_constant` is such that `sites.expected(mean, variance)` is the rule's value
        of (or lower bound on) E log p(y | f), or, for moments, that prior times sites has the
        approximate evidence as its integral.

        Args:
            likelihood: of the rows.
            rows: targets and side information.
            mean: of f at the rows.
            variance: of f at the rows.
            current: the sites that this belief contains, without row weights.
        """

    @property
    def power(self) -> float:
        return 0.0

    def is_bound(self, likelihood: Likelihood) -> bool:
        """Whether what updates raise is a lower bound on the log evidence, to rounding."""
        return self.goal == "bound"

    def signed(self, likelihood: Likelihood) -> bool:
        """Whether precisions can be negative."""
        return not likelihood.is_log_concave

    def shares_precisions(self, likelihood: Likelihood) -> bool:
        """Whether a row's sites have one precision for all latents; not unless overridden."""
        return False

    def stuck(self, variance: Float[Array, "N Q"], current: GaussianSites) -> Bool[Array, "N"]:
        """Which rows keep their sites because no update can be made; none unless overridden.

        Args:
            variance: of f at the rows.
            current: the sites that this belief contains, without row weights.
        """
        return jnp.zeros(len(variance), bool)

    @abstractmethod
    def check(self, likelihood: Likelihood) -> None:
        """Raise InputError if the rule cannot make sites for this likelihood."""

    @abstractmethod
    def is_exact(self, likelihood: Likelihood) -> bool:
        """Whether the sites are the likelihood itself, whatever is believed about f."""

    def opening(self, likelihood: Likelihood) -> "SiteRule":
        """The rule that makes the first sites; this one unless overridden."""
        return self

    def starting_variance(
        self, likelihood: Likelihood, prior: Float[Array, "N Q"]
    ) -> Float[Array, "N Q"]:
        """What variance of f the first sites are made for; that of the prior unless overridden."""
        return prior

    def first(
        self, sites: GaussianSites, mean: Float[Array, "N Q"], variance: Float[Array, "N Q"]
    ) -> GaussianSites:
        """What the first sites become before there is a posterior; themselves unless overridden.

        Args:
            sites: the first ones.
            mean: where they were made.
            variance: of the prior.
        """
        return sites

    def blocks(self, likelihood: Likelihood) -> tuple[Block, ...]:
        """Which latents' sites are updated together, in order; all at once unless overridden."""
        return (tuple(range(likelihood.latent_size)),)
