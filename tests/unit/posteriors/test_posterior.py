import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import latentgp as lgp
from latentgp.runtime import buckets
from latentgp.validation import interval_levels
from problems import BINARY, SMOOTH, Heteroscedastic, X, classification, regression

KEY = jax.random.key(0)
NEW = np.random.default_rng(5).normal(size=(6, 2))
NUMBER = 4000


def posterior_of(model, y, method="auto"):
    return lgp.fit(
        model, lgp.Data(X, y), key=KEY, method=method, learn_hyperparameters=False
    ).posterior


@pytest.fixture(scope="module")
def gaussian():
    return posterior_of(regression(mean=lgp.ConstantMean(0.7)), SMOOTH)


@pytest.fixture(scope="module")
def bernoulli():
    few = lgp.VariationalInference(lgp.Inducing(points=X[:5]))
    return posterior_of(classification(mean=lgp.ConstantMean(0.7)), BINARY, few)


@pytest.fixture(params=["gaussian", "bernoulli"])
def posterior(request):
    return request.getfixturevalue(request.param)


def test_gaussian_predictions_are_the_textbook_ones(gaussian):
    kernel = gaussian.model.kernel
    with jax.enable_x64(True):
        K, cross, prior = (
            np.asarray(kernel.gram(*pair)) for pair in ((X, X), (NEW, X), (NEW, NEW))
        )
    gain = cross @ np.linalg.inv(K + 0.3 * np.eye(len(X)))
    mean, covariance = 0.7 + gain @ (SMOOTH - 0.7), prior - gain @ cross.T
    variance = np.diagonal(covariance)
    latent, predictive = gaussian.predict_f(NEW), gaussian.predict(NEW)
    np.testing.assert_allclose(latent.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(latent.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(predictive.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(predictive.variance, variance + 0.3, rtol=1e-8)
    law = norm(mean, np.sqrt(variance + 0.3))
    y = np.linspace(-1, 1, 6)
    np.testing.assert_allclose(predictive.log_prob(y), law.logpdf(y), rtol=1e-8)
    np.testing.assert_allclose(predictive.cdf(y), law.cdf(y), rtol=1e-8)
    known = np.linspace(0, 2, 6)  # noise of the rows beside the learned one
    noisier = gaussian.predict(NEW, noise_variance=known).cdf(y)
    expected = norm.cdf(y, mean, np.sqrt(variance + 0.3 + known))
    np.testing.assert_allclose(noisier, expected, rtol=1e-8)
    for end, level in zip(predictive.interval(0.8), (0.1, 0.9), strict=True):
        np.testing.assert_allclose(end, law.ppf(level), rtol=1e-8)


def test_means_alone_are_the_same_means(posterior):
    np.testing.assert_allclose(
        posterior.mean_f(NEW), posterior.predict_f(NEW).mean, rtol=1e-12, atol=1e-12
    )


def test_binary_predictions_hang_together(bernoulli):
    predictive = bernoulli.predict(NEW)
    probability = predictive.mean
    assert np.all((probability > 0) & (probability < 1))
    np.testing.assert_allclose(predictive.log_prob(np.ones(6)), np.log(probability), rtol=1e-9)
    np.testing.assert_allclose(predictive.log_prob(np.zeros(6)), np.log1p(-probability), rtol=1e-9)
    np.testing.assert_allclose(predictive.variance, probability * (1 - probability), rtol=1e-9)


def test_draws_of_y_have_the_predictive_moments(posterior):
    predictive = posterior.predict(NEW)
    draws = predictive.sample(key=KEY, number=NUMBER)
    assert draws.shape == (NUMBER, 6)
    error = np.sqrt(predictive.variance / NUMBER)
    assert np.all(np.abs(draws.mean(axis=0) - predictive.mean) < 5 * error)
    np.testing.assert_allclose(draws.var(axis=0), predictive.variance, rtol=0.15)


def test_joint_draws_have_the_posterior_moments(posterior):
    mean, variance = posterior.predict_f(NEW)
    draws = posterior.sample_f(NEW, key=KEY, number=NUMBER)
    assert draws.shape == (NUMBER, 6)
    with jax.enable_x64(True):
        covariance = np.asarray(posterior.latent.covariance(NEW)[0])
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / NUMBER))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / NUMBER)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * error)


def test_joint_draws_at_equal_points_are_equal(gaussian):
    draws = gaussian.sample_f(np.stack([NEW[0], NEW[0]]), key=KEY, number=20)
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], atol=1e-2)


