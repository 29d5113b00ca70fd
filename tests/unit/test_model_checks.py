"""Slips in a user's kernel or likelihood are said in a sentence, before JAX sees them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from numpyro.distributions import constraints

import latentgp as lgp
from latentgp.model_checks import check_model
from problems import Heteroscedastic, StudentT

pytestmark = pytest.mark.quick

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.sin(X[:, 0])


class OfAVector(lgp.Kernel):
    width: Array = lgp.parameter(constraints.positive, default=1.0)

    def __call__(self, x, z):
        return jnp.exp(-((x - z) ** 2) / self.width)


class OfThree(lgp.Kernel):
    def __call__(self, x, z, w):
        return jnp.sum(x * z)


class Indefinite(lgp.Kernel):
    def __call__(self, x, z):
        return jnp.sum((x - z) ** 2)


class OneWay(lgp.Kernel):
    def __call__(self, x, z):
        return jnp.sum(x + 2 * z)


class Logarithm(lgp.Kernel):
    def __call__(self, x, z):
        return jnp.log(jnp.sum((x - z) ** 2))


class TurnedGram(lgp.RBF):
    def gram(self, X, Z):
        return lgp.RBF().gram(Z, X)


class PlainNumber(lgp.Kernel):
    width: float = 1.0

    def __call__(self, x, z):
        return jnp.exp(-jnp.sum((x - z) ** 2) / self.width)


class PlainFunction(lgp.Kernel):
    link: Any = jnp.tanh

    def __call__(self, x, z):
        return jnp.sum(self.link(x) * self.link(z))


class StaticNumber(lgp.Kernel):
    width: float = eqx.field(static=True, default=1.0)

    def __call__(self, x, z):
        return jnp.exp(-jnp.sum((x - z) ** 2) / self.width)


class OfOneRow(lgp.Likelihood):
    def log_prob(self, y, f, side):
        return -((y - f) ** 2)


class OfTwoMoments(lgp.Likelihood):
    def log_prob(self, y, f, side):
        return -((y - f[0]) ** 2)

    def predictive_moments(self, mean, variance, side):
        return mean, variance


class WithoutSide(lgp.Likelihood):
    def log_prob(self, y, f):
        return -((y - f[0]) ** 2)


def fit_of(kernel, likelihood):
    return lgp.fit(
        lgp.LatentGP(kernel, likelihood), lgp.Data(X, Y), key=jax.random.key(0), max_evaluations=1
    )


@pytest.mark.parametrize(
    ("kernel", "sentence"),
    [
        (OfAVector(), r"OfAVector.__call__ returns shape \(2,\) for two points instead of one"),
        (2.0 * OfAVector().on(1) + lgp.RBF(), r"OfAVector.__call__ returns shape \(1,\)"),
        (OfThree(), r"OfThree.__call__ must take the arguments \(self, x, z\)"),
        (Indefinite(), "Indefinite is no covariance: .* eigenvalue -"),
        (OneWay(), r"OneWay is not symmetric: k\(x, z\) differs from k\(z, x\)"),
        (Logarithm(), "Logarithm is NaN or infinite at some of the rows"),
        (TurnedGram(), r"TurnedGram.gram returns shape \(3, 2\)"),
        (lgp.RBF() * PlainNumber(), "PlainNumber.width is the number 1, .* `width: Array = param"),
        (PlainFunction(), "PlainFunction.link holds .* eqx.field"),
        (lgp.RBF().on(5), "looks at column 5 but the inputs have 2"),
        (lgp.RBF([1.0, 2.0, 3.0]), r"RBF.lengthscale has shape \(3,\)"),
    ],
)
def test_slips_of_kernels(kernel, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        fit_of(kernel, lgp.Gaussian())
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.GPRegressor(kernel).fit(X, Y)


@pytest.mark.parametrize(
    ("likelihood", "sentence"),
    [
        (OfOneRow(), r"OfOneRow.log_prob returns shape \(1,\) for one row .* write f\[0\]"),
        (WithoutSide(), r"WithoutSide.log_prob must take the arguments \(self, y, f, side\)"),
        (
            OfTwoMoments(),
            r"OfTwoMoments.predictive_moments must take the arguments \(self, marginals, side\)",
        ),
        (
            lgp.CustomLikelihood(lambda y, f: -((y - f) ** 2)),
            r"function of CustomLikelihood returns shape \(1,\)",
        ),
    ],
)
def test_slips_of_likelihoods(likelihood, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        fit_of(lgp.RBF(), likelihood)


def test_a_function_with_the_arguments_of_a_class_is_refused():
    with pytest.raises(lgp.InputError, match=r"a function of \(y, f\).*class of Likelihood"):
        lgp.CustomLikelihood(lambda y, f, side: -((y - f[0]) ** 2))


@pytest.mark.parametrize("likelihood", [StudentT(), Heteroscedastic(), lgp.Softmax(3)])
def test_what_is_right_passes(likelihood):
    check_model(lgp.LatentGP(StaticNumber() * lgp.RBF() + StaticNumber().on(0), likelihood), X)


def test_kernels_of_the_library_are_not_evaluated(compilations):
    check_model(lgp.LatentGP(2.0 * lgp.RBF() + lgp.Linear().on(1), lgp.Gaussian()), X)
    assert compilations == []


def test_an_index_that_is_not_there_is_no_other_one():
    """JAX takes the last entry in its place."""
    two = lgp.CustomLikelihood(lambda y, f: -0.5 * (y - f[0]) ** 2 * jnp.exp(-f[1]) - 0.5 * f[1])
    with pytest.raises(lgp.InputError, match=r"is not there .* of 1 latent function\(s\)"):
        check_model(lgp.LatentGP(lgp.RBF(), two), np.zeros((3, 2)))

    class Far(lgp.Kernel):
        def __call__(self, x, z):
            return jnp.exp(-((x[5] - z[5]) ** 2))

    with pytest.raises(lgp.InputError, match=r"is not there .* of 2 input column\(s\)"):
        check_model(lgp.LatentGP(Far(), lgp.Gaussian()), np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (lgp.Constant(1.0) * lgp.Precomputed(np.eye(40)), "Precomputed"),
        (lgp.Precomputed(np.eye(40)) + lgp.RBF(), "Precomputed"),
        ((2.0 * lgp.OnSphere(lgp.Matern32())).on(0, 1, 2), "OnSphere reads two columns"),
    ],
)
def test_parts_of_an_expression_check_the_columns_that_they_see(kernel, says):
    with pytest.raises(lgp.InputError, match=says):
        check_model(lgp.LatentGP(kernel, lgp.Gaussian()), np.zeros((5, 3)))
