"""Where deep models start: the last layer learned alone."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import latentgp as lgp
from deep import KEY, STEP, X, deep, fitted, method
from slow import slow_parameters


def noise(**settings):
    """Noise variance after steps of a ten thousandth; it was given as 2."""
    usual = {"epochs": 1, "batch_size": 80, "learning_rate": 1e-4, "warmup": 0.0}
    own = method(**usual, start=settings.pop("start", "shallow"))
    found = fitted(deep(lgp.Gaussian(2.0)), own, **settings)
    return float(found.model.likelihood.noise_variance), found


def test_it_starts_at_what_the_last_layer_alone_learns():
    assert noise()[0] < 0.5
    assert noise(start="given")[0] > 1.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "frozen", ["layers", ("layers[0]",), ("likelihood",), ("kernel", "layers")]
)
def test_what_is_frozen_stays(frozen):
    learned, found = noise(frozen=frozen)
    assert (learned == 2.0) == ("likelihood" in frozen)
    if "layers" in "".join(frozen):
        np.testing.assert_array_equal(found.model.layers[0].kernel.lengthscale, 1.2)


@pytest.mark.slow
def test_priors_of_bounded_support_and_of_hidden_layers():
    priors = {
        "kernel.lengthscale": dist.Uniform(0.5, 2.0),
        "layers[0].kernel.lengthscale": dist.LogNormal(0.0, 0.5),
    }
    learned, found = noise(priors=priors)
    assert learned < 0.7
    assert 0.5 < float(found.model.kernel.lengthscale) < 2.0


def test_a_fit_goes_on_from_a_fitted_model():
    estimator = lgp.GPRegressor(depth=2, random_state=0, method=method(epochs=60)).fit(X, STEP)
    before = float(estimator.model_.likelihood.noise_variance)
    rows = lgp.rows.RowsInMemory(lgp.Data(X, STEP))
    estimator.continue_with(rows, epochs=1)
    assert estimator.method_.start == "given"
    assert estimator.method_.features == 20
    np.testing.assert_allclose(estimator.model_.likelihood.noise_variance, before, rtol=0.1)


@pytest.mark.parametrize("rows", [1, 2])
def test_fewer_rows_than_functions(rows):
    model = lgp.DeepGP(lgp.RBF(), lgp.Gaussian(0.1), layers=[lgp.Layer(lgp.RBF(), 3)])
    data = lgp.Data(np.arange(5.0 * rows).reshape(rows, 5), np.arange(rows))
    found = lgp.fit(model, data, key=KEY, method=method(epochs=2))
    assert np.isfinite(found.posterior.mean_f(data.X)).all()
    assert lgp.sample_prior(model, data, key=KEY, number=3).f.shape == (3, rows)


def test_noise_of_prior_draws_is_none_of_the_hidden_functions():
    layer = lgp.Layer(lgp.RBF(), 1)
    model = lgp.DeepGP(
        lgp.Linear(), lgp.Gaussian(0.1), layers=[layer], feed_inputs=False, skip=False
    )
    data = lgp.Data([-1.0, 0.0, 1.0], [0.0, 1.0, 2.0])
    drawn = lgp.sample_prior(model, data, key=KEY, number=2000, priors=None)
    correlations = np.corrcoef(np.abs(drawn.f).T, np.abs(drawn.y - drawn.f).T)
    assert np.max(np.abs(correlations[:3, 3:])) < 0.1


def test_a_bound_under_flat_priors_is_none():
    settings = {"hyperparameters": "variational", "epochs": 2}
    flat, weak = (fitted(deep(), method(**settings), priors=p) for p in (None, "weak"))
    assert flat.posterior.log_evidence.kind == "approximation"
    assert weak.posterior.log_evidence.kind == "lower bound"


def test_another_family_is_no_checkpoint_of_this(tmp_path):
    path = tmp_path / "checkpoint"
    fitted(deep(), method(epochs=4), checkpoint=path)
    with pytest.raises(lgp.InputError, match="hidden"):
        fitted(deep(), method(epochs=4, hidden="matrix-normal"), checkpoint=path)


def test_many_rows_do_not_heat_a_chain_of_batches():
    """One layer, Gaussian noise: the exact variances are known."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.7, 1.7, (1000, 1))
    model = lgp.DeepGP(lgp.RBF(0.7), lgp.Gaussian(0.1), layers=[])
    data = lgp.Data(x, np.sin(3 * x[:, 0]) + 0.3 * rng.normal(size=1000))
    own = lgp.DeepMCMC(
        "sghmc", features=10, batch_size=100, chains=4, draws=300, warmup=4000, thin=40
    )
    held = {"key": KEY, "learn_hyperparameters": False}
    found = lgp.fit(model, data, method=own, **held).posterior
    features = jax.tree.map(lambda a: a[0], found.components.features)
    exact = lgp.fit(
        lgp.LatentGP(lgp.RBF(0.7), lgp.Gaussian(0.1)),
        data,
        method=lgp.CollapsedVI(lgp.RandomFeatures(10, weights=features)),
        **held,
    ).posterior
    new = np.linspace(-1.5, 1.5, 9)[:, None]
    ratio = found.predict_f(new).variance / exact.predict_f(new).variance
    assert 0.6 < np.median(ratio) < 1.6


