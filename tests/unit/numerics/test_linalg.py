import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentgp.numerics.cholesky import (
    cholesky,
    differentiable_cholesky,
    is_safe,
    jittered_cholesky,
    jittered_lower,
    lower_cholesky,
)
from latentgp.numerics.triangular import (
    congruence,
    inverse_of_lower,
    lower_product,
    transpose_times_itself,
)
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.row_scan import chunk_size, scan_rows
from latentgp.testing.numerics import chunks_of

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("size", [1, 7, 1100])
def test_factor_and_inverse_below_and_beyond_a_leaf(x64, size):
    root = np.random.default_rng(0).normal(size=(size, size))
    A = root @ root.T / size + np.eye(size)
    factor = cholesky(jnp.asarray(A))
    identity = np.eye(size)
    np.testing.assert_allclose(factor.lower @ factor.lower.T, A, atol=1e-12)
    np.testing.assert_allclose(factor.lower @ factor.inverse, identity, atol=1e-12)
    assert np.all(np.triu(factor.inverse, 1) == 0)
    np.testing.assert_allclose(factor.inverse_of_product() @ A, identity, atol=1e-11)
    log_determinant = 0.5 * np.linalg.slogdet(A)[1]
    np.testing.assert_allclose(factor.half_log_determinant, log_determinant, rtol=1e-12)
    product = transpose_times_itself(factor.lower)
    np.testing.assert_allclose(product, factor.lower.T @ factor.lower, atol=1e-11)


@pytest.mark.parametrize("size", [1, 7, 150, 301])
def test_products_of_triangular_matrices(x64, size):
    generator = np.random.default_rng(0)
    L, A = (jnp.asarray(np.tril(generator.normal(size=(size, size)))) for _ in range(2))
    S = A @ A.T
    L = L + 20 * jnp.eye(size)
    np.testing.assert_allclose(inverse_of_lower(L) @ L, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(lower_product(L, A), L @ A, atol=1e-10)
    for transposed in (False, True):
        T = L.T if transposed else L
        found = congruence(L, S, transposed=transposed)
        np.testing.assert_allclose(found, T @ S @ T.T, rtol=1e-12, atol=1e-9 * size)
        np.testing.assert_array_equal(found, found.T)


def _covariance(lengthscale, dtype):
    x = np.linspace(0, 1, 12)
    return jnp.asarray(np.exp(-0.5 * (x[:, None] - x) ** 2 / lengthscale**2), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_well_conditioned_matrix_gets_no_jitter(x64, dtype):
    K = _covariance(0.03, dtype)
    factor, jitter = jax.jit(jittered_cholesky)(K)
    assert jitter == 0
    assert jitter.dtype == factor.lower.dtype == dtype
    np.testing.assert_array_equal(factor.lower, cholesky(K).lower)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_a_singular_matrix_gets_a_jitter_relative_to_it_and_reports_it(x64, dtype, scale):
    K = scale * _covariance(30.0, dtype)
    (lower, inverse), jitter = jax.jit(jittered_cholesky)(K)
    assert np.all(np.isfinite(lower))
    assert np.all(np.isfinite(inverse))
    smallest = np.sqrt(np.finfo(dtype).eps)
    assert 0.9 * smallest * scale <= jitter <= 1.1e-2 * scale
    expected = np.asarray(K) + float(jitter) * np.eye(len(K))
    np.testing.assert_allclose(lower @ lower.T, expected, atol=20 * np.finfo(dtype).eps * scale)


def test_jitter_climbs_until_it_is_enough(x64):
    """One eigenvalue is -1e-5: rungs below it fail, the first above it holds."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    K = rotation @ np.diag([-1e-5, 1, 1, 1, 1, 1]) @ rotation.T
    (lower, _), jitter = jittered_cholesky(jnp.asarray(K))
    assert np.all(np.isfinite(lower))
    assert 1e-5 < jitter < 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_ends_in_nan_without_hanging(x64, bad):
    K = np.eye(4)
    K[1, 2] = K[2, 1] = bad
    factor, _ = jax.jit(jittered_cholesky)(jnp.asarray(K))
    assert np.isnan(factor.lower).any()


def test_chunks_hold_a_bounded_number_of_numbers():
    assert chunk_size(1) == chunk_size(16) == 8192
    assert chunk_size(128) == 1024
    assert chunk_size(10**9) == 512


@pytest.mark.parametrize("rows", [1, 4, 5, 11])
def test_sums_over_padded_chunks_equal_sums_over_rows(x64, rows):
    values = np.random.default_rng(0).normal(size=(rows, 2))
    seen = []

    def step(total, part, real):
        x, index = part
        seen.append(x.shape[0])
        return total + jnp.sum(x * real[:, None], axis=0), (2 * x, index)

    with chunks_of(4):
        total, (doubled, index) = scan_rows(
            step, jnp.zeros(2), (jnp.asarray(values), jnp.arange(rows)), columns=3
        )
    assert max(seen) <= 4
    np.testing.assert_allclose(total, values.sum(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(doubled, 2 * values)
    np.testing.assert_array_equal(index, np.arange(rows))


@pytest.mark.parametrize("rows", [0, 1, 64, 65, 5000])
def test_a_function_of_rows_is_applied_to_any_number_of_them(x64, rows):
    values = np.random.default_rng(0).normal(size=(rows, 3))
    shapes = []

    def function(factor, parts):
        shapes.append(parts[0].shape[0])
        return factor * jnp.sum(parts[0], axis=1), parts[1]

    total, names = apply_in_buckets(function, 2.0, rows=(values, np.arange(rows)))
    np.testing.assert_allclose(total, 2 * values.sum(axis=1), rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(names, np.arange(rows))
    assert isinstance(total, np.ndarray)
    assert set(shapes) <= {64, 512, 4096}


def test_wide_rows_go_in_smaller_pieces(x64):
    shapes = []

    def function(rows):
        shapes.append(rows.shape[0])
        return rows

    values = np.arange(700.0)
    np.testing.assert_array_equal(apply_in_buckets(function, rows=values, columns=10**4), values)
    assert max(shapes) <= 512


def test_a_factor_with_nan_is_never_safe(x64):
    diagonal = jnp.ones(4096).at[2048:].set(jnp.nan)  # where a minimum on the CPU loses them
    assert not jax.jit(is_safe)(jnp.diag(diagonal), jnp.asarray(1.0))


@pytest.mark.parametrize("lengthscale", [0.03, 3.0])
def test_the_lower_factor_alone_is_that_of_both(x64, lengthscale):
    K, scale = _covariance(lengthscale, np.float64), jnp.asarray(2.0)
    both = jittered_cholesky(K, scale).factor.lower
    np.testing.assert_allclose(jittered_lower(K, scale), both, atol=1e-14)


@pytest.mark.parametrize("lengthscale", [0.03, 3.0])
def test_derivatives_hold_the_jitter_that_a_loop_has_chosen(x64, lengthscale):
    K, weights = _covariance(lengthscale, np.float64), np.tril(np.ones((12, 12)))
    lower, jitter = differentiable_cholesky(K)
    assert (jitter > 0) == (lengthscale > 1)
    np.testing.assert_allclose(lower, jittered_lower(K), atol=1e-14)
    found = jax.grad(lambda K: jnp.sum(weights * differentiable_cholesky(K)[0]))(K)
    held = K + jitter * jnp.eye(12)
    expected = jax.grad(lambda K: jnp.sum(weights * lower_cholesky(K)))(held)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
