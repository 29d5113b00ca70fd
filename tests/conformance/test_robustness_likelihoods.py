"""The battery of hard inputs for every likelihood: a finite answer or a clear error, never NaN."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.choosing.choice import choose_method
from latentgp.likelihoods import Likelihood
from likelihood_cases import AT_EVERY_CHANGE, COMPLETE, LOGISTIC_NOISE, OF_OUTPUTS

ROWS = 20
_generator = np.random.default_rng(0)
X = _generator.normal(size=(ROWS, 2))
NOISE = _generator.normal(size=ROWS)
SIGNAL = 1.5 * np.sin(2 * X[:, 0])
TWICE = np.repeat(np.arange(ROWS // 2), 2)
NUMBERS = {"noise_variance": 0.4, "trials": 5.0, "exposure": 2.5, "censored": 0.0, "upper": 5.0}
# One of each class, and those that the conformance tests treat apart.
LIKELIHOODS = {
    type(likelihood).__name__: likelihood
    for likelihood in (
        *(case[0] for case in reversed(COMPLETE)),
        LOGISTIC_NOISE,
        lgp.HeavisideMulticlass(3),
    )
}


@pytest.mark.always
def test_every_likelihood_meets_the_battery():
    # Those of several outputs have targets of another shape: see test_multi_output.py. What an
    # external function does is its own affair: see test_external.py.
    several = {type(case[0]).__name__ for case in OF_OUTPUTS}
    assert set(LIKELIHOODS) | several | {"ExternalLikelihood"} == concrete_classes(Likelihood)


METHODS = {
    "auto": "auto",
    "variational": lgp.VariationalInference(),
    "Laplace": lgp.Laplace(),
    "EP": lgp.ExpectationPropagation(),
    "variational, sparse": lgp.VariationalInference(lgp.Inducing(number=8)),
    "Laplace, sparse": lgp.Laplace(lgp.Inducing(number=8)),
    "EP, sparse": lgp.ExpectationPropagation(lgp.Inducing(number=8)),
}
WITH_EVERY_METHOD = lgp.Poisson, lgp.StudentT


def is_slow(likelihood, name):
    """At every change a likelihood of each kind with "auto", and two with other methods."""
    some = AT_EVERY_CHANGE if name == "auto" else WITH_EVERY_METHOD
    return not isinstance(likelihood, some) or name not in ("auto", "Laplace", "EP")


def suits(likelihood, name):
    """Whether a method takes a likelihood, and is not what "auto" stands for."""
    model = lgp.LatentGP(lgp.RBF(), likelihood)
    if name == "auto":
        return True
    if METHODS[name] == choose_method(model, ROWS).method:
        return False
    try:
        METHODS[name].algorithm(model)
    except lgp.InputError:
        return False
    return True


PAIRS = [
    pytest.param(
        (likelihood, METHODS[name]),
        id=f"{kind}-{name}",
        marks=[pytest.mark.slow] * is_slow(likelihood, name),
    )
    for kind, likelihood in LIKELIHOODS.items()
    for name in METHODS
    if suits(likelihood, name)
]


@pytest.fixture(scope="module", params=PAIRS)
def pair(request):
    """A likelihood and a method."""
    return request.param


def side_of(likelihood, size=ROWS):
    """Numbers of rows; targets of any sign have no entry."""
    names = [name for name in likelihood.side_information if name != "entry"]
    return {name: np.full(size, NUMBERS[name]) for name in names}


def plain_targets(likelihood, signal=SIGNAL):
    """Targets drawn from the likelihood, whose first latent is the signal."""
    if isinstance(likelihood, lgp.CustomLikelihood):
        return signal + NOISE[: len(signal)]
    with jax.enable_x64(True):
        f = np.stack([np.roll(signal, 5 * q) for q in range(likelihood.latent_size)], axis=1)
        keys = jax.random.split(jax.random.key(1), len(signal))
        return np.asarray(
            jax.vmap(likelihood.sample)(keys, jnp.asarray(f), side_of(likelihood, len(signal)))
        )


class NotFinite(Exception):
    """A fit said so in a sentence."""


def answer(likelihood, method, X, y, new=None, weights=None, **side):
    """The posterior, all that it says checked to be finite; None where the data are refused."""
    side = side_of(likelihood, len(y)) | side
    data = lgp.Data(X, y, weights=weights, **side)
    model = lgp.LatentGP(lgp.RBF(), likelihood, lgp.ConstantMean(0.0))
    key = jax.random.key(0)
    try:
        likelihood.check_targets(data.y)
        likelihood.check_rows(data.y, data.side_information)
    except lgp.InputError:
        with pytest.raises(lgp.InputError, match="targets"):
            lgp.fit(model, data, key=key, method=method)
        return None
    try:
        fit = lgp.fit(model, data, key=key, method=method, max_evaluations=40)
    except lgp.InputError as error:
        raise (NotFinite if "not a finite number" in str(error) else error) from None
    posterior = fit.posterior
    assert np.isfinite(posterior.log_evidence.value)
    latent = posterior.predict_f(X if new is None else new)
    assert np.all(np.isfinite(latent.mean))
    assert np.all(np.isfinite(latent.variance) & (latent.variance >= 0))
    predictive = posterior.predict(X, **side)
    assert not np.any(np.isnan(predictive.log_prob(y)))
    if likelihood.targets == "class":
        assert np.all(predictive.probabilities >= 0)
        np.testing.assert_allclose(predictive.probabilities.sum(axis=1), 1, atol=1e-12)
    elif not isinstance(likelihood, lgp.CustomLikelihood):
        # Infinite where the law's own is; its mean where targets span hundreds of powers of ten,
        # or where that of a log-normal rate is: latents that no row speaks of, of learned variance.
        here = latent if new is None else posterior.predict_f(X)
        log_means = (here.mean + here.variance / 2).reshape(len(y), -1).max(axis=1)
        endless = np.isposinf(predictive.mean) & (log_means > np.log(np.finfo(float).max))
        assert np.all(np.isfinite(predictive.mean) | endless) or (
            isinstance(likelihood, lgp.Weibull | lgp.LogNormal) and np.ptp(np.log10(y)) > 200
        )
        assert np.all(predictive.variance >= 0)
    return posterior


INPUTS = {
    "as they are": X,
    "times 1e6": X * 1e6,
    "times 1e-6": X * 1e-6,
    "plus 1e8": X + 1e8,
    "one column constant": np.c_[X[:, 0], np.ones(ROWS)],
    "all columns constant": np.ones((ROWS, 2)),
    "duplicates": X[TWICE],
    "nearly duplicates": X[TWICE] + 1e-8 * (np.arange(ROWS) % 2)[:, None],
}


# Equal rows are merged, and other numbers of rows compile anew.
MERGED = "all columns constant", "duplicates"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in MERGED)) for n in INPUTS]
)
def test_inputs(pair, name):
    assert answer(*pair, INPUTS[name], plain_targets(pair[0])) is not None


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows(pair, rows):
    y = plain_targets(pair[0])
    assert answer(*pair, X[:rows], y[:rows]) is not None


@pytest.mark.slow
def test_more_columns_than_rows(pair):
    wide = np.random.default_rng(1).normal(size=(ROWS, 1000))
    assert answer(*pair, wide, plain_targets(pair[0])) is not None


TARGETS = {
    "zero": lambda y: np.zeros(ROWS),
    "one": lambda y: np.ones(ROWS),
    "constant": lambda y: np.full(ROWS, np.median(np.floor(y)) + 0.0),
    "times 1e12": lambda y: 1e12 * y,
    "times 1e-12": lambda y: 1e-12 * y,
    "plus 1e8": lambda y: 1e8 + y,
    "an outlier": lambda y: np.r_[1e6, y[1:]],
    "an outlier below": lambda y: np.r_[-1e6, y[1:]],
    "around 1e6": lambda y: np.floor(1e6 * (2 + np.sin(X[:, 0]))),
    "nearly zero and one": lambda y: np.where(SIGNAL > 0, 1 - 1e-16, 1e-300),
    "of 1e-300": lambda y: np.where(SIGNAL > 0, 1e-300, np.abs(y) + 0.1),
    "separable": lambda y: (X[:, 0] > 0).astype(float),
    "one of its class": lambda y: (np.arange(ROWS) == 4).astype(float),
}


# The others of their kind are in the slow form.
TARGETS_AT_EVERY_CHANGE = (
    "zero",
    "constant",
    "times 1e12",
    "an outlier",
    "around 1e6",
    "of 1e-300",
    "one of its class",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n not in TARGETS_AT_EVERY_CHANGE))
        for n in TARGETS
    ],
)
def test_targets(pair, name):
    # Of targets that no hyper-parameters near the start explain, a sentence is enough.
    with contextlib.suppress(NotFinite):
        answer(*pair, X, TARGETS[name](plain_targets(pair[0])))


@pytest.mark.slow
def test_a_thousand_to_one(pair):
    """A weight is a number of copies: one row of its class among 1,007 of the other."""
    alone = np.arange(ROWS) == 4
    with contextlib.suppress(NotFinite):
        answer(*pair, X, alone.astype(float), weights=np.where(alone, 1.0, 53.0))


SIDES = {
    "noise_variance": {
        "zero": 0.0,
        "huge": 1e12,
        "mixed": np.where(np.arange(ROWS) % 2, 1e-12, 1e12),
    },
    "trials": {"a million": 1e6},
    "exposure": {
        "tiny": 1e-9,
        "huge": 1e9,
        "mixed": np.where(np.arange(ROWS) % 2, 1e-9, 1.0),
    },
    "censored": {"all": 1.0, "some": (np.arange(ROWS) % 2).astype(float)},
}
CASES_OF_SIDE = [(name, case) for name, cases in SIDES.items() for case in cases]


@pytest.mark.parametrize(("name", "case"), CASES_OF_SIDE)
def test_numbers_of_a_row(pair, name, case):
    if name in pair[0].side_information:
        values = np.broadcast_to(SIDES[name][case], ROWS)
        assert answer(*pair, X, plain_targets(pair[0]), **{name: values}) is not None


WEIGHTS = {"faint": np.full(ROWS, 1e-300), "some zero": np.arange(ROWS) % 2, "huge": 1e6}


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(pair, name):
    weights = np.broadcast_to(WEIGHTS[name], ROWS)
    if name == "huge" and isinstance(pair[0], lgp.LogNoiseGaussian) and "Laplace" in repr(pair[1]):
        # A million copies of rows that f meets have their mode where exp(log noise) is no number.
        with pytest.raises(NotFinite):
            answer(*pair, X, plain_targets(pair[0]), weights=weights)
        return
    assert answer(*pair, X, plain_targets(pair[0]), weights=weights) is not None


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_numbers_that_are_none(likelihood):
    y = np.zeros(ROWS)
    for bad in (np.nan, np.inf):
        broken = np.where(np.arange(ROWS) == 3, bad, 1.0)
        for change in ({"X": broken}, {"y": broken}, {"weights": broken}):
            with pytest.raises(lgp.InputError, match=r"NaN or infinity in 1 row.*: 3"):
                lgp.Data(**{"X": X, "y": y} | side_of(likelihood) | change)
        for name in likelihood.side_information:
            with pytest.raises(lgp.InputError, match=rf"{name} has NaN or infinity.*: 3"):
                lgp.Data(X, y, **{name: broken})


@pytest.mark.parametrize(
    ("likelihood", "name", "value"),
    [
        (lgp.Poisson(), "exposure", 0.0),
        (lgp.LogNegativeBinomial(1.0), "exposure", -1.0),
        (lgp.Binomial(), "trials", 0.0),
        (lgp.Gaussian(0.1), "noise_variance", -1.0),
        (lgp.Weibull(1.0), "censored", 0.5),
        (lgp.Censored(lgp.Gaussian(1.0)), "censored", 0.5),
        (lgp.ZeroInflated(lgp.Poisson()), "exposure", 0.0),
    ],
)
def test_numbers_outside_their_range(likelihood, name, value):
    side = {name: np.where(np.arange(ROWS) == 3, value, 1.0)}
    y = np.ones(ROWS)
    with pytest.raises(lgp.InputError, match=name):
        lgp.fit(lgp.LatentGP(lgp.RBF(), likelihood), lgp.Data(X, y, **side), key=jax.random.key(0))
