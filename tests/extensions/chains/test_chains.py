"""Chains: updates that keep a law as it is, and what a posterior of draws answers."""

import subprocess
import sys
import warnings
from functools import cache, partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import gamma, kstest, norm

import latentgp as lgp
from arviz_figures import loo_of, waic_of
from latentgp.extensions.chains.diagnostics import diagnose_chains
from latentgp.extensions.chains.draws import Chains, summarise
from latentgp.extensions.chains.loop import Transition, _coefficients
from latentgp.extensions.chains.slice_sampling import metropolis_update, slice_update
from latentgp.extensions.chains.target import Coefficients
from latentgp.posteriors.arviz_versions import has_data_trees, import_arviz
from latentgp.rows.subsets import watched_rows
from problems import BINARY, KERNEL, SMOOTH, X, mean_and_error, regression
from slow import slow_parameters

KEY = jax.random.key(0)
NEW = np.random.default_rng(1).normal(size=(5, 2))
LIMIT = 4.5  # standard errors
arviz = import_arviz()
SIZES = {"short": 4000, "long": 50_000}
LENGTHS = ["short", pytest.param("long", marks=pytest.mark.slow)]
UPDATES = [slice_update, metropolis_update]


class Correlated:
    """A normal law."""

    covariance = np.array([[1.0, 0.9], [0.9, 2.0]])
    marginals = (norm(0, 1), norm(0, np.sqrt(2)))
    product = 0.9

    @staticmethod
    def log_density(x):
        return -0.5 * x @ jnp.asarray(np.linalg.inv(Correlated.covariance)) @ x

    def draw(self, generator, size):
        return generator.multivariate_normal(np.zeros(2), self.covariance, size)


class Skewed:
    """Two independent gamma laws; below zero the density is not even a number."""

    marginals = (gamma(2.0), gamma(2.0))
    product = 4.0

    @staticmethod
    def log_density(x):
        return jnp.sum(jnp.log(x) - x)

    def draw(self, generator, size):
        return generator.gamma(2.0, size=(size, 2))


@cache
def runner(update, log_density):
    """Independent chains of so many updates: where they are, and the shares that moved them."""

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None, None))
    def run(start, key, steps, scale):
        def step(index, carry):
            x, moved = carry
            result = update(log_density, x, scale, jax.random.fold_in(key, index))
            return result.vector, moved + result.accepted

        x, moved = jax.lax.fori_loop(0, steps, step, (start, 0))
        return x, moved / steps

    return run


def updated(update, log_density, starts, steps, scale):
    keys = jax.random.split(jax.random.key(3), len(starts))
    x, moved = runner(update, log_density)(jnp.asarray(starts), keys, steps, jnp.asarray(scale))
    return np.asarray(x), float(np.mean(moved))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("update", UPDATES)
class TestUpdates:
    @pytest.mark.parametrize("length", LENGTHS)
    @pytest.mark.parametrize("law", [Skewed(), *slow_parameters(Correlated())])
    @pytest.mark.parametrize("steps", [10, 300])
    def test_a_law_is_kept_and_found(self, update, law, length, steps):
        """Kept by chains that start with it; found by many steps from a place far out."""
        size, scale = SIZES[length], np.array([2.5, 2.0])
        starts = (
            law.draw(np.random.default_rng(2), size) if steps == 10 else np.full((size, 2), 4.0)
        )
        x, moved = updated(update, law.log_density, starts, steps, scale)
        assert moved == 1 if update is slice_update else 0.1 < moved < 0.8
        for column, marginal in zip(x.T, law.marginals, strict=True):
            assert kstest(column, marginal.cdf).pvalue > 1e-4
        product = x[:, 0] * x[:, 1]
        assert abs(product.mean() - law.product) < LIMIT * product.std() / np.sqrt(size)

    def test_an_entry_without_scale_is_held(self, update):
        starts = Correlated().draw(np.random.default_rng(2), SIZES["short"])
        x, _ = updated(update, Correlated().log_density, starts, 5, np.array([0.0, 1.0]))
        np.testing.assert_array_equal(x[:, 0], starts[:, 0])
        assert np.all(x[:, 1] != starts[:, 1]) or update is metropolis_update

    def test_where_there_is_no_density_nothing_moves(self, update):
        def point(x):
            return jnp.where(jnp.all(x == 0.5), 0.0, jnp.nan)

        x, moved = updated(update, point, np.full((20, 2), 0.5), 3, [1.0, 1.0])
        np.testing.assert_array_equal(x, np.full((20, 2), 0.5))
        assert moved == 0


