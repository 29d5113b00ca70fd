"""Gaussian sites: what one row says about one latent, the common currency of inference."""

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.arrays import Array
from latentgp.likelihoods.base import Likelihood, SideInformation

Block = tuple[int, ...]


class GaussianSites(NamedTuple):
    """Factors exp(linear f - precision f^2 / 2 + log_constant), one a row and latent.

    Attributes:
        linear: shape (N, Q), units one over f.
        precision: shape (N, Q), units one over f squared; negative only where a rule says so.
        log_constant: shape (N,), in nats: what the row contributes apart from f.
    """

    linear: Float[Array, "N Q"]
    precision: Float[Array, "N Q"]
    log_constant: Float[Array, "N"]

    @classmethod
    def worth(
        cls,
        value: Float[Array, "N"],
        linear: Float[Array, "N Q"],
        precision: Float[Array, "N Q"],
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
    ) -> "GaussianSites":
        """Sites whose expected log factor under f ~ N(mean, diag(variance)) is `value`."""
        sites = cls(linear, precision, jnp.zeros_like(value))
        return sites._replace(log_constant=value - sites.expected(mean, variance))

    def with_columns(self, new: "GaussianSites", block: Block) -> "GaussianSites":
        """These sites with a block of latents, and the constants, taken from others."""
        chosen = np.isin(np.arange(self.linear.shape[1]), block)
        return GaussianSites(
            jnp.where(chosen, new.linear, self.linear),
            jnp.where(chosen, new.precision, self.precision),
            new.log_constant,
        )

    def expected(self, mean: Float[Array, "N Q"], variance: Float[Array, "N Q"]) -> Array:
        """Expectation of each row's log factor under f ~ N(mean, diag(variance)), shape (N,)."""
        quadratic = self.linear * mean - 0.5 * self.precision * (mean**2 + variance)
        return jnp.sum(quadratic, axis=1) + self.log_constant

    def about(self, offset: Float[Array, "N Q"]) -> "GaussianSites":
        """The same factors as functions of g = f - offset."""
        return GaussianSites(
            self.linear - self.precision * offset,
            self.precision,
            self.expected(offset, jnp.zeros_like(offset)),
        )

    @classmethod
    def none(cls, like: Float[Array, "N Q"]) -> "GaussianSites":
        """Factors of one."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like), jnp.zeros_like(like[:, 0]))

    def weighted(self, weights: Float[Array, "N"] | None) -> "GaussianSites":
        """Factors raised to the power of the row's weight: w equals w copies of the row."""
        if weights is None:
            return self
        column = weights[:, None]
        return GaussianSites(
            column * self.linear, column * self.precision, weights * self.log_constant
        )

    def unweighted(self, weights: Float[Array, "N"] | None) -> "GaussianSites":
        """The factors that `weighted` makes these of; factors of one where the weight is zero."""
        if weights is None:
            return self
        return self.weighted(jnp.where(weights > 0, 1 / jnp.where(weights > 0, weights, 1.0), 0.0))

    def damped(self, new: "GaussianSites", step: float | Float[Array, ""]) -> "GaussianSites":
        """A step from these sites towards new ones, in natural parameters."""
        return GaussianSites(*(old + step * (to - old) for old, to in zip(self, new, strict=True)))


class Rows(NamedTuple):
    """What a site rule sees of the data: targets, weights, side information; no inputs."""

    y: Float[Array, "N *P"]
    weights: Float[Array, "N"] | None
    side: SideInformation


Goal = Literal["bound", "mode", "moments"]
EvidenceKind = Literal["exact", "lower bound", "approximation"]


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
