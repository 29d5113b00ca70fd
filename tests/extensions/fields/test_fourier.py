"""Equispaced Fourier functions: against the kernel, dense algebra, and their own stated errors."""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.extensions.fields.fourier.conditioned import (
    SolveSettings,
    draws_about_mean,
    white_weights,
)
from latentgp.extensions.fields.fourier.frequencies import (
    grid_for,
    kernel_error,
    prior_variances,
)
from latentgp.extensions.fields.fourier.toeplitz import ToeplitzGram, squares_of
from latentgp.sites.gaussian import GaussianSites
from slow import slow_parameters

pytest.importorskip("jax_finufft")
pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
KERNELS = {
    "one column": lgp.Matern52(lengthscale=0.4),
    "two": lgp.Matern32(lengthscale=[0.8, 1.1], variance=2.0),
    "two scales": lgp.Matern32(lengthscale=1.0) + 0.5 * lgp.RBF(lengthscale=[0.6, 0.9]),
    "three": lgp.RBF(lengthscale=1.2),
}
COLUMNS = {"one column": 1, "three": 3}
EXACT = lgp.fields.EquispacedFourier(tolerance=1e-7, left=1e-7, block=10_000)
X = GENERATOR.uniform(0, 6, (300, 2))
SIGNAL = 1.5 * np.sin(X[:, 0]) * np.cos(X[:, 1])
Y = SIGNAL + 0.1 * GENERATOR.normal(size=300)
NEW = GENERATOR.uniform(0, 6, (50, 2))
SMOOTH = lgp.LatentGP(lgp.RBF(lengthscale=1.5), lgp.Gaussian(0.02))
ROUGH = lgp.LatentGP(lgp.Matern32(lengthscale=1.5), lgp.Gaussian(0.02))


def fitted(model, method, y=Y, **options):
    return lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, **options)


def held(model, representation, y=Y):
    method = lgp.fields.FourierGP(representation)
    return fitted(model, method, y, learn_hyperparameters=False)


def small_system(block=30, noise=0.1):
    kernel: Any = ROUGH.kernel
    grid = grid_for(kernel, np.zeros(2), np.full(2, 6.0), 1e-2, 1e-2, 10_000)
    places = GENERATOR.uniform(0, 4, (200, 2))  # a corner is left empty
    gram = ToeplitzGram(grid, grid.doubled().sums(places, jnp.ones((200, 1)))[:, 0])
    variances = prior_variances(kernel, grid) / noise
    settings = SolveSettings(jax.random.key_data(KEY), block=block, tolerance=1e-8)
    F = grid.functions(places) * jnp.sqrt(variances)
    return settings, gram, variances, jnp.eye(grid.number) + F.T @ F


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_is_within_the_stated_error(name):
    kernel, dimension = KERNELS[name], COLUMNS.get(name, 2)
    places = GENERATOR.uniform(-1, 2, (300, dimension))
    share = 3e-2 if dimension == 3 else 3e-3
    grid = grid_for(kernel, places.min(0), places.max(0), share, share, 10**6)
    F, s = grid.functions(places), prior_variances(kernel, grid)
    exact = kernel.gram(places, places)
    added, off = kernel_error(kernel, grid)
    found = np.max(np.abs((F * s) @ F.T - exact)) / exact[0, 0]
    assert found <= off < 8 * share
    assert 0 <= added < 8 * share


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_transforms_and_products_are_those_of_the_functions(dimension):
    kernel = lgp.RBF(lengthscale=1.5)
    places = GENERATOR.uniform(0, 3, (40, dimension))
    weights, right = GENERATOR.uniform(0.1, 2, 40), GENERATOR.normal(size=(40, 3))
    grid = grid_for(kernel, np.zeros(dimension), np.full(dimension, 3.0), 1e-2, 1e-2, 10**6)
    F = grid.functions(places)
    U = GENERATOR.normal(size=(grid.number, 3))
    np.testing.assert_allclose(grid.sums(places, right), F.T @ right, atol=1e-9)
    np.testing.assert_allclose(grid.combined(places, jnp.asarray(U)), F @ U, atol=1e-9)
    dense = (F.T * weights) @ F
    gram = ToeplitzGram(grid, grid.doubled().sums(places, jnp.asarray(weights)[:, None])[:, 0])
    some = jnp.array([3, 0, 11])
    np.testing.assert_allclose(gram.times(jnp.asarray(U)), dense @ U, atol=1e-8)
    np.testing.assert_allclose(gram.diagonal(), np.diag(dense), atol=1e-9)
    np.testing.assert_allclose(gram.columns(some), dense[:, some], atol=1e-9)
    np.testing.assert_allclose(gram.block(some), dense[some][:, some], atol=1e-9)
    squares = grid.doubled().combined(places, squares_of(grid, jnp.asarray(U))[:, None])[:, 0]
    np.testing.assert_allclose(squares, np.sum((F @ U) ** 2, axis=1), atol=1e-8)


