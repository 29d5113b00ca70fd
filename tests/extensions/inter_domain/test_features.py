"""Inter-domain inducing variables: covariances against quadrature, bounds, every rule, sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.extensions.inter_domain.harmonics import _eigenvalue, number_of_harmonics
from latentgp.extensions.inter_domain.hilbert import unit_density
from latentgp.extensions.inter_domain.matern import noise_density, operator_weights, rate_of
from latentgp.extensions.inter_domain.operators import (
    Banded,
    BlockDiagonal,
    Diagonal,
    DiagonalPlusLowRank,
    Kronecker,
)
from latentgp.extensions.inter_domain.splines import Splines
from latentgp.kernels.terms import terms_of
from slow import slow_parameters

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(0, 3, (80, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2
Y = F + 0.3 * GENERATOR.normal(size=len(X))
LABELS = (F > 1.0).astype(float)
NEW = GENERATOR.uniform(-0.5, 3.5, (9, 2))
ADDITIVE = lgp.Matern32(0.9, 1.3).on(0) + lgp.Matern52(1.5, 2.0).on(1)
REGRESSION = lgp.LatentGP(ADDITIVE, lgp.Gaussian(0.1))
MATERN = {0: lgp.Matern12, 1: lgp.Matern32, 2: lgp.Matern52}
KINDS = {
    "splines": (lgp.BSplines(12), ADDITIVE),
    "Fourier": (lgp.FourierFeatures(15), ADDITIVE),
    "eigenfunctions": (lgp.HilbertSpace(9), lgp.RBF([0.9, 1.5], 1.3)),
    "windows": (lgp.MultiScale(25), lgp.RBF([0.9, 1.5], 1.3)),
    "harmonics": (lgp.SphericalHarmonics(49), lgp.ArcCosine()),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def fitted(method, model=REGRESSION, y=Y, **settings):
    settings = {"learn_hyperparameters": False, **settings}
    return lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, **settings)


def collapsed(features):
    return lgp.CollapsedVI(lgp.Inducing(features=features))


def gram_left(kernel, features, points):
    """The prior's Gram matrix, and that of its part that the variables express."""
    own = features.initialise(X[:, : points.shape[1]], None, kernel, KEY)
    cross = np.asarray(own.cross_covariance(kernel, points))[0]
    return kernel.symmetric_gram(points), cross.T @ np.linalg.solve(
        np.asarray(own.covariance(kernel))[0], cross
    )


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, *slow_parameters(0, 2)])
@pytest.mark.parametrize("features", [lgp.BSplines(9), lgp.FourierFeatures(9)], ids=["B", "F"])
def test_covariances_are_inner_products_by_quadrature(p, features):
    """(1/q) int L g L h plus the state's part; the reproducing property, <g, k(x, .)> = g(x)."""
    kernel = MATERN[p](0.7, 1.7)
    own = features.initialise(X[:, :1], None, kernel, KEY)
    basis = own.bases[0][0][0]
    nodes, weights = np.polynomial.legendre.leggauss(12)
    ends = np.linspace(*basis.domain, 21)
    if hasattr(basis, "knots"):
        ends = basis.lower + np.array(basis.knots)
    edges = np.interp(np.arange(6 * len(ends) - 5) / 6, np.arange(len(ends)), ends)
    half = 0.5 * np.diff(edges)[:, None]
    t = (edges[:-1, None] + half * (nodes + 1)).ravel()
    w = (half * weights).ravel()

    def jets(function, t):
        """Values and derivatives up to order p + 1."""
        of_one = [lambda s: function(s)]
        for _ in range(p + 1):
            of_one.append(jax.jacfwd(of_one[-1]))
        return [np.asarray(jax.vmap(f)(jnp.asarray(t))).T for f in of_one]

    def inner(left, right, at_left, at_right):
        weights_of = np.asarray(operator_weights(kernel, p))
        L, R = (np.einsum("i,i...->...", weights_of, np.stack(j)) for j in (left, right))
        inside = (L * w) @ R.T / float(noise_density(kernel, p))
        lag = [lambda s: kernel(s[None], jnp.zeros(1))]
        for _ in range(2 * p):
            lag.append(jax.grad(lag[-1]))
        near = np.linspace(0.02, 0.2, 8)  # derivatives on the right, carried on to zero

        def at_zero(order):
            values = [float(lag[order](jnp.asarray(t))) for t in near]
            return 0.0 if order % 2 else np.polynomial.Polynomial.fit(near, values, 7)(0.0)

        P = np.array([[(-1.0) ** j * at_zero(i + j) for j in range(p + 1)] for i in range(p + 1)])
        G, H = (np.stack([j[:, 0] for j in jet[: p + 1]]) for jet in (at_left, at_right))
        return inside + G.T @ np.linalg.solve(P, H)

    def of(s):
        return own.bases[0][0][0].fixed(s[None, None])[:, 0]

    functions, start = jets(of, t), jets(of, [ends[0] + 1e-12])
    covariance = np.asarray(basis.operator(kernel).matrix())
    expected = inner(functions, functions, start, start)
    np.testing.assert_allclose(covariance, expected, rtol=1e-5, atol=1e-5 * np.max(covariance))
    # Of a kernel's section the derivatives jump at its centre, so that this is put at an edge.
    centre = edges[len(edges) // 2]

    def section(s):
        return kernel(s[None], jnp.asarray([centre]))[None]

    sections, at = jets(section, t), jets(section, [ends[0] + 1e-12])
    cross = np.asarray(basis.values(kernel, jnp.asarray([[centre]])))
    np.testing.assert_allclose(inner(functions, sections, start, at), cross, atol=1e-6)
    assert rate_of(kernel, p) > 0


def test_structured_operators_are_their_matrices():
    rows = GENERATOR.normal(size=(4, 4))
    low = DiagonalPlusLowRank(
        jnp.arange(1.0, 5.0), jnp.asarray(rows[:, :2]), jnp.asarray(rows[:2] @ rows[:2].T)
    )
    band = Banded(jnp.array([[3.0, 4.0, 5.0], [1.0, 0.5, 0.0]]))
    both = Kronecker((low, band))
    for own in (Diagonal(jnp.arange(1.0, 4.0)), low, band, both, BlockDiagonal((low, band, both))):
        matrix = np.asarray(own.matrix())
        P = GENERATOR.normal(size=matrix.shape)
        P = P + P.T
        np.testing.assert_allclose(own.inverse() @ matrix, np.eye(own.size), atol=1e-10)
        np.testing.assert_allclose(own.log_determinant(), np.linalg.slogdet(matrix)[1])
        np.testing.assert_allclose(own.solved_trace(P), np.trace(np.linalg.solve(matrix, P)))
        np.testing.assert_allclose(own.over(jnp.asarray(2.0)).matrix(), matrix / 2)


@pytest.mark.parametrize("kernel", [lgp.Matern12(0.5), lgp.Matern32(0.5), lgp.Matern52(0.5)])
def test_knots_are_where_they_leave_least_open(kernel):
    column = np.random.default_rng(0).exponential(size=(2_000, 1))
    own = lgp.BSplines(24).initialise(column, None, kernel, KEY).bases[0][0][0]
    steps = tuple(np.linspace(0.0, own.knots[-1], own.cells + 1))
    even = Splines(own.lower, steps, own.degree, own.smoothness)

    def left_open(basis):
        A = np.asarray(basis.values(kernel, jnp.asarray(column)))
        explained = np.sum(A * np.linalg.solve(basis.operator(kernel).matrix(), A), axis=0)
        return np.mean(1 - explained)

    assert 0 < left_open(own) < 0.6 * left_open(even)
    uniform = np.linspace(0, 1, 2_000)[:, None]
    steps = np.diff(lgp.BSplines(24).initialise(uniform, None, kernel, KEY).bases[0][0][0].knots)
    np.testing.assert_allclose(steps, steps.mean(), rtol=0.02)
    values, counts = np.arange(5.0)[:, None], np.array([2000.0, 2000.0, 10.0, 10.0, 10.0])
    of_rows = lgp.BSplines(24).initialise(
        np.repeat(values, counts.astype(int), axis=0), None, kernel, KEY
    )
    weighted = lgp.BSplines(24).initialise(values, counts, kernel, KEY)
    assert weighted.bases == of_rows.bases


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "features", "off"),
    [
        (lgp.Matern12(0.9, 1.3), lgp.BSplines(300), 0.02),
        (lgp.Matern32(0.9, 1.3), lgp.BSplines(60), 1e-3),
        (lgp.Matern52(0.9, 1.3), lgp.BSplines(40), 1e-4),
        (lgp.Matern52(0.9, 1.3), lgp.FourierFeatures(81), 0.05),
        (lgp.RBF(0.9, 1.3), lgp.HilbertSpace(), 1e-3),
        (lgp.Matern(0.9, 1.3, order=2.0), lgp.HilbertSpace(60, box=4.0), 3e-3),
        (lgp.RationalQuadratic(0.9, 1.3, mixing=4.0), lgp.HilbertSpace(60, box=4.0), 1e-2),
        (lgp.RBF(0.9, 1.3), lgp.MultiScale(30), 1e-4),
        (lgp.ArcCosine(), lgp.SphericalHarmonics(60), 1e-3),
        (lgp.ArcCosine(order=0), lgp.SphericalHarmonics(150), 0.01),
    ],
    ids=repr,
)
def test_many_variables_express_the_prior_also_outside_of_the_rows(kernel, features, off):
    inside, expressed = gram_left(kernel, features, X[:20, :1])
    np.testing.assert_allclose(expressed, inside, atol=off)
    if isinstance(features, lgp.BSplines):
        far = np.linspace(-2, 5, 30)[:, None]
        own = features.initialise(X[:, :1], None, kernel, KEY)
        cross = [np.asarray(own.cross_covariance(kernel, x))[0] for x in (X[:20, :1], far)]
        found = cross[0].T @ np.linalg.solve(np.asarray(own.covariance(kernel))[0], cross[1])
        np.testing.assert_allclose(found, kernel.gram(X[:20, :1], far), atol=off)


