import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp

import latentgp as lgp
from classes import concrete_classes
from latentgp.likelihoods import Likelihood, Marginals
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.rules.base import SiteRule
from latentgp.site_inference.rules.expectation_propagation import MomentRule
from latentgp.site_inference.rules.laplace import LaplaceRule
from latentgp.site_inference.rules.variational import VariationalRule
from latentgp.sites.augmentations import Augmentation, augmentation_of
from latentgp.sites.augmentations.polya_gamma import PolyaGamma
from latentgp.testing import check_augmentation, check_likelihood, check_rule
from likelihood_cases import (
    AUGMENTED,
    CHECKED_AT_EVERY_CHANGE,
    CLASSES,
    COMPLETE,
    GRID,
    LOGISTIC_NOISE,
    NARROW,
    OF_OUTPUTS,
    OF_RULES,
    CarelessDraws,
    HalfSites,
    marked,
    slow_but_some,
)
from problems import Heteroscedastic, StudentT

OPTIONAL = ("conditional_moments", "sample", "predictive_quantiles")


# Twenty nodes a latent see less of noise that is narrower than the latent's spread.
TOLERANCES = {lgp.MaternNoise: 1e-4, lgp.HeteroscedasticStudentT: 1e-2}


@pytest.mark.parametrize(
    ("likelihood", "targets", "continuous", "side"),
    slow_but_some(COMPLETE, CHECKED_AT_EVERY_CHANGE),
)
def test_likelihood_conforms_and_is_complete(likelihood, targets, continuous, side):
    tolerance = TOLERANCES.get(type(likelihood), 1e-5)
    missing = check_likelihood(
        likelihood, targets, continuous=continuous, side_information=side, tolerance=tolerance
    )
    assert missing == ()


@pytest.mark.parametrize(
    ("likelihood", "grid"),
    [
        (StudentT(scale=0.6), np.linspace(-80, 80, 6001)),
        (Heteroscedastic(), GRID[::2]),
        (LOGISTIC_NOISE, np.linspace(-80, 80, 6001)),
    ],
)
def test_a_likelihood_of_log_prob_alone_conforms(likelihood, grid):
    assert check_likelihood(likelihood, grid, continuous=True) == OPTIONAL


def brute_force(likelihood, y, mean, variance, side):
    """Log E p(y | f) under f ~ N(mean, diag(variance)), by even grids as fine as is needed."""
    over = jax.jit(jax.vmap(lambda f: likelihood.log_prob(y, f, side)))
    low, high = -40.0, 40.0
    for _ in range(3):
        x = np.linspace(low, high, 40_001 if likelihood.latent_size == 1 else 8_001)
        both = np.meshgrid(x, np.linspace(-9, 9, 101)[: None if len(mean) == 2 else 1] * 1.0)
        both = np.stack(both, axis=-1)[..., : len(mean)]
        values = np.asarray(over((mean + np.sqrt(variance) * both).reshape(-1, len(mean))))
        values = values.reshape(both.shape[:2]) - 0.5 * np.sum(both**2, axis=-1)
        seen = x[np.max(values, axis=0) > np.max(values) - 60]
        low, high = seen[0] - (x[1] - x[0]), seen[-1] + (x[1] - x[0])
    steps = [x[1] - x[0], 18 / 100][: len(mean)]
    return logsumexp(values) + np.sum(np.log(steps) - 0.5 * np.log(2 * np.pi))


NARROW_AT_EVERY_CHANGE = lgp.StudentT, lgp.HeteroscedasticGaussian, lgp.Poisson, lgp.Gamma


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("likelihood", "y", "centre", "side", "tolerance"),
    [
        pytest.param(
            *case, marks=[pytest.mark.slow] * (not isinstance(case[0], NARROW_AT_EVERY_CHANGE))
        )
        for case in NARROW
    ],
)
def test_predictive_densities_where_the_likelihood_is_narrow(
    likelihood, y, centre, side, tolerance
):
    y, side = jnp.array(y), {k: jnp.array(v) for k, v in (side or {}).items()}
    rest = np.zeros(likelihood.latent_size - 1)
    for spread, away in [(1e-3, 0.1), (0.1, 0.23), (1.0, 0.23), (1.0, 5.0), (4.0, -2.3)]:
        mean = np.array([centre - away * spread, *rest + 0.2])
        variance = np.array([spread**2, *rest + 0.3])
        rows = {k: v[None] for k, v in side.items()}
        value = likelihood.predictive_log_prob(y[None], Marginals(mean[None], variance[None]), rows)
        truth = brute_force(likelihood, y, mean, variance, side)
        np.testing.assert_allclose(value[0], truth, rtol=1e-9, atol=tolerance)