@pytest.mark.parametrize("mean", [lgp.ConstantMean(0.3), lgp.LinearMean([0.5, -0.2], 1.0)])
def test_evidence_and_gradient_are_those_of_dense_algebra(mean):
    """Of a kernel that the functions represent to 1e-7, with rows that count several times."""
    model = lgp.LatentGP(SMOOTH.kernel, lgp.Gaussian(0.3), mean)
    counts = GENERATOR.integers(1, 4, 300).astype(float)
    sums = lgp.fields.summarise(model, lgp.Data(X, Y, weights=counts), EXACT, key=KEY)

    def dense(model):
        noise = model.likelihood.noise_variance
        C = model.kernel.gram(X, X) + jnp.diag(noise / counts)
        r = Y - model.mean(X)[:, 0]
        few = jnp.sum((counts - 1) * jnp.log(2 * jnp.pi * noise) + jnp.log(counts))
        outer = 300 * jnp.log(2 * jnp.pi) + jnp.linalg.slogdet(C)[1] + few
        return -0.5 * (r @ jnp.linalg.solve(C, r) + outer)

    ours, theirs = (jax.value_and_grad(f)(model) for f in (sums.evidence, dense))
    for one, other in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(sums.posterior(model)[1], ours[0], rtol=1e-9)


def test_the_posterior_is_that_of_dense_algebra():
    ours, theirs = (
        held(SMOOTH, EXACT).posterior,
        fitted(SMOOTH, lgp.ExactGP(), learn_hyperparameters=False).posterior,
    )
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, atol=1e-3)
    one, other = ours.predict_f(NEW), theirs.predict_f(NEW)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-5)
    np.testing.assert_allclose(one.variance, other.variance, atol=1e-5)
    draws, number = np.asarray(ours.sample_f(NEW[:5], key=KEY, number=2_000))[..., 0], 2_000
    covariance = np.cov(draws.T)
    exact = np.cov(np.asarray(theirs.sample_f(NEW[:5], key=KEY, number=number))[..., 0].T)
    np.testing.assert_allclose(covariance, exact, atol=0.15 * exact.max())


def test_weights_by_solves_are_those_of_dense_algebra():
    settings, gram, variances, B = small_system()
    right = jnp.asarray(GENERATOR.normal(size=len(B)))
    found = white_weights(settings, *settings.system(gram, variances), right)
    exact = np.linalg.solve(B, right)
    np.testing.assert_allclose(found.mean, exact, atol=1e-6 * np.abs(exact).max())
    np.testing.assert_allclose(2 * found.gain, right @ exact, rtol=1e-9)


