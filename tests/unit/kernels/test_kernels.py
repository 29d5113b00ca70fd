import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gamma, kv

import latentgp as lgp
from latentgp.kernels.features import random_features
from latentgp.numerics.bessel import matern_correlation

pytestmark = pytest.mark.quick

GENERATOR = np.random.default_rng(0)
x, z = GENERATOR.normal(size=(2, 3))
lengths = np.array([0.7, 1.3, 2.0])
r = np.sqrt(np.sum((x - z) ** 2 / lengths**2))
v = 1.7
w, bias = np.array([0.5, 1.5, 1.0]), 0.4
a, b = (np.append(np.sqrt(w) * point, np.sqrt(bias)) for point in (x, z))
t = np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
p = np.array([1.5, 2.5, 4.0])

# Each as its docstring prints it.
FORMULAS = [
    (lgp.RBF(lengths, v), v * np.exp(-(r**2) / 2)),
    (lgp.Matern12(lengths, v), v * np.exp(-r)),
    (lgp.Matern32(lengths, v), v * (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)),
    (
        lgp.Matern52(lengths, v),
        v * (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
    ),
    (
        lgp.Matern(lengths, v, order=0.8),
        v * 2**0.2 / gamma(0.8) * (np.sqrt(1.6) * r) ** 0.8 * kv(0.8, np.sqrt(1.6) * r),
    ),
    (lgp.RationalQuadratic(lengths, v, mixing=0.6), v * (1 + r**2 / 1.2) ** -0.6),
    (
        lgp.Periodic(lengths, v, period=p),
        v * np.exp(-2 * np.sum(np.sin(np.pi * (x - z) / p) ** 2 / lengths**2)),
    ),
    (lgp.Linear(w), np.sum(w * x * z)),
    (lgp.Polynomial(3, w, 0.4), (np.sum(w * x * z) + 0.4) ** 3),
    (lgp.Constant(v), v),
    (lgp.White(v), 0.0),
    (lgp.ArcCosine(0, w, bias, v), v * (1 - t / np.pi)),
    (
        lgp.ArcCosine(1, w, bias, v),
        v / np.pi * np.linalg.norm(a) * np.linalg.norm(b) * (np.sin(t) + (np.pi - t) * np.cos(t)),
    ),
]


@pytest.mark.parametrize(("kernel", "value"), FORMULAS, ids=lambda c: type(c).__name__)
def test_kernel_is_the_formula_of_its_docstring(x64, kernel, value):
    np.testing.assert_allclose(kernel(x, z), value, rtol=1e-10)


def test_categorical_counts_the_columns_that_differ(x64):
    kernel = lgp.Categorical(lengthscale=[0.5, 2.0, 4.0], variance=v)
    value = kernel(np.array([0.0, 1.0, 2.0]), np.array([0.0, 3.0, 5.0]))
    np.testing.assert_allclose(value, v * np.exp(-1 / 2.0 - 1 / 4.0), rtol=1e-14)


def test_white_is_its_variance_where_points_are_equal(x64):
    assert lgp.White(v)(x, x) == v


ORDERS = [0.3, 0.5, 1.0, 1.5, 2.5, 3.7, 10.0]


def _reference(distance, order):
    s = np.sqrt(2 * order) * distance
    return 2 ** (1 - order) / gamma(order) * s**order * kv(order, s)


@pytest.mark.parametrize("order", ORDERS)
def test_matern_of_any_order_is_the_bessel_form(x64, order):
    distances = np.array([1e-8, 1e-3, 0.05, 0.3, 1.0, 3.0, 8.0, 20.0])
    value, slope = jax.jvp(
        matern_correlation,
        (jnp.asarray(distances), jnp.asarray(order)),
        (jnp.zeros(8), jnp.asarray(1.0)),
    )
    np.testing.assert_allclose(value, _reference(distances, order), rtol=1e-9)
    step = 1e-3 * order
    differences = sum(
        c * _reference(distances, order + k * step) for k, c in ((-2, 1), (-1, -8), (1, 8), (2, -1))
    ) / (12 * step)
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize(
    ("order", "kernel"), [(0.5, lgp.Matern12()), (1.5, lgp.Matern32()), (2.5, lgp.Matern52())]
)
def test_matern_of_half_integer_order_is_the_closed_form(x64, order, kernel):
    squared = np.array([0.0, 0.01, 0.5, 4.0])
    ours = lgp.Matern(order=order).correlation(jnp.asarray(squared))
    np.testing.assert_allclose(ours, kernel.correlation(jnp.asarray(squared)), rtol=1e-9)


X = GENERATOR.normal(size=(4, 3))


def test_algebra(x64):
    one, other = lgp.RBF(lengths), lgp.Linear(w)
    K, L = one.gram(X, X), other.gram(X, X)
    for kernel, expected in [
        (one + other, K + L),
        (one * other, K * L),
        (2.5 * one, 2.5 * K),
        (one * 2.5, 2.5 * K),
        (one + 0.5, K + 0.5),
        (0.5 + one, K + 0.5),
        (one + other + one, 2 * K + L),
        (2.0 * (one + other) * one, 2 * (K + L) * K),
    ]:
        np.testing.assert_allclose(kernel.gram(X, X), expected, rtol=1e-13)
        np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(expected), rtol=1e-13)