def test_noise_of_repeated_rounded_targets_is_at_least_that_of_rounding():
    rows, y = np.vstack([X, X[:10]]), np.floor(X[:, 0])
    own = method(epochs=40, learning_rate=0.03, warmup=0.0, start="shallow")
    found = lgp.fit(deep(), lgp.Data(rows, np.append(y, y[:10])), key=KEY, method=own)
    np.testing.assert_allclose(found.model.likelihood.noise_variance, 1 / 12)


def of_ones():
    """A model that says one of everything, with a length-scale for each column."""
    layer = lgp.Layer(lgp.RBF(np.ones(2)), 2)
    return lgp.DeepGP(lgp.RBF(np.ones(4)), lgp.Gaussian(0.1), layers=[layer])


METHODS = {
    "given": method(features=50, epochs=300, batch_size=80),
    "shallow": method(features=50, epochs=300, batch_size=80, start="shallow"),
    "gradients": lgp.DeepMCMC("sghmc", chains=2, features=20, draws=100, warmup=3000),
}


@pytest.mark.parametrize("own", ["given", *slow_parameters("shallow", "gradients")])
def test_inputs_in_other_units_are_predicted_from_as_well(own):
    """A model says one of everything; in the units of its inputs or a hundred times off."""
    new = np.random.default_rng(5).normal(size=(200, 2))
    y = np.where(new[:, 0] > 0, 1.0, -1.0)
    scores = []
    for unit in (1.0, 100.0, 0.01):
        rows = lgp.Data(unit * X, STEP)
        found = lgp.fit(of_ones(), rows, key=KEY, method=METHODS[own]).posterior
        scores.append(np.mean(found.predict(unit * new).log_prob(y)))
    assert min(scores[1:]) > scores[0] - 0.15


def test_all_layers_start_in_the_units_of_their_inputs():
    """Said in a note; hidden functions have the unit one."""
    own, rows = method(epochs=1, warmup=1.0), lgp.Data(100 * X, STEP)
    found = lgp.fit(of_ones(), rows, key=KEY, method=own)
    typical = 200 * X.std(axis=0) / np.sqrt(2)
    np.testing.assert_allclose(found.model.layers[0].kernel.lengthscale, typical, rtol=1e-4)
    last = np.append([2.0, 2.0], 200 * X.std(axis=0))
    np.testing.assert_allclose(found.model.kernel.lengthscale, last, rtol=1e-4)
    told = [note for note in found.diagnostics.notes if "far from the units" in note]
    assert len(told) == 2
    held = lgp.fit(of_ones(), rows, key=KEY, method=own, frozen=["layers"])
    np.testing.assert_array_equal(held.model.layers[0].kernel.lengthscale, np.ones(2))
