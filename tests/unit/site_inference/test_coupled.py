"""Sites that couple the latents of a row, against brute force and linear algebra without tricks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm, qmc

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods import Likelihood
from latentgp.likelihoods.base import JointMarginals, Marginals
from latentgp.likelihoods.joint import WhitenedLikelihood, jointly
from latentgp.representations.coupled import CoupledDensePosterior
from latentgp.representations.site_form import SiteForm
from latentgp.site_inference.search.profiled_bound import converge, initial_sites
from latentgp.sites.coupled import CoupledSites

KEY = jax.random.key(0)
KERNEL = lgp.RBF(1.0, variance=2.0)
X = np.array([[0.0], [0.7], [1.9]])
CASES = {
    "softmax": (lgp.Softmax(3), np.array([0.0, 2.0, 1.0])),
    "robust-max": (lgp.RobustMax(3), np.array([0.0, 2.0, 1.0])),
    "noise": (lgp.HeteroscedasticGaussian(4.0), np.array([0.3, -1.2, 1.5])),
    "network": (
        lgp.GPRegressionNetwork([[1.0], [-0.6]], 0.4),
        np.array([[0.5, -1.0], [1.2, 0.1], [-0.3, 0.8]]),
    ),
}
METHODS = {
    "Laplace": lgp.Laplace,
    "EP": lgp.ExpectationPropagation,
    "variational": lgp.VariationalInference,
}


def fitted(method, name, X=X, **settings):
    likelihood, y = CASES[name]
    model = lgp.LatentGP(KERNEL, likelihood)
    return lgp.fit(
        model, lgp.Data(X, y, **settings), key=KEY, method=method, learn_hyperparameters=False
    )


@pytest.fixture(scope="module")
def truth():
    """Log evidence, means and covariances of the rows' latents by many draws of the prior."""

    def of(name):
        likelihood, y = CASES[name]
        size, draws = likelihood.latent_size, 1 << (20 if name == "robust-max" else 17)
        lower = np.linalg.cholesky(np.asarray(KERNEL.gram(X, X), np.float64))
        u = np.clip(qmc.Sobol(3 * size, rng=0).random(draws), 1e-12, 1 - 1e-12)
        z = norm.ppf(u).reshape(-1, 3, size)
        f = np.einsum("ij,sjq->siq", lower, z)
        with jax.enable_x64(True):
            of_rows = jax.vmap(lambda y, f: likelihood.log_prob(y, f, {}))
            log_prob = np.asarray(jax.jit(jax.vmap(lambda f: of_rows(y, f).sum()))(f))
        weights = np.exp(log_prob)
        share = weights / weights.sum()
        mean = np.einsum("s,snq->nq", share, f)
        away = f - mean
        return np.log(weights.mean()), mean, np.einsum("s,snq,snr->nqr", share, away, away)

    return {name: of(name) for name in CASES}