def test_sums_and_products_are_flat():
    assert len((lgp.RBF() + lgp.Linear() + lgp.White()).parts) == 3
    assert len((lgp.RBF() * lgp.Linear() * lgp.White()).parts) == 3


def test_active_dimensions_select_columns(x64):
    kernel = lgp.RBF(lengths[[2, 0]]).on(2, 0)
    expected = lgp.RBF(lengths[[2, 0]]).gram(X[:, [2, 0]], X[:, [2, 0]])
    np.testing.assert_allclose(kernel.gram(X, X), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel(X[0], X[1]), expected[0, 1], rtol=1e-12)


def test_active_dimensions_work_on_constants_inside_jit(x64):
    """NumPy inputs may not be indexed with a traced array."""
    kernel = lgp.RBF().on(1)
    np.testing.assert_allclose(jax.jit(lambda: kernel.gram(X, X))(), kernel.gram(X, X))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lgp.RBF().on(), "distinct columns"),
        (lambda: lgp.RBF().on(-1), "distinct columns"),
        (lambda: lgp.RBF().on(1, 1), "distinct columns"),
        (lambda: lgp.RBF().on(3).check_inputs(3), "looks at column 3 but the inputs have 3"),
        (
            lambda: lgp.RBF([1.0, 2.0]).check_inputs(3),
            r"RBF.lengthscale has shape \(2,\) but the inputs have 3",
        ),
        (lambda: lgp.Polynomial(degree=0), "whole number from 1"),
        (lambda: lgp.ArcCosine(order=2), "must be one of 0, 1"),
        (lambda: lgp.Linear([1.0, 2.0]).check_inputs(3), r"has shape \(2,\) but the inputs have 3"),
        (
            lambda: lgp.Polynomial(2, [1.0, 2.0]).check_inputs(3),
            r"has shape \(2,\) but the inputs have 3",
        ),
        (
            lambda: lgp.ArcCosine(1, [1.0, 2.0]).check_inputs(3),
            r"has shape \(2,\) but the inputs have 3",
        ),
        (
            lambda: lgp.Categorical([1.0, 2.0]).check_inputs(3),
            r"has shape \(2,\) but the inputs have 3",
        ),
        (
            lambda: lgp.Periodic(period=[1.0, 2.0]).check_inputs(3),
            r"has shape \(2,\) but the inputs have 3",
        ),
    ],
)
def test_kernels_that_do_not_fit_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()


@pytest.mark.parametrize(
    "kernel",
    [
        lgp.RBF(lengths, v),
        lgp.Matern32(lengths, v),
        lgp.Matern(lengths, v, order=1.2),
        lgp.RationalQuadratic(lengths, v, mixing=0.6),
        lgp.Periodic(lengths, v, period=p),
        0.5 * lgp.Linear(w) + lgp.Constant(0.3),
        lgp.Matern52(0.8).on(1),
        2.0 * lgp.RBF(0.8).on(1) * lgp.Matern32(1.3).on(0, 2),
        lgp.RBF(0.8) * (0.5 * lgp.Linear(w)),
        lgp.ArcCosine(1, w, 0.4, v),
        lgp.ArcCosine(0, w, 0.4, v),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["fourier", "orthogonal", "structured", "quasi-monte-carlo"])
def test_random_features_have_the_kernels_covariance(x64, kernel, kind):
    number = 40_000
    features = random_features(kernel, jax.random.key(0), 3, number, kind)(jnp.asarray(X))
    K = kernel.gram(X, X)
    scale = np.max(np.diagonal(K))
    np.testing.assert_allclose(features @ features.T, K, atol=8 * scale / np.sqrt(number))


@pytest.mark.parametrize("inputs", [3, 64])
def test_error_of_the_gram_matrix_by_kind_of_features(x64, inputs):
    """It falls as the root of their number; orthogonal directions have less of it than free."""
    generator = np.random.default_rng(0)
    points = jnp.asarray(generator.normal(size=(30, inputs)))
    kernel = lgp.RBF(np.sqrt(inputs))
    K = kernel.gram(points, points)

    def error(kind, number, seeds):
        grams = []
        for seed in range(seeds):
            phi = random_features(kernel, jax.random.key(seed), inputs, number, kind)(points)
            grams.append(phi @ phi.T)
        return float(np.sqrt(np.mean((np.array(grams) - K) ** 2)))

    plain = [error("fourier", number, 60) for number in (64, 1024)]
    np.testing.assert_allclose(plain[0] / plain[1], 4.0, rtol=0.15)
    better = ("orthogonal", "structured") if inputs > 3 else ("orthogonal", "quasi-monte-carlo")
    others = {kind: error(kind, 64, 60) for kind in better}
    assert max(others.values()) < 0.8 * plain[0], (others, plain)


def test_a_kernel_without_features_says_so():
    with pytest.raises(lgp.InputError, match="no random features"):
        random_features(lgp.Polynomial(), jax.random.key(0), 3, 10)


def test_distances_of_one_column_lose_no_digits(x64):
    """Centred by the mean or not: times in seconds, a nanosecond apart."""
    t = jnp.asarray([[0.0], [900.0], [900.0 + 2.0**-30]])
    gram = jax.jit(lambda t: lgp.Matern12(1.3).gram(t, t))(t)
    np.testing.assert_allclose(1 - gram[1, 2], 2.0**-30 / 1.3, rtol=1e-6)
