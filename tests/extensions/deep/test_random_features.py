"""Weights of random features as a representation: every rule, batches, streams, chains, paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.extensions.deep.methods import random_feature_vi
from latentgp.sites.gaussian import GaussianSites

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-2, 2, (60, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.3 * GENERATOR.normal(size=len(X))
LABELS = (F + 0.3 * GENERATOR.normal(size=len(X)) > 0.2).astype(float)
NEW = GENERATOR.uniform(-2, 2, (7, 2))
REGRESSION = lgp.LatentGP(lgp.RBF([0.9, 1.5], 1.3), lgp.Gaussian(0.1))
BINARY = lgp.LatentGP(lgp.RBF(1.0, 2.0), lgp.Bernoulli())
FEATURES = lgp.RandomFeatures(80)


def fitted(method, model=REGRESSION, y=Y, rows=slice(None), **settings):
    settings = {"learn_hyperparameters": False, **settings}
    return lgp.fit(model, lgp.Data(X[rows], y[rows]), key=KEY, method=method, **settings)


def phi(posterior, points):
    """Features of some inputs."""
    with jax.enable_x64(True):
        return np.asarray(posterior.latent.centres.cross_covariance(REGRESSION.kernel, points))[0].T


@pytest.mark.parametrize("number", [20, 80])
def test_with_gaussian_noise_weights_and_functions_have_one_posterior(number):
    """Bayesian linear regression in closed form; with R > N and R < N also by N x N matrices."""
    posterior = fitted(lgp.CollapsedVI(lgp.RandomFeatures(number))).posterior
    train, new = phi(posterior, X), phi(posterior, NEW)
    mean, variance = posterior.predict_f(NEW)
    S = np.linalg.inv(np.eye(number) + train.T @ train / 0.1)
    np.testing.assert_allclose(mean, new @ S @ train.T @ Y / 0.1, atol=1e-8)
    np.testing.assert_allclose(variance, np.sum(new @ S * new, axis=1), atol=1e-8)
    C = train @ train.T + 0.1 * np.eye(len(X))
    np.testing.assert_allclose(mean, new @ train.T @ np.linalg.solve(C, Y), atol=1e-8)
    evidence = multivariate_normal(np.zeros(len(X)), C).logpdf(Y)
    np.testing.assert_allclose(posterior.log_evidence.value, evidence, rtol=1e-10)
    assert posterior.log_evidence.kind == "approximation"


def test_many_features_are_near_the_exact_process_and_say_how_near():
    exact, found = (
        fitted(lgp.ExactGP()),
        fitted(lgp.ExactGP(representation=lgp.RandomFeatures(1000))),
    )
    (mean, variance), own = exact.posterior.predict_f(NEW), found.posterior.predict_f(NEW)
    np.testing.assert_allclose(own.mean, mean, atol=0.12)
    np.testing.assert_allclose(own.variance, variance, atol=0.04)
    (note,) = found.diagnostics.notes
    error = float(note.split("off by ")[1].split(" ")[0])
    assert 0 < error < 2 / np.sqrt(1000)


RULES = {
    "augmented": lgp.AugmentedVI,
    "variational": lgp.VariationalInference,
    "laplace": lgp.Laplace,
    "moments": lgp.ExpectationPropagation,
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_what_it_finds_by_dense_algebra(rule):
    """The features as the columns of a linear kernel, on which dense algebra works."""
    found = fitted(RULES[rule](FEATURES), BINARY, LABELS).posterior
    with jax.enable_x64(True):
        centres = found.latent.centres
        columns = [np.asarray(centres.cross_covariance(BINARY.kernel, x))[0].T for x in (X, NEW)]
    linear = lgp.LatentGP(lgp.Linear(1.0), BINARY.likelihood)
    dense = lgp.fit(
        linear,
        lgp.Data(columns[0], LABELS),
        key=KEY,
        method=RULES[rule](lgp.Dense()),
        learn_hyperparameters=False,
    ).posterior
    for own, theirs in zip(found.predict_f(NEW), dense.predict_f(columns[1]), strict=True):
        np.testing.assert_allclose(own, theirs, atol=2e-4)
    np.testing.assert_allclose(found.log_evidence.value, dense.log_evidence.value, atol=1e-3)


@pytest.mark.slow
def test_sites_that_couple_latents():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Softmax(3))
    y = np.digitize(F, [-0.5, 0.5]).astype(float)
    features, dense = (
        fitted(lgp.Laplace(representation), model, y).posterior
        for representation in (lgp.RandomFeatures(300), lgp.Dense())
    )
    for own, theirs in zip(features.predict_f(NEW), dense.predict_f(NEW), strict=True):
        np.testing.assert_allclose(own, theirs, atol=0.4)


def test_streams_end_where_all_rows_do():
    drawn = FEATURES.initialise(X, None, REGRESSION.kernel, KEY)
    whole = fitted(lgp.CollapsedVI(drawn)).posterior
    first = fitted(lgp.CollapsedVI(drawn), rows=slice(0, 25)).posterior
    second = first.update(X[25:], Y[25:], key=KEY)
    for own, theirs in zip(second.predict_f(NEW), whole.predict_f(NEW), strict=True):
        np.testing.assert_allclose(own, theirs, atol=1e-8)
    np.testing.assert_allclose(second.log_evidence.value, whole.log_evidence.value, rtol=1e-8)


def test_batches_come_near_all_rows_and_learn_frequencies():
    method = lgp.VariationalInference(lgp.RandomFeatures(20))
    whole = fitted(method).posterior
    settings = {"batch_size": 20, "epochs": 60, "held_out": 0.0}
    batches = fitted(lgp.Stochastic(method, **settings)).posterior
    own, theirs = (p.mean_f(NEW) for p in (batches, whole))
    np.testing.assert_allclose(own, theirs, atol=0.05)
    fit = fitted(lgp.Stochastic(method, learn_points=True, **settings))
    learned = fit.posterior
    assert learned.log_evidence.value > batches.log_evidence.value + 1
    moved = learned.latent.centres.directions[0][0].matrix
    assert np.abs(moved - batches.latent.centres.directions[0][0].matrix).max() > 0.01
    assert (
        "Directions of 20 features, learned from 60 rows, fit these by" in fit.diagnostics.verdict
    )
    assert not fit.diagnostics.converged


def test_directions_that_are_learned_are_a_note_where_rows_are_many():
    """Of 15 rows a feature; the log evidence is no bound of the kernel's."""
    method = lgp.VariationalInference(lgp.RandomFeatures(4))
    settings = {"batch_size": 20, "epochs": 2, "learn_points": True}
    found = fitted(lgp.Stochastic(method, **settings)).diagnostics
    assert not any("by heart" in warning for warning in found.warnings)
    assert any("features that fit these rows, and no bound" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        lgp.EllipticalSlice(representation=FEATURES, chains=2, warmup=300, draws=1500),
        lgp.NUTS(representation=FEATURES, chains=2, warmup=300, draws=500),
        lgp.GibbsSampling(representation=FEATURES, chains=2, warmup=300, draws=1500),
        lgp.MCMC(
            representation=FEATURES, coupling="pseudo-marginal", chains=2, warmup=300, draws=500
        ),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_chains_have_the_law_that_moment_matching_is_near(sampler):
    near = fitted(lgp.ExpectationPropagation(FEATURES), BINARY, LABELS).posterior
    frozen = {"frozen": ["kernel"], "learn_hyperparameters": True}
    found = fitted(sampler, BINARY, LABELS, **frozen).posterior
    (mean, variance), own = near.predict_f(NEW), found.predict_f(NEW)
    np.testing.assert_allclose(own.mean, mean, atol=0.25)
    np.testing.assert_allclose(own.variance, variance, atol=0.35 * np.max(variance))


def test_a_chain_moves_weights():
    sampler = lgp.EllipticalSlice(
        representation=lgp.RandomFeatures(20), chains=1, warmup=100, draws=200
    )
    found = fitted(sampler, BINARY, LABELS).posterior
    near = fitted(lgp.ExpectationPropagation(lgp.RandomFeatures(20)), BINARY, LABELS).posterior
    correlation = np.corrcoef(found.mean_f(NEW), near.mean_f(NEW))[0, 1]
    assert correlation > 0.9


def test_paths_are_draws_of_the_weights(tmp_path):
    posterior = fitted(lgp.CollapsedVI(FEATURES)).posterior
    paths = posterior.sample_paths(key=KEY, number=4000)(NEW)
    mean, variance = posterior.predict_f(NEW)
    np.testing.assert_allclose(paths.mean(0), mean, atol=6 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(paths.var(0), variance, rtol=0.15)
    joint = posterior.sample_f(NEW, number=4000, key=KEY)
    np.testing.assert_allclose(np.cov(joint.T), np.cov(paths.T), atol=0.02)
    again = lgp.load(lgp.save(posterior, tmp_path / "posterior"))
    np.testing.assert_array_equal(again.mean_f(NEW), posterior.mean_f(NEW))


@pytest.mark.slow
def test_hyperparameters_are_learned_as_by_all_rows():
    settings = {"learn_hyperparameters": True}
    exact = fitted(lgp.ExactGP(), **settings)
    found = fitted(lgp.CollapsedVI(lgp.RandomFeatures(1000)), **settings)
    ours, theirs = (fit.posterior.mean_f(NEW) for fit in (found, exact))
    np.testing.assert_allclose(ours, theirs, atol=0.15)
    ratio = found.model.kernel.lengthscale / exact.model.kernel.lengthscale
    np.testing.assert_allclose(ratio, 1.0, atol=0.4)


def test_far_inputs_change_nothing():
    near = fitted(lgp.CollapsedVI(FEATURES)).posterior
    far = lgp.fit(
        REGRESSION,
        lgp.Data(X + 1e6, Y),
        key=KEY,
        method=lgp.CollapsedVI(FEATURES),
        learn_hyperparameters=False,
    ).posterior
    np.testing.assert_allclose(far.mean_f(NEW + 1e6), near.mean_f(NEW), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lgp.RandomFeatures(7), "positive even number"),
        (
            lambda: fitted(
                lgp.CollapsedVI(FEATURES), lgp.LatentGP(lgp.Polynomial(2), lgp.Gaussian(0.1))
            ),
            "Polynomial has no random features",
        ),
        (
            lambda: fitted(
                lgp.CollapsedVI(FEATURES), lgp.LatentGP(lgp.RBF() + lgp.White(), lgp.Gaussian(0.1))
            ),
            "White noise is no sum over few features",
        ),
        (
            lambda: fitted(lgp.Laplace(lgp.RandomFeatures(10, covariance="diagonal"))),
            "rest on the variational bound",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()


def test_no_array_of_rows_by_rows_or_rows_by_features():
    rows, number = 20_000, 64
    points = np.random.default_rng(1).normal(size=(rows, 2))
    ready = lgp.RandomFeatures(number).initialise(points, None, REGRESSION.kernel, KEY)
    with jax.enable_x64(True):
        sites = GaussianSites(jnp.ones((rows, 1)), jnp.ones((rows, 1)), jnp.zeros(rows))
        run = jax.jit(lambda x: ready.condition(REGRESSION.kernel, x, sites).log_evidence)
        memory = run.lower(jnp.asarray(points)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 8 * rows * number


def test_gradients_that_end_at_a_bound_say_so(monkeypatch):
    """Length-scales of a straight line are longer than they may be."""

    def near(space, scale):
        vector = space.to_vector()
        return vector - 0.05, vector + 0.05

    monkeypatch.setattr(random_feature_vi, "search_bounds", near)
    model, data = lgp.LatentGP(lgp.RBF(0.4), lgp.Gaussian(0.1)), lgp.Data(X[:, 0], X[:, 0])
    method = lgp.deep.RandomFeatureVI(features=20, epochs=200, start="given")
    found = lgp.fit(model, data, key=KEY, method=method).diagnostics
    assert any("kernel.lengthscale is at its upper" in warning for warning in found.warnings)
