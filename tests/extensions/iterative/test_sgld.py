"""Langevin steps along stochastic gradients: the law they sample, and what they say."""

import dataclasses

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.iterative.gradients.langevin import LangevinPhase, metric_at
from latentgp.extensions.iterative.methods import sgld
from latentgp.setup.priors import scales, space_of
from latentgp.testing import check_posterior

KEY = jax.random.key(0)
SHORT = lgp.SGLD(chains=2, draws=40, warmup=100, thin=2, batch=25, predicted=5)


def problem(rows):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=rows)
    return lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)), lgp.Data(X, y)


MODEL, DATA = problem(40)


def reference(model, data, draws=4000):
    """Means and deviations of the logarithms of hyper-parameters by importance sampling."""
    with jax.enable_x64(True):
        space = space_of(model, scales(model, data), "weak")
        X, y = jnp.asarray(data.X), jnp.asarray(data.y)

        def density(vector):
            own = space.to_model(vector)
            noise = own.likelihood.noise_variance * jnp.eye(len(y))
            root = jnp.linalg.cholesky(own.kernel.gram(X, X) + noise)
            white = jax.scipy.linalg.solve_triangular(root, y, lower=True)
            fit = 0.5 * white @ white + jnp.sum(jnp.log(jnp.diagonal(root)))
            return space.log_prior(vector) - fit

        mode = jnp.asarray(space.to_vector(lgp.fit(model, data, key=KEY).model))
        scale = np.linalg.cholesky(np.linalg.inv(-np.asarray(jax.hessian(density)(mode))))
        rng = np.random.default_rng(1)
        z = rng.normal(size=(draws, len(mode))) * np.sqrt(6 / rng.chisquare(6, (draws, 1)))
        places = np.asarray(mode) + z @ scale.T
        values = np.asarray(jax.lax.map(jax.jit(density), jnp.asarray(places)))
    logs = values + 0.5 * (6 + len(mode)) * np.log1p(np.sum(z**2, axis=1) / 6)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    assert 1 / np.sum(weights**2) > draws / 4
    mean = weights @ places
    return mean, np.sqrt(weights @ (places - mean) ** 2)


def logs_of(fit):
    return np.stack([np.log(v) for v in fit.posterior.hyperparameters.values()], axis=-1)


def check_law(rows, method, mean_error, spread_error):
    model, data = problem(rows)
    fit = lgp.fit(model, data, method=method, key=KEY)
    mean, spread = reference(model, data)
    found = logs_of(fit).reshape(-1, len(mean))
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - mean) / spread, mean_error)
    np.testing.assert_array_less(np.abs(np.log(found.std(axis=0) / spread)), spread_error)
    return fit


def test_its_law_is_the_posterior():
    """Four standard errors of some 100 effective draws."""
    solves = lgp.Solves(rank=24)
    method = lgp.SGLD(chains=2, draws=260, warmup=300, thin=4, scale=4.0, solves=solves)
    fit = check_law(30, method, 0.45, 0.3)
    phase = fit.diagnostics.finding("langevin")
    assert phase.frozen == phase.chains == 2
    assert phase.ratio < 0.004
    assert phase.unsolved == 0
    assert phase.solver_steps < 20


@pytest.mark.slow
def test_its_law_is_the_posterior_of_more_rows():
    solves = lgp.Solves(rank=60)
    method = lgp.SGLD(chains=2, draws=1000, warmup=1000, scale=4.0, solves=solves)
    fit = check_law(150, method, 0.25, 0.15)
    assert fit.diagnostics.summary.r_hat < 1.03


def test_the_metric_of_a_part_of_the_rows_is_as_that_of_all(monkeypatch):
    """Curvature in the logarithm of the noise variance grows with the rows: a third, unscaled."""
    model, data = problem(300)
    curvatures = []

    def recorded(*at):
        metric = metric_at(*at)
        curvatures.append(np.linalg.inv(metric.root @ metric.root.T)[2, 2])
        return metric

    monkeypatch.setattr(sgld, "metric_at", recorded)
    for subset in (300, 100):
        method = lgp.SGLD(chains=1, draws=4, warmup=0, thin=1, subset=subset, predicted=1)
        lgp.fit(model, data, method=method, key=KEY)
    assert curvatures[1] == pytest.approx(curvatures[0], rel=0.35)


