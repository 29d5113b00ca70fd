"""Deep Gaussian processes by random features."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import latentgp as lgp
from deep import KEY, NEW, STEP, X, deep, fitted, inference, method
from latentgp.choosing.choice import choose_for
from latentgp.extensions.batches.step_sizes import RobbinsMonro
from latentgp.extensions.deep.inference import programs
from latentgp.extensions.deep.inference.weights import Factors
from slow import slow_parameters

GENERATOR = np.random.default_rng(0)


def test_divergence_of_independent_gaussians(x64):
    mean, log = GENERATOR.normal(size=(2, 5, 3))
    own = Factors((jnp.asarray(mean),), (jnp.asarray(log),))
    normal = dist.Normal(mean, np.exp(log)).to_event(2)
    of_draws = [own.draw(jax.random.key(k))[0] for k in range(4000)]
    draws = np.array(of_draws)
    sampled = normal.log_prob(draws) - dist.Normal(0, 1).expand([5, 3]).to_event(2).log_prob(draws)
    error = float(np.std(sampled) / np.sqrt(len(draws)))
    assert abs(float(own.kl()) - float(np.mean(sampled))) < 5 * error


@pytest.mark.slow
@pytest.mark.parametrize("last", ["natural", "factorised"])
@pytest.mark.parametrize("likelihood", [lgp.Gaussian(0.2), lgp.Poisson()], ids=["normal", "count"])
def test_slopes_are_those_of_differences_of_the_bound(x64, last, likelihood):
    """At the same random numbers, the last layer's natural parameters held."""
    y = STEP if isinstance(likelihood, lgp.Gaussian) else np.abs(np.round(2 * STEP))
    own, state, rows = inference(deep(likelihood), last=last, y=y)
    keys = iter(jax.random.split(jax.random.key(3), 100))
    moved = jax.tree.map(lambda a: a + 0.3 * jax.random.normal(next(keys), a.shape), state.learned)
    state = state._replace(learned=moved)
    if state.white is not None:
        white = state.white.towards(own.read(state, rows, KEY, 1)[2], jnp.asarray(0.7))
        state = state._replace(white=white, factor=white.factor())

    def bound(learned):
        there = state._replace(learned=learned)
        return own.read(there, rows, KEY, 1)[0] + own.space.log_prior(learned.vector)

    slopes = eqx.filter_jit(own.read)(state, rows, KEY, 1)[1]
    way = jax.tree.map(lambda a: jax.random.normal(next(keys), a.shape), moved)
    at = jax.jit(lambda step: bound(jax.tree.map(lambda a, b: a + step * b, moved, way)))
    difference = (at(1e-5) - at(-1e-5)) / 2e-5
    along = sum(jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (slopes, way)), strict=True))
    np.testing.assert_allclose(along, difference, rtol=2e-5, atol=1e-4)


