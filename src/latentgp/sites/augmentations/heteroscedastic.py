"""Augmentation of regression with noise that depends on the input (Galy-Fajou 2022, 7.2).

    p(y | f) = C (lambda sigmoid(f_2))^1/2 phi(lambda sigmoid(f_2) (y - f_1)^2)

As phi is the Laplace transform of a law on w, phi(t (1 - s)) with s = sigmoid(-f_2) is the
generating function of Poisson counts of rate w t. Given w alone, f_1 is Gaussian; given the
counts and Pólya-Gamma variables too, f_2 is. For Student noise w is the precision of the usual
scale mixture, and the counts with w integrated out are negative binomial (2022, eq. 7.6 mended).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy
from jaxtyping import PyTree

from latentgp.distributions import sample_poisson, sample_polya_gamma
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.likelihoods.heteroscedastic import Heteroscedastic
from latentgp.likelihoods.scale_mixture import log_phi_slope
from latentgp.sites.augmentations.base import Augmentation, augmentation_of
from latentgp.sites.augmentations.polya_gamma import (
    expected_polya_gamma,
    expected_sigmoids,
    logistic_bound,
)
from latentgp.sites.gaussian import Block, GaussianSites
from latentgp.typing import PerRow, RandomKey, RowLatents, Scalar

_NOISE: Block = (1,)
_SIGNAL: Block = (0,)


class NoiseAuxiliary(NamedTuple):
    """Variables of the noise's block: precisions w, counts and Pólya-Gamma variables, (N,)."""

    w: PerRow
    counts: PerRow
    polya_gamma: PerRow


class HeteroscedasticAugmentation(Augmentation[Heteroscedastic]):
    """The two blocks, noise first: the signal's integrates the counts out (2022, algorithm 2)."""

    def fits(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, Heteroscedastic)

    def blocks(self, likelihood: Likelihood) -> tuple[Block, ...]:
        return (_NOISE, _SIGNAL)

    def expected_sites(self, marginals: Marginals) -> GaussianSites:
        """The double bound of 2022, algorithm 3 (mended), for any phi.

        With R = E (y - f_1)^2 and psi the stand-in for E sigmoid(-f_2), the value is the log
        likelihood at R for the square and 1 - psi for the logistic function.
        """
        mean, variance = marginals
        likelihood, rows = self.likelihood, self.rows
        scale = likelihood.maximal_precision
        square = (rows.y - mean[:, 0]) ** 2 + variance[:, 0]
        psi, rest = expected_sigmoids(mean[:, 1], variance[:, 1])
        tilt = scale * square * rest
        w = -log_phi_slope(likelihood, tilt)
        counts = scale * w * square * psi
        half, none = jnp.full_like(counts, 0.5)[:, None], jnp.zeros_like(counts)[:, None]
        value = logistic_bound(half, none, Marginals(mean[:, 1:], variance[:, 1:]))
        value = value + _log_scale(likelihood) + likelihood.log_phi(tilt)
        signal = 2 * w * scale * rest
        tilt_of_noise = jnp.sqrt(mean[:, 1] ** 2 + variance[:, 1])
        noise = (0.5 + counts) * expected_polya_gamma(tilt_of_noise)
        linear = jnp.stack([signal * rows.y, 0.5 * (0.5 - counts)], axis=1)
        precision = jnp.stack([signal, noise], axis=1)
        return GaussianSites(linear, precision, value).worth(marginals)

    def draw(self, f: RowLatents, key: RandomKey, block: Block) -> PyTree:
        likelihood, rows = self.likelihood, self.rows
        key_w, key_counts, key_gamma = jax.random.split(key, 3)
        square = likelihood.maximal_precision * (rows.y - f[:, 0]) ** 2
        w = likelihood.auxiliary_law(square * jax.nn.sigmoid(f[:, 1])).sample(key_w)
        if block == _SIGNAL:
            return w
        rate = w * square * jax.nn.sigmoid(-f[:, 1])
        counts = sample_poisson(key_counts, rate)
        return NoiseAuxiliary(w, counts, sample_polya_gamma(key_gamma, 0.5 + counts, f[:, 1]))

    def conditional_sites(self, auxiliary: PyTree, f: RowLatents, block: Block) -> GaussianSites:
        likelihood, rows = self.likelihood, self.rows
        none = jnp.zeros_like(rows.y)
        if block == _SIGNAL:
            precision = 2 * auxiliary * likelihood.precision(f)
            constant = _log_scale(likelihood) + 0.5 * jax.nn.log_sigmoid(f[:, 1])
            return GaussianSites(
                jnp.stack([precision * rows.y, none], axis=1),
                jnp.stack([precision, none], axis=1),
                constant - 0.5 * precision * rows.y**2,
            )
        w, counts, polya_gamma = auxiliary
        rate = w * likelihood.maximal_precision * (rows.y - f[:, 0]) ** 2
        constant = _log_scale(likelihood) - rate + xlogy(counts, rate) - gammaln(counts + 1)
        return GaussianSites(
            jnp.stack([none, 0.5 * (0.5 - counts)], axis=1),
            jnp.stack([none, polya_gamma], axis=1),
            constant - (0.5 + counts) * jnp.log(2.0),
        )

    def log_conditional(self, auxiliary: PyTree, f: RowLatents, block: Block) -> PerRow:
        likelihood, rows = self.likelihood, self.rows
        square, g = likelihood.maximal_precision * (rows.y - f[:, 0]) ** 2, f[:, 1]
        tilt = square * jax.nn.sigmoid(g)
        w = auxiliary if block == _SIGNAL else auxiliary.w
        log_w = -tilt * w - likelihood.log_phi(tilt)
        if block == _SIGNAL:
            return log_w
        rate = w * square * jax.nn.sigmoid(-g)
        counts = auxiliary.counts
        log_counts = xlogy(counts, rate) - rate - gammaln(counts + 1)
        log_cosh = jnp.logaddexp(g / 2, -g / 2) - jnp.log(2.0)
        return log_w + log_counts + (0.5 + counts) * log_cosh - 0.5 * g**2 * auxiliary.polya_gamma


augmentation_of.register(Heteroscedastic, lambda likelihood: HeteroscedasticAugmentation())


def _log_scale(likelihood: Heteroscedastic) -> Scalar:
    """Log of C times the root of the greatest precision."""
    return likelihood.log_density_at_zero() + 0.5 * jnp.log(likelihood.maximal_precision)