def test_paths_have_the_posterior_moments(posterior):
    number, features = 600, 128
    paths = posterior.sample_paths(key=KEY, number=number, features=features)
    values = paths(NEW)
    assert values.shape == (number, 6)
    mean, variance = posterior.predict_f(NEW)
    # Sixteen sets of paths have random features of their own, so their errors average out.
    assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * np.sqrt(variance / number) + 0.01)
    np.testing.assert_allclose(values.var(axis=0), variance, rtol=0.3)


def test_a_path_is_a_function(posterior):
    paths = posterior.sample_paths(key=KEY, number=3, features=64)
    whole = paths(NEW)
    np.testing.assert_allclose(paths(NEW[::-1])[:, ::-1], whole, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(paths(NEW[2:3])[:, 0], whole[:, 2], rtol=1e-9, atol=1e-9)
    nearby = paths(NEW + 1e-6)
    assert 0 < np.abs(nearby - whole).max() < 1e-3


def test_paths_of_white_noise_are_functions_with_the_posterior_moments():
    """A nugget at a fitted row is what its targets say, at another place a draw of its own."""
    X, NOWHERE = np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.0, -0.0, 7.0, 7.0 + 1e-12])
    model = lgp.LatentGP(lgp.RBF(2.0, 0.5) + lgp.White(0.5), lgp.Gaussian(0.05))
    data = lgp.Data(X, [0.3, -0.8, 1.1])
    posterior = lgp.fit(model, data, key=KEY, learn_hyperparameters=False).posterior
    number = 2_000
    paths = posterior.sample_paths(key=KEY, number=number, features=512)
    values = paths(NOWHERE)
    mean, variance = posterior.predict_f(NOWHERE)
    assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * np.sqrt(variance / number) + 0.02)
    np.testing.assert_allclose(values.var(axis=0), variance, rtol=0.15)
    np.testing.assert_array_equal(paths(NOWHERE[::-1])[:, ::-1], values)
    np.testing.assert_array_equal(paths([0.0])[:, 0], values[:, 2])
    jump = values[:, 4] - values[:, 3]  # two independent nuggets
    assert jump.var() == pytest.approx(1.0, rel=0.15)


def test_no_rows_give_no_predictions(posterior):
    nothing = np.zeros((0, 2))
    predictive = posterior.predict(nothing)
    assert predictive.mean.shape == predictive.variance.shape == (0,)
    assert predictive.log_prob(np.zeros(0)).shape == (0,)
    assert predictive.interval()[0].shape == (0,)
    assert predictive.sample(key=KEY, number=2).shape == (2, 0)
    assert posterior.mean_f(nothing).shape == (0,)
    assert posterior.sample_f(nothing, key=KEY, number=2).shape == (2, 0)


def test_pieces_equal_the_whole(posterior, monkeypatch):
    rows = np.random.default_rng(6).normal(size=(150, 2))
    whole = posterior.predict(rows)
    monkeypatch.setattr(buckets, "_BUCKETS", (64,))
    pieces = posterior.predict(rows)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(
            getattr(pieces, name), getattr(whole, name), rtol=1e-10, atol=1e-12
        )
    halves = [posterior.predict(part).mean for part in (rows[:70], rows[70:])]
    np.testing.assert_allclose(np.concatenate(halves), whole.mean, rtol=1e-10, atol=1e-12)


def test_latent_variances_are_those_of_the_prior_far_away(posterior):
    far = posterior.predict_f(NEW + 1e3)
    np.testing.assert_allclose(far.mean, 0.7, rtol=1e-12)
    np.testing.assert_allclose(far.variance, 1.4, rtol=1e-12)


