"""Markov chains for deep models beside closed forms, importance sampling and each other."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.extensions.chains.target import Position
from latentgp.extensions.deep.inference.family import Architecture
from latentgp.extensions.deep.inference.targets import WeightTarget
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from slow import slow_parameters

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(24, 2))
X = (X - X.mean(0)) / X.std(0)
Y = np.sin(2 * X[:, 0]) + 0.3 * GENERATOR.normal(size=len(X))
WEIGHTS = np.where(np.arange(24) == 5, 2.0, 1.0)
NEW = GENERATOR.normal(size=(5, 2))
OFFSET = lgp.LinearMean(slope=[0.3, -0.2], intercept=0.4)


def deep(likelihood=None, layers=1, width=1, **settings):
    hidden = [lgp.Layer(lgp.RBF(1.2), width) for _ in range(layers)]
    likelihood = likelihood or lgp.Gaussian(0.1)
    return lgp.DeepGP(lgp.RBF(1.5, 1.3), likelihood, OFFSET, layers=hidden, **settings)


def fitted(model, method, y=Y, learn=False, **settings):
    rows = lgp.Data(X, y, weights=WEIGHTS)
    return lgp.fit(model, rows, key=KEY, method=method, learn_hyperparameters=learn, **settings)


def exact(model, components, method):
    """The posterior of the same weights by a method for models without hidden layers."""
    drawn = jax.tree.map(lambda leaf: leaf[0], components.features)
    shallow = lgp.LatentGP(model.kernel, model.likelihood, model.mean)
    representation = lgp.RandomFeatures(len(drawn), weights=drawn)
    return fitted(shallow, dataclasses.replace(method, representation=representation))


def target(*, integrates, learned=("kernel.variance", "likelihood.noise_variance")):
    """Of a small deep model, some hyper-parameters free."""
    model = deep(width=2)
    frozen = tuple(path for path in parameters(model) if path not in learned)
    space = ParameterSpace(model, frozen=frozen)
    architecture = Architecture.of(model, X, 6, None, "fixed", KEY)
    rows = lgp.Data(X, Y, weights=WEIGHTS).to_device()
    return WeightTarget.of(space, rows, architecture, integrates=integrates)


def test_weights_integrated_out_are_those_of_a_normal_distribution(x64):
    own = target(integrates=True)
    vector, white = GENERATOR.normal(size=2), GENERATOR.normal(size=(1, own.size))
    at = Position(jnp.asarray(vector), jnp.asarray(white))
    model = own.space.to_model(at.vector)
    noise = float(model.likelihood.noise_variance) / WEIGHTS
    [hidden] = own.layers(at.white)
    block = np.asarray(own._blocks(model, [hidden], X)[0])
    of_y = multivariate_normal(np.asarray(model.mean(X)[:, 0]), block.T @ block + np.diag(noise))
    # A row of weight two is two rows of half the precision each, of which the mean is seen.
    twice = -0.5 * np.log(2 * np.pi * noise * WEIGHTS) * (WEIGHTS - 1) - 0.5 * np.log(WEIGHTS)
    prior = float(own.space.log_prior(at.vector)) - 0.5 * np.sum(white**2)
    np.testing.assert_allclose(own(at), of_y.logpdf(Y) + np.sum(twice) + prior, rtol=1e-10)


def test_slopes_are_those_of_differences(x64):
    own = target(integrates=True)
    place = jnp.asarray(GENERATOR.normal(size=2 + own.size))
    way = jnp.asarray(GENERATOR.normal(size=place.shape))

    @jax.jit
    def value(place):
        return own(Position(place[:2], place[None, 2:]))

    difference = (value(place + 1e-5 * way) - value(place - 1e-5 * way)) / 2e-5
    np.testing.assert_allclose(jax.grad(value)(place) @ way, difference, rtol=1e-6)


def test_weights_drawn_and_integrated_out_have_one_joint_density(x64):
    """p(hidden, y) is p(hidden, last, y) over p(last given both), up to one constant."""
    marginal, joint = target(integrates=True), target(integrates=False)
    differences = []
    for key in jax.random.split(KEY, 3):
        at = Position(jnp.zeros(2), jax.random.normal(key, (1, marginal.size)))
        white = marginal.draw(at, key, jnp.arange(3)).white
        model = marginal.space.to_model(at.vector)
        mean, root = marginal.last_given(model, marginal.layers(at.white))
        away = np.linalg.solve(root[0].T, (white[0, marginal.size :] - mean[0]))
        log_given = -0.5 * away @ away - np.linalg.slogdet(root[0])[1]
        differences.append(float(joint(Position(at.vector, white)) - log_given - marginal(at)))
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "nuts", "warmup": 10, "draws": 1000},
        {"sampler": "sghmc", "step_size": 0.05, "warmup": 3000, "thin": 40, "draws": 500},
        {"sampler": "sghmc", "batch_size": 8, "warmup": 3000, "thin": 150, "draws": 500},
    ],
    ids=["nuts", "all rows", "batches"],
)
def test_one_layer_with_gaussian_noise_is_bayesian_linear_regression(settings):
    """Variances of stochastic gradients to 15 %, that of f at any row."""
    model = deep(layers=0)
    found = fitted(model, lgp.DeepMCMC(features=12, chains=8, **settings)).posterior
    expected = exact(model, found.components, lgp.CollapsedVI()).posterior.predict_f(X)
    mean, variance = found.f.mean((0, 1))[:, 0], found.f.var((0, 1))[:, 0]
    error = np.sqrt(expected.variance / min(found.summary.ess_bulk, 4000))
    tolerance = 4.5 * error + (settings["sampler"] == "sghmc") * 0.05 * np.sqrt(expected.variance)
    assert np.all(np.abs(mean - expected.mean) < tolerance)
    np.testing.assert_allclose(variance, expected.variance, rtol=0.15)
    assert np.mean(variance / expected.variance) == pytest.approx(1, abs=0.06)


@pytest.mark.slow
def test_classes_have_the_law_that_other_chains_find():
    """The last layer's weights are drawn too where noise is not Gaussian."""
    model, labels = deep(lgp.Bernoulli(), layers=0), (Y > 0).astype(float)
    usual = {"chains": 4, "draws": 500, "warmup": 300}
    found = fitted(model, lgp.DeepMCMC(features=12, **usual), labels).posterior
    drawn = jax.tree.map(lambda leaf: leaf[0], found.components.features)
    shallow = lgp.LatentGP(model.kernel, model.likelihood, model.mean)
    other = lgp.NUTS(representation=lgp.RandomFeatures(12, weights=drawn), **usual)
    expected = fitted(shallow, other, labels).posterior
    least = min(found.summary.ess_bulk, expected.summary.ess_bulk)
    deviation = expected.f.std((0, 1))
    off = np.abs(found.f.mean((0, 1)) - expected.f.mean((0, 1))) / deviation
    assert np.max(off) < 5 * np.sqrt(2 / least)
    np.testing.assert_allclose(found.f.std((0, 1)), deviation, rtol=0.15)