def test_one_layer_with_gaussian_noise_is_bayesian_linear_regression():
    """In one step, all rows in a batch, the first step a full one."""
    model = lgp.LatentGP(lgp.RBF([0.9, 1.5], 1.3), lgp.Gaussian(0.1))
    own = method(frequencies="fixed", batch_size=80, epochs=2, schedule=RobbinsMonro(delay=1))
    found = fitted(model, own, learn_hyperparameters=False).posterior
    drawn = jax.tree.map(lambda a: a[0], found.components.features)
    exact = fitted(
        model, lgp.CollapsedVI(lgp.RandomFeatures(20, weights=drawn)), learn_hyperparameters=False
    ).posterior
    for ours, theirs in zip(found.predict_f(NEW), exact.predict_f(NEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(found.log_evidence.value, exact.log_evidence.value, rtol=1e-8)


@pytest.mark.slow
def test_bounds_of_batches_are_that_of_all_rows_on_average(x64):
    own, state, rows = inference(lgp.DeepGP(lgp.RBF(), lgp.Gaussian(0.1)))
    whole = own.read(state, rows, KEY, 1)[0]
    parts = []
    for places in np.split(np.arange(80), 4):
        part = rows.select(places)
        parts.append(own.read(state, part.reweighted(4 * part.weights), KEY, 1)[0])
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-10)


def test_more_draws_have_the_same_mean_and_less_noise(x64):
    own, state, rows = inference(deep(), draws=(1, 8))
    hidden = tuple(f._replace(log_deviation=f.log_deviation + 3) for f in state.learned.hidden)
    white = own.read(state, rows, KEY, 1)[2]
    learned = state.learned._replace(hidden=hidden)
    state = state._replace(learned=learned, white=white, factor=white.factor())
    read = jax.jit(lambda key, draws: own.read(state, rows, key, draws)[0], static_argnums=1)
    keys = jax.random.split(KEY, 60)
    one, many = (np.array([read(k, d) for k in keys]) for d in (1, 8))
    assert np.std(many) < 0.6 * np.std(one)
    error = np.hypot(np.std(one), np.std(many)) / np.sqrt(len(keys))
    assert abs(np.mean(one) - np.mean(many)) < 4 * error


@pytest.mark.parametrize(
    "settings", [{}, *slow_parameters({"last": "factorised"}, {"frequencies": "resampled"})]
)
def test_it_learns_a_step_better_than_it_began(settings):
    found = fitted(deep(), method(epochs=150, learning_rate=0.02, **settings))
    bounds = found.history.value
    assert np.mean(bounds[-5:]) > np.mean(bounds[:5]) + 20
    error = np.sqrt(np.mean((found.posterior.predict(X).mean - STEP) ** 2))
    assert error < 0.55
    assert found.posterior.log_evidence.kind == "lower bound"
    assert found.diagnostics.evidence_error > 0


def test_directions_that_are_resampled_are_drawn_for_a_single_layer_too():
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    for frequencies, number in (("resampled", 4), ("fixed", 1)):
        own = method(epochs=2, components=4, frequencies=frequencies)
        found = fitted(model, own)
        assert found.posterior.components.size == number
        assert f"mixture of {number} draws" in found.diagnostics.notes[0]


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (lgp.Bernoulli(), (STEP > 0).astype(float)),
        (lgp.Softmax(3), np.digitize(STEP, [-0.9, 0.9]).astype(float)),
        (lgp.StudentT(0.3, 4.0), STEP),
        (lgp.Poisson(), np.abs(np.round(2 * STEP))),
    ],
    ids=["binary", "classes", "robust", "counts"],
)
def test_any_likelihood_on_top(likelihood, y):
    found = fitted(deep(likelihood), method(), y)
    before = fitted(deep(likelihood), method(epochs=1), y)
    assert found.posterior.log_evidence > before.posterior.log_evidence + 1
    assert np.all(np.isfinite(found.posterior.predict(X).log_prob(y)))


@pytest.mark.slow
def test_draws_of_functions_have_the_predicted_marginals(tmp_path):
    posterior = fitted(deep(layers=2), method(components=6)).posterior
    draws = posterior.sample_f(NEW, number=6000, key=KEY)
    marginals = posterior.predict_f(NEW)
    spread = np.sqrt(marginals.variance)
    np.testing.assert_allclose(draws.mean(0), marginals.mean, atol=0.08 * spread.max())
    np.testing.assert_allclose(draws.var(0), marginals.variance, rtol=0.15, atol=1e-4)
    again = lgp.load(lgp.save(posterior, tmp_path / "deep"))
    np.testing.assert_array_equal(again.predict_f(NEW).mean, marginals.mean)
    ours, theirs = (own.predict(NEW).interval(0.9) for own in (again, posterior))
    np.testing.assert_array_equal(ours, theirs)


def test_a_resumed_search_ends_with_the_same_bits(tmp_path):
    own, path = method(epochs=12), tmp_path / "checkpoint"
    whole = fitted(deep(), own)
    fitted(deep(), own, checkpoint=path, callback=lambda progress: progress.steps >= 10)
    resumed = fitted(deep(), own, checkpoint=path)
    np.testing.assert_array_equal(resumed.history.value, whole.history.value)
    np.testing.assert_array_equal(
        resumed.posterior.predict_f(NEW).mean, whole.posterior.predict_f(NEW).mean
    )


@pytest.mark.slow
def test_thirty_layers_train():
    found = fitted(deep(layers=29, width=1), method(epochs=30, features=10))
    assert np.isfinite(found.posterior.log_evidence.value)
    assert found.history.value[-1] > found.history.value[0]


@pytest.mark.slow
def test_several_layers_without_inputs_or_skips():
    found = fitted(deep(layers=3, width=3, feed_inputs=False, skip=False), method(epochs=30))
    assert found.history.value[-1] > found.history.value[0]


def test_inputs_in_any_units(x64):
    """Length-scales of inputs are in the units of these, those of hidden functions are not."""

    def of_units(unit):
        layers = [lgp.Layer(lgp.RBF(1.2 * unit), 2)]
        last = lgp.RBF([1.5, 1.5, 1.5 * unit, 1.5 * unit])
        return lgp.DeepGP(last, lgp.Gaussian(0.1), layers=layers)

    near = fitted(of_units(1.0), method(epochs=4)).posterior
    moved = lgp.Data(1e6 + 100 * X, STEP)
    far = lgp.fit(of_units(100.0), moved, key=KEY, method=method(epochs=4)).posterior
    np.testing.assert_allclose(far.mean_f(1e6 + 100 * NEW), near.mean_f(NEW), atol=0.1)