# By how much evidence (nats), means and covariances are off, of prior variances of 2.
CLOSE_EP = {
    "softmax": (0.01, 0.01, 0.02),
    "robust-max": (0.03, 0.03, 0.05),
    "noise": (0.03, 0.02, 0.06),
    "network": (0.1, 0.04, 0.12),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_moments_against_brute_force(truth, name):
    value, mean, covariance = truth[name]
    fit = fitted(lgp.ExpectationPropagation(), name)
    marginals = fit.posterior.latent.marginals(X)
    nats, close, wide = CLOSE_EP[name]
    assert float(fit.posterior.log_evidence) == pytest.approx(value, abs=nats)
    np.testing.assert_allclose(marginals.mean, mean, atol=close)
    np.testing.assert_allclose(marginals.covariance, covariance, atol=wide)
    assert np.abs(covariance - covariance * np.eye(covariance.shape[1])).max() > 2 * wide


@pytest.mark.parametrize("name", ["softmax", "robust-max"])
def test_probabilities_are_those_of_the_true_moments(x64, truth, name):
    """At rows of a step any Gaussian is off by up to 0.2: what is left out is no covariance."""
    likelihood, _ = CASES[name]
    joint = JointMarginals(*map(jnp.asarray, truth[name][1:]))
    own, independent, side = jointly(likelihood, joint, {})
    probabilities = fitted(lgp.ExpectationPropagation(), name).posterior.predict(X).probabilities
    expected = own.predictive_probabilities(independent, side)
    np.testing.assert_allclose(probabilities, expected, atol=0.03)


@pytest.mark.parametrize("name", ["softmax", "robust-max", "noise"])
def test_bound_against_brute_force(truth, name):
    """A better bound than that of single sites, which is one still."""
    value, _, covariance = truth[name]
    one, other = (
        fitted(lgp.VariationalInference(coupled=c), name).posterior for c in (True, False)
    )
    gap, gap_of_single = value - float(one.log_evidence), value - float(other.log_evidence)
    assert 0 < gap < 0.6 * gap_of_single
    errors = [np.abs(covariance_of(posterior) - covariance).max() for posterior in (one, other)]
    assert errors[0] < 0.6 * errors[1]


def covariance_of(posterior):
    marginals = posterior.latent.marginals(X)
    if isinstance(marginals, JointMarginals):
        return np.asarray(marginals.covariance)
    return np.asarray(marginals.variance)[:, :, None] * np.eye(marginals.mean.shape[1])


@pytest.mark.parametrize("name", ["softmax", "noise"])
def test_laplace_is_the_expansion_at_the_mode(x64, name):
    """Newton's method on all latents at once, with every matrix written out."""
    likelihood, y = CASES[name]
    size = likelihood.latent_size
    K = np.kron(np.eye(size), np.asarray(KERNEL.gram(X, X)))
    inverse = np.linalg.inv(K)

    def log_density(g):
        of_rows = jax.vmap(lambda y, f: likelihood.log_prob(y, f, {}))
        return jnp.sum(of_rows(y, g.reshape(size, -1).T)) - 0.5 * g @ inverse @ g

    fit = fitted(lgp.Laplace(coupled=True, correct_mean=False), name)
    g = np.asarray(fit.posterior.mean_f(X)).T.ravel()
    for _ in range(4):
        g = g - np.linalg.solve(jax.hessian(log_density)(g), jax.grad(log_density)(g))
    precision = -np.asarray(jax.hessian(log_density)(g))
    whole = log_density(g) - 0.5 * np.linalg.slogdet(K @ precision)[1]
    assert float(fit.posterior.log_evidence) == pytest.approx(float(whole), abs=1e-5)
    covariance = np.linalg.inv(precision)
    new = np.array([[0.4], [3.0]])
    cross = np.kron(np.eye(size), np.asarray(KERNEL.gram(new, X))) @ inverse
    prior = np.kron(np.eye(size), np.asarray(KERNEL.gram(new, new)))
    joint = prior - cross @ (K - covariance) @ cross.T
    table = joint.reshape(size, 2, size, 2)
    marginals = fit.posterior.latent.marginals(new)
    np.testing.assert_allclose(marginals.mean, (cross @ g).reshape(size, 2).T, atol=1e-4)
    for n in range(2):
        np.testing.assert_allclose(marginals.covariance[n], table[:, n, :, n], atol=1e-4)
    np.testing.assert_allclose(fit.posterior.latent.joint_covariance(new), table, atol=1e-4)


LONG, POINTS = {"tolerance": 1e-11, "max_updates": 300}, lgp.Inducing(points=X[:2])
GRADIENTS = [
    ("softmax", lgp.Laplace(coupled=True)),
    ("softmax", lgp.VariationalInference(coupled=True, **LONG)),
    ("noise", lgp.ExpectationPropagation(coupled=True, **LONG)),
    pytest.param("noise", lgp.Laplace(coupled=True), marks=pytest.mark.slow),
    pytest.param(
        "robust-max", lgp.ExpectationPropagation(coupled=True, **LONG), marks=pytest.mark.slow
    ),
    ("noise", lgp.VariationalInference(POINTS, coupled=True, **LONG)),
    pytest.param(
        "noise", lgp.ExpectationPropagation(POINTS, coupled=True, **LONG), marks=pytest.mark.slow
    ),
    ("softmax", lgp.Laplace(POINTS, coupled=True)),
]


@pytest.mark.parametrize(("name", "method"), GRADIENTS)
def test_gradient_of_the_evidence(x64, name, method):
    check_gradient(name, method)


def test_gradient_with_what_streams_remember(x64):
    rows = fitted(lgp.VariationalInference(), "softmax").posterior
    points = lgp.Inducing(points=X[:2] + 0.2, remembered=rows.remembered())
    check_gradient("softmax", lgp.VariationalInference(points, coupled=True, **LONG))


def check_gradient(name, method):
    likelihood, y = CASES[name]
    data = lgp.Data(np.linspace(0, 4, 6)[:, None], np.tile(y, 2)[:6])
    space = ParameterSpace(lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.2)))
    start = jnp.asarray(space.to_vector())

    @jax.jit
    @jax.value_and_grad
    def value_and_slope(vector):
        return lgp.log_evidence(space.to_model(vector), data, method)

    slope, step = value_and_slope(start)[1], 1e-4
    for own, move in zip(slope, step * np.eye(len(start)), strict=True):
        ends = [float(value_and_slope(start + sign * move)[0]) for sign in (1, -1)]
        assert float(own) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-5)


