"""Hyper-parameters mean the same to every method: inputs and length-scales in other units alike."""

import functools

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing.registry import METHODS
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
    "fourier": lambda: lgp.fields.FourierGP(lgp.fields.EquispacedFourier(margin=0.5)),
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


LEARNED = {
    **SMALL,
    "random-features": lambda: lgp.RandomFeatureVI(20),
    "solves": lambda: lgp.SolvesGP(iterations=200),
}


@functools.cache
def learned(name, of_targets, shift, of_inputs):
    """Evidence and predictions in the first units, of a model that was written down in these."""
    likelihood = lgp.StudentT() if name in AUGMENTED else lgp.Gaussian()
    fit = lgp.fit(
        lgp.LatentGP(lgp.RBF(), likelihood, lgp.ConstantMean()),
        lgp.Data(of_inputs * X, of_targets * Y + shift),
        key=KEY,
        method=LEARNED[name](),
    )
    evidence = float(fit.posterior.log_evidence) + len(Y) * np.log(of_targets)
    mean, variance = fit.posterior.predict_f(of_inputs * NEW)
    return evidence, (mean - shift) / of_targets, np.sqrt(variance) / of_targets


@pytest.mark.parametrize("units", [(1e4, 0.0, 1.0), (1.0, 1e4, 1.0), (1e-4, -0.03, 128.0)], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        *("exact", "black-box", "augmented", "solves"),
        *slow_parameters("neighbours", "variational", "laplace", "ep", "random-features"),
    ],
)
def test_searches_end_alike_in_any_units(x64, name, units):
    """From a kernel, a mean and noise of size one: up to 2.8 million nats below, "converged"."""
    usual, other = learned(name, 1.0, 0.0, 1.0), learned(name, *units)
    rough = name == "random-features"  # a stochastic search
    assert other[0] == pytest.approx(usual[0], abs=5.0 if rough else 0.02)
    np.testing.assert_allclose(other[1], usual[1], atol=0.3 if rough else 0.03)
    np.testing.assert_allclose(other[2], usual[2], atol=0.2 if rough else 0.03)


def test_starts_far_from_the_units_of_rows_are_said():
    """Values near these, and those with priors of the user's own, stay."""
    import numpyro.distributions as dist

    model = lgp.LatentGP(lgp.RBF(0.01), lgp.Gaussian(), lgp.ConstantMean())
    data, settings = lgp.Data(X, 1e4 * (Y + 3)), {"key": KEY, "method": lgp.ExactGP()}
    found = lgp.fit(model, data, **settings).diagnostics.notes
    for path in (
        "kernel.lengthscale",
        "kernel.variance",
        "likelihood.noise_variance",
        "mean.value",
    ):
        assert any(note.startswith(f"{path}: the search started at") for note in found) == (
            path != "mean.value"  # three deviations off
        )
    own = {"kernel.lengthscale": dist.Uniform(0.005, 0.05)}
    held = lgp.fit(model, data, priors=own, **settings)
    assert held.model.kernel.lengthscale <= 0.05
    own = {"kernel.variance": dist.LogNormal(0.0, 1.0)}
    noise = lgp.fit(lgp.LatentGP(lgp.RBF(), lgp.Gaussian(1e7)), data, **settings)
    for found in (lgp.fit(model, data, priors=own, **settings), noise):
        moved = {note.partition(":")[0] for note in found.diagnostics.notes}
        assert ("kernel.variance" in moved) == (found is noise)
        assert ("likelihood.noise_variance" in moved) == (found is not noise)
    near = lgp.fit(lgp.LatentGP(lgp.RBF(), lgp.Gaussian()), lgp.Data(X, 3 * Y), **settings)
    assert not any("the search started" in note for note in near.diagnostics.notes)


def test_a_vague_fixed_effect_hides_no_variance_that_is_far_off(x64):
    """1e14 of it, beside which a variance of one is less than rounding is."""
    ones = np.column_stack([X, np.ones(len(X))])
    data, moved = lgp.Data(ones, 1e4 * (Y - np.mean(Y))), []
    for vague in (1e8, 1e14, 1e17):
        kernel = lgp.RBF().on(0) + lgp.FixedEffects(vague).on(1)
        found = lgp.fit(lgp.LatentGP(kernel, lgp.Gaussian()), data, key=KEY, method=lgp.ExactGP())
        notes = found.diagnostics.notes
        moved.append([note for note in notes if note.startswith("kernel.parts[0].kernel.variance")])
    assert moved[0]
    assert moved[0] == moved[1] == moved[2]


@pytest.mark.always
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