GIBBS = lgp.GibbsSampling(chains=2, draws=100, warmup=50)
MODEL = lgp.LatentGP(KERNEL, lgp.BayesianSVM())
SETTINGS = {"key": KEY, "method": GIBBS, "learn_hyperparameters": False}


@pytest.fixture(scope="module")
def binary():
    """Draws of the latents alone."""
    return lgp.fit(MODEL, lgp.Data(X, BINARY), **SETTINGS)


@pytest.fixture(scope="module")
def learned():
    """Draws of hyper-parameters too."""
    return lgp.fit(regression(), lgp.Data(X, SMOOTH), key=KEY, method=GIBBS)


def chance_of_one(f):
    """Of the support vector machine's two values, divided by their sum."""
    return expit(2 * np.maximum(1 + f, 0) - 2 * np.maximum(1 - f, 0))


def covariance(A, B, variance, lengthscale):
    squares = np.sum((A[:, None] - B) ** 2, axis=-1)
    return variance * np.exp(-0.5 * squares / lengthscale**2)


def conditional(rows, f, variance=1.4, lengthscale=0.6):
    """Mean and variance of f at NEW given it at rows, in the open."""
    gram, cross = (covariance(rows, B, variance, lengthscale) for B in (rows, NEW))
    weights = np.linalg.solve(gram, cross)
    return f @ weights, variance - np.sum(cross * weights, axis=0)