@pytest.mark.slow
def test_products_and_eigenfunctions_of_two_columns():
    product = lgp.Matern52(1.2).on(0) * lgp.Matern32(1.5, 2.0).on(1) + lgp.Constant(0.5)
    for kernel, features, off in (
        (product, lgp.BSplines(14), 0.01),
        (lgp.RBF([1.2, 1.5]), lgp.HilbertSpace(30, box=3.5), 2e-3),
        (lgp.RBF(1.2).on(0) * lgp.RBF(1.5).on(1), lgp.HilbertSpace(30, box=3.5), 2e-3),
        (lgp.RBF([1.2, 1.5]), lgp.MultiScale(60), 1e-3),
        (lgp.ArcCosine(weight_variance=[0.3, 0.5]), lgp.SphericalHarmonics(200), 0.02),
    ):
        inside, expressed = gram_left(kernel, features, X[:20])
        np.testing.assert_allclose(expressed, inside, atol=off, err_msg=repr(features))


def test_windows_are_averages_by_quadrature():
    kernel = lgp.RBF(0.8, 1.3)
    own = lgp.MultiScale(3).initialise(X[:, :1], None, kernel, KEY)
    z, c = np.asarray(own.sample)[:, 0], np.exp(np.asarray(own.log_widths))[:, 0]

    def integrand(s, t):
        law = np.exp(-0.5 * ((s - z[0]) / c[0]) ** 2 - 0.5 * ((t - z[1]) / c[1]) ** 2)
        return law / (2 * np.pi * c[0] * c[1]) * 1.3 * np.exp(-0.5 * ((s - t) / 0.8) ** 2)

    ends = [(z[i] - 8 * c[i], z[i] + 8 * c[i]) for i in (1, 0)]
    value = dblquad(integrand, *ends[0], *ends[1])[0]
    np.testing.assert_allclose(own.covariance(kernel)[0, 0, 1], value, rtol=1e-8)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dimension", [2, 4, 9])