def by_importance(model, x, y, new, number=50_000):
    """Mean and variance of f at new inputs, hidden functions drawn from their prior."""
    rows, size = np.concatenate([x, new]), len(x)

    def gram(kernel, A, B):
        squares = (A[..., :, None] - B[..., None, :]) ** 2
        variance, lengthscale = float(kernel.variance), float(kernel.lengthscale)
        return variance * np.exp(-0.5 * squares / lengthscale**2)

    cover = gram(model.layers[0].kernel, rows, rows) + 1e-10 * np.eye(len(rows))
    hidden = GENERATOR.normal(size=(number, len(rows))) @ np.linalg.cholesky(cover).T
    hidden += rows * bool(model.skip)
    C = gram(model.kernel, hidden[:, :size], hidden[:, :size])
    C += float(model.likelihood.noise_variance) * np.eye(size)
    inverse = np.linalg.inv(C)
    explained = np.einsum("snm,n,m->s", inverse, y, y)
    log_weights = -0.5 * (explained + np.linalg.slogdet(C)[1])
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    cross = gram(model.kernel, hidden[:, size:], hidden[:, :size])
    mean = np.einsum("spn,snm,m->sp", cross, inverse, y)
    own = float(model.kernel.variance) - np.einsum("spn,snm,spm->sp", cross, inverse, cross)
    of_f = weights @ mean
    return of_f, weights @ (own + mean**2) - of_f**2, 1 / np.sum(weights**2)


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, *slow_parameters(True)])
def test_slices_of_processes_agree_with_importance_sampling(skip):
    x, y, new = np.array([-1.2, 0.1, 1.1]), np.array([0.9, -0.6, 0.7]), np.array([-0.5, 0.6, 1.7])
    centre, spread = x.mean(), x.std()
    x, new = (x - centre) / spread, (new - centre) / spread
    layers = [lgp.Layer(lgp.RBF(0.8, 1.4), 1)]
    settings = {"layers": layers, "skip": skip, "feed_inputs": False}
    model = lgp.DeepGP(lgp.RBF(1.1, 0.9), lgp.Gaussian(0.1), **settings)
    method = lgp.DeepMCMC("elliptical-slice", draws=1000, warmup=200, thin=4, components=1000)
    held = {"method": method, "learn_hyperparameters": False}
    found = lgp.fit(model, lgp.Data(x, y), key=KEY, **held).posterior
    mean, variance, number = by_importance(model, x, y, new)
    ours = found.predict_f(new[:, None])
    error = np.sqrt(variance * (1 / number + 1 / 1000))
    assert np.all(np.abs(ours.mean - mean) < 4.5 * error)
    np.testing.assert_allclose(ours.variance, variance, rtol=0.15)
    at_rows = by_importance(model, x, y, x + 1e-9)
    np.testing.assert_allclose(found.f.mean((0, 1))[:, 0], at_rows[0], atol=0.05)
    np.testing.assert_allclose(found.f.var((0, 1))[:, 0], at_rows[1], rtol=0.15)


def small(sampler, **settings):
    usual = {"chains": 2, "draws": 30, "warmup": 40, "thin": 1, "features": 6}
    return lgp.DeepMCMC(sampler, **(usual | settings))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["elliptical-slice", "sghmc", *slow_parameters("nuts")])
