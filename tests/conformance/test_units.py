"""Hyper-parameters mean the same to every method: inputs and length-scales in other units alike."""

import functools

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.methods.registry import METHODS
from slow import slow_parameters

KEY = jax.random.key(0)
_generator = np.random.default_rng(5)
X = 3 + _generator.uniform(0, 4, (24, 1))
Y = np.sin(2 * X[:, 0]) + 0.2 * _generator.normal(size=24)
NEW = np.linspace(2.5, 7.5, 7)[:, None]
CHAINS = {"chains": 1, "draws": 10, "warmup": 10}
SMALL = {
    "collapsed": lambda: lgp.CollapsedVI(lgp.RandomFeatures(20)),
    "random-features": lambda: lgp.RandomFeatureVI(20, batch_size=24, epochs=20, components=2),
    "black-box": lambda: lgp.BlackBoxVI(components=1),
    "deep-mcmc": lambda: lgp.DeepMCMC("nuts", features=10, **CHAINS),
    "gibbs": lambda: lgp.GibbsSampling(**CHAINS),
    "elliptical-slice": lambda: lgp.EllipticalSlice(**CHAINS),
    "mcmc": lambda: lgp.MCMC(**CHAINS),
    "hmc": lambda: lgp.HMC(**CHAINS),
    "nuts": lambda: lgp.NUTS(**CHAINS),
    "sgld": lambda: lgp.SGLD(**CHAINS),
    "exact": lgp.ExactGP,
    "neighbours": lambda: lgp.ExactGP(lgp.Neighbours(5)),
    "solves": lgp.SolvesGP,
    "augmented": lgp.AugmentedVI,
    "variational": lgp.VariationalInference,
    "laplace": lgp.Laplace,
    "laplace-neighbours": lambda: lgp.Laplace(lgp.LatentNeighbours(5)),
    "ep": lgp.ExpectationPropagation,
    "particle-flow": lgp.DensityApproximation,
}
# Powers of two, so that rounding is the same.
UNITS = [128.0, *slow_parameters(2.0**-10)]
AUGMENTED = {"augmented", "gibbs"}


def model_for(name, unit):
    """The same law of f in other units of the input."""
    likelihood = lgp.StudentT(scale=0.2) if name in AUGMENTED else lgp.Gaussian(0.05)
    kernel = lgp.RBF(0.9 * unit, 1.2)
    if name not in ("deep", "deep-mcmc"):
        return lgp.LatentGP(kernel, likelihood)
    last = lgp.RBF([1.1, 2.0 * unit])
    return lgp.DeepGP(last, likelihood, layers=[lgp.Layer(kernel, 1)])


@pytest.fixture(autouse=True)
def rows_in_their_own_order(monkeypatch):
    """A fit orders rows by their bytes, in whatever units, and draws noise in that order."""
    as_they_are = lambda table, leading: (np.arange(len(table)), np.arange(len(table)))  # noqa: E731
    monkeypatch.setattr("latentgp.rows.data._distinct", as_they_are)


@functools.cache
def answers(name, unit):
    method = SMALL["random-features" if name == "deep" else name]()
    found = lgp.fit(
        model_for(name, unit),
        lgp.Data(unit * X, Y),
        key=KEY,
        method=method,
        learn_hyperparameters=name == "sgld",  # whose steps are those of hyper-parameters
    ).posterior
    try:
        value = [float(found.log_evidence)]
    except lgp.InputError:  # of chains, flows
        value = []
    return np.concatenate([*found.predict_f(unit * NEW), value])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "name",
    [
        *("deep", "random-features", "collapsed"),
        *slow_parameters(*(n for n in METHODS if n not in ("random-features", "collapsed"))),
    ],
)
def test_length_scales_are_in_the_units_of_the_inputs(name, unit):
    np.testing.assert_allclose(answers(name, unit), answers(name, 1.0), rtol=1e-5, atol=1e-5)


def test_every_method_has_a_case():
    assert set(METHODS) == set(SMALL)


def test_random_features_of_a_gp_are_those_that_sums_over_weights_have():
    """A bound for the same features, of one batch: the exact one, whatever the units."""
    unit, model = 40.0, model_for("exact", 40.0)
    method = lgp.RandomFeatureVI(
        40,
        frequencies="fixed",
        batch_size=24,
        epochs=2,
        start="given",
        schedule=lgp.RobbinsMonro(delay=1),
    )
    settings = {"key": KEY, "learn_hyperparameters": False}
    data = lgp.Data(unit * X, Y)
    found = lgp.fit(model, data, method=method, **settings).posterior
    drawn = jax.tree.map(lambda leaf: leaf[0], found.components.features)
    exact = lgp.CollapsedVI(lgp.RandomFeatures(40, weights=drawn))
    known = lgp.fit(model, data, method=exact, **settings).posterior
    np.testing.assert_allclose(float(found.log_evidence), float(known.log_evidence), rtol=1e-8)
    dense = lgp.fit(model, data, method=lgp.ExactGP(), **settings).posterior
    assert abs(float(found.log_evidence) - float(dense.log_evidence)) < 10


@pytest.mark.parametrize("unit", UNITS)
def test_a_search_far_from_its_inputs_ends_as_one_in_their_units(unit):
    """Through features, of which length-scales far too short see nothing but noise."""
    method = lgp.CollapsedVI(lgp.RandomFeatures(40))
    near, far = (
        lgp.fit(lgp.LatentGP(lgp.RBF(), lgp.Gaussian()), lgp.Data(c * X, Y), key=KEY, method=method)
        for c in (1.0, unit)
    )
    values = [float(fit.posterior.log_evidence) for fit in (near, far)]
    np.testing.assert_allclose(*values, atol=1.0)
    lengths = [float(fit.model.kernel.lengthscale) for fit in (near, far)]
    np.testing.assert_allclose(lengths[1] / unit, lengths[0], rtol=0.1)