class TestAnswersAreAveragesOverDraws:
    def test_latents_and_probabilities(self, binary):
        posterior = binary.posterior
        f = posterior.f.reshape(-1, len(X))
        mean, variance = conditional(posterior.rows.X, f)
        found = posterior.predict_f(NEW)
        np.testing.assert_allclose(found.mean, mean.mean(axis=0), atol=1e-10)
        np.testing.assert_allclose(found.variance, variance + mean.var(axis=0), atol=1e-10)
        np.testing.assert_array_equal(posterior.mean_f(NEW), found.mean)
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        p = chance_of_one(mean[..., None] + np.sqrt(variance)[:, None] * nodes) @ weights
        p = p.mean(axis=0) / np.sqrt(2 * np.pi)
        predictive = posterior.predict(NEW)
        np.testing.assert_allclose(predictive.probabilities, np.stack([1 - p, p], 1), atol=5e-3)
        np.testing.assert_allclose(predictive.mean, predictive.probabilities[:, 1], atol=1e-10)

    def test_at_the_rows_nothing_is_left_to_integrate(self, binary):
        posterior = binary.posterior
        p = chance_of_one(posterior.f).mean(axis=(0, 1))[:, 0]
        predictive = posterior.predict(X)
        np.testing.assert_allclose(predictive.probabilities[:, 1], p, atol=1e-5)
        np.testing.assert_allclose(predictive.log_prob(np.ones(11)), np.log(p), atol=1e-4)
        np.testing.assert_allclose(predictive.variance, p * (1 - p), atol=1e-5)

    @pytest.mark.slow
    def test_hyperparameters_are_averaged_over_too(self, learned):
        posterior = learned.posterior
        draws = {path: values.ravel() for path, values in posterior.hyperparameters.items()}
        variance = draws["kernel.kernel.variance"] * draws["kernel.scale"]
        lengthscale, noise = draws["kernel.kernel.lengthscale"], draws["likelihood.noise_variance"]
        f, rows = posterior.f.reshape(-1, len(X)), X
        means, variances = np.swapaxes(
            [conditional(rows, *draw) for draw in zip(f, variance, lengthscale, strict=True)], 0, 1
        )
        found, predictive = posterior.predict_f(NEW), posterior.predict(NEW)
        np.testing.assert_allclose(found.mean, means.mean(axis=0), atol=1e-6)
        total = variances.mean(axis=0) + means.var(axis=0)
        np.testing.assert_allclose(found.variance, total, atol=1e-6)
        np.testing.assert_allclose(predictive.mean, means.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(predictive.variance, total + noise.mean(), rtol=0.05)
        deviations = np.sqrt(variances + noise[:, None])
        # The average over 4,096 points of f has an error of its own.
        density = norm.pdf(0.2, means, deviations).mean(axis=0)
        narrow = norm.pdf(0.2, means, np.sqrt(variances + noise[:, None] / 2))
        square = (narrow / np.sqrt(4 * np.pi * noise)[:, None]).mean(axis=0)
        error = np.sqrt((square / density**2 - 1) / 4096)
        log_prob = predictive.log_prob(np.full(5, 0.2))
        assert np.all(np.abs(np.expm1(log_prob - np.log(density))) < LIMIT * error)
        levels = [0.1, 0.5, 0.9]
        at = predictive.quantiles(levels)
        share = norm.cdf(at[:, None], means.T[..., None], deviations.T[..., None]).mean(axis=1)
        np.testing.assert_allclose(share, np.broadcast_to(levels, (5, 3)), atol=0.03)
        low, high = predictive.interval(0.8)
        np.testing.assert_allclose(np.stack([low, high], 1), at[:, [0, 2]], atol=1e-10)
        draws = predictive.sample(key=KEY, number=4000)
        error = np.sqrt(predictive.variance / 4000)
        assert np.abs((draws.mean(axis=0) - predictive.mean) / error).max() < LIMIT

    def test_joint_draws_have_the_marginals(self, learned):
        posterior = learned.posterior
        for draws, law in (
            (posterior.sample_f(NEW, key=KEY, number=2000), posterior.predict_f(NEW)),
            (posterior.sample_y(NEW, key=KEY, number=2000), posterior.predict(NEW)),
        ):
            error = np.sqrt(law.variance / 2000)
            assert np.abs((draws.mean(axis=0) - law.mean) / error).max() < LIMIT

    def test_joint_draws_at_the_rows_are_those_of_the_chains(self, binary):
        posterior = binary.posterior
        draws = posterior.sample_f(X, key=KEY, number=500)
        known = posterior.f.reshape(-1, len(X))
        nearest = np.abs(draws[:, None] - known).max(axis=2).min(axis=1)
        assert nearest.max() < 2e-3  # jitter of 1.5e-8 of the prior variance

    def test_rows_are_independent_however_many(self, binary):
        draws = binary.posterior.predict(np.zeros((1024, 2))).sample(key=KEY, number=4)
        assert set(np.unique(draws)) == {0.0, 1.0}
        for size in (64, 488, 512):
            assert not np.array_equal(draws[:, :size], draws[:, size : 2 * size])

    @pytest.mark.slow
    def test_the_cdf_of_counts_adds_up_their_probabilities(self, binary):
        successes = eqx.tree_at(
            lambda p: (p.components.mean_model.likelihood, p.components.models.likelihood),
            binary.posterior,
            (lgp.Binomial(), lgp.Binomial()),
        )
        predictive = successes.predict(NEW, trials=np.full(5, 4.0))
        known = [np.exp(predictive.log_prob(np.full(5, y))) for y in range(4)]
        np.testing.assert_allclose(predictive.cdf(np.full(5, 3)), np.sum(known, axis=0), rtol=1e-10)

    def test_a_sampler_knows_no_evidence_and_no_paths(self, binary):
        with pytest.raises(lgp.InputError, match="gives no log evidence"):
            _ = binary.posterior.log_evidence
        with pytest.raises(lgp.InputError, match="use sample_f"):
            binary.posterior.sample_paths(key=KEY)
        with pytest.raises(lgp.InputError, match="has no pure functions"):
            binary.posterior.as_jax()

    @pytest.mark.slow
    def test_two_samplers_find_the_same_hyperparameters(self):
        model, data = lgp.LatentGP(KERNEL, lgp.Bernoulli()), lgp.Data(X, BINARY)
        methods = (lgp.GibbsSampling(chains=2, draws=1000), lgp.NUTS(chains=2, draws=300))
        found = [lgp.fit(model, data, key=KEY, method=m).posterior.hyperparameters for m in methods]
        assert found[0].keys() == found[1].keys()
        for path in found[0]:
            (a, a_error), (b, b_error) = (
                mean_and_error(np.log(draws[path])[..., None]) for draws in found
            )
            assert abs(a - b) < LIMIT * np.hypot(a_error, b_error), path


class TestRuns:
    @pytest.mark.quick
    def test_the_same_key_gives_the_same_draws(self, binary):
        data = lgp.Data(X, BINARY)
        again = lgp.fit(MODEL, data, **SETTINGS)
        np.testing.assert_array_equal(again.posterior.f, binary.posterior.f)
        other = lgp.fit(MODEL, data, **(SETTINGS | {"key": jax.random.key(1)}))
        assert np.all(other.posterior.f != binary.posterior.f)

    def test_a_callback_ends_it_with_the_draws_so_far(self, binary):
        seen = []

        def enough(progress):
            seen.append(progress)
            return True

        result = lgp.fit(MODEL, lgp.Data(X, BINARY), **SETTINGS, callback=enough)
        np.testing.assert_array_equal(result.posterior.f, binary.posterior.f[:, :25])
        assert [progress.sweeps for progress in seen] == [25, 50, 75]
        assert seen[-1].total == 150
        assert result.posterior.predict(NEW).mean.shape == (5,)

    def test_the_clock_ends_it_too(self, binary):
        result = lgp.fit(MODEL, lgp.Data(X, BINARY), **SETTINGS, max_seconds=0.0)
        np.testing.assert_array_equal(result.posterior.f, binary.posterior.f[:, :25])

    def test_a_file_brings_back_the_same_bits(self, learned, tmp_path):
        back = lgp.load(lgp.save(learned.posterior, tmp_path / "posterior.latentgp"))

        def answers(posterior):
            predictive = posterior.predict(NEW)
            return [
                posterior.f,
                *posterior.predict_f(NEW),
                predictive.mean,
                predictive.log_prob(np.ones(5)),
                predictive.sample(key=KEY),
                posterior.sample_f(NEW, key=KEY),
                *posterior.hyperparameters.values(),
            ]

        for one, other in zip(answers(back), answers(learned.posterior), strict=True):
            np.testing.assert_array_equal(one, other)
        assert back.summary == learned.posterior.summary

    def test_arviz_gets_everything_by_name(self, learned):
        posterior = learned.posterior.to_arviz().posterior
        assert posterior["f"].dims == ("chain", "draw", "row", "latent")
        assert posterior["f"].shape == (2, 100, 11, 1)
        assert set(posterior.data_vars) == {"f", *learned.posterior.hyperparameters}
        for path, values in learned.posterior.hyperparameters.items():
            np.testing.assert_array_equal(posterior[path], values)
        assert len(learned.posterior.hyperparameters) == 4

    def test_priors_are_beside_the_posterior(self, learned):
        """In ArviZ's group, and behind the marginals; a law whose quantiles are known."""
        posterior = learned.posterior
        prior = posterior.to_arviz().prior
        assert set(prior.data_vars) == set(posterior.hyperparameters)
        drawn = np.log(prior["likelihood.noise_variance"].values.ravel())
        assert abs(drawn.std() - 2.0) < 0.15  # weak: log-normal, two a standard deviation
        marginals = posterior.hyperparameter_marginals
        assert set(marginals) == set(posterior.hyperparameters)
        found = marginals["likelihood.noise_variance"]
        np.testing.assert_allclose(
            found.mean, posterior.hyperparameters["likelihood.noise_variance"].mean()
        )
        assert found.prior.std > found.std

    def test_thinned_chains_predict_by_fewer_draws(self, learned):
        posterior = learned.posterior
        some = posterior.thinned(50)
        assert some.components.size == 50
        np.testing.assert_array_equal(some.f, posterior.f)
        one, other = (p.predict(NEW).mean for p in (some, posterior))
        assert 0 < np.max(np.abs(one - other)) < 0.3
        for number in (0, posterior.components.size + 1):
            with pytest.raises(lgp.InputError, match="thinned takes 1 to"):
                posterior.thinned(number)

    def test_the_log_likelihood_is_that_of_every_draw(self, learned):
        """By hand for Gaussian noise; leave-one-out and widely applicable scores run on it."""
        posterior = learned.posterior
        noise = posterior.hyperparameters["likelihood.noise_variance"][..., None]
        expected = norm.logpdf(SMOOTH, posterior.f[..., 0], np.sqrt(noise))
        data = posterior.to_arviz()
        np.testing.assert_allclose(data.log_likelihood.y, expected, atol=1e-10)
        np.testing.assert_array_equal(data.observed_data.y, SMOOTH)
        np.testing.assert_array_equal(data.constant_data.X, X)
        np.testing.assert_array_equal(data.posterior.f.coords["X1"], X[:, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few draws leave some weights heavy
            assert np.isfinite(loo_of(data).elpd)
            assert np.isfinite(waic_of(data) or 0.0)
            if has_data_trees():
                assert arviz.plot_ppc_dist(data, num_samples=5, backend="none") is not None
            else:
                assert arviz.plot_ppc(data, num_pp_samples=5, show=False) is not None
        replicates = data.posterior_predictive.y.values
        assert replicates.shape == (2, 100, 11)
        standard = (replicates - posterior.f[..., 0]) / np.sqrt(noise)
        assert abs(np.mean(standard)) < LIMIT / np.sqrt(standard.size)
        assert abs(np.mean(standard**2) - 1) < LIMIT * np.sqrt(2 / standard.size)

    @pytest.mark.slow
    def test_statistics_of_trajectories_have_arvizs_names(self):
        method = lgp.NUTS(chains=2, warmup=20, draws=30)
        posterior = lgp.fit(MODEL, lgp.Data(X, BINARY), **SETTINGS | {"method": method}).posterior
        found = posterior.to_arviz().sample_stats
        names = "acceptance_rate diverging n_steps tree_depth reached_max_treedepth energy lp"
        assert set(found.data_vars) == {*names.split(), "step_size"}
        assert all(found[name].shape == (2, 30) for name in found.data_vars)
        assert np.all(found["n_steps"] <= 2.0 ** found["tree_depth"])
        log_density = posterior.log_likelihood().sum(axis=2)
        white = posterior.components.white.reshape(2, 30, -1)
        np.testing.assert_allclose(
            found["lp"], log_density - 0.5 * np.sum(white**2, axis=2), rtol=1e-6
        )


class TestRowsAreThoseOfTheUser:
    """Shuffled, repeated and of weight zero; every latent far from the others."""

    X = np.array([3.0, 0.0, 1.0, 3.0, 4.0, 2.0, 9.0])
    Y = np.array([3.0, 0.0, 1.0, 3.0, 4.0, 2.0, 99.0])
    WEIGHTS = np.array([1.0, 2, 1, 1, 1, 1, 0])

    @pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
    @pytest.mark.parametrize("kind", ["gibbs", "nuts", "estimator"])
    def test_latents_are_at_the_rows_that_they_belong_to(self, kind, weights):
        rows = self.X[: None if weights is not None else -1]
        y = self.Y[: len(rows)]
        kernel = lgp.RBF(1.0, 9.0)
        method = lgp.NUTS(chains=1, warmup=100, draws=60)
        method = lgp.GibbsSampling(chains=1, draws=60) if kind != "nuts" else method
        settings = {"learn_hyperparameters": False, "method": method}
        if kind == "estimator":
            estimator = lgp.GPRegressor(kernel, likelihood=lgp.Gaussian(1e-3), **settings)
            posterior = estimator.fit(rows[:, None], y, sample_weight=weights).posterior_
        else:
            model = lgp.LatentGP(kernel, lgp.Gaussian(1e-3))
            posterior = lgp.fit(model, lgp.Data(rows, y, weights=weights), key=KEY, **settings)
            posterior = posterior.posterior
        counting = np.arange(6)
        np.testing.assert_array_equal(posterior.watched, counting)
        np.testing.assert_array_equal(posterior.rows.X[:, 0], self.X[:6])
        np.testing.assert_allclose(posterior.rows.y, self.Y[:6], atol=1e-12)
        means = posterior.f.mean(axis=(0, 1))[:, 0]
        np.testing.assert_allclose(means, self.Y[:6], atol=0.2)
        data = posterior.to_arviz()
        np.testing.assert_array_equal(data.posterior.row, counting)
        np.testing.assert_array_equal(data.posterior.f.coords["X"], self.X[:6])
        if weights is not None:  # a row of weight two counts twice
            plain = norm.logpdf(self.Y[1], posterior.f[..., 1, 0], np.sqrt(1e-3))
            np.testing.assert_allclose(data.log_likelihood.y[..., 1], 2 * plain, rtol=1e-6)


def chains_of(f, divergences=0):
    """Chains of one latent at one row, f of shape (C, S)."""
    count, draws = f.shape
    return Chains(
        vector=np.zeros((count, draws, 0)),
        white=f[..., None, None],
        f=f[..., None, None],
        centres=np.zeros((1, 1)),
        statistics={
            "acceptance_rate": np.ones(f.shape),
            "diverging": np.arange(f.size).reshape(f.shape) < divergences,
            "lp": -(f**2),
        },
        jitter=1e-8,
    )


def judged(f, divergences=0, prior_variance=1.0, **statistics):
    chains = chains_of(f, divergences)
    for name, value in statistics.items():
        chains.statistics[name] = np.full(f.shape, value)
    problem = SimpleNamespace(reason="asked for", seconds=1.0)
    return diagnose_chains(GIBBS, problem, chains, summarise(chains), prior_variance)


class TestDiagnostics:
    NOISE = np.random.default_rng(4).normal(size=(4, 1000))

    def test_good_chains_are_trusted(self):
        found = judged(self.NOISE)
        assert found.converged
        assert found.warnings == ()
        assert found.summary.r_hat < 1.01
        assert min(found.summary.ess_bulk, found.summary.ess_tail) > 3000
        assert found.verdict.startswith("Chains agree after 1.0 s")

    @pytest.mark.parametrize(("prior_variance", "trusted"), [(1e-4, True), (1e-6, False)])
    def test_jitter_is_measured_by_the_prior_variance(self, prior_variance, trusted):
        found = judged(self.NOISE, prior_variance=prior_variance)
        assert found.converged == trusted
        assert "needed a jitter of 1.0e-08" in found.warnings[0]

    @pytest.mark.parametrize(
        ("f", "divergences", "warning"),
        [
            (NOISE + np.arange(4)[:, None], 0, "R-hat is 1."),
            (np.cumsum(NOISE, axis=1), 0, "smallest effective sample size"),
            (NOISE[:, :60], 0, "smallest effective sample size"),
            (NOISE[:, :3], 0, "R-hat is nan"),
            (NOISE[:1], 0, "One chain cannot show"),
            (NOISE, 40, "40 of 4,000 draws (1.00%) came by a trajectory that diverged"),
        ],
        ids=["apart", "slow", "few", "very few", "alone", "divergent"],
    )
    def test_a_warning_says_what_falls_short(self, f, divergences, warning):
        found = judged(f, divergences)
        assert not found.converged
        assert any(warning in sentence for sentence in found.warnings)
        assert found.verdict.startswith("Chains have not converged")

    @pytest.mark.parametrize(
        ("statistics", "warning"),
        [
            ({"evidence_error": 0.9}, "error of the evidence's estimate is 0.9"),
            ({"hyperparameter_acceptance_rate": 0.01}, "1.0% of the proposed hyper-parameters"),
        ],
    )
    def test_a_sampler_that_stands_still_says_what_to_do(self, statistics, warning):
        assert any(warning in sentence for sentence in judged(self.NOISE, **statistics).warnings)

    def test_one_divergence_in_thousands_is_said_but_not_held_against_the_chains(self):
        found = judged(self.NOISE, 1)
        assert found.converged
        first = self.NOISE[0, 0] ** 2
        quantile = np.mean(first < self.NOISE**2)
        assert f"at the {quantile:.0%} to {quantile:.0%} quantiles" in found.warnings[0]

    def test_a_short_fit_warns(self, binary):
        assert not binary.diagnostics.converged
        assert "effective sample size" in binary.diagnostics.verdict
        assert binary.diagnostics.summary == binary.posterior.summary

    def test_two_hundred_rows_are_watched_or_as_many_as_take_little_memory(self):
        rows = watched_rows(1001, 1_000_000)
        assert len(rows) == 200
        assert (rows[0], rows[-1]) == (0, 1000)
        np.testing.assert_array_equal(watched_rows(1001, 4000), np.arange(1001))
        np.testing.assert_array_equal(watched_rows(3, 1_000_000), [0, 1, 2])


FACTORS_IN_CHAINS = """
import jax, jax.numpy as jnp
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower

jax.config.update("jax_enable_x64", True)
A = jnp.eye(150) + 0.1 * jnp.ones((6, 150, 150))

def value(x):
    lower = jax.vmap(lower_cholesky)(A + x * jnp.eye(150))
    return jnp.mean(jax.vmap(solve_lower)(lower, jnp.ones((6, 150))))

def chain(x):
    return jax.lax.fori_loop(0, 8, lambda _, xs: [value(x) for x in xs], [x, x + 1, x + 2])

print(jax.jit(jax.vmap(chain))(jnp.arange(2.0)))
"""


@pytest.mark.slow
def test_factors_of_several_matrices_in_several_chains_do_not_wait_for_each_other():
    """Batched LAPACK calls in two chains hung for ever on a machine of two cores."""
    command = [sys.executable, "-c", FACTORS_IN_CHAINS]
    subprocess.run(command, check=True, timeout=400, capture_output=True)


def test_a_warm_up_is_as_long_as_asked_whatever_the_thinning():
    told = []
    lgp.fit(
        lgp.LatentGP(KERNEL, lgp.Bernoulli()),
        lgp.Data(X, BINARY),
        key=KEY,
        method=lgp.EllipticalSlice(chains=2, warmup=40, draws=12, thin=10),
        learn_hyperparameters=False,
        callback=told.append,
    )
    assert [own.details["sweeps"] for own in told if not own.has_result] == [20, 40]
    assert told[-1].details["sweeps"] == 40 + 120


class HasJitter(Transition):
    """Transition whose coefficients are known, and which is not made."""

    init = step = record = None

    def coefficients(self, state):
        return Coefficients(state * jnp.ones((3, 1)), 0.1 * state)


def test_jitter_is_the_most_of_any_chain():
    centres, jitter = _coefficients(HasJitter(), jnp.array([1.0, 3.0, 2.0]))
    np.testing.assert_array_equal(centres, np.ones((3, 1)))
    assert jitter == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("likelihood", "method", "learns", "pieces", "stops_at"),
    [
        (lgp.StudentT(), lgp.GibbsSampling(chains=2, warmup=150, draws=120), False, 6, 3),
        (lgp.StudentT(), lgp.GibbsSampling(chains=2, warmup=150, draws=120), True, 6, 5),
        pytest.param(
            *(lgp.Poisson(), lgp.NUTS(chains=2, warmup=50, draws=120), False, 3, 2),
            marks=pytest.mark.quick,
        ),
    ],
    ids=["warm-up", "draws", "NUTS"],
)
def test_chains_go_on_to_the_same_bits(tmp_path, likelihood, method, learns, pieces, stops_at):
    X = np.linspace(0, 5, 30)
    data = lgp.Data(X, np.random.default_rng(0).poisson(2, 30))
    told = []

    def stops(progress):
        told.append(progress)
        if len(told) == stops_at:
            raise ArithmeticError

    def run(**settings):
        return lgp.fit(
            lgp.LatentGP(lgp.RBF(), likelihood),
            data,
            key=jax.random.key(0),
            method=method,
            learn_hyperparameters=learns,
            **settings,
        )

    with pytest.raises(ArithmeticError):
        run(checkpoint=tmp_path / "chains", callback=stops)
    resumed = run(checkpoint=tmp_path / "chains", callback=stops)
    assert len(told) == pieces
    whole = run()
    assert resumed.diagnostics.acceptance == whole.diagnostics.acceptance
    for one, other in zip(
        jax.tree.leaves(resumed.posterior), jax.tree.leaves(whole.posterior), strict=True
    ):
        np.testing.assert_array_equal(one, other)
