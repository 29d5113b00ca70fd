"""Priors from statements: the statements hold."""

import jax
import numpy as np
import pytest
from numpyro.distributions import InverseGamma, constraints
from scipy import integrate

import latentgp as lgp
from latentgp.hyperparameters.supports import support_under
from latentgp.surfaces.cli.priors import priors_from


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("law", ["inverse-gamma", "log-normal", "gamma"])
@pytest.mark.parametrize("tails", [0.05, (0.01, 0.2)])
@pytest.mark.parametrize("ends", [(0.1, 5.0), (0.9, 1.1), (1e-3, 1e4)])
def test_two_statements(law, tails, ends):
    prior = lgp.prior_from(below=ends[0], above=ends[1], probability=tails, law=law)
    lower, upper = np.broadcast_to(tails, 2)
    assert float(prior.cdf(ends[0])) == pytest.approx(lower, abs=1e-7)
    assert float(prior.cdf(ends[1])) == pytest.approx(1 - upper, abs=1e-7)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_length_scales_of_penalised_complexity(dimension):
    """The density of Fuglstad et al. (2019), which falls with the distance from infinity."""
    prior = lgp.prior_from(below=0.3, probability=0.1, dimension=dimension)
    half, rate = dimension / 2, -np.log(0.1) * 0.3 ** (dimension / 2)
    at = np.array([0.05, 0.3, 1.0, 20.0])
    density = half * rate * at ** (-half - 1) * np.exp(-rate * at**-half)
    np.testing.assert_allclose(np.exp(prior.log_prob(at)), density, rtol=1e-10)
    mass, _ = integrate.quad(lambda x: float(np.exp(prior.log_prob(x))), 1e-9, 0.3)
    assert mass == pytest.approx(0.1, abs=1e-6)
    assert support_under(prior, constraints.positive) is constraints.positive
    assert isinstance(prior, InverseGamma) == (dimension == 2)


def test_standard_deviations_of_penalised_complexity():
    std = lgp.prior_from(above=2.0, probability=0.1)
    variance = lgp.prior_from(std_above=2.0, probability=0.1)
    assert float(std.cdf(2.0)) == pytest.approx(0.9)
    assert float(variance.cdf(4.0)) == pytest.approx(0.9)
    x = np.array([0.01, 0.5, 9.0])  # the density of a square
    expected = np.exp(std.log_prob(np.sqrt(x))) / (2 * np.sqrt(x))
    np.testing.assert_allclose(np.exp(variance.log_prob(x)), expected, rtol=1e-10)


def test_a_fit_takes_them():
    X = np.linspace(0, 6, 20)
    priors = {
        "kernel.lengthscale": lgp.prior_from(below=0.3),
        "kernel.variance": lgp.prior_from(std_above=2.0),
        "likelihood.noise_variance": lgp.prior_from(below=0.01, above=0.5),
    }
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    fit = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), priors=priors)
    assert fit.diagnostics.converged
    assert fit.summary.count("yours") == 3


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ({}, "one of the four"),
        ({"below": 1.0, "std_above": 1.0}, "one of the four"),
        ({"below": -1.0}, "positive"),
        ({"below": 2.0, "above": 1.0}, "contradict"),
        ({"below": 1.0, "above": 2.0, "probability": (0.6, 0.5)}, "contradict"),
        ({"below": 1.0, "probability": 1.5}, "in \\(0, 1\\)"),
        ({"below": 1.0, "probability": (0.1, 0.1)}, "in \\(0, 1\\)"),
        ({"below": 1.0, "dimension": 0}, "whole number"),
        ({"below": 1.0, "above": 2.0, "law": "normal"}, "law must be"),
    ],
)
def test_statements_that_make_no_prior(statements, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.prior_from(**statements)


def test_the_command_line_takes_statements():
    found = priors_from(["kernel.lengthscale = from(below=0.1, above=2, probability=0.1)"])
    expected = lgp.prior_from(below=0.1, above=2.0, probability=0.1)
    assert float(found["kernel.lengthscale"].rate) == pytest.approx(float(expected.rate))
    for wrong in ("from(below=x)", "from(under=1)", "from()", "from(below=2, above=1)"):
        with pytest.raises(lgp.InputError, match="is no prior"):
            priors_from([f"kernel.lengthscale={wrong}"])
