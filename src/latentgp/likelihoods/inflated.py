"""Laws with single points of a probability of their own: zero inflation, hurdles, shares."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Bool, Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.likelihoods.of_base import OfBase
from latentgp.modules import forwarded
from latentgp.numerics.log_space import log_complement
from latentgp.numerics.quadrature import Nodes, latents_at, prediction_nodes, training_nodes
from latentgp.numerics.root_finding import invert_cdf_of_counts
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

_NEGLIGIBLE = 100.0  # nats below the other term of a sum
_INSIDE = {"count": 1.0, "real": 0.5}  # stands for a target that is at a point


class ZeroTruncated(OfBase):
    """Counts of at least one: the base's law given that y is not zero.

    Args:
        base: the law of counts.

    Example:
        >>> from latentgp import Poisson
        >>> law = ZeroTruncated(Poisson())
        >>> round(float(law.log_prob(jnp.array(1.0), jnp.array([0.0]), {})), 4)
        -0.5413
    """

    def __check_init__(self) -> None:
        _check_counts(self)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        value = self.base.log_prob(y, f, side) - self._log_share(f, side)
        return jnp.where(y > 0, value, -jnp.inf)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        mean, variance = self.base.conditional_moments(f, side)
        share = jnp.exp(self._log_share(f, side))
        first = mean / share
        # Where no zeros are lost the square of the mean may overflow.
        lost = jnp.where(share < 1, first**2 * (1 - share), 0.0)
        return first, jnp.maximum(variance / share - lost, 0.0)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        share = jnp.exp(self._log_share(f, side))
        below = 1 - (1 - self.base.cdf(jnp.maximum(y, 1.0), f, side)) / share
        return jnp.where(y >= 1, jnp.clip(below, 0.0, 1.0), 0.0)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        # A uniform number that is above the probability of zero, through the quantiles.
        share = jnp.exp(self._log_share(f, side))
        level = 1 - share * jax.random.uniform(key, dtype=f.dtype)
        drawn = invert_cdf_of_counts(lambda y: self.base.cdf(y, f, side), level[None], f[0])
        return jnp.maximum(drawn[0], 1.0)

    def check_targets(self, y: PerRow) -> None:
        self.base.check_targets(y)
        advice = "leave these rows out, or use Hurdle, which has a probability of zero"
        check_values("ZeroTruncated targets", y, y != 0, "at least 1", advice)

    def _log_share(self, f: Latents, side: SideInformation) -> Scalar:
        """Log probability that the base's y is not zero."""
        return log_complement(self.base.log_prob(jnp.zeros((), f.dtype), f, side))