def sites_of(rows, latents, signed):
    generator = np.random.default_rng(0)
    root = generator.normal(size=(rows, latents, latents))
    precision = root @ root.swapaxes(1, 2)
    precision[1] = 0.0
    if signed:
        precision[0] -= 1.2 * np.eye(latents) * np.linalg.eigvalsh(precision[0])[0]
        precision[2] -= 0.3 * np.eye(latents)
    linear = generator.normal(size=(rows, latents))
    linear[1] = 0.0
    return CoupledSites(*map(jnp.asarray, (linear, precision, np.zeros(rows))))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kernel", [KERNEL, lgp.PerLatent(KERNEL, lgp.RBF(0.4, 0.8))])
def test_algebra_of_dense_and_of_points_at_all_rows(x64, kernel, signed):
    sites = sites_of(3, 2, signed)
    parts = kernel.parts if isinstance(kernel, lgp.PerLatent) else (kernel, kernel)
    K = np.zeros((6, 6))
    for q, part in enumerate(parts):
        K[3 * q : 3 * q + 3, 3 * q : 3 * q + 3] = part.gram(X, X)
    W = np.zeros((2, 3, 2, 3))
    for n in range(3):
        W[:, n, :, n] = sites.precision[n]
    W, linear = W.reshape(6, 6), np.asarray(sites.linear).T.ravel()
    S = np.linalg.inv(np.linalg.inv(K) + W)
    mean = S @ linear
    determinant = np.linalg.slogdet(np.eye(6) + K @ W)[1]
    total = 0.5 * linear @ mean - 0.5 * determinant
    kl = np.trace(np.linalg.solve(K, S)) - 6 + mean @ np.linalg.solve(K, mean) + determinant
    for representation in (lgp.Dense(), lgp.Inducing(points=X)):
        own = representation.for_sites(SiteForm(signed=signed, coupled=True))
        condition = jax.jit(lambda *given, own=own: own.condition(*given))
        posterior = condition(kernel, X, sites)
        assert float(posterior.log_evidence) == pytest.approx(float(total), abs=1e-7)
        assert float(posterior.kl) == pytest.approx(float(0.5 * kl), abs=1e-6)
        pullback = jax.jit(lambda *given, own=own: own.pull_back(*given))(posterior, X, sites)
        marginals = pullback.marginals
        for found in (marginals, posterior.marginals(X)):
            np.testing.assert_allclose(found.mean, mean.reshape(2, 3).T, atol=1e-6)
            for n in range(3):
                expected = S.reshape(2, 3, 2, 3)[:, n, :, n]
                np.testing.assert_allclose(found.covariance[n], expected, atol=1e-6)

        step = 1e-5
        slope = jax.tree.leaves(pullback.kernel)
        leaves, structure = jax.tree.flatten(kernel)
        for i, leaf in enumerate(leaves):
            ends = [
                condition(
                    jax.tree.unflatten(structure, [*leaves[:i], leaf + s, *leaves[i + 1 :]]),
                    X,
                    sites,
                ).log_evidence
                for s in (step, -step)
            ]
            expected = float(ends[0] - ends[1]) / (2 * step)
            assert float(slope[i]) == pytest.approx(expected, abs=1e-5)