@pytest.mark.always
def test_every_likelihood_is_checked():
    # A function has no moments; the limit of robust-max.
    apart = {"CustomLikelihood", "ExternalLikelihood", "HeavisideMulticlass"}
    apart |= {type(case[0]).__name__ for case in OF_OUTPUTS}
    assert {type(case[0]).__name__ for case in COMPLETE} | apart == concrete_classes(Likelihood)


@pytest.mark.usefixtures("x64")
class TestLargestLatent:
    MARGINALS = Marginals(np.array([[0.2, -0.5, 0.7]]), np.array([[0.6, 1.1, 0.3]]))

    def chances(self):
        """Of each latent to be the largest, by many draws."""
        draws = np.random.default_rng(0).normal(size=(400_000, 3))
        largest = np.argmax(self.MARGINALS.mean + np.sqrt(self.MARGINALS.variance) * draws, axis=1)
        return np.bincount(largest) / len(draws)

    def test_heaviside_probabilities(self):
        given = lgp.HeavisideMulticlass(3).predictive_probabilities(self.MARGINALS, {})
        np.testing.assert_allclose(given[0], self.chances(), atol=4e-3)
        np.testing.assert_allclose(np.sum(given), 1, atol=1e-12)

    def test_robust_max_approaches_heaviside(self):
        likelihood = lgp.RobustMax(3, epsilon=1e-9)
        given = likelihood.predictive_probabilities(self.MARGINALS, {})
        np.testing.assert_allclose(given[0], self.chances(), atol=4e-3)

    def test_there_is_no_variational_bound_of_what_can_be_zero(self):
        model = lgp.LatentGP(lgp.RBF(), lgp.HeavisideMulticlass(3))
        with pytest.raises(lgp.InputError, match="density of zero; use Expectation"):
            lgp.VariationalInference().algorithm(model)


@pytest.mark.usefixtures("x64")
def test_ordinal_keeps_its_digits_in_the_tails():
    likelihood = lgp.Ordinal([-1.0, 2.0])
    for f, y in [(40.0, 0.0), (40.0, 1.0), (-40.0, 1.0), (-40.0, 2.0), (0.0, 1.0)]:
        lower, upper = (-np.inf, -1.0, 2.0, np.inf)[int(y) : int(y) + 2]
        # On the side where both ends are in the lower tail.
        ends = (lower - f, upper - f) if f >= 0 else (f - upper, f - lower)
        low, high = log_ndtr(ends)
        truth = high + np.log1p(-np.exp(low - high))
        value, slope = jax.value_and_grad(lambda f, y=y: likelihood.log_prob(jnp.array(y), f, {}))(
            jnp.array([f])
        )
        np.testing.assert_allclose(value, truth, rtol=1e-10)
        assert np.all(np.isfinite(slope))


def test_quantiles_of_counts_beyond_all_whole_numbers(x64):
    levels = jnp.array([0.05, 0.5, 0.95])
    marginals = Marginals(jnp.array([[40.0], [2.0]]), jnp.ones((2, 1)))
    quantiles = lgp.Poisson().predictive_quantiles(levels, marginals, {})
    np.testing.assert_allclose(quantiles[0, 1], np.exp(40.0), rtol=1e-6)
    assert np.all(np.diff(quantiles, axis=1) > 0)


def test_matern_noise_keeps_its_derivatives_near_its_centre(x64):
    def log_prob(f):
        return lgp.MaternNoise(1.0).log_prob(jnp.array(0.0), f[None], {})

    first, second, third = (
        jax.grad(log_prob),
        jax.hessian(log_prob),
        jax.grad(jax.hessian(log_prob)),
    )
    for away in (1e-12, 1e-6, 0.0172, 0.0174, 0.1):  # about where its series takes over
        distance = np.sqrt(3) * away
        f = jnp.asarray(away)
        np.testing.assert_allclose(first(f), -np.sqrt(3) * distance / (1 + distance), rtol=1e-9)
        np.testing.assert_allclose(second(f), -3 / (1 + distance) ** 2, rtol=1e-9)
        np.testing.assert_allclose(third(f), 6 * np.sqrt(3) / (1 + distance) ** 3, rtol=1e-6)