def test_eigenvalues_add_up_to_the_variance(order, dimension):
    """A kernel of unit directions is one at angle zero, the sum of its eigenvalues."""
    degrees = range(60 if dimension < 5 else 40)
    total = sum(
        _eigenvalue(order, n, dimension) * number_of_harmonics(n, dimension) for n in degrees
    )
    assert 1 - (0.25 if order == 0 else 0.01) < total <= 1 + 1e-9


@pytest.mark.parametrize(
    "kernel", [lgp.RBF(), lgp.Matern12(), lgp.Matern(order=1.2), lgp.RationalQuadratic(mixing=2.0)]
)
def test_densities_integrate_to_the_correlation(kernel):
    w = np.linspace(0, 1000, 100_001)
    density = np.asarray(unit_density(kernel, jnp.asarray(w**2), 1))
    for r in (0.0, 0.7):
        value = np.trapezoid(density * np.cos(w * r), w) / np.pi
        np.testing.assert_allclose(value, kernel.correlation(jnp.asarray(r**2)), atol=1e-3)


@pytest.mark.slow
def test_the_bound_rises_with_the_number_and_tends_to_the_evidence():
    exact = multivariate_normal(
        np.zeros(len(X)), np.asarray(ADDITIVE.symmetric_gram(X)) + 0.1 * np.eye(len(X))
    ).logpdf(Y)
    bounds = [fitted(collapsed(lgp.BSplines(n))).posterior.log_evidence for n in (8, 13, 60)]
    values = [bound.value for bound in bounds]
    assert values[0] < values[1] < values[2] <= exact + 1e-8
    assert exact - values[2] < 0.02
    assert {bound.kind for bound in bounds} == {"lower bound"}
    fourier = [fitted(collapsed(lgp.FourierFeatures(n))).posterior for n in (9, 21)]
    assert fourier[0].log_evidence.value < fourier[1].log_evidence.value < exact