def test_the_log_determinant_is_within_its_standard_error():
    settings, gram, variances, B = small_system()
    exact = np.linalg.slogdet(B)[1]

    @jax.jit
    def estimates(data):
        own = dataclasses.replace(settings, key=data)
        found = white_weights(own, *own.system(gram, variances), jnp.ones(len(B)))
        return found.log_determinant, found.inverse_diagonal

    off, diagonals = [], []
    for number in range(100):
        estimate, diagonal = estimates(jax.random.key_data(jax.random.key(number)))
        off.append(abs(estimate.value - exact) / estimate.standard_error)
        diagonals.append(diagonal)
    assert np.mean(np.array(off) < 4) >= 0.95
    error = np.mean(diagonals, axis=0) - np.diag(np.linalg.inv(B))
    spread = np.std(diagonals, axis=0) / 10
    assert np.mean(np.abs(error) <= 4 * spread + 1e-9) >= 0.95


def test_draws_have_the_covariance_of_the_posterior():
    settings, gram, variances, B = small_system()
    white = jax.random.normal(KEY, (len(B), 1_000))
    drawn, left = draws_about_mean(*settings.system(gram, variances), white, 1e-6, 300)
    assert left < 1e-6
    inverse = np.linalg.inv(B)
    some = np.argsort(-np.asarray(variances))[:8]
    found = np.cov(np.asarray(drawn)[some])
    np.testing.assert_allclose(
        found, inverse[np.ix_(some, some)], atol=0.15 * inverse[some, some].max()
    )


def test_predictions_by_transforms_take_many_rows_at_a_time():
    """A transform costs what its functions do, however few its rows are."""
    posterior = held(SMOOTH, EXACT).posterior
    assert posterior.components.columns == 1 < len(posterior.latent.centres)


@pytest.mark.parametrize("block", [10_000, *slow_parameters(100)])
def test_paths_have_the_law_of_the_posterior(block):
    """Functions of place from 300 rows, with all functions in the block and by Lanczos' method."""
    own, number = dataclasses.replace(EXACT, block=block), 3_000
    posterior = held(SMOOTH, own).posterior
    paths = posterior.sample_paths(key=KEY, number=number)
    values = paths(NEW[:8])
    exact = fitted(SMOOTH, lgp.ExactGP(), learn_hyperparameters=False).posterior
    covariance = np.asarray(exact.latent.covariance(jnp.asarray(NEW[:8])))[0]
    variance = np.diag(covariance)
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / number)
    assert np.all(np.abs(np.cov(values.T) - covariance) < 4.5 * spread)
    assert np.all(np.abs(values.mean(0) - exact.mean_f(NEW[:8])) < 4.5 * np.sqrt(variance / number))
    np.testing.assert_allclose(paths(NEW[4:])[:, :4], values[:, 4:], atol=1e-9)
    with pytest.raises(InputError, match="outside of the box"):
        paths([[9.0, 3.0]])


def test_hyper_parameters_are_those_of_dense_algebra():
    ours = fitted(ROUGH, lgp.fields.FourierGP())
    theirs = fitted(ROUGH, lgp.ExactGP())
    assert ours.diagnostics.converged
    np.testing.assert_allclose(
        ours.model.kernel.lengthscale, theirs.model.kernel.lengthscale, rtol=0.1
    )
    np.testing.assert_allclose(
        ours.model.likelihood.noise_variance, theirs.model.likelihood.noise_variance, rtol=0.1
    )
    assert np.std(ours.posterior.mean_f(NEW) - theirs.posterior.mean_f(NEW)) < 0.02


def test_sums_stand_for_rows_and_posteriors_for_files(tmp_path):
    sums = lgp.fields.summarise(ROUGH, lgp.Data(X, Y), key=KEY)
    result = lgp.fit(ROUGH, sums, key=KEY, learn_hyperparameters=False)
    rows = held(ROUGH, lgp.fields.EquispacedFourier())
    np.testing.assert_allclose(result.posterior.mean_f(NEW), rows.posterior.mean_f(NEW), atol=1e-5)
    lgp.save(rows.posterior, tmp_path / "posterior")
    again = lgp.load(tmp_path / "posterior")
    np.testing.assert_array_equal(again.mean_f(NEW), rows.posterior.mean_f(NEW))
    with pytest.raises(InputError, match="needs the rows"):
        lgp.fit(ROUGH, sums, key=KEY, method=lgp.ExactGP())