def test_memory_does_not_grow_with_rows():
    own, state, rows = inference(deep())
    del own, rows
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) < 4_000


def test_rows_from_files(tmp_path):
    table = np.column_stack([X, STEP])
    np.savetxt(tmp_path / "a.csv", table, delimiter=",", header="a,b,y", comments="")
    rows = lgp.FileRows(tmp_path, target="y")
    found = lgp.fit(deep(), rows, key=KEY, method=method(epochs=3))
    assert np.isfinite(found.posterior.mean_f(NEW)).all()


def test_held_out_rows_end_the_search():
    found = fitted(deep(), method(epochs=800, held_out=0.25, patience=1, tolerance=0.01))
    assert found.diagnostics.ending == "the log density of held-out targets stood still"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fitted(deep(), lgp.ExactGP()), "has no hidden layers, but the model has 1"),
        (lambda: lgp.Layer(lgp.RBF(), 0), "whole number from 1"),
        (lambda: method(features=7), "positive even number"),
        (lambda: method(draws=(1, 0)), "at least 1"),
        (lambda: method(learning_rate=0.0), "learning_rate must be above 0"),
        (lambda: method(warmup=2.0), "warmup must be in"),
        (
            lambda: fitted(deep(lgp.HeavisideMulticlass(2)), method(), (STEP > 0).astype(float)),
            "use",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()


@pytest.mark.slow
def test_estimators_of_some_depth():
    labels = STEP > 0
    usual = {"depth": 2, "random_state": 0, "method": method(epochs=60, learning_rate=0.02)}
    classifier = lgp.GPClassifier(**usual).fit(X, labels)
    assert np.mean(classifier.predict(X) == labels) > 0.85
    assert classifier.model_.depth == 2
    assert classifier.lengthscales_.shape == (2,)
    regressor = lgp.GPRegressor(**usual).fit(1e3 * X, 1e3 + STEP)
    assert np.corrcoef(regressor.predict(1e3 * X), STEP)[0, 1] > 0.8
    chosen = choose_for(classifier.model_, X.shape)
    assert isinstance(chosen.method, lgp.RandomFeatureVI)
    with pytest.raises(lgp.InputError, match="leave kernel"):
        lgp.GPRegressor(lgp.RBF(), depth=2).fit(X, STEP)


def test_draws_from_the_prior_go_through_all_layers():
    """E k(h(x), h(x')) is known for RBF layers."""
    layer = lgp.Layer(lgp.RBF(0.9, 1.3), 2)
    model = lgp.DeepGP(
        lgp.RBF(0.8, 1.7), lgp.Gaussian(0.1), layers=[layer], feed_inputs=False, skip=False
    )
    x = np.array([[-1.0], [0.0], [1.0]])
    x = x / x.std()
    drawn = lgp.sample_prior(model, lgp.Data(x, [0.0, 1.0, 2.0]), key=KEY, number=6000, priors=None)
    hidden = 1.3 * np.exp(-0.5 * ((x - x.T) / 0.9) ** 2)
    known = 1.7 / (1 + 2 * (1.3 - hidden) / 0.8**2)
    np.testing.assert_allclose(np.cov(drawn.f.T), known, atol=0.12)


def test_the_bound_of_very_many_rows_is_that_of_a_sample(monkeypatch):
    whole = fitted(deep(), method(batch_size=10, epochs=10))
    monkeypatch.setattr(programs, "_ROWS", 50)
    some = fitted(deep(), method(batch_size=10, epochs=10))
    error = some.diagnostics.evidence_error
    assert error > whole.diagnostics.evidence_error
    difference = some.posterior.log_evidence.value - whole.posterior.log_evidence.value
    assert abs(difference) < 4 * error
    assert "50 of 80 rows" in " ".join(some.diagnostics.notes)


def test_directions_are_learned_where_rows_are_many():
    """With the noise of one draw they fit few rows by heart, and the bound rewards it."""
    X = np.linspace(-2, 2, 60)
    data, model = lgp.Data(X, np.sin(3 * X)), lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))

    def fitted(**settings):
        own = lgp.deep.RandomFeatureVI(
            **{"batch_size": 30, "epochs": 2, "start": "given"} | settings
        )
        fit = lgp.fit(model, data, method=own, key=jax.random.key(0))
        said = " ".join((*fit.diagnostics.warnings, *fit.diagnostics.notes))
        return fit.posterior.log_evidence.kind, "by heart" in said, "no bound" in said

    assert fitted(features=4) == ("approximation", False, True)
    assert fitted(features=40) == ("lower bound", False, False)
    assert fitted(features=40, frequencies="variational") == ("approximation", True, True)
