"""Every likelihood with targets and numbers of a row: what conformance and robustness go over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.sites.augmentations import Automatic
from latentgp.sites.augmentations.polya_gamma import PolyaGamma

GRID = np.linspace(-25, 25, 4001)
WIDE = np.linspace(-400, 400, 64_001)
CLASSES = [0.0, 1.0, 2.0]
KNOWN_NOISE, TRIALS, EXPOSURE = {"noise_variance": 0.4}, {"trials": 5.0}, {"exposure": 2.5}
POSITIVE = np.exp(np.linspace(-25, 12, 12_001))
SIGNED = np.sinh(np.linspace(-20, 20, 12_001)) * 1e-3
SHARES = 1 / (1 + np.exp(-30 * np.linspace(-1, 1, 8_001) ** 3))
ZERO_AND_POSITIVE, SHARES_WITH_ENDS = np.r_[0.0, POSITIVE], np.r_[0.0, SHARES, 1.0]
ZERO_INFLATED_COUNTS = lgp.ZeroInflated(lgp.LogNegativeBinomial(1.7), 0.3, varying=True)
WARP = lgp.WarpedGaussian([1.5, 0.4], [0.8, 3.0], [-1.0, 0.5], 0.3)
LOGISTIC_NOISE = lgp.CustomLikelihood(
    lambda y, f: jax.nn.log_sigmoid(y - f[0]) + jax.nn.log_sigmoid(f[0] - y)
)
COMPLETE = [
    (lgp.Gaussian(0.3), GRID, True, None),
    (lgp.Gaussian(0.3), GRID, True, KNOWN_NOISE),
    (lgp.StudentT(0.6, 7.0), WIDE, True, None),
    (lgp.LaplaceNoise(0.6), np.linspace(-30, 30, 24_001), True, None),
    (lgp.MaternNoise(0.6), GRID, True, None),
    (lgp.HeteroscedasticGaussian(9.0), GRID, True, None),
    (lgp.HeteroscedasticStudentT(40.0, 9.0), WIDE[::2], True, None),
    (lgp.Bernoulli(), [0.0, 1.0], False, None),
    (lgp.BernoulliProbit(), [0.0, 1.0], False, None),
    (lgp.BayesianSVM(), [0.0, 1.0], False, None),
    (lgp.Binomial(), np.arange(6.0), False, TRIALS),
    (lgp.NegativeBinomial(1.7), np.arange(20_000.0), False, None),
    (lgp.ScaledLogisticPoisson(3.3), np.arange(60.0), False, None),
    (lgp.Poisson(), np.arange(2_000.0), False, None),
    (lgp.Poisson(), np.arange(2_000.0), False, EXPOSURE),
    (lgp.LogNegativeBinomial(1.7), np.arange(20_000.0), False, EXPOSURE),
    (lgp.Ordinal([-0.7, 0.2, 1.6]), [*CLASSES, 3.0], False, None),
    (lgp.StochasticVolatility(), SIGNED, True, None),
    (lgp.LogNoiseGaussian(6.0), SIGNED, True, None),
    (lgp.Gamma(2.3), POSITIVE, True, None),
    (lgp.Weibull(1.6), POSITIVE, True, None),
    (lgp.Beta(40.0), SHARES, True, None),
    (WARP, GRID, True, None),
    (lgp.AsymmetricLaplace(0.3, level=0.7), np.linspace(-30, 40, 28_001), True, None),
    (lgp.LogNormal(0.4), POSITIVE, True, None),
    (lgp.GeneralisedPareto(0.1), POSITIVE, True, None),
    (lgp.Tweedie(1.6, 0.7), ZERO_AND_POSITIVE, True, None),
    (lgp.Censored(lgp.Gaussian(0.3)), GRID, True, None),
    (lgp.BetaBinomial(4.0), np.arange(6.0), False, TRIALS),
    (lgp.ZeroTruncated(lgp.Poisson()), np.arange(1.0, 2_000.0), False, EXPOSURE),
    (lgp.ZeroInflated(lgp.Poisson(), 0.3), np.arange(2_000.0), False, EXPOSURE),
    (ZERO_INFLATED_COUNTS, np.arange(20_000.0), False, EXPOSURE),
    (lgp.Hurdle(lgp.Poisson(), 0.3, varying=True), np.arange(2_000.0), False, EXPOSURE),
    (lgp.Hurdle(lgp.LogNegativeBinomial(1.7), 0.3), np.arange(20_000.0), False, EXPOSURE),
    (lgp.Hurdle(lgp.Gamma(2.3), 0.3), ZERO_AND_POSITIVE, True, None),
    (lgp.ZeroOneInflated(lgp.Beta(40.0), 0.3, ones=0.6), SHARES_WITH_ENDS, True, None),
    (lgp.Softmax(3), CLASSES, False, None),
    (lgp.RobustMax(3), CLASSES, False, None),
    (lgp.LeastSquares(3, 0.3), CLASSES, False, None),
    (lgp.LogisticSoftmax(3), CLASSES, False, None),
    (lgp.BijectiveLogisticSoftmax(3), CLASSES, False, None),
    (lgp.ScaledLogisticSoftmax(3, [0.5, 1.0, 2.0]), CLASSES, False, None),
]
# With a target that says much more about the first latent than its spread, where that is, and
# how exact the density is: less so where a heavy tail and the prior make two modes, of which one
# gets the nodes, where there is a kink, or a step (of a censored time) away from the mode.
NARROW = [
    (lgp.Gaussian(4e-4), 0.3, 0.3, None, 1e-6),
    (lgp.StudentT(0.02, 4.0), 0.3, 0.3, None, 1e-6),
    (lgp.StudentT(0.02, 0.5), 0.3, 0.3, None, 1e-4),
    (lgp.LaplaceNoise(0.02), 0.3, 0.3, None, 1e-6),
    (lgp.MaternNoise(0.02), 0.3, 0.3, None, 1e-5),
    (lgp.HeteroscedasticGaussian(800.0), 0.3, 0.3, None, 1e-6),
    (lgp.HeteroscedasticStudentT(800.0, 4.0), 0.3, 0.3, None, 1e-6),
    (lgp.LogNoiseGaussian(0.05), 0.3, 0.3, None, 1e-6),
    (lgp.Bernoulli(), 1.0, -2.0, None, 1e-6),
    (lgp.BernoulliProbit(), 1.0, -2.0, None, 1e-6),
    (lgp.Binomial(), 3e4, np.log(3 / 7), {"trials": 1e5}, 1e-6),
    (lgp.NegativeBinomial(500.0), 3000.0, np.log(6.0), None, 1e-6),
    (lgp.ScaledLogisticPoisson(1e5), 3e4, np.log(3 / 7), None, 1e-6),
    (lgp.Poisson(), 2000.0, np.log(800.0), EXPOSURE, 1e-6),
    (lgp.Poisson(), 1e6, np.log(1e6), None, 1e-6),
    (lgp.LogNegativeBinomial(1e4), 5000.0, np.log(2000.0), EXPOSURE, 1e-6),
    (lgp.Ordinal([-0.01, 0.01]), 1.0, 0.0, None, 1e-6),
    (lgp.StochasticVolatility(), 0.3, np.log(0.3), None, 1e-6),
    (lgp.Gamma(5000.0), 1.2, np.log(1.2), None, 1e-6),
    (lgp.Weibull(80.0), 1.2, np.log(1.2), None, 1e-6),
    (lgp.Weibull(8.0), 1.2, np.log(1.2), {"censored": 1.0}, 5e-4),
    (lgp.Beta(1e4), 0.3, np.log(3 / 7), None, 1e-6),
    (lgp.AsymmetricLaplace(0.01, level=0.8), 0.3, 0.3, None, 1e-6),
    (lgp.LogNormal(4e-4), 1.2, np.log(1.2), None, 1e-6),
    (lgp.Tweedie(1.5, 4e-4), 1.2, np.log(1.2), None, 1e-6),
    (lgp.Censored(lgp.Gaussian(4e-4)), 0.3, 0.3, {"censored": 2.0, "upper": 0.31}, 1e-6),
    (lgp.BetaBinomial(1e4), 3e4, np.log(3 / 7), {"trials": 1e5}, 1e-6),
    (lgp.ZeroInflated(lgp.Poisson()), 2000.0, np.log(800.0), EXPOSURE, 1e-6),
    (lgp.Hurdle(lgp.Poisson(), varying=True), 2000.0, np.log(800.0), EXPOSURE, 1e-6),
    (lgp.ZeroOneInflated(lgp.Beta(1e4)), 0.3, np.log(3 / 7), None, 1e-6),
    (lgp.WarpedGaussian([1.5], [0.8], [-1.0], 4e-4), 1.0, 1.0, None, 1e-6),
    (lgp.CustomLikelihood(lambda y, f: -100 * jnp.abs(y - f[0])), 0.3, 0.3, None, 5e-3),
    (lgp.CustomLikelihood(lambda y, f: -jnp.log1p(((y - f[0]) / 0.02) ** 2)), 0.3, 0.3, None, 5e-3),
]
KEPT = lgp.GammaPoissonPolyaGamma()
AUGMENTED = [
    (lgp.Gaussian(0.3), [-1.0, 0.5], KNOWN_NOISE, None),
    (lgp.LeastSquares(3, 0.3), CLASSES, None, None),
    (lgp.StudentT(0.6, 5.0), [-1.0, 0.5], None, None),
    (lgp.LaplaceNoise(0.7), [-1.0, 0.5], None, None),
    (lgp.MaternNoise(0.7), [-1.0, 0.5], None, None),
    (lgp.AsymmetricLaplace(0.4, level=0.8), [-1.0, 0.5], None, None),
    (lgp.HeteroscedasticGaussian(2.0), [-1.0, 0.5], None, None),
    (lgp.HeteroscedasticStudentT(2.0, 5.0), [-1.0, 0.5], None, None),
    (lgp.Bernoulli(), [0.0, 1.0], None, None),
    (lgp.Bernoulli(), [0.0, 1.0], None, Automatic()),
    (lgp.BayesianSVM(), [0.0, 1.0], None, None),
    (lgp.Binomial(), [0.0, 3.0, 5.0], TRIALS, None),
    (lgp.NegativeBinomial(1.7), [0.0, 4.0], None, None),
    (lgp.ScaledLogisticPoisson(3.3), [0.0, 2.0, 6.0], None, None),
    (lgp.LogisticSoftmax(3), CLASSES, None, None),
    (lgp.LogisticSoftmax(3), CLASSES, None, KEPT),
    (lgp.BijectiveLogisticSoftmax(3), CLASSES, None, None),
    (lgp.BijectiveLogisticSoftmax(3), CLASSES, None, KEPT),
    (lgp.ScaledLogisticSoftmax(3, [0.5, 1.0, 2.0]), CLASSES, None, None),
    (lgp.ScaledLogisticSoftmax(3, [0.5, 1.0, 2.0]), CLASSES, None, KEPT),
]
# Of several outputs; their laws have tests of their own.
OF_OUTPUTS = [
    (
        lgp.LinearCoregionalisation([[1.0, 0.4], [-0.6, 1.3]], [0.3, 0.5]),
        [[0.5, -1.0], [np.nan, 0.7]],
        None,
    ),
    (lgp.GPRegressionNetwork([[1.0], [-0.6]], 0.4), [[0.5, -1.0], [np.nan, 0.7]], None),
]

OF_RULES = [
    *OF_OUTPUTS,
    *(case[:3] for case in AUGMENTED if case[3] is None),
    (lgp.BernoulliProbit(), [0.0, 1.0], None),
    (lgp.Poisson(), [0.0, 3.0], {"exposure": 2.5}),
    (lgp.LogNegativeBinomial(1.7), [0.0, 3.0], {"exposure": 2.5}),
    (lgp.Ordinal([-0.7, 0.2, 1.6]), [0.0, 1.0, 3.0], None),
    (lgp.StochasticVolatility(), [-1.0, 0.5], None),
    (lgp.LogNoiseGaussian(4.0), [-1.0, 0.5], None),
    (lgp.Gamma(2.3), [0.2, 1.5], None),
    (lgp.Weibull(1.6), [0.2, 1.5], {"censored": 1.0}),
    (lgp.Beta(6.0), [0.2, 0.7], None),
    (WARP, [-1.0, 0.5], None),
    (lgp.LogNormal(0.4), [0.2, 1.5], None),
    (lgp.GeneralisedPareto(0.2), [0.2, 1.5], None),
    (lgp.Tweedie(1.6, 0.7), [0.0, 1.5], None),
    (lgp.Censored(lgp.Gaussian(0.3)), [-1.0, 0.5], {"censored": 2.0, "upper": 0.9}),
    (lgp.BetaBinomial(4.0), [0.0, 3.0, 5.0], TRIALS),
    (lgp.ZeroTruncated(lgp.Poisson()), [1.0, 3.0], EXPOSURE),
    (lgp.ZeroInflated(lgp.Poisson(), 0.3), [0.0, 3.0], EXPOSURE),
    (lgp.Hurdle(lgp.Poisson(), 0.3, varying=True), [0.0, 3.0], EXPOSURE),
    (lgp.ZeroOneInflated(lgp.Beta(6.0)), [0.0, 0.3, 1.0], None),
    (lgp.Softmax(3), CLASSES, None),
    (lgp.RobustMax(3), CLASSES, None),
]


AT_EVERY_CHANGE = lgp.StudentT, lgp.BernoulliProbit, lgp.Poisson, lgp.Ordinal, lgp.Softmax
# Whose conformance is checked at every change: of each kind, and with closed forms of its own.
CHECKED_AT_EVERY_CHANGE = (
    *AT_EVERY_CHANGE,
    lgp.Gaussian,
    lgp.HeteroscedasticGaussian,
    lgp.Bernoulli,
    lgp.Binomial,
    lgp.NegativeBinomial,
    lgp.LogNoiseGaussian,
    lgp.Gamma,
    lgp.LogNormal,
    lgp.Censored,
    lgp.LeastSquares,
    lgp.LogisticSoftmax,
)


def slow_but_some(cases, kinds=AT_EVERY_CHANGE):
    """At every change a likelihood of each kind; all in the slow form."""
    return [
        pytest.param(*c, marks=[pytest.mark.slow] * (not isinstance(c[0], kinds))) for c in cases
    ]


def marked(cases):
    """Augmented likelihoods, those slow that share all but a number or two with another."""
    again = lgp.BijectiveLogisticSoftmax, lgp.ScaledLogisticSoftmax
    return [
        pytest.param(*case, marks=[pytest.mark.slow] * (case[3] is KEPT and type(case[0]) in again))
        for case in cases
    ]


class CarelessDraws(PolyaGamma):
    """Draws the auxiliary variable for latents that are not the row's."""

    def draw(self, f, key, block):
        return super().draw(1.5 * f, key, block)


class HalfSites(PolyaGamma):
    """Forgets half of the precision of a drawn site."""

    def conditional_sites(self, auxiliary, f, block):
        sites = super().conditional_sites(auxiliary, f, block)
        return sites._replace(precision=0.5 * sites.precision)
