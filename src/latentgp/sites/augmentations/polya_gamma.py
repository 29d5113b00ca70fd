"""Pólya-Gamma augmentation of likelihoods made of powers of the logistic function.

    p(y | f) = exp(constant) prod_q sigmoid(f_q)^a_q sigmoid(-f_q)^b_q E prod_q sigmoid(-f_q)^n_q

with known exponents a and b and counts n whose law does not depend on f: the expectation is
their probability generating function at s = sigmoid(-f). Given n, each power is a Gaussian
scale mixture with a Pólya-Gamma variable (Polson, Scott & Windle 2013, theorem 1). Bernoulli,
binomial and negative binomial targets need no counts; a bounded Poisson rate, the
logistic-softmax and noise that depends on the input do. One class, a hook a likelihood.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import singledispatch
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Float

from latentgp.distributions import sample_poisson, sample_polya_gamma
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.likelihoods.bernoulli import Bernoulli
from latentgp.likelihoods.counts import (
    Binomial,
    NegativeBinomial,
    ScaledLogisticPoisson,
    log_choices,
)
from latentgp.sites.augmentations.base import Augmentation, LikelihoodT, augmentation_of
from latentgp.sites.gaussian import Block, GaussianSites, Rows
from latentgp.typing import Array, PerRow, RandomKey, RowLatents

_TINY = 1e-30


class Powers(NamedTuple):
    """Exponents of the logistic functions, and the factor that does not depend on f."""

    positive: RowLatents  # a, exponents of sigmoid(f)
    negative: RowLatents  # b, exponents of sigmoid(-f)
    log_constant: PerRow


class Auxiliary(NamedTuple):
    """Auxiliary variables: counts n, and Pólya-Gamma variables given them, shapes (N, Q)."""

    counts: RowLatents
    polya_gamma: RowLatents


class LogisticPowers(Augmentation[LikelihoodT]):
    """Base of the augmentations by Pólya-Gamma variables.

    The optimal law of a row's variables: PG(a + b + n, c) with c^2 = E f^2, and counts tilted by
    s~ = exp(-E f / 2) / (2 cosh(c / 2)), the geometric stand-in for E sigmoid(-f). Mean counts
    are s~ times the derivative of the log generating function there.
    """

    @abstractmethod
    def powers(self) -> Powers:
        """The known exponents."""

    @abstractmethod
    def log_generating(self, rest: RowLatents) -> PerRow:
        """Log E prod_q s_q^n_q of the counts, as a function of rest = 1 - s."""

    @abstractmethod
    def draw_counts(self, f: RowLatents, key: RandomKey) -> RowLatents:
        """Counts of their law given f: proportional to p(n) prod_q sigmoid(-f_q)^n_q."""

    @abstractmethod
    def log_counts(self, counts: RowLatents) -> PerRow:
        """Log p(n) of the law that is not tilted."""

    def expected_counts(self, s: RowLatents, rest: RowLatents) -> tuple[RowLatents, PerRow]:
        """Mean counts under their optimal law, and the bound on the log generating function."""

        def total(rest):
            values = self.log_generating(rest)
            return jnp.sum(values), values

        slope, values = jax.grad(total, has_aux=True)(rest)
        return -s * slope, values

    def starting_variance(self, prior: RowLatents) -> RowLatents:
        """Zero: first sites made for a wide prior lead to a poor stationary point.

        There precisions are so small, E f^2 being large, that the data tell next to nothing.
        """
        return jnp.zeros_like(prior)

    def expected_sites(self, marginals: Marginals) -> GaussianSites:
        mean, variance = marginals
        positive, negative, constant = self.powers()
        s, rest = expected_sigmoids(*marginals)
        counts, log_generating = self.expected_counts(s, rest)
        value = constant + log_generating + logistic_bound(positive, negative, marginals)
        negative = negative + counts
        linear = 0.5 * (positive - negative)
        precision = (positive + negative) * expected_polya_gamma(jnp.sqrt(mean**2 + variance))
        return GaussianSites(linear, precision, value).worth(marginals)

    def draw(self, f: RowLatents, key: RandomKey, block: Block) -> Auxiliary:
        key_counts, key_gamma = jax.random.split(key)
        powers = self.powers()
        counts = self.draw_counts(f, key_counts)
        shape = powers.positive + powers.negative + counts
        return Auxiliary(counts, sample_polya_gamma(key_gamma, shape, f))

    def conditional_sites(self, auxiliary: Auxiliary, f: RowLatents, block: Block) -> GaussianSites:
        counts, polya_gamma = auxiliary
        positive, negative, constant = self.powers()
        negative = negative + counts
        constant = constant + self.log_counts(counts)
        constant = constant - jnp.log(2.0) * jnp.sum(positive + negative, axis=1)
        return GaussianSites(0.5 * (positive - negative), polya_gamma, constant)

    def log_conditional(self, auxiliary: Auxiliary, f: RowLatents, block: Block) -> PerRow:
        """With respect to the counting measure times PG(a + b + n, 0), whose density cancels."""
        counts, polya_gamma = auxiliary
        positive, negative, _ = self.powers()
        log_s = jax.nn.log_sigmoid(-f)
        tilted = self.log_counts(counts) + jnp.sum(counts * log_s, axis=1)
        tilted = tilted - self.log_generating(jax.nn.sigmoid(f))
        log_cosh = jnp.logaddexp(f / 2, -f / 2) - jnp.log(2.0)
        gamma = (positive + negative + counts) * log_cosh - 0.5 * f**2 * polya_gamma
        return tilted + jnp.sum(gamma, axis=1)


class PolyaGamma(LogisticPowers[Likelihood]):
    """Augmentation with known exponents: Bernoulli, binomial and negative binomial targets.

    For Bernoulli the bound is that of Jaakkola & Jordan (2000), the law of w is PG(1, c) (Wenzel
    et al. 2019, eq. 11).
    """

    def fits(self, likelihood: Likelihood) -> bool:
        return known_powers.dispatch(type(likelihood)) is not known_powers.dispatch(Likelihood)

    def powers(self) -> Powers:
        return known_powers(self.likelihood, self.rows)

    def log_generating(self, rest: RowLatents) -> PerRow:
        return jnp.zeros_like(self.rows.y)

    def draw_counts(self, f: RowLatents, key: RandomKey) -> RowLatents:
        return jnp.zeros_like(f)

    def log_counts(self, counts: RowLatents) -> PerRow:
        return jnp.zeros_like(self.rows.y)


@singledispatch
def known_powers(likelihood: Likelihood, rows: Rows) -> Powers:
    """Exponents for `PolyaGamma`, by class of likelihood; register them for your own class."""
    raise NotImplementedError(type(likelihood).__name__)


@known_powers.register
def _(likelihood: Bernoulli, rows: Rows) -> Powers:
    y = rows.y[:, None]
    return Powers(y, 1 - y, jnp.zeros_like(rows.y))


@known_powers.register
def _(likelihood: Binomial, rows: Rows) -> Powers:
    y, trials = rows.y, jnp.broadcast_to(likelihood.trials(rows.side), rows.y.shape)
    return Powers(y[:, None], (trials - y)[:, None], log_choices(trials, y))


@known_powers.register
def _(likelihood: NegativeBinomial, rows: Rows) -> Powers:
    y, r = rows.y, jnp.broadcast_to(likelihood.dispersion, rows.y.shape)
    ways = gammaln(y + r) - gammaln(y + 1) - gammaln(r)
    return Powers(y[:, None], r[:, None], ways)


class PoissonPolyaGamma(LogisticPowers[ScaledLogisticPoisson]):
    """A bounded Poisson rate: exp(-r sigmoid(f)) = exp(-r) E s^n up to exp(r), n ~ Poisson(r).

    Donner & Opper (2018) for point processes; here for counts.
    """

    def fits(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, ScaledLogisticPoisson)

    def powers(self) -> Powers:
        y = self.rows.y
        constant = y * jnp.log(self.likelihood.maximal_rate) - gammaln(y + 1)
        return Powers(y[:, None], jnp.zeros_like(y)[:, None], constant)

    def log_generating(self, rest: RowLatents) -> PerRow:
        return -self.likelihood.maximal_rate * rest[:, 0]

    def draw_counts(self, f: RowLatents, key: RandomKey) -> RowLatents:
        return sample_poisson(key, self.likelihood.maximal_rate * jax.nn.sigmoid(-f))

    def log_counts(self, counts: RowLatents) -> PerRow:
        rate, n = self.likelihood.maximal_rate, counts[:, 0]
        return n * jnp.log(rate) - rate - gammaln(n + 1)


for _kind in (Bernoulli, Binomial, NegativeBinomial):
    augmentation_of.register(_kind, lambda likelihood: PolyaGamma())
augmentation_of.register(ScaledLogisticPoisson, lambda likelihood: PoissonPolyaGamma())


def expected_polya_gamma(tilt: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Mean of PG(1, c), tanh(c/2) / (2 c), 1/4 at c = 0 (Polson et al. 2013, 2.2)."""
    small = jnp.abs(tilt) < 1e-3
    safe = jnp.where(small, 1.0, tilt)
    return jnp.where(small, 0.25 - tilt**2 / 48, jnp.tanh(safe / 2) / (2 * safe))