@pytest.mark.slow
def test_a_hundred_sets_are_within_the_stated_errors():
    """Of places, length-scales, rows and noise: the kernel's error, and that of means by its root.

    Means are off by what the posterior holds of the frequencies that are left out, whose prior
    variance is the kernel's error.
    """
    generator = np.random.default_rng(1)
    own = lgp.fields.EquispacedFourier(block=300, most=1_100, means_only=True)

    @jax.jit
    def found(grid, kernel, places, linear, precision):
        sites = GaussianSites(linear[:, None], precision[:, None], jnp.zeros(len(linear)))
        ready = dataclasses.replace(own, grid=grid)
        posterior = ready.condition(kernel, places, sites)
        F = grid.functions(places)
        return posterior.mean(places)[:, 0], (F * prior_variances(kernel, grid)) @ F.T

    kernels_within, means_within = [], []
    for _ in range(100):
        rows, dimension = generator.integers(20, 301), 2
        lengthscale, variance = generator.uniform(0.8, 2.5, dimension), generator.uniform(0.5, 2)
        kernel: Any = lgp.Matern52(lengthscale, variance)
        noise = variance * 10 ** generator.uniform(-2, 0)
        places = generator.uniform(0, 6, dimension) * generator.uniform(0, 1, (300, dimension))
        K = np.asarray(kernel.gram(places, places))
        f = np.linalg.cholesky(K + 1e-9 * np.eye(300)) @ generator.normal(size=300)
        y = f + np.sqrt(noise) * generator.normal(size=300)
        grid = grid_for(kernel, places.min(0), places.max(0), 1e-3, 1e-3, 1_089)
        grid = dataclasses.replace(grid, most=(16, 16))  # of one shape, for one program
        off = variance * kernel_error(kernel, grid)[1]
        present = np.arange(300) < rows
        mean, near = found(grid, kernel, places, present * y / noise, present / noise)
        there = K[:rows, :rows] + noise * np.eye(rows)
        expected = K[:, :rows] @ np.linalg.solve(there, y[:rows])
        kernels_within.append(np.max(np.abs(near - K)) <= off)
        means_within.append(np.sqrt(np.mean((mean - expected) ** 2)) <= np.sqrt(off))
    assert np.sum(kernels_within) >= 95
    assert np.sum(means_within) >= 95


NOISES = {
    "Bernoulli": (lgp.Bernoulli(), (SIGNAL + GENERATOR.logistic(size=300) > 0).astype(float)),
    "Poisson": (lgp.Poisson(), GENERATOR.poisson(np.exp(SIGNAL)).astype(float)),
}


@pytest.mark.parametrize("name", NOISES)
def test_laplace_with_hyper_parameters_held_is_that_of_dense_algebra(name):
    likelihood, y = NOISES[name]
    model = lgp.LatentGP(SMOOTH.kernel, likelihood)
    ours, theirs = (
        fitted(model, method, y, learn_hyperparameters=False).posterior
        for method in (lgp.Laplace(EXACT), lgp.Laplace(correct_mean=False))
    )
    assert float(ours.log_evidence) == pytest.approx(float(theirs.log_evidence), abs=1e-4)
    one, other = ours.predict_f(NEW), theirs.predict_f(NEW)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-5)
    np.testing.assert_allclose(one.variance, other.variance, atol=1e-5)


@pytest.mark.parametrize("method", [lgp.VariationalInference, lgp.ExpectationPropagation])
@pytest.mark.parametrize("name", NOISES)
def test_rules_that_read_variances_are_refused(method, name):
    """They are mean squares of draws, of which no site can be made."""
    likelihood, y = NOISES[name]
    with pytest.raises(InputError, match="noisy estimates of the variances at the rows"):
        fitted(lgp.LatentGP(SMOOTH.kernel, likelihood), method(EXACT), y)