class TwoCoins(Likelihood):
    """Two latents that have nothing to do with each other."""

    latent_size = 2
    is_log_concave = is_jointly_log_concave = True

    def log_prob(self, y, f, side):
        return jax.nn.log_sigmoid(y * f[0]) + jax.nn.log_sigmoid(2 - y * f[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_latents_that_nothing_ties_are_as_with_single_sites(name):
    model = lgp.LatentGP(KERNEL, TwoCoins())
    data = lgp.Data(X, np.array([1.0, -1.0, 1.0]))
    one, other = (
        lgp.fit(
            model, data, key=KEY, method=METHODS[name](coupled=c), learn_hyperparameters=False
        ).posterior
        for c in (True, False)
    )
    assert float(one.log_evidence) == pytest.approx(float(other.log_evidence), abs=2e-5)
    covariance = one.latent.marginals(X).covariance
    np.testing.assert_allclose(covariance[:, 0, 1], 0.0, atol=1e-5)
    for a, b in zip(one.predict_f(X), other.predict_f(X), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("name", ["softmax", "robust-max", "noise"])
def test_predictions_are_of_joint_marginals(x64, name):
    """Against sums over many draws of one row's latents."""
    likelihood, y = CASES[name]
    mean = np.array([[0.4, -0.3, 0.1]])[:, : likelihood.latent_size]
    root = np.array([[1.2, 0, 0], [0.9, 0.5, 0], [-0.4, 0.3, 0.6]])
    root = root[: mean.shape[1], : mean.shape[1]]
    joint = JointMarginals(jnp.asarray(mean), jnp.asarray(root @ root.T)[None])
    z = norm.ppf(qmc.Sobol(mean.shape[1], rng=1).random(1 << 16))
    f = mean + z @ root.T
    own, independent, side = jointly(likelihood, joint, {})
    if likelihood.targets == "class":
        of_f = jax.vmap(lambda f: likelihood.class_probabilities(f, {}))(f)
        found = own.predictive_probabilities(independent, side)[0]
        np.testing.assert_allclose(found, np.mean(of_f, axis=0), atol=2e-3)
    log_prob = jax.vmap(lambda f: likelihood.log_prob(y[0], f, {}))(f)
    found = own.predictive_log_prob(y[:1], independent, side)[0]
    assert found == pytest.approx(float(np.log(np.mean(np.exp(log_prob)))), abs=3e-3)
    expected = own.expected_log_prob(y[:1], independent, side)[0]
    assert expected == pytest.approx(float(np.mean(log_prob)), abs=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood",
    [
        lgp.HeteroscedasticGaussian(4.0),
        lgp.HeteroscedasticStudentT(4.0, degrees_of_freedom=3.0),
        lgp.LogNoiseGaussian(0.5),
    ],
)
def test_noise_that_is_correlated_with_the_function(x64, likelihood):
    """With f_1 integrated out in closed form, against quadrature over both."""
    covariance = np.array([[[0.9, 0.5], [0.5, 0.8]], [[0.4, -0.3], [-0.3, 0.7]]])
    law = JointMarginals(jnp.array([[0.2, -0.4], [-1.0, 0.6]]), jnp.asarray(covariance))
    y = jnp.array([1.1, -0.7])
    closed, independent, side = jointly(likelihood, law, {})
    usual = WhitenedLikelihood(likelihood)
    assert type(closed) is not WhitenedLikelihood
    for name in ("predictive_cdf", "predictive_log_prob"):
        found, expected = (getattr(own, name)(y, independent, side) for own in (closed, usual))
        np.testing.assert_allclose(found, expected, atol=2e-4)
        alone = getattr(likelihood, name)(y, Marginals(law.mean, law.variance), {})
        assert np.all(np.abs(alone - expected) > 5e-3)
    found, expected = (own.expected_log_prob(y, independent, side) for own in (closed, usual))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found, expected = (own.predictive_moments(independent, side) for own in (closed, usual))
    np.testing.assert_allclose(found, expected, rtol=2e-3)


@pytest.mark.slow
def test_outputs_of_correlated_latents(x64):
    """Moments of products in closed form."""
    likelihood = CASES["network"][0]
    root = np.array([[0.8, 0, 0], [0.5, 0.4, 0], [-0.6, 0.1, 0.3]])
    mean = np.array([0.4, -0.3, 0.7])
    f = mean + norm.ppf(qmc.Sobol(3, rng=1).random(1 << 16)) @ root.T
    own, independent, side = jointly(
        likelihood, JointMarginals(jnp.asarray(mean)[None], jnp.asarray(root @ root.T)[None]), {}
    )
    centre, variance = own.predictive_moments(independent, side)
    products = (np.asarray(likelihood.mixing)[:, 0] + f[:, 1:]) * f[:, :1]
    np.testing.assert_allclose(centre[0], products.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(variance[0], products.var(axis=0) + 0.4, atol=1e-2)
    y = np.array([[1.1, -0.4]])
    away = y - products
    density = np.exp(-0.5 * away**2 / 0.4) / np.sqrt(2 * np.pi * 0.4)
    found = own.predictive_log_prob(y, independent, side)[0]
    assert float(found) == pytest.approx(np.log(np.mean(np.prod(density, axis=1))), abs=3e-3)
    below = norm.cdf(away / np.sqrt(0.4)).mean(axis=0)
    np.testing.assert_allclose(own.predictive_cdf(y, independent, side)[0], below, atol=1e-3)
    half_seen = np.array([[1.1, np.nan]])
    found = own.predictive_log_prob(half_seen, independent, side)[0]
    assert float(found) == pytest.approx(np.log(density[:, 0].mean()), abs=3e-3)


@pytest.mark.slow
def test_coregionalisation_is_exact_by_every_method(x64):
    """Gaussian in all latents: one evidence, that of the outputs' own covariance."""
    mixing = np.array([[1.0, 0.5], [-0.6, 0.8], [0.2, 1.0]])
    y = np.random.default_rng(0).normal(size=(3, 3))
    y[1, 2] = np.nan
    model = lgp.LatentGP(KERNEL, lgp.LinearCoregionalisation(mixing, 0.4))
    data = lgp.Data(X, y)
    seen = ~np.isnan(y).ravel()
    covariance = np.kron(KERNEL.gram(X, X), mixing @ mixing.T) + 0.4 * np.eye(9)
    covariance, target = covariance[seen][:, seen], y.ravel()[seen]
    determinant = np.linalg.slogdet(2 * np.pi * covariance)[1]
    truth = -0.5 * (target @ np.linalg.solve(covariance, target) + determinant)
    for method in METHODS.values():
        fit = lgp.fit(model, data, key=KEY, method=method(), learn_hyperparameters=False)
        assert float(fit.posterior.log_evidence) == pytest.approx(truth, abs=1e-6)


def test_switch_is_shown_and_follows_the_number_of_rows():
    one = fitted(lgp.VariationalInference(), "softmax")
    assert repr(one.diagnostics.method) == "VariationalInference(Dense(), coupled=True)"
    assert "sites coupling the latents of a row" in one.diagnostics.verdict
    assert isinstance(one.posterior.latent, CoupledDensePosterior)
    model = lgp.LatentGP(KERNEL, lgp.Softmax(3))
    assert lgp.VariationalInference().settled(model, 500).coupled
    assert not lgp.VariationalInference().settled(model, 501).coupled
    assert not lgp.VariationalInference(lgp.Inducing(2)).settled(model, 5).coupled
    assert lgp.VariationalInference(coupled=True).settled(model, 5000).coupled
    assert lgp.Laplace().settled(model, 5).coupled
    assert not lgp.Laplace(correct_mean=False).settled(model, 5).coupled
    noise = lgp.LatentGP(KERNEL, lgp.HeteroscedasticGaussian())
    assert lgp.Laplace().settled(noise, 5).coupled
    for classes, pays in ((3, True), (4, False)):
        model = lgp.LatentGP(KERNEL, lgp.Softmax(classes))
        assert lgp.ExpectationPropagation().settled(model, 5).coupled is pays
    largest = lgp.LatentGP(KERNEL, lgp.RobustMax(4))
    assert lgp.ExpectationPropagation().settled(largest, 5).coupled
    binary = lgp.LatentGP(KERNEL, lgp.Bernoulli())
    assert not lgp.VariationalInference().settled(binary, 5).coupled
    # What does not know its rows keeps to single sites.
    assert not lgp.VariationalInference().algorithm(model).rule.coupled


@pytest.mark.parametrize(
    ("method", "match"),
    [
        (
            lgp.VariationalInference(lgp.Inducing(2, covariance="diagonal"), coupled=True),
            "diagonal",
        ),
    ],
)
def test_what_has_no_coupled_form_refuses(method, match):
    with pytest.raises(lgp.InputError, match=match):
        fitted(method, "softmax")


def going_on(posterior, name, coupled=None):
    """After one more row that says nothing."""
    inducing = lgp.Inducing(points=X, remembered=posterior.remembered())
    nothing = lgp.Data(X[:1], CASES[name][1][:1], weights=[1e-13])
    model = lgp.LatentGP(KERNEL, CASES[name][0])
    method = lgp.VariationalInference(inducing, coupled=coupled)
    return lgp.fit(model, nothing, key=KEY, method=method, learn_hyperparameters=False)


TIED = [
    (lgp.VariationalInference(), "softmax"),
    (lgp.Laplace(coupled=True), "network"),  # with negative precisions
    (lgp.VariationalInference(lgp.Inducing(points=X), coupled=True), "softmax"),
]


@pytest.mark.parametrize(("method", "name"), TIED)
def test_streams_go_on_with_latents_that_are_tied(method, name):
    """Of themselves: every moment and the evidence are those of the rows so far."""
    posterior = fitted(method, name).posterior
    own = going_on(posterior, name).posterior
    marginals, expected = own.latent.marginals(X), posterior.latent.marginals(X)
    np.testing.assert_allclose(marginals.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(marginals.covariance, expected.covariance, atol=1e-6)
    joint = posterior.latent.joint_covariance(X)
    np.testing.assert_allclose(own.latent.joint_covariance(X), joint, atol=1e-6)
    assert float(own.log_evidence) == pytest.approx(float(posterior.log_evidence), abs=1e-6)


def test_streams_of_independent_latents_go_on_with_rows_that_tie_them():
    posterior = fitted(lgp.VariationalInference(coupled=False), "softmax").posterior
    own = going_on(posterior, "softmax", coupled=True).posterior
    np.testing.assert_allclose(own.latent.marginals(X).mean, posterior.mean_f(X), atol=1e-6)
    np.testing.assert_allclose(covariance_of(own), covariance_of(posterior), atol=1e-6)
    assert float(own.log_evidence) == pytest.approx(float(posterior.log_evidence), abs=1e-6)


@pytest.mark.parametrize(("method", "name"), TIED)
def test_streams_go_on_with_the_nearest_independent_latents(method, name):
    """Means stay, precisions are those of each latent given the others, the evidence says it."""
    posterior = fitted(method, name).posterior
    with pytest.warns(UserWarning, match="remembered as independent ones"):
        after = going_on(posterior, name, coupled=False)
    own = after.posterior.latent
    np.testing.assert_allclose(own.mean(X), posterior.latent.mean(X), atol=1e-6)
    size = own.mean(X).size
    joint = np.asarray(posterior.latent.joint_covariance(X)).reshape(size, size)
    precision = np.linalg.inv(joint).reshape(size // 3, 3, size // 3, 3)
    alone = [np.linalg.inv(precision[q, :, q]) for q in range(size // 3)]
    np.testing.assert_allclose(own.covariance(X), alone, atol=1e-6)
    divergence = np.linalg.slogdet(joint)[1] - sum(np.linalg.slogdet(A)[1] for A in alone)
    lost = float(posterior.log_evidence) - float(after.posterior.log_evidence)
    np.testing.assert_allclose(lost, 0.5 * divergence, atol=1e-6)
    assert lost > 0.01


def test_no_augmentation_gap():
    fit = fitted(lgp.VariationalInference(), "noise")
    data = lgp.Data(X, CASES["noise"][1])
    with pytest.raises(lgp.InputError, match="independent"):
        lgp.augmentation_gap(fit.posterior, data)


def test_saved_and_drawn(tmp_path):
    posterior = fitted(lgp.VariationalInference(), "softmax").posterior
    new = np.array([[0.4], [0.9], [2.5]])
    again = lgp.load(lgp.save(posterior, tmp_path / "coupled.latentgp"))
    np.testing.assert_array_equal(
        again.predict(new).probabilities, posterior.predict(new).probabilities
    )
    draws = posterior.sample_f(new, key=KEY, number=20_000)
    marginals = posterior.latent.marginals(new)
    np.testing.assert_allclose(draws.mean(axis=0), marginals.mean, atol=0.05)
    away = draws - draws.mean(axis=0)
    covariance = np.einsum("snq,snr->nqr", away, away) / len(draws)
    np.testing.assert_allclose(covariance, marginals.covariance, atol=0.08)
    paths = posterior.sample_paths(key=KEY, number=4_000)(new)
    away = paths - paths.mean(axis=0)
    covariance = np.einsum("snq,snr->nqr", away, away) / len(paths)
    np.testing.assert_allclose(covariance, marginals.covariance, atol=0.2)
    np.testing.assert_allclose(posterior.predict(new).probabilities.sum(axis=1), 1.0, atol=1e-12)


def test_padded_rows_change_nothing(x64):
    likelihood, y = CASES["softmax"]
    model, data = lgp.LatentGP(KERNEL, likelihood), lgp.Data(X, y)
    algorithm = lgp.Laplace(coupled=True).algorithm(model).until_converged()
    found = []
    for rows in (data, data.padded(1)):
        rows = rows.to_device()
        found.append(converge(algorithm, model, rows, initial_sites(algorithm, model, rows)))
    assert found[0].bound == pytest.approx(float(found[1].bound), abs=1e-8)
    bare = dataclasses.replace(found[1].posterior).without_fillers()
    assert bare.X.shape == X.shape
    new = np.array([[0.4]])
    for a, b in zip(bare.marginals(new), found[0].posterior.marginals(new), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