class Inflated(OfBase):
    """A law with single points of a probability of its own, and of another law otherwise.

    With `varying` the logit of that probability has a latent function, the last one, added to it.
    """

    points: ClassVar[tuple[float, ...]] = (0.0,)
    mixes: ClassVar[bool] = False  # whether the other law can give a point too

    inflation: Scalar = parameter(constraints.unit_interval, default=0.2)
    varying: bool = eqx.field(static=True, default=False)

    @property
    @abstractmethod
    def law(self) -> Likelihood:
        """That of y otherwise."""

    @property
    def latent_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.latent_size + self.varying

    @property
    def atoms(self) -> tuple[float, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.points if self.targets == "real" else ()

    @property
    def is_log_concave(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.law.is_log_concave and not self.mixes

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        own = self._own_latent(f)
        shares, f = self._log_shares(own), f[: self.base.latent_size]
        at = self._at(y)
        point, other = _log_at(at, shares), shares[-1]
        there = jnp.any(at)
        if not self.mixes:
            return jnp.where(there, point, other + self.law.log_prob(self._inside(y), f, side))
        other_law = jax.lax.stop_gradient(self.law.log_prob(y, f, side))
        # Where it says nothing the other law can be so steep that its derivatives overflow.
        nothing = there & (other + other_law < point - _NEGLIGIBLE)
        value = other + self.law.log_prob(y, jnp.where(nothing, 0.0, f), side)
        value = jnp.where(there, jnp.logaddexp(jnp.where(there, point, value), value), value)
        return jnp.where(nothing, point, value)

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        if self.mixes:
            return super().expected_log_prob(y, marginals, side)
        values, weights = self._shares_at_nodes(marginals, training_nodes(1))
        shares, at = jnp.einsum("nsa,s->na", values, weights), self._at(y)
        other = self.law.expected_log_prob(self._inside(y), self._of_base(marginals), side)
        return jnp.where(jnp.any(at, axis=1), _log_at(at, shares), shares[:, -1] + other)

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        # The share and the other law have independent latents.
        shares, at = self._log_mean_shares(marginals), self._at(y)
        point, there = _log_at(at, shares), jnp.any(at, axis=1)
        y = y if self.mixes else self._inside(y)
        other = shares[:, -1] + self.law.predictive_log_prob(y, self._of_base(marginals), side)
        if self.mixes:
            point = jnp.logaddexp(jnp.where(there, point, other), other)
        return jnp.where(there, point, other)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        shares = jnp.exp(self._log_shares(self._own_latent(f)))
        moments = self.law.conditional_moments(f[: self.base.latent_size], side)
        return self._mixed(shares, *moments)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        shares = jnp.exp(self._log_mean_shares(marginals))
        return self._mixed(shares, *self.law.predictive_moments(self._of_base(marginals), side))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        key_which, key_other = jax.random.split(key)
        which = jax.random.categorical(key_which, self._log_shares(self._own_latent(f)))
        other = self.law.sample(key_other, f[: self.base.latent_size], side)
        values = jnp.append(jnp.asarray(self.points, f.dtype), other)
        return values[which]

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        shares = jnp.exp(self._log_shares(self._own_latent(f)))
        return self._below(y, shares, self.law.cdf(y, f[: self.base.latent_size], side))

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        shares = jnp.exp(self._log_mean_shares(marginals))
        other = self.law.predictive_cdf(y, self._of_base(marginals), side)
        return self._below(y, shares, other)

    def check_targets(self, y: PerRow) -> None:
        self.base.check_targets(self._given_inside(y))

    def check_rows(self, y: PerRow, side: SideInformation) -> None:
        self.base.check_rows(self._given_inside(y), side)

    def latent_scale(self, spread: float) -> float | tuple[float, ...]:
        scale = self.base.latent_scale(spread)
        if not self.varying:
            return scale
        return *(scale if isinstance(scale, tuple) else (scale,)), 2.0

    def latent_centre(
        self, y: PerRow, weights: PerRow | None, side: SideInformation
    ) -> float | tuple[float, ...] | None:
        other = ~np.any(self._at(y), axis=1)
        if not other.any():
            return self.base.latent_centre(self._given_inside(y), weights, side)
        weights = None if weights is None else weights[other]
        side = {name: np.broadcast_to(rows, y.shape)[other] for name, rows in side.items()}
        return self.base.latent_centre(y[other], weights, side)

    def latent_start(self, y: PerRow, side: SideInformation) -> PerRow | None:
        start = self.base.latent_start(self._inside(y), side)
        if start is None:
            return None
        # A row at a point says little of the other law: it starts where the others do.
        there = jnp.any(self._at(y), axis=1)
        others = jnp.sum(jnp.where(there, 0.0, start)) / jnp.maximum(jnp.sum(~there), 1)
        return jnp.where(there, others, start)

    def _log_split(self) -> Float[Array, "atoms"]:
        """Log probability of each point given that y is at one."""
        return jnp.zeros(1)

    def _log_shares(self, own: Values) -> Float[Array, "*N laws"]:
        """Log probabilities of the points and, last, of the other law."""
        logit = jnp.log(self.inflation) - jnp.log1p(-self.inflation) + own[..., None]
        split = self._log_split().astype(own.dtype)
        parts = jax.nn.log_sigmoid(logit) + split, jax.nn.log_sigmoid(-logit)
        return jnp.concatenate(parts, axis=-1).astype(own.dtype)

    def _own_latent(self, f: Latents) -> Scalar:
        return f[-1] if self.varying else jnp.zeros_like(f[0])

    def _shares_at_nodes(
        self, marginals: Marginals, nodes: Nodes
    ) -> tuple[Float[Array, "N nodes laws"], Float[Array, "nodes"]]:
        """Log shares where the last latent is at nodes, and their weights."""
        mean, variance = marginals.mean[:, -1:], marginals.variance[:, -1:]
        if not self.varying:
            return self._log_shares(jnp.zeros_like(mean)), jnp.ones(1, mean.dtype)
        own, _ = latents_at(mean, variance, nodes)
        return self._log_shares(own[..., 0]), jnp.asarray(nodes[1], mean.dtype)

    def _log_mean_shares(self, marginals: Marginals) -> Float[Array, "N laws"]:
        values, weights = self._shares_at_nodes(marginals, prediction_nodes(1))
        return logsumexp(values, axis=1, b=weights[:, None])

    def _of_base(self, marginals: Marginals) -> Marginals:
        """Marginals of the latents of the other law."""
        latents = self.base.latent_size
        return Marginals(marginals.mean[:, :latents], marginals.variance[:, :latents])

    def _at(self, y: Values) -> Bool[Array, "*N atoms"]:
        return y[..., None] == np.asarray(self.points, y.dtype)

    def _inside(self, y: Values) -> Values:
        """Targets that the other law can give, with another value in place of points."""
        return jnp.where(jnp.any(self._at(y), axis=-1), _INSIDE[self.targets], y)

    def _given_inside(self, y: PerRow) -> PerRow:
        """The same of targets as they are given, in double precision."""
        return np.where(np.any(self._at(y), axis=-1), _INSIDE[self.targets], y)

    def _mixed(
        self, shares: Float[Array, "*N laws"], mean: Values, variance: Values
    ) -> tuple[Values, Values]:
        """Mean and variance, given those of the other law."""
        points = jnp.asarray(self.points, mean.dtype)
        values = jnp.stack([*(jnp.full_like(mean, p) for p in points), mean], axis=-1)
        first = jnp.sum(shares * values, axis=-1)
        between = jnp.sum(shares * (values - first[..., None]) ** 2, axis=-1)
        second = between + shares[..., -1] * variance
        return first, jnp.where(jnp.isinf(first), jnp.inf, second)

    def _below(self, y: Values, shares: Float[Array, "*N laws"], other: Values) -> Values:
        reached = jnp.asarray(self.points, y.dtype) <= y[..., None]
        return jnp.sum(reached * shares[..., :-1], axis=-1) + shares[..., -1] * other


class ZeroInflated(Inflated):
    """Counts with excess zeros: zero with a probability, the base's y otherwise.

    Args:
        base: the law of counts, such as `Poisson()` or `LogNegativeBinomial()`; a zero may be its.
        inflation: probability of the other zeros, learned; with `varying` where their latent
            function is zero.
        varying: whether the logit of that probability has a latent function of its own.

    Example:
        >>> from latentgp import Poisson
        >>> law = ZeroInflated(Poisson(), inflation=0.5)
        >>> round(float(law.log_prob(jnp.array(0.0), jnp.array([0.0]), {})), 4)  # of 1/2 + e^-1 / 2
        -0.3799
    """

    mixes: ClassVar[bool] = True

    @property
    def law(self) -> Likelihood:
        return self.base

    def __check_init__(self) -> None:
        _check_counts(self, "; of real numbers Hurdle has zeros")

    check_targets = forwarded("base.check_targets")
    check_rows = forwarded("base.check_rows")


class Hurdle(Inflated):
    """Zero with a probability, otherwise the base's law given that it is not zero.

    Args:
        base: a law of counts, whose own zeros are cut off, or one of y > 0, such as `Gamma()`.
        inflation: probability of zero, learned; with `varying` where its latent function is zero.
        varying: whether the logit of that probability has a latent function of its own.

    Example:
        >>> from latentgp import Gamma
        >>> law = Hurdle(Gamma(), inflation=0.5)
        >>> round(float(law.log_prob(jnp.array(0.0), jnp.array([0.0]), {})), 4)
        -0.6931
    """

    @property
    def law(self) -> Likelihood:
        return ZeroTruncated(self.base) if self.targets == "count" else self.base


class ZeroOneInflated(Inflated):
    """Shares 0 <= y <= 1: exactly zero or one with a probability, the base's y otherwise.

    Args:
        base: the law of what is between, such as `Beta()`.
        inflation: probability of an end, learned; with `varying` where its latent function is zero.
        varying: whether the logit of that probability has a latent function of its own.
        ones: probability of one given an end, learned.

    Example:
        >>> from latentgp import Beta
        >>> law = ZeroOneInflated(Beta(), inflation=0.5, ones=0.2)
        >>> round(float(law.log_prob(jnp.array(1.0), jnp.array([0.0]), {})), 4)
        -2.3026
    """

    points: ClassVar[tuple[float, ...]] = (0.0, 1.0)

    ones: Scalar = parameter(constraints.unit_interval, default=0.5)

    @property
    def law(self) -> Likelihood:
        return self.base

    def _log_split(self) -> Float[Array, "atoms"]:
        return jnp.stack([jnp.log1p(-self.ones), jnp.log(self.ones)])


def _check_counts(likelihood: OfBase, more: str = "") -> None:
    base: Any = likelihood.base
    if isinstance(base, Likelihood) and base.targets != "count":
        raise InputError(
            f"{type(likelihood).__name__} needs a likelihood of counts, such as Poisson(), got "
            f"{base!r}{more}."
        )


def _log_at(at: Bool[Array, "*N atoms"], shares: Float[Array, "*N laws"]) -> Values:
    """Log share of the point that y is at; zero where it is at none."""
    return jnp.sum(jnp.where(at, shares[..., :-1], 0.0), axis=-1)