@pytest.mark.parametrize(
    "kind", ["splines", "windows", *slow_parameters("Fourier", "eigenfunctions", "harmonics")]
)
def test_the_posterior_is_that_of_dense_algebra(kind):
    features, kernel = KINDS[kind]
    found = fitted(collapsed(features), lgp.LatentGP(kernel, lgp.Gaussian(0.1)))
    posterior = found.posterior
    own = posterior.latent.centres
    A = np.asarray(own.covariance(kernel))[0]
    rows, new = (np.asarray(own.cross_covariance(kernel, x))[0] for x in (X, NEW))
    S = np.linalg.inv(A + rows @ rows.T / 0.1)
    mean, variance = posterior.predict_f(NEW)
    np.testing.assert_allclose(mean, new.T @ S @ rows @ Y / 0.1, atol=1e-6)
    expected = kernel.diagonal(NEW) - np.sum(new * (np.linalg.solve(A, new) - S @ new), axis=0)
    np.testing.assert_allclose(variance, expected, atol=1e-6)
    Q = rows.T @ np.linalg.solve(A, rows)
    bound = multivariate_normal(np.zeros(len(X)), Q + 0.1 * np.eye(len(X))).logpdf(Y)
    bound -= 0.5 / 0.1 * np.sum(np.asarray(kernel.diagonal(X)) - np.diagonal(Q))
    np.testing.assert_allclose(posterior.log_evidence.value, bound, atol=1e-5)
    assert "leave open" in found.diagnostics.notes[0]


RULES = {
    "augmented": (lgp.AugmentedVI, "splines"),
    "variational": (lgp.VariationalInference, "windows"),
    "laplace": (lgp.Laplace, "eigenfunctions"),
    "moments": (lgp.ExpectationPropagation, "splines"),
}