def expected_sigmoids(
    mean: Float[Array, "*S"], variance: Float[Array, "*S"]
) -> tuple[Float[Array, "*S"], Float[Array, "*S"]]:
    """The stand-in s~ = exp(-E f / 2) / (2 cosh(c / 2)) for E sigmoid(-f), c^2 = E f^2, and 1 - s~.

    Both keep their digits where they are small; s~ is a lower bound.
    """
    tilt = jnp.sqrt(mean**2 + variance)
    # (c + m) / 2, for a negative mean without cancellation.
    half = 0.5 * jnp.where(mean < 0, variance / jnp.maximum(tilt - mean, _TINY), tilt + mean)
    normaliser = 1 + jnp.exp(-tilt)
    s = jnp.exp(-half) / normaliser
    return s, jnp.maximum((jnp.exp(-tilt) - jnp.expm1(-half)) / normaliser, _TINY)


def logistic_bound(positive: RowLatents, negative: RowLatents, marginals: Marginals) -> PerRow:
    """Bound on E sum_q a_q log sigmoid(f_q) + b_q log sigmoid(-f_q) (Jaakkola & Jordan 2000)."""
    mean, variance = marginals
    tilt = jnp.sqrt(mean**2 + variance)
    log_cosh = jnp.logaddexp(tilt / 2, -tilt / 2)
    terms = 0.5 * (positive - negative) * mean - (positive + negative) * log_cosh
    return jnp.sum(terms, axis=1)
