import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.augmentations import Augmentation, augmentation_of
from latentgp.likelihoods import Likelihood
from latentgp.sites.augmentation import AugmentationRule
from latentgp.sites.base import SiteRule
from latentgp.sites.variational import VariationalRule
from latentgp.testing import check_augmentation, check_likelihood, check_rule
from problems import Heteroscedastic, StudentT

GRID = np.linspace(-25, 25, 4001)
KNOWN_NOISE = {"noise_variance": 0.4}
COMPLETE = [
    (lgp.Gaussian(0.3), GRID, True, None),
    (lgp.Gaussian(0.3), GRID, True, KNOWN_NOISE),
    (lgp.Bernoulli(), [0.0, 1.0], False, None),
]
OPTIONAL = ("conditional_moments", "sample", "predictive_quantiles")


@pytest.mark.parametrize(("likelihood", "targets", "continuous", "side"), COMPLETE)
def test_likelihood_conforms_and_is_complete(likelihood, targets, continuous, side):
    missing = check_likelihood(likelihood, targets, continuous=continuous, side_information=side)
    assert missing == ()


@pytest.mark.parametrize(
    ("likelihood", "grid"),
    [(StudentT(scale=0.6), np.linspace(-80, 80, 6001)), (Heteroscedastic(), GRID[::2])],
)
def test_a_likelihood_of_log_prob_alone_conforms(likelihood, grid):
    assert check_likelihood(likelihood, grid, continuous=True) == OPTIONAL


def test_every_likelihood_is_checked():
    assert {type(case[0]).__name__ for case in COMPLETE} == concrete_classes(Likelihood)


AUGMENTED = [
    (lgp.Gaussian(0.3), [-1.0, 0.5], KNOWN_NOISE),
    (lgp.Bernoulli(), [0.0, 1.0], None),
]


@pytest.mark.parametrize(("likelihood", "targets", "side"), AUGMENTED)
def test_augmentation_conforms(likelihood, targets, side):
    check_augmentation(likelihood, targets, side_information=side)


def test_every_augmentation_is_checked():
    checked = {type(augmentation_of(case[0])).__name__ for case in AUGMENTED}
    assert checked == concrete_classes(Augmentation)


@pytest.mark.parametrize("rule", [AugmentationRule(), VariationalRule()])
@pytest.mark.parametrize(("likelihood", "targets", "side"), AUGMENTED)
def test_rule_conforms(rule, likelihood, targets, side):
    check_rule(rule, likelihood, targets, side_information=side)


@pytest.mark.parametrize("likelihood", [StudentT(scale=0.6), Heteroscedastic()])
def test_the_variational_rule_takes_any_likelihood(likelihood):
    check_rule(VariationalRule(), likelihood, [-0.4, 0.9], tolerance=1e-4)


def test_every_rule_is_checked():
    assert {"AugmentationRule", "VariationalRule"} == concrete_classes(SiteRule)


class Unnormalised(lgp.Gaussian):
    def log_prob(self, y, f, side):
        return super().log_prob(y, f, side) + 0.01


class WrongMoments(lgp.Gaussian):
    def predictive_moments(self, mean, variance, side):
        return mean[:, 0], variance[:, 0] + jnp.sqrt(self.total_noise_variance(side))


class WrongQuantiles(lgp.Gaussian):
    def predictive_quantiles(self, probabilities, mean, variance, side):
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


class Shifted(lgp.Bernoulli):
    pass


class LooseAugmentation(Augmentation):
    """Pólya-Gamma sites at a tilt that is too large: a bound, but not the best."""

    def expected_sites(self, likelihood, rows, mean, variance):
        return augmentation_of(lgp.Bernoulli()).expected_sites(
            likelihood, rows, 1.5 * mean, variance
        )

    @property
    def is_exact(self):
        return False


class Boasting(lgp.Bernoulli):
    pass


class BoastingAugmentation(Augmentation):
    """Pólya-Gamma sites with a constant that makes them more than a bound."""

    def expected_sites(self, likelihood, rows, mean, variance):
        sites = augmentation_of(lgp.Bernoulli()).expected_sites(likelihood, rows, mean, variance)
        return sites._replace(log_constant=sites.log_constant + 0.1)

    @property
    def is_exact(self):
        return False


augmentation_of.register(Shifted, lambda likelihood: LooseAugmentation())
augmentation_of.register(Boasting, lambda likelihood: BoastingAugmentation())


@pytest.mark.parametrize(
    ("likelihood", "complaint"),
    [
        (Shifted(), "not tight"),
        (Boasting(), "above E log p"),
        (StudentT(), "no augmentation"),
    ],
)
def test_a_wrong_augmentation_is_caught(likelihood, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_augmentation(likelihood, [0.0, 1.0])


class HalfPrecision(VariationalRule):
    def sites(self, likelihood, rows, mean, variance):
        sites = super().sites(likelihood, rows, mean, variance)
        wrong = sites._replace(precision=0.5 * sites.precision)
        change = wrong.expected(mean, variance) - sites.expected(mean, variance)
        return wrong._replace(log_constant=wrong.log_constant - change)


def test_a_wrong_rule_is_caught():
    with pytest.raises(AssertionError, match="derivative of its value"):
        check_rule(HalfPrecision(), lgp.Bernoulli(), [0.0, 1.0])