def test_predictions_are_of_functions(sampler, tmp_path):
    """Draws have the predicted marginals, whatever else is asked for, and files bring all back."""
    learn = sampler != "elliptical-slice"
    method = small(sampler, components=12)
    found = fitted(deep(width=2), method, learn=learn).posterior
    assert found.components.size == 12
    assert bool(found.hyperparameters) == learn
    marginals = found.predict_f(NEW)
    few = found.predict_f(NEW[:2])
    np.testing.assert_allclose(few.mean, marginals.mean[:2], rtol=1e-9)
    np.testing.assert_allclose(few.variance, marginals.variance[:2], rtol=1e-9)
    np.testing.assert_allclose(found.mean_f(NEW), marginals.mean, rtol=1e-9)
    draws = found.sample_f(NEW, number=3000, key=KEY)
    spread = np.sqrt(marginals.variance)
    assert np.all(np.abs(draws.mean(0) - marginals.mean) < 5 * spread / np.sqrt(3000))
    np.testing.assert_allclose(draws.var(0), marginals.variance, rtol=0.2, atol=1e-6)
    again = lgp.load(lgp.save(found, tmp_path / "deep"))
    np.testing.assert_array_equal(again.predict_f(NEW).variance, marginals.variance)
    np.testing.assert_array_equal(
        again.predict(NEW).interval(0.9), found.predict(NEW).interval(0.9)
    )
    assert found.log_likelihood().shape == (2, 30, 24)


def test_an_estimator_of_chains():
    method = small("sghmc", draws=100, warmup=2000, thin=5)
    regressor = lgp.GPRegressor(depth=2, method=method, random_state=0).fit(1e3 * X, 100 + Y)
    assert np.corrcoef(regressor.predict(1e3 * X), Y)[0, 1] > 0.7
    assert abs(np.mean(regressor.predict(1e3 * X)) - 100) < 1
    assert regressor.posterior_.summary.ess_bulk > 0


@pytest.mark.parametrize("sampler", ["sghmc", *slow_parameters("nuts", "elliptical-slice")])
def test_resumed_chains_end_with_the_same_bits(sampler, tmp_path):
    method, path = small(sampler, draws=120), tmp_path / "checkpoint"
    whole = fitted(deep(), method)
    fitted(deep(), method, checkpoint=path, callback=lambda progress: len(progress.draws) > 0)
    resumed = fitted(deep(), method, checkpoint=path)
    np.testing.assert_array_equal(resumed.posterior.f, whole.posterior.f)


@pytest.mark.slow
@pytest.mark.parametrize("learn", [False, True])
def test_trajectories_and_stochastic_gradients_agree(learn):
    usual = {"features": 10, "chains": 4}
    nuts = lgp.DeepMCMC(**usual, draws=1500, warmup=1000, thin=2)
    batches = lgp.DeepMCMC("sghmc", **usual, draws=1500, warmup=20_000, thin=200)
    settings = {"learn": learn, "frozen": ["kernel.lengthscale", "layers", "mean"]}
    found = [fitted(deep(), method, **settings).posterior for method in (nuts, batches)]
    means = [posterior.f.mean((0, 1)) for posterior in found]
    deviations = [posterior.f.std((0, 1)) for posterior in found]
    errors = np.sqrt(sum(1 / posterior.summary.ess_bulk for posterior in found))
    assert np.max(np.abs(means[0] - means[1]) / deviations[0]) < 5 * errors + 0.1
    np.testing.assert_allclose(deviations[1], deviations[0], rtol=0.25)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lgp.DeepMCMC(features=7), "positive even number"),
        (lambda: lgp.DeepMCMC(chains=0), "chains must be at least 1"),
        (lambda: lgp.DeepMCMC(warmup=0), "warmup must be at least 1"),
        (lambda: lgp.DeepMCMC(friction=1.0), r"friction must be in \(0, 1\)"),
        (lambda: lgp.DeepMCMC(batch_size=0), "batch_size must be at least 1"),
        (lambda: fitted(lgp.LatentGP(lgp.RBF(), lgp.Gaussian()), small("nuts")), "use NUTS"),
        (
            lambda: fitted(deep(lgp.HeavisideMulticlass(2)), small("nuts"), (Y > 0).astype(float)),
            "needs a positive density|needs a gradient",
        ),
        (lambda: fitted(deep(), small("elliptical-slice"), learn=True), "holds hyper-parameters"),
        (lambda: fitted(deep(layers=2), small("elliptical-slice")), "draws one hidden layer"),
        (
            lambda: fitted(deep(lgp.Poisson()), small("elliptical-slice"), np.ones(24)),
            "needs Gaussian noise",
        ),
        (
            lambda: lgp.fit(
                deep(),
                lgp.Data(GENERATOR.normal(size=(501, 2)), np.zeros(501)),
                key=KEY,
                method=small("elliptical-slice"),
                learn_hyperparameters=False,
            ),
            "at most 500",
        ),
        (lambda: fitted(deep(), small("sghmc", step_size=1e200)), "smaller one"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()