@pytest.mark.slow
def test_a_noisy_gradient_is_said_to_widen_the_posterior():
    method = dataclasses.replace(SHORT, solves=lgp.Solves(rank=0, probes=2), monitor=1e-9)
    diagnostics = lgp.fit(MODEL, DATA, method=method, key=KEY).diagnostics
    assert diagnostics.finding("langevin").frozen == 0
    assert diagnostics.finding("langevin").ratio > 1e-9
    assert not diagnostics.converged
    assert any("not in the Langevin phase" in warning for warning in diagnostics.warnings)
    assert "Langevin steps of" in diagnostics.verdict


def test_solves_that_fall_short_and_drifts_that_are_cut_are_said():
    statistics = {
        "step_size": np.full((2, 4), 0.1),
        "monitor_ratio": np.full((2, 4), 1e-4),
        "frozen": np.full((2, 4), True),
        "solver_steps": np.full((2, 4), 12),
        "solved": np.array([[True] * 4, [True, False, True, True]]),
        "held": np.array([[False] * 4, [True, True, False, False]]),
    }
    phase = LangevinPhase.of(statistics, thin=3, threshold=0.002, redraw=20)
    assert phase.solver_steps == 4
    assert [text.split(";")[0].split(" of the draws ")[1] for text in phase.warnings] == [
        "a solve ended short of its tolerance, so that gradients are biased",
        "a drift was cut to one deviation",
    ]


@pytest.fixture(scope="module")
def fit():
    return lgp.fit(MODEL, DATA, method=SHORT, key=KEY)


@pytest.mark.slow
def test_all_answers_of_its_posterior(fit, tmp_path):
    posterior = fit.posterior
    check_posterior(posterior, DATA.X[:5])
    assert posterior.hyperparameters["kernel.lengthscale"].shape == (2, 40)
    assert posterior.components.size == 5
    assert posterior.thinned(2).components.size == 2
    exported = posterior.to_arviz()
    assert set(exported.posterior.data_vars) == set(posterior.hyperparameters)
    assert "step_size" in exported.sample_stats
    assert len(az.summary(exported)) == 3
    assert len(posterior.hyperparameter_marginals) == 3
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    before, after = (p.predict_f(DATA.X[:4]) for p in (posterior, again.posterior))
    np.testing.assert_array_equal(before.variance, after.variance)
    assert again.diagnostics.finding("langevin") == fit.diagnostics.finding("langevin")


def test_one_key_gives_the_same_bits_and_a_checkpoint_goes_on(fit, tmp_path):
    path = tmp_path / "chains"
    told = []

    def ended(progress):
        told.append(progress)
        return bool(progress.draws)

    part = lgp.fit(MODEL, DATA, method=SHORT, key=KEY, callback=ended, checkpoint=path)
    assert len(part.posterior.hyperparameters["kernel.variance"][0]) == 20
    whole = lgp.fit(MODEL, DATA, method=SHORT, key=KEY, checkpoint=path)
    for name, values in fit.posterior.hyperparameters.items():
        np.testing.assert_array_equal(whole.posterior.hyperparameters[name], values)


def test_predictions_through_inducing_points(fit):
    method = dataclasses.replace(SHORT, representation=lgp.Inducing(points=DATA.X))
    other = lgp.fit(MODEL, DATA, method=method, key=KEY)
    new = DATA.X[:6] + 0.1
    np.testing.assert_allclose(
        other.posterior.predict_f(new).mean, fit.posterior.predict_f(new).mean, atol=1e-4
    )


def test_what_it_cannot_do_is_refused():
    model, binary = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli()), lgp.Data(DATA.X, DATA.y > 0)
    with pytest.raises(lgp.InputError, match="needs Gaussian noise on one output"):
        lgp.fit(model, binary, method=SHORT, key=KEY)
    with pytest.raises(lgp.InputError, match="none is learned"):
        lgp.fit(MODEL, DATA, method=SHORT, key=KEY, learn_hyperparameters=False)
    with pytest.raises(lgp.InputError, match="must be at least 1"):
        lgp.SGLD(redraw=0)
    with pytest.raises(lgp.InputError, match="power must be in"):
        lgp.SGLD(power=0.4)