def test_several_latents_have_a_column_each():
    model = lgp.LatentGP(lgp.RBF(0.6), Heteroscedastic(), lgp.ConstantMean(-0.3))
    posterior = posterior_of(model, SMOOTH)
    assert posterior.predict_f(NEW).mean.shape == (6, 2)
    assert posterior.mean_f(NEW).shape == (6, 2)
    assert posterior.sample_f(NEW, key=KEY, number=3).shape == (3, 6, 2)
    assert posterior.sample_paths(key=KEY, number=3, features=8)(NEW).shape == (3, 6, 2)
    predictive = posterior.predict(NEW)
    assert np.all(np.isfinite(predictive.log_prob(SMOOTH[:6])))
    with pytest.raises(lgp.InputError, match="does not define conditional_moments"):
        _ = predictive.mean
    with pytest.raises(lgp.InputError, match="does not define sample"):
        predictive.sample(key=KEY)
    with pytest.raises(lgp.InputError, match="does not define cdf"):
        predictive.interval()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p: p.predict(NEW[:, :1]), "X has 1 columns but the model was fitted to 2"),
        (lambda p: p.predict_f(np.full((3, 2), np.nan)), r"X has NaN or infinity in 3 row\(s\)"),
        (lambda p: p.predict(NEW, exposure=np.ones(6)), "reads no per-row 'exposure'"),
        (
            lambda p: p.predict(NEW, noise_variance=np.ones(4)),
            "noise_variance must have one number",
        ),
        (lambda p: p.predict(NEW, noise_variance=-np.ones(6)), "noise_variance must be at least 0"),
        (lambda p: p.predict(NEW).log_prob(np.ones(4)), "y must have one number a row"),
        (lambda p: p.predict(NEW).quantiles([0.0]), "strictly between 0 and 1"),
        (lambda p: p.predict(NEW).interval(1.0), "level must be strictly between 0 and 1"),
        (lambda p: p.predict(NEW).sample(key=KEY, number=0), "number must be a whole number from"),
        (lambda p: p.sample_f(NEW, key=KEY, number=0), "number must be a whole number from 1"),
        (lambda p: p.sample_y(NEW, key=KEY, number=-1), "number must be a whole number from 1"),
        (lambda p: p.sample_expectation(NEW, key=KEY, number=0), "number must be a whole number"),
        (lambda p: p.sample_parts(NEW, key=KEY, number=0), "number must be a whole number from 1"),
        (lambda p: p.sample_paths(key=KEY, number=0), "number must be a whole number from 1"),
    ],
)
def test_wrong_questions_are_answered_in_a_sentence(gaussian, call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call(gaussian)


def test_several_levels_of_an_interval_are_refused():
    with pytest.raises(lgp.InputError, match=r"level must be one number, got .*quantiles"):
        interval_levels([0.5, 0.9])


def test_targets_outside_the_support_have_no_log_prob(bernoulli):
    with pytest.raises(lgp.InputError, match="must be 0 or 1"):
        bernoulli.predict(NEW).log_prob(np.full(6, 0.5))


def test_known_noise_of_new_rows_widens_their_predictions(gaussian):
    plain, noisy = gaussian.predict(NEW), gaussian.predict(NEW, noise_variance=np.full(6, 2.0))
    np.testing.assert_allclose(noisy.variance, plain.variance + 2.0, rtol=1e-12)
    np.testing.assert_array_equal(noisy.mean, plain.mean)


def test_a_users_program_in_single_precision_breaks_nothing():
    """JAX keeps constants by the identity of an array, narrowed ones too."""
    model = lgp.LatentGP(lgp.RBF([1.0, 1.0]), lgp.Gaussian(0.01))
    posterior = lgp.fit(model, lgp.Data(X, SMOOTH), key=KEY, learn_hyperparameters=False).posterior
    for _ in range(3):
        jax.jit(lambda z: z @ jnp.asarray(posterior.latent.X).T)(jnp.zeros((1, 2)))
        jax.jit(lambda z: z @ posterior.latent.weights)(jnp.zeros((1, 1)))
        jax.jit(lambda z: z * posterior.model.kernel.lengthscale)(jnp.zeros(2))
    again = lgp.fit(posterior.model, lgp.Data(X, SMOOTH), key=KEY, learn_hyperparameters=False)
    for answer in (lambda p: p.predict_f(X).mean, lambda p: p.sample_f(X, key=KEY)):
        np.testing.assert_array_equal(answer(posterior), answer(again.posterior))


@pytest.mark.parametrize("likelihood", [lgp.Poisson(), lgp.Gaussian(noise_variance=0.04)])
def test_quantiles_of_a_few_gaussians_are_those_of_their_mixture(likelihood):
    """By the mixture's own distribution function: two components, at f and at -f."""
    rows, y = np.linspace(0, 2, 6), np.array([1.0, 0, 2, 1, 3, 0])
    model = lgp.LatentGP(lgp.RBF(1.0, 1.0), likelihood)
    starts = np.stack([np.full((6, 1), 1.0), np.full((6, 1), -1.0)])
    method = lgp.BlackBoxVI(components=2, estimator="score", steps=1, start_means=starts)
    fit = lgp.fit(
        model, lgp.Data(rows, y), method=method, key=jax.random.key(0), learn_hyperparameters=False
    )
    predicted, levels = fit.posterior.predict(rows), [0.05, 0.3, 0.9]
    found = predicted.quantiles(levels)
    for place, level in enumerate(levels):
        reached = predicted.cdf(found[:, place])
        if likelihood.targets == "count":
            assert np.all(reached >= level)
            below = found[:, place] - 1
            assert np.all(np.where(below >= 0, predicted.cdf(np.maximum(below, 0)), 0) < level)
        else:
            np.testing.assert_allclose(reached, level, atol=1e-9)