@pytest.mark.parametrize(("block", "atol"), [(10_000, 0.02), (100, 0.1)])
def test_counts_are_those_of_dense_algebra(block, atol):
    """Laplace's evidence and its gradient; estimates within their errors."""
    counts = GENERATOR.poisson(np.exp(SIGNAL)).astype(float)
    model = lgp.LatentGP(lgp.Matern52(lengthscale=1.5), lgp.Poisson())
    own = lgp.fields.EquispacedFourier(left=1e-3, block=block, probes=16)
    usual = lgp.Laplace(correct_mean=False)
    ours, theirs = (fitted(model, method, counts) for method in (lgp.Laplace(own), usual))
    error = 4 * float(ours.diagnostics.evidence_error)
    assert (error > 0) == (block == 100)
    assert abs(ours.posterior.log_evidence - theirs.posterior.log_evidence) < 0.2 + error
    np.testing.assert_allclose(ours.posterior.mean_f(NEW), theirs.posterior.mean_f(NEW), atol=atol)


def test_what_is_left_open_beside_telling_rows_is_said():
    counts = GENERATOR.poisson(30 * np.exp(SIGNAL)).astype(float)
    model = lgp.LatentGP(
        lgp.Matern32(lengthscale=1.5), lgp.Poisson(), lgp.ConstantMean(np.log(30.0))
    )
    for left, said in ((0.05, True), (1e-5, False)):
        own = lgp.Laplace(lgp.fields.EquispacedFourier(left=left, most=6_000))
        found = fitted(model, own, counts, learn_hyperparameters=False)
        told = [text for text in found.diagnostics.warnings if "leave open" in text]
        assert bool(told) == said
        latent = found.posterior.latent
        rate = np.exp(found.posterior.mean_f(X))
        expected = float(latent.left_open) * rate.mean()
        assert float(latent.unseen) == pytest.approx(expected, rel=0.01)


def test_solves_that_do_not_converge_are_said():
    own = lgp.fields.EquispacedFourier(block=20, max_steps=3)
    result = held(ROUGH, own)
    assert not result.diagnostics.converged
    assert any("did not converge in 3 steps" in text for text in result.diagnostics.warnings)
    with pytest.warns(UserWarning, match="Draws of the posterior are off by"):
        result.posterior.sample_f(NEW[:3], key=KEY, number=2)


@pytest.mark.parametrize("kind", ["equal", "line", "one place"])
def test_places_may_be_equal_or_in_line(kind):
    places = {
        "equal": np.repeat(X[:20], 5, axis=0),
        "line": np.column_stack([X[:100, 0], np.full(100, 2.0)]),
        "one place": np.tile(X[:1], (100, 1)),
    }[kind]
    data = lgp.Data(places, np.sin(places[:, 0]) + 0.1 * GENERATOR.normal(size=100))
    ours, theirs = (
        lgp.fit(SMOOTH, data, key=KEY, method=method, learn_hyperparameters=False).posterior
        for method in (lgp.fields.FourierGP(EXACT), lgp.ExactGP())
    )
    np.testing.assert_allclose(ours.mean_f(places[:5]), theirs.mean_f(places[:5]), atol=1e-4)
    np.testing.assert_allclose(ours.log_evidence, theirs.log_evidence, atol=1e-2)


REFUSED = {
    "long tails": (lgp.RationalQuadratic(), X, "takes RBF, Matern kernels"),
    "kernel": (lgp.Periodic(), X, "takes RBF, Matern kernels"),
    "columns": (lgp.RBF(), GENERATOR.normal(size=(300, 4)), "4 columns"),
    "part": (lgp.RBF().on(0) + lgp.RBF().on(1), X, "takes RBF, Matern kernels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_kernels_are_refused(name):
    kernel, places, sentence = REFUSED[name]
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.1))
    with pytest.raises(InputError, match=sentence):
        lgp.fit(model, lgp.Data(places, Y), key=KEY, method=lgp.fields.FourierGP())


