"""Inducing functions at any length-scale and in any units: bounds are near the evidence, below."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.inter_domain.fourier import Waves
from latentgp.extensions.inter_domain.splines import Splines
from slow import slow_parameters

KEY = jax.random.key(0)
N = 80
X = np.linspace(0, 20, N)[:, None]
SMOOTH = 0.3 * X[:, 0] + np.sin(X[:, 0] / 3) + 0.05 * np.random.default_rng(0).normal(size=N)
MATERN = (lgp.Matern12, lgp.Matern32, lgp.Matern52)


def bound(kernel, features, unit=1.0, y=SMOOTH, learn=False, noise=0.01):
    method = lgp.CollapsedVI(lgp.Inducing(features=features)) if features else lgp.ExactGP()
    model = lgp.LatentGP(kernel, lgp.Gaussian(noise))
    data = lgp.Data(unit * X, y)
    return lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=learn)


def value(fit):
    return float(fit.posterior.log_evidence)


def condition(K):
    """Of a covariance in units of its own standard deviations."""
    norms = np.sqrt(np.diagonal(K))
    values = np.linalg.eigvalsh(K / norms / norms[:, None])
    return values[-1] / values[0]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("p", [0, 1, 2])
@pytest.mark.parametrize("kind", ["splines", "waves"])
def test_functions_are_as_good_as_independent_at_any_length_scale(kind, p, unit):
    """That of B-splines is 1e17 at a hundred ranges, and 1e9 already at one."""
    for lengthscale in (1e-3, 0.1, 1.0, 100.0, 1e4):
        kernel = MATERN[p](lengthscale * unit, 1.7)
        if kind == "splines":
            basis = Splines(0.0, tuple((np.linspace(0, 1, 61) * unit).tolist()), 2 * p + 1, p)
        else:
            margin = max(lengthscale, 0.02) * unit
            basis = Waves(-margin, unit + margin, 60, p)
        assert condition(np.asarray(basis.operator(kernel).matrix())) < 1e4
        x = np.linspace(0, unit, 7)[:, None]
        assert -1e-8 < basis.left_open(kernel, x) <= 1
    if kind == "splines":  # of the longest
        assert basis.left_open(kernel, x) < 1e-3 if p == 0 else 1e-9


@pytest.mark.parametrize(
    "case",
    [
        (lgp.BSplines(), lgp.Matern52),
        *slow_parameters(
            (lgp.BSplines(400), lgp.Matern52),
            (lgp.BSplines(400), lgp.Matern32),
            (lgp.FourierFeatures(301), lgp.Matern52),
            # Of Matern32, 100 ranges long, 301 leave 15 nats at the best of 60 margins.
        ),
    ],
    ids=repr,
)
def test_a_bound_is_near_the_evidence_whatever_the_length_scale(case):
    features, kernel = case
    for lengthscale in (2.0, 2000.0):
        own = kernel(lengthscale, 2.0)
        fit = bound(own, features)
        assert -1.0 < value(fit) - value(bound(own, None)) < 1e-3
        assert fit.diagnostics.jitter == 0


@pytest.mark.slow
def test_a_bound_does_not_fall_with_more_functions():
    for kind in (lgp.BSplines, lgp.FourierFeatures, lgp.HilbertSpace):
        values = [value(bound(lgp.Matern52(8.0), kind(m))) for m in (11, 31, 101, 301, 601)]
        assert np.all(np.diff(values) > -1e-3), kind


@pytest.mark.parametrize(
    "case",
    [
        (lgp.BSplines(), lgp.Matern52),
        (lgp.BSplines(), lgp.Matern12),
        *slow_parameters(
            (lgp.FourierFeatures(), lgp.Matern52),
            (lgp.FourierFeatures(), lgp.Matern32),
            (lgp.HilbertSpace(), lgp.Matern52),
            (lgp.HilbertSpace(), lgp.Matern32),
            (lgp.BSplines(400), lgp.Matern52),
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("unit", [1.0, *slow_parameters(1e4)])
def test_a_search_ends_where_dense_algebra_does(case, unit):
    """20,676 nats below at the length-scale it started from, and "converged", through B-splines."""
    features, kernel = case
    start = kernel(2.0 * unit)
    fit, dense = (bound(start, f, unit, learn=True) for f in (features, None))
    assert abs(value(fit) - value(dense)) < 1.0
    assert fit.diagnostics.converged
    new = unit * np.linspace(-2, 22, 9)[:, None]
    ours, theirs = (np.sqrt(f.posterior.predict_f(new).variance) for f in (fit, dense))
    np.testing.assert_allclose(ours, theirs, rtol=0.3)


@pytest.mark.slow
def test_functions_made_anew_that_lead_lower_are_not_kept():
    """Of a number that is too small: 5.7 nats below, as domains grew with the length-scale."""
    features = lgp.FourierFeatures(101)
    fit, dense = (bound(lgp.Matern52(2.0), f, learn=True) for f in (features, None))
    assert -2.0 < value(fit) - value(dense) < 0.0
    assert fit.diagnostics.converged


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("features", [lgp.FourierFeatures(), lgp.HilbertSpace()], ids=repr)
def test_functions_are_as_many_as_needed(features):
    kernel = lgp.Matern32(2.0)
    few = features.functions_for(X, None, kernel)
    more = features.functions_for(X, None, kernel, left=1e-5)
    assert np.mean(few.left_open(kernel)) > 1e-5 >= np.mean(more.left_open(kernel))
    rough = features.functions_for(X, None, lgp.Matern12(2.0), left=1e-5)  # which none does for
    assert len(few) < len(more) < len(rough) <= 1000
    given = type(features)(31)
    assert len(given.functions_for(X, None, kernel, left=1e-5)) == 31


def test_what_is_lost_is_said():
    fit = bound(lgp.Matern12(20.0), lgp.FourierFeatures(31))
    loss = value(bound(lgp.Matern12(20.0), None)) - value(fit)
    (said,) = [w for w in fit.diagnostics.warnings if "representation leaves" in w]
    assert abs(float(said.split("about ")[1].split()[0].replace(",", "")) / loss - 1) < 0.3


def test_sums_for_other_length_scales_are_refused_or_said():
    """Bands of many splines carry no length-scale that is far longer than a cell."""
    short, data = lgp.LatentGP(lgp.Matern52(0.5), lgp.Gaussian(0.01)), lgp.Data(X, SMOOTH)
    sums = lgp.summarise(short, data, lgp.BSplines(1500), key=KEY)
    assert sums.bands is not None
    long = lgp.LatentGP(lgp.Matern52(2000.0), lgp.Gaussian(0.01))
    with pytest.raises(lgp.InputError, match="summarise the rows anew"):
        lgp.fit(long, sums, key=KEY)
    again = lgp.summarise(long, data, lgp.BSplines(1500), key=KEY)
    assert len(again.variables) == 255
    fit = lgp.fit(long, again, key=KEY, learn_hyperparameters=False)
    assert abs(value(fit) - value(bound(lgp.Matern52(2000.0), None))) < 1e-3


KINDS = {
    "splines": (lgp.BSplines(12), lgp.Matern32(2.0)),
    "bands": (lgp.BSplines(300), lgp.Matern12(2.0)),
    "Fourier": (lgp.FourierFeatures(15), lgp.Matern32(2.0)),
    "eigenfunctions": (lgp.HilbertSpace(9), lgp.RBF(2.0)),
    "windows": (lgp.MultiScale(25), lgp.RBF(2.0)),
    "harmonics": (lgp.SphericalHarmonics(161), lgp.ArcCosine(weight_variance=0.1)),
    "parts": (lgp.PerPart(9), lgp.RBF(2.0) + lgp.Constant()),
}


@pytest.mark.parametrize("kind", ["bands", "harmonics", *slow_parameters(*KINDS)])
def test_notes_say_what_is_left_open(kind):
    features, kernel = KINDS[kind]
    fit = bound(kernel, features)
    assert "leave open" in fit.posterior.latent.notes[0]
    assert fit.posterior.latent.complaints == ()
    variables = features.initialise(X, None, kernel, KEY)
    assert "leave open" in variables.notes(kernel)[0]
    assert value(fit) < value(bound(kernel, None)) + (0.5 if kind == "eigenfunctions" else 1e-3)
