"""Other posteriors of a deep model's weights and hyper-parameters, and other bounds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import latentgp as lgp
from deep import KEY, NEW, STEP, X, deep, fitted, inference, method
from latentgp.extensions.deep.inference.importance import ImportanceWeighted
from latentgp.extensions.deep.inference.weights import MatrixNormal
from latentgp.hyperparameters.space import ParameterSpace
from slow import slow_parameters

GENERATOR = np.random.default_rng(1)


def matrix_normal(features=4, width=2):
    raw = (GENERATOR.normal(size=(n, n)) for n in (features, width))
    mean = GENERATOR.normal(size=(features, width))
    return MatrixNormal(*(jnp.asarray(0.4 * part) for part in (mean, *raw)))


def dense(own):
    """Mean and covariance of the weights, features varying slowest."""
    lower, between = (
        np.tril(raw, -1) + np.diag(np.exp(np.diagonal(raw))) for raw in (own.features, own.between)
    )
    return np.ravel(own.mean), np.kron(lower @ lower.T, between @ between.T)


def test_matrix_normal_weights_are_gaussian(x64):
    own = matrix_normal()
    mean, covariance = dense(own)
    size = len(mean)
    known = 0.5 * (np.trace(covariance) + mean @ mean - size - np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(own.kl(), known, rtol=1e-12)
    drawn = GENERATOR.normal(size=own.mean.shape)
    law = stats.multivariate_normal(mean, covariance)
    ratio = np.sum(stats.norm.logpdf(drawn)) - law.logpdf(np.ravel(drawn))
    np.testing.assert_allclose(own.log_ratio(jnp.asarray(drawn)), ratio, rtol=1e-10)
    draws = jax.vmap(own.draw)(jax.random.split(KEY, 40_000)).reshape(40_000, -1)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.1 * covariance.max())


def test_functions_by_rows_have_the_moments_of_drawn_weights(x64):
    own, phi = matrix_normal(), GENERATOR.normal(size=(3, 4))
    keys = jax.random.split(KEY, 40_000)
    by_rows = jax.vmap(lambda key: own.functions(jnp.asarray(phi), key))(keys)
    mean, covariance = dense(own)
    for row in range(3):
        wide = np.kron(phi[row], np.eye(2))
        known = wide @ covariance @ wide.T
        np.testing.assert_allclose(by_rows[:, row].mean(0), wide @ mean, atol=0.05)
        np.testing.assert_allclose(np.cov(by_rows[:, row].T), known, atol=0.05 * known.max())


def started(model, own, **settings):
    """The first state, and a way from there."""
    learned = own.architecture.start(model, own.space.to_vector(), KEY, **settings)
    keys = iter(jax.random.split(jax.random.key(3), 200))
    learned = jax.tree.map(lambda a: a + 0.1 * jax.random.normal(next(keys), a.shape), learned)
    way = jax.tree.map(lambda a: jax.random.normal(next(keys), a.shape), learned)
    return own.begin(learned, model), way


def along(slopes, way):
    return sum(jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (slopes, way)), strict=True))


def moved(state, way, step):
    learned = jax.tree.map(lambda a, b: a + step * b, state.learned, way)
    return state._replace(learned=learned)


@pytest.mark.parametrize("settings", [{"factorised": False}, {"spread": True}])
def test_slopes_are_those_of_differences(x64, settings):
    model = deep()
    own, _, rows = inference(model)
    state, way = started(model, own, natural=True, **settings)

    def bound(step):
        there = moved(state, way, step)
        value = own.read(there, rows, KEY, 1)[0]
        return value + (0.0 if "spread" in settings else own.space.log_prior(there.vector))

    slopes = jax.jit(lambda s: own.read(s, rows, KEY, 1)[1])(state)
    at = jax.jit(bound)
    difference = (at(1e-5) - at(-1e-5)) / 2e-5
    np.testing.assert_allclose(along(slopes, way), difference, rtol=2e-5, atol=1e-4)


@pytest.mark.slow
def test_slopes_of_several_draws_are_right_on_average(x64):
    """They are not the slopes of the value that the draws have."""
    model = lgp.DeepGP(lgp.RBF(1.5), lgp.Gaussian(2.0), layers=[lgp.Layer(lgp.RBF(1.2), 2)])
    own, _, rows = inference(model, last="factorised")
    fields = {f.name: getattr(own, f.name) for f in dataclasses.fields(own)}
    own = ImportanceWeighted(**fields, number=3)
    state, way = started(model, own, natural=False)
    near = tuple(h._replace(log_deviation=h.log_deviation + 4) for h in state.learned.hidden)
    state = state._replace(steps=own.late, learned=state.learned._replace(hidden=near))
    rows = rows.select(np.arange(10))

    @jax.jit
    def both(key):
        ours = along(own.read(state, rows, key, 1)[1], way)
        at = [own.read(moved(state, way, step), rows, key, 1)[0] for step in (1e-5, -1e-5)]
        prior = [own.space.log_prior(moved(state, way, step).vector) for step in (1e-5, -1e-5)]
        return ours, (at[0] - at[1] + prior[0] - prior[1]) / 2e-5

    ours, theirs = jax.lax.map(both, jax.random.split(KEY, 2000))
    error = np.std(ours - theirs) / np.sqrt(len(ours))
    assert abs(np.mean(ours - theirs)) < 4 * error
    assert error < 0.05 * np.std(theirs)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": "matrix-normal"},
        *slow_parameters({"last": "factorised", "importance": 5, "batch_size": 80, "epochs": 600}),
    ],
)
def test_other_families_learn_a_step(settings):
    found = fitted(deep(), method(**({"epochs": 150, "learning_rate": 0.02} | settings)))
    assert np.mean(found.history.value[-5:]) > np.mean(found.history.value[:5]) + 10
    error = np.sqrt(np.mean((found.posterior.predict(X).mean - STEP) ** 2))
    assert error < 0.6
    assert found.posterior.log_evidence.kind == "lower bound"


@pytest.mark.slow
def test_the_bound_of_several_draws_rises_to_the_evidence():
    """One layer: the evidence is known, and a factorised posterior is below it."""
    model = lgp.LatentGP(lgp.RBF(1.5), lgp.Gaussian(0.3))
    usual = {"last": "factorised", "frequencies": "fixed", "batch_size": 80, "features": 6}
    usual |= {"epochs": 1000, "learning_rate": 0.05, "decay": 300.0, "tolerance": 0.0}
    found = [
        fitted(
            model,
            method(importance=number, **usual),
            learn_hyperparameters=False,
        )
        for number in (1, 30)
    ]
    drawn = jax.tree.map(lambda a: a[0], found[0].posterior.components.features)
    exact = fitted(
        model, lgp.CollapsedVI(lgp.RandomFeatures(6, weights=drawn)), learn_hyperparameters=False
    ).posterior.log_evidence.value
    one, many = (fit.posterior.log_evidence.value for fit in found)
    error = found[1].diagnostics.evidence_error
    assert one < many - 2 * error
    assert many < exact + 4 * error
    assert exact - many < 0.5 * (exact - one)


@pytest.mark.slow
def test_a_posterior_of_the_noise_is_that_of_the_integral():
    """One layer, features fixed: log p(y | noise) p(noise) on a grid."""
    model = lgp.LatentGP(lgp.RBF(1.5, 2.0), lgp.Gaussian(0.3))
    own = method(
        frequencies="fixed",
        batch_size=80,
        features=6,
        epochs=2000,
        learning_rate=0.02,
        decay=200.0,
        tolerance=0.0,
        hyperparameters="variational",
        components=200,
    )
    settings = {"frozen": ("kernel",)}
    found = fitted(model, own, priors=None, **settings)
    space = ParameterSpace(model, **settings)
    parts = found.posterior.components
    drawn = jax.tree.map(lambda a: a[0], parts.features)
    collapsed = lgp.CollapsedVI(lgp.RandomFeatures(6, weights=drawn))
    grid = np.linspace(-1.2, 0.4, 33) + np.log(np.var(STEP))
    logs = []
    for place in grid:
        at = space.to_model(jnp.array([place]))
        logs.append(fitted(at, collapsed, learn_hyperparameters=False).posterior.log_evidence.value)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    mean = grid @ weights
    deviation = np.sqrt(weights @ (grid - mean) ** 2)
    noise = np.log(parts.models.likelihood.noise_variance)
    assert abs(np.mean(noise) - mean) < 0.3 * deviation
    assert 0.75 < np.std(noise) / deviation < 1.25


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: method(importance=3), 'give last="factorised"'),
        (
            lambda: fitted(deep(), method(importance=3, last="factorised")),
            "needs all 80 rows in a batch",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()


def test_predictions_by_drawn_hyperparameters(tmp_path):
    posterior = fitted(deep(), method(hyperparameters="variational", components=6)).posterior
    again = lgp.load(lgp.save(posterior, tmp_path / "deep"))
    np.testing.assert_array_equal(again.predict(NEW).mean, posterior.predict(NEW).mean)