def test_lifetimes_that_hardly_vary_do_not_overflow():
    times = 1000 * (1 + 0.01 * np.random.default_rng(0).standard_normal(40))
    model = lgp.LatentGP(lgp.RBF(), lgp.Weibull(1.0), lgp.ConstantMean(np.log(1000.0)))
    fit = lgp.fit(model, lgp.Data(np.arange(40.0), times), key=jax.random.key(0))
    assert 80 < float(fit.model.likelihood.shape) < 200
    steep = lgp.Weibull(256.0).log_prob(jnp.array(1000.0), jnp.log(jnp.array([1000.0])), {})
    np.testing.assert_allclose(steep, np.log(256 / 1000) - 1, atol=1e-3)


def test_unsmooth_likelihoods_have_no_laplace_approximation():
    with pytest.raises(lgp.InputError, match="kinks or steps"):
        lgp.Laplace().algorithm(lgp.LatentGP(lgp.RBF(), lgp.LaplaceNoise()))


def test_moments_of_a_pseudo_likelihood_are_refused():
    with pytest.raises(lgp.InputError, match="pseudo-likelihood"):
        lgp.ExpectationPropagation().algorithm(lgp.LatentGP(lgp.RBF(), lgp.BayesianSVM()))


@pytest.mark.always
def test_every_likelihood_is_given_to_every_rule():
    given = {type(case[0]) for case in OF_RULES}
    assert {type(case[0]) for case in [*COMPLETE, *OF_OUTPUTS]} == given


@pytest.mark.parametrize(("likelihood", "targets", "side", "augmentation"), marked(AUGMENTED))
def test_augmentation_conforms(likelihood, targets, side, augmentation):
    check_augmentation(likelihood, targets, side_information=side, augmentation=augmentation)


@pytest.mark.parametrize(("likelihood", "targets", "side", "augmentation"), marked(AUGMENTED))
def test_the_augmentation_rule_conforms(likelihood, targets, side, augmentation):
    rule = AugmentationRule(augmentation=augmentation)
    check_rule(rule, likelihood, targets, side_information=side)


@pytest.mark.always
def test_every_augmentation_is_checked():
    checked = {
        type(augmentation or augmentation_of(likelihood)).__name__
        for likelihood, _, _, augmentation in AUGMENTED
    }
    assert checked == concrete_classes(Augmentation)


@pytest.mark.always
def test_every_likelihood_with_an_augmentation_is_checked():
    complete = [case[0] for case in COMPLETE]
    augmented = {type(case).__name__ for case in complete if augmentation_of(case) is not None}
    assert {type(case[0]).__name__ for case in AUGMENTED} == augmented


@pytest.mark.parametrize(("likelihood", "targets", "side"), slow_but_some(OF_RULES))
def test_the_variational_rule_conforms(likelihood, targets, side):
    tolerance = 0.03 if likelihood.latent_size > 2 else 1e-4
    check_rule(VariationalRule(), likelihood, targets, side_information=side, tolerance=tolerance)


@pytest.mark.parametrize("likelihood", [StudentT(scale=0.6), Heteroscedastic()])
def test_the_variational_rule_takes_any_likelihood(likelihood):
    check_rule(VariationalRule(), likelihood, [-0.4, 0.9], tolerance=1e-4)


@pytest.mark.parametrize(
    ("likelihood", "targets", "side"),
    slow_but_some(case for case in OF_RULES if case[0].is_smooth),
)
def test_the_laplace_rule_conforms(likelihood, targets, side):
    for rule in (LaplaceRule(), LaplaceRule().at_the_mode()):
        check_rule(rule, likelihood, targets, side_information=side)


@pytest.mark.parametrize("power", [1.0, 0.4])
@pytest.mark.parametrize(
    ("likelihood", "targets", "side"),
    slow_but_some(
        [
            *(case for case in OF_RULES if case[0].is_normalised),
            (lgp.HeavisideMulticlass(3), CLASSES, None),
        ]
    ),
)
def test_the_moment_rule_conforms(likelihood, targets, side, power):
    tolerance = 0.03 if likelihood.latent_size > 2 else 1e-4
    rule = MomentRule(power=power)
    check_rule(rule, likelihood, targets, side_information=side, tolerance=tolerance)


