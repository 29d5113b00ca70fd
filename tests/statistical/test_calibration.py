"""Simulation-based calibration: exact posteriors pass, wrong ones do not, no pair is forgotten."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.special import ndtr

import calibration
import latentgp as lgp
from classes import concrete_classes
from latentgp.likelihoods import Likelihood
from latentgp.methods.base import Method
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.testing import (
    check_calibration,
    simulate_calibration,
    simulate_hyperparameter_calibration,
)
from latentgp.testing.calibration import Calibration, check_ranks, from_prior
from simulated import INPUTS, LIKELIHOODS, mixed_model, model_of

ROOT = Path(__file__).parents[2]
KEY = jax.random.key(3)
REGRESSION = model_of(lgp.Gaussian(0.3))


class SureRule(AugmentationRule):
    """Counts every row 1.5 times."""

    def sites(self, likelihood, rows, marginals, current):
        weights = np.full(len(marginals.mean), 1.5)
        return super().sites(likelihood, rows, marginals, current).weighted(weights)


class SureRegression(lgp.ExactGP):
    """Too sure of itself."""

    def algorithm(self, model):
        return SiteInference.of(model, self.representation, SureRule())


class ShiftedNoise(lgp.Gaussian):
    """Draws targets whose noise is not centred."""

    def sample(self, key, f, side):
        return super().sample(key, f, side) + 0.2


class LoudNoise(lgp.Gaussian):
    """Draws targets with four times the noise variance."""

    def sample(self, key, f, side):
        return f[0] + 2 * (super().sample(key, f, side) - f[0])


def test_exact_posteriors_are_calibrated():
    check_calibration(lgp.ExactGP(), REGRESSION, INPUTS, key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [lgp.Gaussian(0.1), lgp.Bernoulli()])
def test_series_are_calibrated(likelihood):
    exact = isinstance(likelihood, lgp.Gaussian)
    method = (lgp.ExactGP if exact else lgp.GibbsSampling)(lgp.Markov())
    model = lgp.LatentGP(lgp.Matern32() + lgp.Constant(0.5), likelihood)
    times = INPUTS[: 100 if exact else 20, :1]
    check_calibration(method, model, times, key=KEY, replications=100 if exact else 40)


@pytest.mark.slow
def test_draws_are_calibrated():
    method = lgp.GibbsSampling(chains=4, warmup=32, draws=16, thin=2)
    check_calibration(method, model_of(lgp.Bernoulli()), INPUTS[::3], key=KEY, replications=40)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["Gibbs", "NUTS"])
@pytest.mark.parametrize("name", ["Bernoulli", "StudentT", "NegativeBinomial", "LogisticSoftmax"])
def test_samplers_are_calibrated(label, name):
    likelihood, side = LIKELIHOODS[name]
    check_calibration(
        calibration.METHODS[label],
        model_of(likelihood),
        INPUTS,
        key=KEY,
        replications=100,
        side_information=side,
    )


@pytest.mark.slow
def test_variances_of_a_mixed_model_are_calibrated():
    model, X, laws = mixed_model(lgp.Gaussian(0.5))
    found = simulate_hyperparameter_calibration(
        lgp.Integrated(lgp.ExactGP()), model, X, laws, key=KEY, replications=60
    )
    assert len(found) == 5
    for path, ranks in found.items():
        assert ranks.converged.mean() > 0.9
        check_ranks(ranks, path)


@pytest.mark.slow
def test_wrong_variances_are_caught():
    model, X, laws = mixed_model(LoudNoise(0.5))
    found = simulate_hyperparameter_calibration(
        lgp.Integrated(lgp.ExactGP()), model, X, laws, key=KEY, replications=15
    )
    path = "likelihood.noise_variance"
    with pytest.raises(AssertionError, match="is not calibrated"):
        check_ranks(found[path], path)


@pytest.mark.parametrize(
    ("method", "model"),
    [(SureRegression(), REGRESSION), (lgp.ExactGP(), model_of(ShiftedNoise(0.3)))],
)
def test_wrong_posteriors_are_caught(method, model):
    with pytest.raises(AssertionError, match="is not calibrated: the intervals"):
        check_calibration(method, model, INPUTS, key=KEY)


def test_what_is_calibrated_is_what_a_fit_gives(x64):
    model = model_of(lgp.BernoulliProbit())
    given = lgp.Data(INPUTS[:6], np.zeros(6)).merged()
    found = simulate_calibration(lgp.Laplace(), model, given.X, key=KEY, replications=3)
    f, y = from_prior(model, None, given, jax.random.split(jax.random.split(KEY, 3)[0], 3))
    data = lgp.Data(given.X, y[2])
    fit = lgp.fit(model, data, key=KEY, method=lgp.Laplace(), learn_hyperparameters=False)
    own = fit.posterior.predict_f(given.X)
    below = ndtr((f[2, :, 0] - own.mean) / np.sqrt(own.variance))
    np.testing.assert_allclose(found.below[2, :, 0], below, atol=1e-9)


def test_equal_rows_are_refused():
    with pytest.raises(AssertionError, match="equal rows"):
        simulate_calibration(lgp.ExactGP(), REGRESSION, np.zeros(3), key=KEY)


def test_coverage_and_ranks():
    below = np.array([[[0.001], [0.3]], [[0.55], [0.999]], [[np.nan], [0.5]]])
    found = Calibration(below, np.array([True, True, False]))
    assert found.failed == pytest.approx(1 / 3)
    np.testing.assert_allclose(found.coverage().share, [0.5, 0.5, 0.5])
    np.testing.assert_allclose(found.coverage().error, 0.0)
    share, error = found.histogram(2)
    np.testing.assert_allclose(share, [0.5, 0.5])
    np.testing.assert_allclose(error, [0.5, 0.5])


@pytest.mark.always
def test_every_likelihood_and_method_is_calibrated():
    # A function cannot be sampled from; collapsed inference is exact but for its inducing points,
    # batches lead to what all rows do, hyper-parameters are not integrated over where they are
    # held, and check_sampler has the chains.
    apart = {"CustomLikelihood", "ExternalLikelihood", "LeastSquares"}
    assert set(LIKELIHOODS) | apart == concrete_classes(Likelihood)
    methods = {type(method).__name__ for method in calibration.METHODS.values()}
    elsewhere = {"CollapsedVI", "Stochastic", "Integrated", "EllipticalSlice", "MCMC", "HMC"}
    elsewhere |= {"SGLD", "SolvesGP"}  # of hyper-parameters, and an optimiser of these
    elsewhere |= {"RandomFeatureVI", "FourierGP"}  # of a covariance that is near the kernel's
    elsewhere |= {"DeepMCMC"}  # test_deep_calibration.py
    assert methods | elsewhere == concrete_classes(Method)


def test_the_guide_has_every_pair():
    """A pair that can be used has figures in the guide, and one that cannot has none."""
    guide = (ROOT / "docs" / "guides" / "calibration.md").read_text()
    given = set(re.findall(r"^\| (\w+) \| (\w+) \| [\d.]+ ±", guide, flags=re.MULTILINE))
    usable = {
        (name, label)
        for name, (likelihood, _) in LIKELIHOODS.items()
        for label, method in calibration.METHODS.items()
        if calibration.is_usable(method, model_of(likelihood))
    }
    assert given == usable