def test_places_outside_of_the_box_are_refused():
    posterior = held(ROUGH, lgp.fields.EquispacedFourier(margin=0.1)).posterior
    posterior.predict_f([[6.5, 3.0]])
    mixed = lgp.Posterior.mixture([posterior, posterior], [0.5, 0.5])
    for own in (posterior, mixed):
        with pytest.raises(InputError, match="outside of the box"):
            own.predict_f([[9.0, 3.0]])


def test_it_says_what_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_finufft", None)
    with pytest.raises(InputError, match="pip install jax-finufft"):
        held(ROUGH, lgp.fields.EquispacedFourier())


@pytest.mark.parametrize("rows", [[0], [0, 0], [0, 1]])
def test_one_row_and_equal_rows_are_fitted(rows):
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.1))
    data = lgp.Data(X[rows], Y[rows] + np.arange(len(rows)))
    few = lgp.fields.FourierGP(lgp.fields.EquispacedFourier(left=1e-3))
    found = lgp.fit(model, data, key=KEY, method=few).posterior
    exact = lgp.fit(found.model, data, key=KEY, learn_hyperparameters=False).posterior
    f, g = found.predict(X[rows]), exact.predict(X[rows])
    np.testing.assert_allclose(f.mean, g.mean, atol=0.02)
    np.testing.assert_allclose(f.variance, g.variance, rtol=0.25)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value):
    broken = X[:30].copy()
    broken[3, 1] = value
    for places, y in ((broken, Y[:30]), (X[:30], broken[:, 1]), (X[:0], Y[:0])):
        with pytest.raises(InputError, match=r"NaN or infinity in 1 row|has no rows"):
            lgp.fit(ROUGH, lgp.Data(places, y), key=KEY, method=lgp.fields.FourierGP())


@pytest.mark.parametrize("kind", ["constant", "scales"])
def test_columns_may_be_constant_or_of_other_scales(kind):
    scales = np.array([1e-6, 1e6]) if kind == "scales" else np.ones(2)
    places = (X if kind == "scales" else np.column_stack([X[:, 0], np.full(300, 1e9)])) * scales
    kernel = lgp.RBF(lengthscale=1.5 * scales)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.02))
    data = lgp.Data(places, Y)
    found, exact = (
        lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False).posterior
        for method in (lgp.fields.FourierGP(EXACT), lgp.ExactGP())
    )
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, rtol=1e-4)
    f, g = found.predict_f(places), exact.predict_f(places)
    np.testing.assert_allclose(f.mean, g.mean, atol=1e-4)
    np.testing.assert_allclose(f.variance, g.variance, atol=1e-4)


def test_targets_without_noise_in_line_are_fitted():
    """The search on some rows ends at a noise variance by which solves would not converge."""
    places = np.column_stack([X[:100, 0], np.full(100, 3.0)])
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.01))
    few = lgp.fields.FourierGP(lgp.fields.EquispacedFourier(most=900))
    found = lgp.fit(model, lgp.Data(places, np.sin(places[:, 0])), key=KEY, method=few)
    mean = found.posterior.mean_f(places)
    np.testing.assert_allclose(mean, np.sin(places[:, 0]), atol=0.02)


def test_few_rows_without_noise_have_the_exact_process():
    """As many functions as a rough field takes leave solves without an end."""
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.01))
    data = lgp.Data(X[:120], np.sin(X[:120, 0]) * np.cos(X[:120, 1]))
    found = lgp.fit(model, data, key=KEY, method=lgp.fields.FourierGP())
    exact = lgp.fit(model, data, key=KEY, method=lgp.ExactGP())
    assert found.diagnostics.converged
    assert "the covariance of the rows was factorised" in found.diagnostics.ending
    assert found.posterior.log_evidence.value == pytest.approx(exact.posterior.log_evidence.value)
    f, g = (fit.posterior.predict_f(X[120:140]) for fit in (found, exact))
    np.testing.assert_allclose(f.mean, g.mean, atol=1e-6)
