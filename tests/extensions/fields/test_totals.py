"""Totals over areas and exceedance probabilities, beside brute force by dense joint laws."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.extensions.fields import totals

KEY = jax.random.key(0)
_generator = np.random.default_rng(0)
X = _generator.uniform(0, 4, (30, 2))
F = np.sin(X[:, 0]) + np.cos(X[:, 1])
CELLS = np.stack(np.meshgrid(np.arange(0.25, 4, 0.5), np.arange(0.25, 4, 0.5)), -1).reshape(-1, 2)
AREA = _generator.uniform(0.5, 2, len(CELLS))
LABELS = np.where(CELLS[:, 0] < 2, "west", "east")
W = AREA[:, None] * (LABELS[:, None] == np.array(["east", "west"]))
KERNEL = lgp.Matern32(lengthscale=1.5)
COUNTS = _generator.poisson(np.exp(F))


def fitted(likelihood, y, **settings):
    data = lgp.Data(X, y)
    model = lgp.LatentGP(KERNEL, likelihood)
    return lgp.fit(model, data, key=KEY, learn_hyperparameters=False, **settings)


@pytest.fixture(scope="module")
def gaussian():
    return fitted(lgp.Gaussian(0.1), F + 0.3 * _generator.normal(size=len(F)))


@pytest.fixture(scope="module")
def counts():
    return fitted(lgp.Poisson(), COUNTS, method=lgp.Laplace())


@pytest.fixture(scope="module")
def sampled():
    method = lgp.GibbsSampling(lgp.Dense(), chains=2, draws=100, warmup=50)
    return fitted(lgp.Bernoulli(), (F > 0).astype(int), method=method)


@jax.enable_x64(True)
def joint(fit):
    """Mean and covariance of f at the cells, by dense algebra of its own for Gaussian noise."""
    K = np.asarray(KERNEL.gram(X, X)) + 0.1 * np.eye(len(X))
    cross = np.asarray(KERNEL.gram(CELLS, X))
    solved = np.linalg.solve(K, cross.T)
    return solved, np.asarray(KERNEL.gram(CELLS, CELLS)) - cross @ solved


class TestTotals:
    @pytest.mark.parametrize("block", [7, 1024])
    def test_exact_by_dense_algebra(self, gaussian, block, monkeypatch):
        monkeypatch.setattr(totals, "_BLOCK", block)
        found = lgp.fields.total(gaussian, CELLS, weights=AREA, by=LABELS)
        solved, covariance = joint(gaussian)
        y = gaussian.rows.merged.y
        assert found.labels == ("east", "west")
        order = gaussian.rows.merged.X
        by_row = {tuple(row): value for row, value in zip(order, y, strict=True)}
        targets = np.array([by_row[tuple(row)] for row in X])
        np.testing.assert_allclose(found.estimate, W.T @ (solved.T @ targets), atol=1e-8)
        np.testing.assert_allclose(found.covariance, W.T @ covariance @ W, atol=1e-8)
        assert found.draws is None
        assert not found.standard_error_error.any()
        # Rows are dependent: variances of rows alone would say much less.
        alone = np.sqrt(W.T**2 @ np.diagonal(covariance))
        assert (found.standard_error > 1.5 * alone).all()

    def test_means_are_totals_over_weights(self, gaussian):
        found = lgp.fields.total(gaussian, CELLS, weights=AREA, by=LABELS)
        weight = W.sum(axis=0)
        np.testing.assert_allclose(found.means.estimate, found.estimate / weight)
        table = found.table(0.9)
        np.testing.assert_allclose(table["mean_standard_error"], found.standard_error / weight)
        half = norm.ppf(0.95) * found.standard_error
        np.testing.assert_allclose(table["upper"] - table["total"], half)

    def test_inducing_points_have_their_own_joint_law(self):
        fit = fitted(lgp.Gaussian(0.1), F, method=lgp.CollapsedVI(lgp.Inducing(10)))
        found = lgp.fields.total(fit, CELLS, weights=AREA)
        draws = fit.posterior.sample_f(CELLS, key=KEY, number=20_000) @ AREA
        np.testing.assert_allclose(found.standard_error, draws.std(), rtol=0.03)

    def test_counts_by_many_draws(self, counts):
        found = lgp.fields.total(counts, CELLS, weights=AREA, by=LABELS, number=4000)
        other = jax.random.key(1)
        rates = counts.posterior.sample_expectation(CELLS, key=other, number=20_000) @ W
        apart = (found.standard_error - rates.std(axis=0)) / found.standard_error_error
        assert (np.abs(apart) < 4).all()
        error = rates.std(axis=0) / np.sqrt(len(rates))
        assert (np.abs(found.estimate - rates.mean(axis=0)) < 4 * error).all()
        assert "4000 joint draws" in found.reason
        assert "standard_error_error" in found.table()
        # The law is lognormal, cell by cell and jointly: its mean and covariance are closed.
        f = counts.posterior.predict_f(CELLS)
        with jax.enable_x64(True):
            S = np.asarray(counts.posterior.as_jax().covariance(CELLS))
        rate = np.exp(f.mean + f.variance / 2)
        exact = W.T @ (np.outer(rate, rate) * np.expm1(S)) @ W
        np.testing.assert_allclose(found.estimate, W.T @ rate, rtol=1e-6)
        apart = (found.standard_error - np.sqrt(np.diagonal(exact))) / found.standard_error_error
        assert (np.abs(apart) < 4).all()

    def test_exposure_multiplies(self, counts):
        one = lgp.fields.total(counts, CELLS, exposure=np.ones(len(CELLS)))
        two = lgp.fields.total(counts, CELLS, exposure=np.full(len(CELLS), 2.0))
        np.testing.assert_allclose(two.estimate, 2 * one.estimate)
        np.testing.assert_allclose(two.standard_error, 2 * one.standard_error)

    def test_the_latent_function_of_counts_is_exact(self, counts):
        found = lgp.fields.total(counts, CELLS, weights=AREA, of="latent")
        with jax.enable_x64(True):
            S = np.asarray(counts.posterior.as_jax().covariance(CELLS))
        np.testing.assert_allclose(found.covariance[0, 0], AREA @ S @ AREA, rtol=1e-8)

    def test_paths_where_rows_are_many(self, counts, monkeypatch):
        exact = lgp.fields.total(counts, CELLS, number=2000)
        monkeypatch.setattr(totals, "_MOST_DRAWN", 10)
        found = lgp.fields.total(counts, CELLS, number=2000)
        assert "random features, an approximation" in found.reason
        np.testing.assert_allclose(found.standard_error, exact.standard_error, rtol=0.2)

    def test_draws_of_chains(self, sampled):
        found = lgp.fields.total(sampled, CELLS, weights=AREA, number=3000)
        chances = sampled.posterior.sample_expectation(CELLS, key=jax.random.key(2), number=3000)
        np.testing.assert_allclose(found.standard_error, (chances @ AREA).std(), rtol=0.1)

    def test_wrong_arguments(self, gaussian):
        with pytest.raises(InputError, match="one number a row, shape"):
            lgp.fields.total(gaussian, CELLS, weights=[1.0])
        with pytest.raises(InputError, match='of must be "response" or "latent"'):
            lgp.fields.total(gaussian, CELLS, of="y")
        classes = fitted(lgp.Softmax(3), np.arange(30) % 3)
        with pytest.raises(InputError, match="several"):
            lgp.fields.total(classes, CELLS)

    @pytest.mark.usefixtures("as_users_have_it")
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"number": 2.5}, "number must be a whole number from 2, got 2.5"),
            ({"number": 1}, "number must be a whole number from 2, got 1"),
            ({"weights": "x"}, "weights must be an array of numbers"),
            ({"by": 2}, "by a label for each of the 64"),
            ({"of": None}, "of must be"),
        ],
    )
    def test_arguments_that_are_none(self, gaussian, given, words):
        with pytest.raises(InputError, match=words):
            lgp.fields.total(gaussian, CELLS, **given)

    @pytest.mark.usefixtures("as_users_have_it")
    def test_posteriors_and_levels_that_are_none(self, gaussian):
        with pytest.raises(InputError, match="posterior must be a fit or its posterior, got 'x'"):
            lgp.fields.total("x", CELLS)
        found = lgp.fields.total(gaussian, CELLS)
        for ask in (found.interval, found.table):
            with pytest.raises(InputError, match="level must be strictly between 0 and 1, got x"):
                ask("x")


class TestExceedance:
    @pytest.mark.parametrize("of", ["response", "latent"])
    def test_gaussian(self, gaussian, of):
        found = lgp.fields.exceedance(gaussian, CELLS, 0.4, of=of)
        f = gaussian.posterior.predict_f(CELLS)
        expected = norm.sf(0.4, f.mean, np.sqrt(f.variance))
        np.testing.assert_allclose(found.probability, expected, atol=1e-10)
        assert not found.error.any()

    def test_a_monotone_link(self, counts):
        exposure = _generator.uniform(1, 3, len(CELLS))
        found = lgp.fields.exceedance(counts, CELLS, 2.0, exposure=exposure)
        f = counts.posterior.predict_f(CELLS)
        expected = norm.sf(np.log(2.0 / exposure), f.mean, np.sqrt(f.variance))
        np.testing.assert_allclose(found.probability, expected, atol=1e-10)

    def test_thresholds_out_of_reach(self, counts):
        assert (lgp.fields.exceedance(counts, CELLS, -1.0).probability == 1).all()
        assert (lgp.fields.exceedance(counts, CELLS, 1e9).probability < 1e-12).all()

    def test_draws_of_chains(self, sampled):
        found = lgp.fields.exceedance(sampled, CELLS, 0.6)
        draws = sampled.posterior.sample_expectation(CELLS, key=KEY, number=4000)
        assert np.abs(found.probability - (draws > 0.6).mean(axis=0)).max() < 0.1
        assert (found.error > 0).all()

    def test_several_latent_functions_by_draws(self):
        fit = fitted(lgp.HeteroscedasticGaussian(), F + 0.1 * _generator.normal(size=30))
        found = lgp.fields.exceedance(fit, CELLS, 0.4, number=4000)
        f = fit.posterior.predict_f(CELLS)
        expected = norm.sf(0.4, f.mean[:, 0], np.sqrt(f.variance[:, 0]))
        assert (np.abs(found.probability - expected) < 5 * found.error).all()
        assert found.reason == "the share of 4000 draws"

    @pytest.mark.usefixtures("as_users_have_it")
    def test_wrong_thresholds(self, counts):
        with pytest.raises(InputError, match="one for each of the 64 rows"):
            lgp.fields.exceedance(counts, CELLS, [1.0, 2.0])
        for above in ("x", [["a"], [1, 2]], None, np.nan):
            with pytest.raises(InputError, match="above"):
                lgp.fields.exceedance(counts, CELLS, above)
        with pytest.raises(InputError, match="number must be a whole number from 1, got '9'"):
            lgp.fields.exceedance(counts, CELLS, 1.0, number="9")
        with pytest.raises(InputError, match="posterior must be"):
            lgp.fields.exceedance(None, CELLS, 1.0)


def test_what_is_known_exceeds_a_threshold_or_does_not():
    walk = lgp.LatentGP(lgp.kernels.RandomWalk(), lgp.Poisson())  # zero at its start
    data = lgp.Data([1.0, 2.0, 3.0], [1, 2, 3])
    fit = lgp.fit(walk, data, key=jax.random.key(0), learn_hyperparameters=False)
    for of, above in (("response", (0.5, 2.0)), ("latent", (-0.1, 0.1))):
        below, beyond = (lgp.fields.exceedance(fit, [0.0, 1.0], a, of=of) for a in above)
        assert (below.probability[0], beyond.probability[0]) == (1, 0)
        assert 0 < beyond.probability[1] < below.probability[1] < 1


def test_contrasts_and_weights_of_nothing(gaussian, counts):
    twice = np.concatenate([CELLS[:5], CELLS[:5]])
    w = np.repeat([0.1, -0.1], 5) * np.tile([1.0, 2.0, 3.0, 0.1, 0.2], 2)
    for fit in (gaussian, counts):
        found = lgp.fields.total(fit, twice, weights=w)
        assert found.weight == 0
        assert found.standard_error == pytest.approx(0, abs=1e-2)
        assert np.isnan(found.means.estimate).all()
        nothing = lgp.fields.total(fit, CELLS, weights=np.zeros(len(CELLS)))
        assert (nothing.estimate, nothing.standard_error) == (0, 0)
    turned = lgp.fields.total(gaussian, CELLS, weights=-AREA)
    straight = lgp.fields.total(gaussian, CELLS, weights=AREA)
    np.testing.assert_allclose(turned.estimate, -straight.estimate)
    np.testing.assert_allclose(turned.standard_error, straight.standard_error)
    np.testing.assert_allclose(turned.means.estimate, straight.means.estimate)


def test_rows_weights_labels_and_keys_that_are_none(gaussian, counts):
    with pytest.raises(InputError, match="Totals need rows"):
        lgp.fields.total(gaussian, np.zeros((0, 2)))
    with pytest.raises(InputError, match="weights"):
        lgp.fields.total(gaussian, CELLS, weights=["a"] * len(CELLS))
    labels = [None, "west"] * (len(CELLS) // 2)
    assert lgp.fields.total(gaussian, CELLS, by=labels).labels == ("None", "west")
