"""Parts of a sum of kernels: against direct conditioning of a joint Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.kernels.parts import names_of_parts, parts_of

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(0.0, 6.0, (25, 2))
Y = 3.0 + np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * GENERATOR.normal(size=25)
NEW = GENERATOR.uniform(0.0, 6.0, (4, 2))
SUM = (
    2.0 * (lgp.RBF(2.0).on(0) + lgp.Linear(0.3).on(1))
    + lgp.RBF(1.0, 0.5) * (lgp.Linear(0.1) + lgp.Constant(1.0))
    + lgp.WeightedSum((lgp.Matern52(0.7),), [0.4])
)
EACH = (  # by hand
    2.0 * lgp.RBF(2.0).on(0),
    2.0 * lgp.Linear(0.3).on(1),
    lgp.RBF(1.0, 0.5) * (lgp.Linear(0.1) + lgp.Constant(1.0)),
    0.4 * lgp.Matern52(0.7),
)
NAMES = ["a", "b", "c", "d"]


def posterior_of(method, kernel=SUM, likelihood=None, y=Y, mean=3.0):
    model = lgp.LatentGP(kernel, likelihood or lgp.Gaussian(0.05), lgp.ConstantMean(mean))
    return lgp.fit(
        model, lgp.Data(X, y), key=KEY, method=method, learn_hyperparameters=False
    ).posterior


def direct():
    """Means and covariances of all parts at NEW given Y, stacked."""
    with jax.enable_x64(True):
        rows, new = jnp.asarray(X), jnp.asarray(NEW)
        gram = [np.asarray(k.gram(rows, new)) for k in EACH]
        K = sum(np.asarray(k.symmetric_gram(rows)) for k in EACH) + 0.05 * np.eye(25)
        own = [np.asarray(k.symmetric_gram(new)) for k in EACH]
    cross = np.concatenate(gram, axis=1)
    prior = np.zeros((16, 16))
    for j, block in enumerate(own):
        prior[4 * j : 4 * j + 4, 4 * j : 4 * j + 4] = block
    solved = np.linalg.solve(K, cross)
    return (solved.T @ (Y - 3.0)).reshape(4, 4), prior - cross.T @ solved


def test_a_sum_is_taken_apart_as_far_as_it_is_one():
    assert [repr(part) for part in parts_of(SUM)] == [repr(part) for part in EACH]
    assert names_of_parts(lgp.RBF() + lgp.RBF() + lgp.Linear()) == (
        repr(lgp.RBF()),
        f"{lgp.RBF()!r} (2)",
        repr(lgp.Linear()),
    )


@pytest.mark.parametrize(
    "method",
    [
        lgp.ExactGP(),
        lgp.CollapsedVI(lgp.Inducing(points=X)),
        lgp.ExactGP(lgp.MatrixFree(tolerance=1e-12)),
    ],
    ids=["dense", "inducing", "matrix-free"],
)
def test_parts_are_those_of_direct_conditioning(method):
    means, covariance = direct()
    posterior = posterior_of(method)
    parts = posterior.parts(NEW, NAMES)
    assert list(parts) == NAMES
    np.testing.assert_allclose(parts.prior_mean, 3.0, rtol=1e-6)
    for j, name in enumerate(NAMES):
        np.testing.assert_allclose(parts[name].mean, means[j], atol=2e-5)
        variance = np.diagonal(covariance)[4 * j : 4 * j + 4]
        np.testing.assert_allclose(parts[name].variance, variance, atol=2e-5)
    lower, upper = parts["a"].interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6448536 * np.sqrt(parts["a"].variance))
    if isinstance(method.representation, lgp.MatrixFree):
        return
    draws = posterior.sample_parts(NEW, key=KEY, number=4000, names=NAMES)
    stacked = np.concatenate(list(draws.values()), axis=1)
    scale = np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
    errors = (np.cov(stacked.T) - covariance) / scale
    assert np.max(np.abs(errors)) < 5 * np.sqrt(2 / 4000)
    total = sum(draws.values()) + 3.0
    f = posterior.predict_f(NEW)
    assert np.all(np.abs(total.mean(axis=0) - f.mean) < 5 * np.sqrt(f.variance / 4000))


COUNTS = GENERATOR.poisson(np.exp(0.5 * np.sin(X[:, 0])))


@pytest.mark.slow
def test_draws_have_the_parts_that_their_average_says():
    kernel = lgp.RBF(2.0).on(0) + 0.3 * lgp.RBF(1.0).on(1)
    chains = lgp.MCMC(chains=2, draws=400, warmup=100, thin=1)
    sampled = posterior_of(chains, kernel, lgp.Poisson(), COUNTS, mean=0.0)
    near = posterior_of(lgp.Laplace(), kernel, lgp.Poisson(), COUNTS, mean=0.0)
    for name, part in sampled.parts(NEW, ["u", "v"]).items():
        other = near.parts(NEW, ["u", "v"])[name]
        np.testing.assert_allclose(part.mean, other.mean, atol=0.2)
        np.testing.assert_allclose(part.variance, other.variance, rtol=0.3)
    draws = sampled.sample_parts(NEW, key=KEY, number=400)
    total = sum(draws.values())
    np.testing.assert_allclose(total.mean(axis=0), sampled.mean_f(NEW), atol=0.2)


@pytest.mark.slow
def test_hyper_parameters_that_are_integrated_over_and_mixtures():
    model = lgp.LatentGP(lgp.RBF(2.0).on(0) + lgp.Linear(0.3).on(1), lgp.Gaussian(0.05))
    fit = lgp.fit(
        model,
        lgp.Data(X, Y - 3.0),
        key=KEY,
        hyperparameters="integrate",
        frozen=["kernel.parts[1].kernel.variance", "likelihood"],
    )
    parts = fit.posterior.parts(NEW, ["wave", "slope"])
    total = parts["wave"].mean + parts["slope"].mean
    np.testing.assert_allclose(total, fit.posterior.mean_f(NEW), atol=1e-5)
    slope = np.polyfit(NEW[:, 1], parts["slope"].mean, 1)[0]
    assert abs(slope - 0.3) < 0.1
    each = [posterior_of(lgp.ExactGP(), SUM, lgp.Gaussian(v)) for v in (0.05, 0.2)]
    mixed = lgp.Posterior.mixture(each, [0.25, 0.75]).parts(NEW, NAMES)["c"]
    one, other = (p.parts(NEW, NAMES)["c"] for p in each)
    np.testing.assert_allclose(mixed.mean, 0.25 * one.mean + 0.75 * other.mean, atol=1e-8)
    spread = 0.25 * 0.75 * (one.mean - other.mean) ** 2
    expected = 0.25 * one.variance + 0.75 * other.variance + spread
    np.testing.assert_allclose(mixed.variance, expected, atol=1e-8)


@pytest.mark.slow
def test_several_latent_functions_and_functionals():
    kernel = lgp.PerLatent(lgp.RBF(2.0) + lgp.Linear(0.3), lgp.Matern32() + lgp.Constant(0.5))
    posterior = posterior_of(
        lgp.Laplace(), kernel, lgp.HeteroscedasticGaussian(), Y - 3.0, mean=0.0
    )
    parts = posterior.parts(NEW, ["bends", "rest"])
    assert parts["bends"].mean.shape == (4, 2)
    total = parts["bends"].mean + parts["rest"].mean
    np.testing.assert_allclose(total, posterior.mean_f(NEW), atol=1e-5)
    np.testing.assert_allclose(np.ptp(parts["rest"].mean[:, 1]), 0.0, atol=1e-5)
    with pytest.raises(lgp.InputError, match="one for each of the 2 parts"):
        posterior.parts(NEW, ["bends"])


@pytest.mark.parametrize(
    "representation", [lgp.Neighbours(5), lgp.RandomFeatures(20)], ids=["neighbours", "features"]
)
def test_what_has_no_parts_says_so(representation):
    kernel = lgp.RBF(2.0) + lgp.Matern52(1.0)
    posterior = posterior_of(lgp.ExactGP(representation=representation), kernel)
    with pytest.raises(lgp.InputError, match="no posterior of the parts of f"):
        posterior.parts(NEW)


def test_estimators_and_functionals_have_parts():
    kernel = lgp.RBF(2.0).on(0) + lgp.Linear(0.3).on(1)
    regressor = lgp.GPRegressor(kernel=kernel, learn_hyperparameters=False, random_state=0)
    parts = regressor.fit(X, Y).parts(NEW, ["wave", "slope"])
    total = parts["wave"].mean + parts["slope"].mean + parts.prior_mean
    np.testing.assert_allclose(total, regressor.predict(NEW), atol=1e-6)

    rows = lgp.functionals.values(X[:, :1])
    both = lgp.LatentGP(lgp.Functionals(lgp.RBF(2.0) + lgp.Linear(0.3)), lgp.Gaussian(0.05))
    posterior = lgp.fit(
        both, lgp.Data(rows, Y - 3.0), key=KEY, learn_hyperparameters=False
    ).posterior
    slope = posterior.parts(lgp.functionals.derivatives(NEW[:, :1]), ["wave", "line"])["line"]
    np.testing.assert_allclose(np.ptp(slope.mean), 0.0, atol=1e-6)
