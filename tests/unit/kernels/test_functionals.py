"""Functionals of f as rows: derivatives, averages and sums over regions, and what they tell."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import latentgp as lgp
from latentgp import functionals
from latentgp.kernels.functionals import Functionals

KEY = jax.random.key(0)
PLANE = np.random.default_rng(0).normal(size=(3, 2))
SMOOTH = [lgp.RBF(0.8, 1.3), lgp.Matern32(0.8, 1.3), lgp.Matern52(0.8, 1.3)]


def second_derivative(kernel, r):
    """d^2 k / dx dz in one dimension, in closed form, r = x - z."""
    scale, s2 = kernel.lengthscale, kernel.variance
    t = np.abs(r) / scale
    if isinstance(kernel, lgp.RBF):
        return s2 / scale**2 * (1 - t**2) * np.exp(-(t**2) / 2)
    if isinstance(kernel, lgp.Matern32):
        return 3 * s2 / scale**2 * (1 - np.sqrt(3) * t) * np.exp(-np.sqrt(3) * t)
    s = np.sqrt(5) * t
    return 5 / 3 * s2 / scale**2 * (1 + s - s**2) * np.exp(-s)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kernel", SMOOTH, ids=lambda k: type(k).__name__)
def test_derivatives_are_those_in_closed_form_at_equal_points_too(kernel):
    x = np.array([[0.0], [0.0], [0.3], [1.7]])
    rows = functionals.derivatives(x)
    expected = second_derivative(kernel, x - x.T)
    found = jax.jit(Functionals.gram)(lgp.Functionals(kernel), rows, rows)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    exact = jax.jit(Functionals.diagonal)(lgp.Functionals(kernel), rows)
    np.testing.assert_allclose(exact, np.diagonal(expected), rtol=1e-12)

    def total(kernel):
        return jnp.sum(lgp.Functionals(kernel).symmetric_gram(rows))

    slope = jax.jit(jax.grad(total))(kernel)
    step = 1e-5
    further, before = (
        second_derivative(type(kernel)(0.8 + h, 1.3), x - x.T).sum() for h in (step, -step)
    )
    np.testing.assert_allclose(slope.lengthscale, (further - before) / (2 * step), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_derivatives_are_differences_of_values():
    kernel = lgp.Functionals(
        lgp.RBF([0.8, 1.5]) * lgp.Linear(0.5) + lgp.Matern52(1.2).on(1), columns=2
    )
    step = 1e-5 * np.array([0.0, 1.0])
    others = np.concatenate([functionals.values(PLANE), functionals.derivatives(PLANE, 0)])
    gram = jax.jit(Functionals.gram)
    found = gram(kernel, functionals.derivatives(PLANE + 0.2, 1), others)
    up, down = (gram(kernel, functionals.values(PLANE + 0.2 + h), others) for h in (step, -step))
    np.testing.assert_allclose(found, (up - down) / 2e-5, atol=1e-8)


AVERAGED = [lgp.RBF(0.8, 1.3), lgp.Matern12(0.8), lgp.Matern32(0.8), lgp.Periodic(1.0, period=3.0)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kernel", AVERAGED, ids=lambda k: type(k).__name__)
@pytest.mark.parametrize(("centre", "width"), [(0.4, 0.7), (0.1, 0.2), (3.0, 1.0)])
def test_averages_are_those_of_quadrature(kernel, centre, width):
    def value(x, z):
        r = abs(x - z) / 0.8
        match type(kernel).__name__:
            case "RBF":
                return 1.3 * np.exp(-(r**2) / 2)
            case "Matern12":
                return np.exp(-r)
            case "Matern32":
                return (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)
        return np.exp(-2 * np.sin(np.pi * (x - z) / 3.0) ** 2)

    low, high = centre - width / 2, centre + width / 2
    own = functionals.averages([[0.0]], 1.0)[0]
    other, place = (
        f[0] for f in (functionals.averages([[centre]], width), functionals.values([[0.2]]))
    )
    pair = jax.jit(Functionals.__call__)
    whole = lgp.Functionals(kernel, average_along=0)
    single = quad(lambda x: value(x, 0.2), -0.5, 0.5, points=[0.2], epsabs=1e-12)[0]
    np.testing.assert_allclose(pair(whole, own, place), single, rtol=1e-9)

    def inside(x):
        return quad(lambda z: value(x, z), low, high, points=[np.clip(x, low, high)])[0]

    bounds = [np.clip(b, -0.5, 0.5) for b in (low, high)]
    double = quad(inside, -0.5, 0.5, points=bounds)[0] / width
    np.testing.assert_allclose(pair(whole, own, other), double, rtol=1e-8)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("width", "nodes", "error"), [(4.0, 8, 1e-6), (10.0, 16, 1e-8)])
def test_wide_averages_have_the_error_that_is_stated(width, nodes, error):
    row = functionals.averages([[0.0]], width)[0]
    found = lgp.Functionals(lgp.RBF(), average_along=0, nodes=nodes)(row, row)

    def weighted(t):
        return 2 * (width - t) / width**2 * np.exp(-(t**2) / 2)

    exact = quad(weighted, 0, width, epsabs=1e-13, points=[1.0, 3.0])[0]
    np.testing.assert_allclose(found, exact, rtol=error)


@pytest.mark.usefixtures("x64")
def test_regions_are_weighted_sums_and_mix_with_the_rest():
    inner = lgp.Matern32([0.7, 1.2], 1.4)
    regions = functionals.Regions([PLANE, PLANE[:1] + 0.5], [[0.2, 0.5, 0.3], [2.0]])
    kernel = lgp.Functionals(inner, columns=2, average_along=1, regions=regions)
    plain = lgp.Functionals(inner, columns=2)
    rows = np.concatenate(
        [
            regions.rows(),
            functionals.derivatives(PLANE[:1], 0),
            functionals.averages(PLANE[:1], 0.4, 1),
        ]
    )
    found = jax.jit(Functionals.symmetric_gram)(kernel, rows)
    points = np.concatenate(
        [functionals.values(np.concatenate([PLANE, PLANE[:1] + 0.5])), rows[2:3]]
    )
    weights = np.zeros((3, 5))
    weights[0, :3], weights[1, 3], weights[2, 4] = [0.2, 0.5, 0.3], 2.0, 1.0
    with tempfile.TemporaryDirectory() as folder:
        again = lgp.load(lgp.save(kernel, f"{folder}/kernel.latentgp"))
    np.testing.assert_array_equal(jax.jit(Functionals.symmetric_gram)(again, rows), found)
    expected = weights @ np.asarray(plain.symmetric_gram(points)) @ weights.T
    np.testing.assert_allclose(found[:3, :3], expected, atol=1e-7)
    assert np.linalg.eigvalsh(found).min() > 1e-6


def test_the_prior_mean_of_functionals_is_that_of_its_values():
    regions = functionals.Regions([[[0.0], [1.0]]], [[2.0, 1.0]])
    mean = lgp.FunctionalMean(lgp.LinearMean([2.0], 1.0), average_along=0, regions=regions)
    rows = [functionals.values([[3.0]]), functionals.derivatives([[3.0]])]
    rows += [functionals.averages([[3.0]], 2.0), regions.rows()]
    np.testing.assert_allclose(mean(np.concatenate(rows))[:, 0], [7.0, 2.0, 7.0, 5.0], rtol=1e-6)


@pytest.mark.parametrize(
    "method",
    [lgp.ExactGP(), lgp.CollapsedVI(lgp.Inducing(16))],
    ids=["dense", "inducing"],
)
def test_a_function_is_recovered_from_its_derivatives_and_averages(method):
    at = np.linspace(0.0, 6.0, 25)[:, None]
    rows = [functionals.values([[0.0]]), functionals.derivatives(at)]
    y = [[2.0], np.cos(at[:, 0])]
    rows.append(functionals.averages(at[::3], 1.0))
    y.append(2 + np.cos(at[::3, 0] - 0.5) - np.cos(at[::3, 0] + 0.5))
    model = lgp.LatentGP(
        lgp.Functionals(lgp.RBF(1.2, 1.0), average_along=0),
        lgp.Gaussian(1e-4),
        lgp.FunctionalMean(lgp.ConstantMean(2.0), average_along=0),
    )
    fit = lgp.fit(
        model,
        lgp.Data(np.concatenate(rows), np.concatenate(y)),
        key=KEY,
        method=method,
        learn_hyperparameters=False,
    )
    found = fit.posterior.predict_f(functionals.values(at + 0.1))
    np.testing.assert_allclose(found.mean, 2 + np.sin(at[:, 0] + 0.1), atol=0.03)
    slopes = fit.posterior.predict_f(functionals.derivatives(at[3:-3] + 0.1))
    np.testing.assert_allclose(slopes.mean, np.cos(at[3:-3, 0] + 0.1), atol=0.05)
    if isinstance(method, lgp.ExactGP):  # direct conditioning
        with jax.enable_x64(True):
            X, new = np.concatenate(rows), functionals.values(at + 0.1)
            K, cross = (np.asarray(model.kernel.gram(X, Z)) for Z in (X, new))
            C = K + 1e-4 * np.eye(len(X))
            means = (np.asarray(model.mean(jnp.asarray(Z)))[:, 0] for Z in (X, new))
        own, other = means
        expected = other + cross.T @ np.linalg.solve(C, np.concatenate(y) - own)
        np.testing.assert_allclose(found.mean, expected, atol=1e-6)


def test_counts_of_areas_tell_of_the_rate_inside_them():
    cells = np.linspace(0.0, 6.0, 61)[:, None]
    truth = 1.0 + np.sin(cells[:, 0])
    groups = np.split(np.arange(60), 15)
    regions = functionals.Regions([cells[g] for g in groups])
    rate = np.array([truth[g].mean() for g in groups])
    exposure = np.full(15, 30.0)
    y = np.random.default_rng(0).poisson(exposure * np.exp(rate))
    kernel = lgp.Functionals(lgp.RBF(1.0, 1.0), regions=regions, derivatives=False)
    model = lgp.LatentGP(
        kernel, lgp.Poisson(), lgp.FunctionalMean(lgp.ConstantMean(1.0), regions=regions)
    )
    data = lgp.Data(regions.rows(), y, exposure=exposure)
    fit = lgp.fit(model, data, key=KEY, method=lgp.Laplace(), learn_hyperparameters=False)
    mean, variance = fit.posterior.predict_f(functionals.values(cells[:60]))
    assert np.max(np.abs(mean - truth[:60])) < 0.25
    assert np.mean(np.abs(mean - truth[:60]) < 2 * np.sqrt(variance)) > 0.9


@pytest.mark.parametrize(
    ("kernel", "rows", "words"),
    [
        (lgp.Matern12(), functionals.derivatives([[0.0], [1.0]]), "have no derivative"),
        (lgp.RBF(), functionals.averages([[0.0], [1.0]], 1.0), "average_along"),
        (lgp.RBF(), functionals.Regions([[[0.0]], [[1.0]]]).rows(), "regions"),
        (None, functionals.derivatives([[0.0], [1.0]]), "derivatives=False"),
        (lgp.RBF(), np.zeros((2, 1)), "reads 5 columns, got 1"),
    ],
)
def test_rows_that_the_kernel_cannot_read_are_refused(kernel, rows, words):
    values_alone = lgp.Functionals(lgp.RBF(), derivatives=False)
    own = values_alone if kernel is None else lgp.Functionals(kernel)
    model = lgp.LatentGP(own, lgp.Gaussian())
    with pytest.raises(lgp.InputError, match=words):
        lgp.fit(model, lgp.Data(rows, [0.0, 1.0]), key=KEY)


def test_a_mean_of_values_and_what_cannot_be_averaged_are_refused():
    with pytest.raises(lgp.InputError, match="give Regions of points"):
        lgp.Functionals(lgp.Linear() + lgp.RBF(), average_along=0)
    model = lgp.LatentGP(lgp.Functionals(lgp.RBF()), lgp.Gaussian(), lgp.ConstantMean(1.0))
    rows = functionals.derivatives([[0.0], [1.0]])
    with pytest.raises(lgp.InputError, match=r"give FunctionalMean\(ConstantMean"):
        lgp.fit(model, lgp.Data(rows, [0.0, 1.0]), key=KEY)
    with pytest.raises(lgp.InputError, match=r"fit such rows with latentgp\.fit"):
        lgp.GPRegressor(kernel=lgp.Functionals(lgp.RBF())).fit(rows, [0.0, 1.0])