@pytest.mark.parametrize(
    "rule", ["variational", "laplace", *slow_parameters("augmented", "moments")]
)
def test_every_rule_is_near_what_all_rows_give(rule):
    method, kind = RULES[rule]
    features, kernel = KINDS[kind]
    model = lgp.LatentGP(kernel, lgp.Bernoulli())
    own = fitted(method(lgp.Inducing(features=features)), model, LABELS).posterior
    dense = fitted(method(lgp.Dense()), model, LABELS).posterior
    np.testing.assert_allclose(own.mean_f(X[:9]), dense.mean_f(X[:9]), atol=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        lgp.GibbsSampling(lgp.Inducing(features=lgp.BSplines(8)), chains=2, warmup=200, draws=400),
        lgp.EllipticalSlice(
            representation=lgp.Inducing(features=lgp.BSplines(8)), chains=2, warmup=200, draws=400
        ),
        lgp.Stochastic(
            lgp.VariationalInference(lgp.Inducing(features=lgp.BSplines(8))),
            batch_size=20,
            epochs=40,
            held_out=0.0,
        ),
    ],
    ids=lambda method: type(method).__name__,
)
def test_chains_and_batches_go_through_splines(method):
    model = lgp.LatentGP(ADDITIVE, lgp.Bernoulli())
    near = fitted(lgp.VariationalInference(lgp.Dense()), model, LABELS).posterior
    found = fitted(method, model, LABELS).posterior
    assert np.corrcoef(found.mean_f(X), near.mean_f(X))[0, 1] > 0.97


@pytest.mark.slow
def test_batches_learn_windows():
    model = lgp.LatentGP(lgp.RBF(0.6, 1.3), lgp.Gaussian(0.1))
    method = lgp.VariationalInference(lgp.Inducing(features=lgp.MultiScale(6)))
    settings = {"batch_size": 20, "epochs": 60, "held_out": 0.0}
    still, moved = (
        fitted(lgp.Stochastic(method, learn_points=learn, **settings), model).posterior
        for learn in (False, True)
    )
    assert moved.log_evidence.value > still.log_evidence.value + 1


@pytest.mark.slow
def test_a_posterior_comes_back_from_a_file(tmp_path):
    posterior = fitted(collapsed(lgp.BSplines(12))).posterior
    again = lgp.load(lgp.save(posterior, tmp_path / "posterior"))
    np.testing.assert_array_equal(again.mean_f(NEW), posterior.mean_f(NEW))
    with pytest.raises(lgp.InputError, match="use sample_f"):
        posterior.sample_paths(key=KEY, number=2)


def test_terms_multiply_sums_out():
    kernel = 2.0 * (lgp.RBF().on(0) + lgp.Constant(3.0)) * lgp.Matern32(variance=0.5).on(2, 1)
    terms = terms_of(kernel, (4, 5, 6))
    found = [(float(term.scale), [part.columns for part in term.parts]) for term in terms]
    assert found == [(2.0, [(4,), (6, 5)]), (6.0, [(6, 5)])]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lgp.BSplines(1), "whole number from 2"),
        (lambda: lgp.Inducing(10, features=lgp.BSplines(9)), "leave number, points"),
        (lambda: fitted(collapsed(lgp.BSplines(9)), lgp.LatentGP(lgp.RBF(), lgp.Gaussian())),
         "takes Matern12, Matern32 and Matern52 of single columns"),
        (lambda: fitted(collapsed(lgp.BSplines(9, degree=1))), "needs BSplines of a degree from"),
        (lambda: fitted(collapsed(lgp.HilbertSpace()), lgp.LatentGP(lgp.Linear(), lgp.Gaussian())),
         "HilbertSpace takes RBF"),
        (lambda: fitted(collapsed(lgp.MultiScale(9))), "MultiScale takes RBF"),
        (lambda: fitted(collapsed(lgp.SphericalHarmonics(9))), "takes ArcCosine"),
        (lambda: lgp.HilbertSpace(box=0.5), "at least 1"),
        (lambda: lgp.summarise(lgp.LatentGP(lgp.ArcCosine(), lgp.Gaussian()), lgp.Data(X, Y),
                               lgp.SphericalHarmonics(30), key=KEY), "depends on hyper-parameters"),
        (lambda: lgp.summarise(lgp.LatentGP(ADDITIVE, lgp.Bernoulli()), lgp.Data(X, LABELS),
                               lgp.BSplines(9), key=KEY), "Gaussian noise of one variance"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()