def test_moments_of_several_latents_can_need_negative_precisions():
    """Where the log density is concave in each alone, but not in all together."""
    likelihood = lgp.GPRegressionNetwork([[1.0], [-0.6]], 0.4)
    rule = MomentRule(power=0.4)
    assert rule.signed(likelihood)
    assert not rule.signed(lgp.Softmax(3))
    check_rule(rule, likelihood, [[0.5, -1.0]], tolerance=0.03)


@pytest.mark.parametrize(("likelihood", "targets", "side"), slow_but_some(OF_RULES))
def test_concave_likelihoods_are_concave(likelihood, targets, side):
    """In each latent alone and in all together, where they say so."""
    f = np.random.default_rng(0).normal(size=(200, likelihood.latent_size))
    side = {name: jnp.asarray(value) for name, value in (side or {}).items()}
    for y in jnp.asarray(targets):
        curvature = jax.vmap(jax.hessian(lambda f, y=y: likelihood.log_prob(y, f, side)))(f)
        if likelihood.is_log_concave:
            assert np.max(np.diagonal(curvature, axis1=1, axis2=2)) < 1e-3
        if likelihood.is_jointly_log_concave:
            assert np.max(np.linalg.eigvalsh(curvature)) < 1e-3


@pytest.mark.always
def test_every_rule_is_checked():
    checked = {"AugmentationRule", "LaplaceRule", "MomentRule", "VariationalRule"}
    means_alone = {"MeanRule"}  # a part of Laplace's approximation about the mean
    assert checked | means_alone == concrete_classes(SiteRule)


class Unnormalised(lgp.Gaussian):
    def log_prob(self, y, f, side):
        return super().log_prob(y, f, side) + 0.01


class WrongMoments(lgp.Gaussian):
    def predictive_moments(self, marginals, side):
        mean, variance = marginals
        return mean[:, 0], variance[:, 0] + jnp.sqrt(self.total_noise_variance(side))


class WrongQuantiles(lgp.Gaussian):
    def predictive_quantiles(self, probabilities, marginals, side):
        mean, variance = marginals
        return mean + 2.0 * jnp.sqrt(variance) * (probabilities - 0.5)


class WrongSamples(lgp.Bernoulli):
    def sample(self, key, f, side):
        return 1 - super().sample(key, f, side)


@pytest.mark.parametrize(
    ("likelihood", "complaint"),
    [
        (Unnormalised(0.3), "does not add up to one"),
        (WrongMoments(0.3), "predictive variance differs"),
        (WrongQuantiles(0.3), "quantiles"),
        (WrongSamples(), "standard errors"),
    ],
)
def test_a_wrong_likelihood_is_caught(likelihood, complaint):
    discrete = isinstance(likelihood, lgp.Bernoulli)
    with pytest.raises(AssertionError, match=complaint):
        check_likelihood(likelihood, [0.0, 1.0] if discrete else GRID, continuous=not discrete)


class LooseAugmentation(PolyaGamma):
    """Pólya-Gamma sites at a tilt that is too large: a bound, but not the best."""

    def expected_sites(self, marginals):
        wide = marginals._replace(mean=1.5 * marginals.mean)
        return super().expected_sites(wide)


class BoastingAugmentation(PolyaGamma):
    """Pólya-Gamma sites with a constant that makes them more than a bound."""

    def expected_sites(self, marginals):
        sites = super().expected_sites(marginals)
        return sites._replace(log_constant=sites.log_constant + 0.1)


@pytest.mark.parametrize(
    ("augmentation", "complaint"),
    [
        (LooseAugmentation(), "not tight"),
        (BoastingAugmentation(), "above E log p"),
        (CarelessDraws(), "standard errors"),
        (HalfSites(), "is not log p"),
    ],
)
def test_a_wrong_augmentation_is_caught(augmentation, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_augmentation(lgp.Bernoulli(), [0.0, 1.0], augmentation=augmentation)


def test_a_likelihood_without_augmentation_is_caught():
    with pytest.raises(AssertionError, match="no augmentation"):
        check_augmentation(StudentT(), [0.0, 1.0])


class HalfPrecision(VariationalRule):
    def sites(self, likelihood, rows, marginals, current):
        sites = super().sites(likelihood, rows, marginals, current)
        wrong = sites._replace(precision=0.5 * sites.precision)
        change = wrong.expected(marginals) - sites.expected(marginals)
        return wrong._replace(log_constant=wrong.log_constant - change)


def test_a_wrong_rule_is_caught():
    with pytest.raises(AssertionError, match="derivative of its value"):
        check_rule(HalfPrecision(), lgp.Bernoulli(), [0.0, 1.0])
