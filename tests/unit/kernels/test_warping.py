"""Kernels of warped inputs."""

import jax
import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

import latentgp as lgp
from latentgp.extensions.neighbours.search import coordinates
from latentgp.kernels import InputWarping
from latentgp.kernels.features import random_features
from latentgp.runtime.x64 import in_x64

GENERATOR = np.random.default_rng(0)
X = np.stack(
    [np.exp(2 * GENERATOR.normal(size=300)), GENERATOR.normal(size=300), np.arange(300) % 4], axis=1
)
KERNEL = InputWarping.by_scores(lgp.RBF([3.0, 1.0, 2.0]), X, [0, 2])


@in_x64
def test_warping_is_a_monotone_cubic_between_knots():
    knots, values = KERNEL.knots[:, 0], KERNEL.values[:, 0]
    inside = np.linspace(knots[1], knots[-2], 5000)
    points = np.stack([inside, np.zeros(5000), np.zeros(5000)], axis=1)
    warped = np.asarray(KERNEL.warp(points))[:, 0]
    np.testing.assert_allclose(warped, PchipInterpolator(knots, values)(inside), rtol=1e-9)
    assert np.all(np.diff(warped) > 0)


@in_x64
def test_warped_columns_keep_their_size_and_others_stay():
    warped = np.asarray(KERNEL.warp(X))
    np.testing.assert_allclose(warped[:, 1], X[:, 1], atol=1e-12)
    np.testing.assert_allclose(warped.std(axis=0), X.std(axis=0), rtol=0.02)
    np.testing.assert_allclose(warped.mean(axis=0), X.mean(axis=0), rtol=0.05, atol=1e-12)
    assert len(np.unique(warped[:, 2])) == 4


def test_rows_of_weight_zero_do_not_count_and_a_column_has_two_values():
    counted = np.abs(X[:, 0] - np.median(X[:, 0])) < 20
    found = InputWarping.by_scores(lgp.RBF(), X, [0, 2], counted.astype(float))
    expected = InputWarping.by_scores(lgp.RBF(), X[counted], [0, 2])
    np.testing.assert_allclose(found.knots, expected.knots)
    np.testing.assert_allclose(found.values, expected.values)
    with pytest.raises(lgp.InputError, match="Column 1 has one value"):
        InputWarping.by_scores(lgp.RBF(), X * [1.0, 0.0, 1.0], [0, 1])


@in_x64
def test_beyond_the_rows_a_warping_is_not_steep():
    low, high = X[:, 0].min(), X[:, 0].max()
    ends = np.array([[low, 0, 0], [low - 1, 0, 0], [high, 0, 0], [high + 1, 0, 0]])
    first, below, last, above = np.asarray(KERNEL.warp(ends))[:, 0]
    overall = (last - first) / (high - low)
    assert 0 < first - below < 3.01 * overall
    assert 0 < above - last < 3.01 * overall
    far = np.asarray(KERNEL.warp(np.array([[1e9, 1e9, 1e9], [-1e9, -1e9, -1e9]])))
    assert np.all(np.isfinite(far))
    assert np.all(far[0] > far[1])


@in_x64
def test_covariances_are_those_of_warped_inputs():
    warped = np.asarray(KERNEL.warp(X[:50]))
    inner = KERNEL.kernel
    np.testing.assert_allclose(KERNEL.gram(X[:50], X[:20]), inner.gram(warped, warped[:20]))
    np.testing.assert_allclose(KERNEL(X[0], X[1]), inner(warped[0], warped[1]))
    np.testing.assert_array_equal(KERNEL.diagonal(X[:5]), inner.diagonal(warped[:5]))
    near = np.asarray(coordinates(KERNEL, X, X))
    np.testing.assert_allclose(near, coordinates(inner, KERNEL.warp(X), KERNEL.warp(X)))


@in_x64
def test_random_features_are_those_of_warped_inputs():
    features = random_features(KERNEL, jax.random.key(0), 3, 20_000)(X[:30])
    gram = np.asarray(KERNEL.gram(X[:30], X[:30]))
    np.testing.assert_allclose(features @ features.T, gram, atol=0.04)


def test_a_function_of_sizes_is_learned_where_it_is_written_by_logarithms():
    y = np.sin(np.log(X[:, 0])) + 0.05 * GENERATOR.normal(size=300)
    found = lgp.GPRegressor(random_state=0).fit(X[:200], y[:200])
    assert "of normal scores" in found.kernel_choice_.family
    assert "of normal scores" in found.diagnostics_.verdict
    plain = lgp.GPRegressor("matern32", random_state=0).fit(X[:200], y[:200])
    densities = (np.mean(m.log_predictive_density(X[200:], y[200:])) for m in (found, plain))
    assert next(densities) > next(densities) + 0.5
    slope = found.posterior_.predict_f(X[200:205])
    assert np.all(np.isfinite(slope.mean))


def test_ranks_of_inputs_that_even_steps_explain_are_left():
    y = np.sin(X[:, 0] / X[:, 0].std()) + X[:, 1]
    found = lgp.GPRegressor(random_state=0).fit(X[:200], y[:200])
    assert "of normal scores" not in found.kernel_choice_.family


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_by_sizes_have_a_warped_kernel(classes):
    levels = np.sin(1.5 * np.log(X[:, 0]))
    y = np.digitize(levels, np.quantile(levels, np.linspace(0, 1, classes + 1)[1:-1]))
    found = lgp.GPClassifier(random_state=0).fit(X[:200], y[:200])
    assert found.kernel_choice_.family == "RBF of normal scores"
    plain = lgp.GPClassifier("rbf", random_state=0).fit(X[:200], y[:200])
    assert found.score(X[200:], y[200:]) > plain.score(X[200:], y[200:])
    np.testing.assert_array_equal(
        lgp.GPClassifier(random_state=0).fit(X[:200], y[:200]).predict_proba(X[200:]),
        found.predict_proba(X[200:]),
    )


@pytest.mark.parametrize(
    ("knots", "values", "message"),
    [
        ([[0.0], [1.0]], [[0.0], [1.0], [2.0]], "one shape"),
        ([[0.0]], [[0.0]], "two knots"),
        ([0.0, 1.0], [0.0, 1.0], "one shape"),
        ([[0.0], [0.0]], [[0.0], [1.0]], "knots must increase"),
        ([[0.0], [1.0]], [[1.0], [0.0]], "values must increase"),
    ],
)
def test_knots_that_do_not_increase_are_refused(knots, values, message):
    with pytest.raises(lgp.InputError, match=message):
        InputWarping(lgp.RBF(), knots, values)


def test_inputs_with_other_columns_are_refused():
    model = lgp.LatentGP(KERNEL, lgp.Gaussian())
    with pytest.raises(lgp.InputError, match="knots of 3 columns"):
        lgp.fit(model, lgp.Data(X[:, :2], X[:, 0]), key=jax.random.key(0))
