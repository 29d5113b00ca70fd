"""Two ways to one number: methods against each other, other libraries and brute force."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.numerics.quadrature import hermite_nodes
from latentgp.representations.prior_paths import posterior_paths
from latentgp.representations.site_form import SiteForm
from latentgp.site_inference.search.profiled_bound import converge, evaluate, initial_sites
from latentgp.sites.gaussian import GaussianSites
from latentgp.testing.numerics import require_gradient
from problems import BINARY, KERNEL, SMOOTH, X, classification, regression
from slow import slow_parameters

SIGNED = SiteForm(signed=True)
EP = lgp.ExpectationPropagation
ROWS = lgp.Inducing(points=X)
OUTLIER = np.where(np.arange(len(X)) == 4, SMOOTH + 4, SMOOTH)
FEW = lgp.Inducing(points=X[:4] + 0.1)
NEW = np.random.default_rng(5).normal(size=(5, 2))


def robust(kernel=KERNEL):
    """A model that is not log-concave."""
    return lgp.LatentGP(kernel, lgp.StudentT(0.2, 3.0))


def converged(method, model, data):
    """The posterior at the sites' optimum to the last digits."""
    algorithm = method.algorithm(model)
    points = algorithm.representation.initialise(
        data.X, data.weights, model.kernel, jax.random.key(0)
    )
    algorithm = dataclasses.replace(
        algorithm, representation=points, tolerance=1e-15, max_updates=300
    )
    rows = data.to_device()
    return converge(algorithm, model, rows, initial_sites(algorithm, model, rows))


def assert_same(one, other, *, mean_and_variance=1e-6):
    np.testing.assert_allclose(one.bound, other.bound, rtol=1e-8)
    for a, b in zip(one.posterior.marginals(NEW), other.posterior.marginals(NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=mean_and_variance, atol=1e-8)


@pytest.mark.parametrize(
    ("dense", "sparse", "model", "y"),
    [
        (lgp.ExactGP(), lgp.CollapsedVI(ROWS), regression(), SMOOTH),
        (lgp.AugmentedVI(), lgp.AugmentedVI(ROWS), classification(), BINARY),
        (lgp.VariationalInference(), lgp.VariationalInference(ROWS), classification(), BINARY),
        (lgp.Laplace(), lgp.Laplace(ROWS), classification(), BINARY),
        (EP(), EP(ROWS), classification(), BINARY),
        (EP(power=0.5), EP(ROWS, power=0.5), robust(), OUTLIER),
        (lgp.Laplace(), lgp.Laplace(ROWS), robust(), OUTLIER),
        (lgp.VariationalInference(), lgp.VariationalInference(ROWS), robust(), OUTLIER),
    ],
    ids=[
        "Gaussian",
        "augmented",
        "variational",
        "Laplace",
        "EP",
        "power EP, Student-t",
        "Laplace, Student-t",
        "variational, Student-t",
    ],
)
def test_sparse_with_every_row_is_dense(x64, dense, sparse, model, y):
    data = lgp.Data(X, y)
    assert_same(converged(dense, model, data), converged(sparse, model, data))


@pytest.mark.parametrize(
    "method", [lgp.AugmentedVI(), lgp.VariationalInference(), lgp.Laplace(), EP(), EP(power=0.5)]
)
def test_every_method_is_exact_for_gaussian_noise(x64, method):
    data = lgp.Data(X, SMOOTH)
    assert_same(converged(lgp.ExactGP(), regression(), data), converged(method, regression(), data))


@pytest.mark.parametrize("method", [lgp.AugmentedVI(FEW), lgp.VariationalInference(FEW)])
def test_every_sparse_method_is_the_collapsed_bound_for_gaussian_noise(x64, method):
    data, model = lgp.Data(X, SMOOTH), regression()
    assert_same(converged(lgp.CollapsedVI(FEW), model, data), converged(method, model, data))


@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        (lgp.RBF([0.6, 1.7], 1.4), sklearn_kernels.RBF([0.6, 1.7])),
        (lgp.Matern52([0.6, 1.7], 1.4), sklearn_kernels.Matern([0.6, 1.7], nu=2.5)),
        (lgp.Matern32(0.6, 1.4), sklearn_kernels.Matern(0.6, nu=1.5)),
    ],
    ids=["RBF", "Matern52", "Matern32"],
)
def test_log_evidence_and_gradient_equal_scikit_learn(x64, kernel, theirs):
    model, data = regression(kernel=kernel), lgp.Data(X, SMOOTH).to_device()
    space = ParameterSpace(model)
    algorithm = lgp.ExactGP().algorithm(model)
    sites = initial_sites(algorithm, model, data)
    ours = evaluate(algorithm, space, jnp.asarray(space.to_vector()), data, sites)
    whole = sklearn_kernels.ConstantKernel(1.4) * theirs + sklearn_kernels.WhiteKernel(0.3)
    peer = GaussianProcessRegressor(whole, alpha=0.0, optimizer=None).fit(X, SMOOTH)
    value, gradient = peer.log_marginal_likelihood(whole.theta, eval_gradient=True)
    np.testing.assert_allclose(ours.bound, value, rtol=1e-8)
    # Theirs: variance, length-scales, noise; ours: length-scales, variance, noise. Both in logs.
    ordered = np.concatenate([gradient[1:-1], gradient[:1], gradient[-1:]])
    np.testing.assert_allclose(ours.gradient, ordered, rtol=1e-8)


def stochastic_bound(mu, Sigma, Z, noise_variance):
    """Hensman et al. 2013, eq. 4: the sum over rows less KL(q(u) || p(u))."""
    Kmm, Kmn = (np.asarray(KERNEL.gram(Z, points)) for points in (Z, X))
    inverse = np.linalg.inv(Kmm)
    projection = inverse @ Kmn
    spread = np.sum(projection * (Sigma @ projection), axis=0)
    left = np.asarray(KERNEL.diagonal(X)) - np.sum(Kmn * projection, axis=0)
    fit = -0.5 * (
        np.log(2 * np.pi * noise_variance)
        + ((SMOOTH - projection.T @ mu) ** 2 + left + spread) / noise_variance
    )
    divergence = 0.5 * (
        np.trace(inverse @ Sigma)
        + mu @ inverse @ mu
        - len(Z)
        + np.linalg.slogdet(Kmm)[1]
        - np.linalg.slogdet(Sigma)[1]
    )
    return fit.sum() - divergence


def test_collapsed_bound_is_the_stochastic_bound_at_the_optimal_q(x64):
    noise_variance, Z = 0.3, np.asarray(FEW.points)
    collapsed = converged(lgp.CollapsedVI(FEW), regression(), lgp.Data(X, SMOOTH)).bound
    Kmm, Kmn = (np.asarray(KERNEL.gram(Z, points)) for points in (Z, X))
    inverse = np.linalg.inv(Kmm)
    Sigma = np.linalg.inv(inverse + inverse @ Kmn @ Kmn.T @ inverse / noise_variance)
    mu = Sigma @ inverse @ Kmn @ SMOOTH / noise_variance
    best = stochastic_bound(mu, Sigma, Z, noise_variance)
    np.testing.assert_allclose(collapsed, best, rtol=1e-10)
    generator = np.random.default_rng(0)
    for size in (0.01, 0.3, 2.0):
        root = np.linalg.cholesky(Sigma) + size * np.tril(generator.normal(size=Sigma.shape))
        other = mu + size * generator.normal(size=mu.shape)
        assert stochastic_bound(other, root @ root.T, Z, noise_variance) < collapsed


@pytest.mark.parametrize("amplitude", [1.0, 20.0])
def test_the_augmented_bound_rises_and_stays_below_the_evidence(x64, amplitude):
    """The evidence of three rows by tensor Gauss-Hermite quadrature."""
    points, signs = X[:3], np.array([1.0, -1.0, 1.0])
    kernel = amplitude * lgp.RBF(0.6)
    nodes, weights = hermite_nodes(3, 60)
    f = nodes @ np.linalg.cholesky(kernel.gram(points, points)).T
    evidence = np.log(weights @ np.prod(1 / (1 + np.exp(-signs * f)), axis=1))

    model, data = classification(kernel=kernel), lgp.Data(points, (signs + 1) / 2)
    algorithm = lgp.AugmentedVI().algorithm(model)
    rows = data.to_device()
    state, bounds = algorithm.init(model, rows), []
    step = jax.jit(lambda state: algorithm.step(state, rows))
    for _ in range(30):
        state, info = step(state)
        bounds.append(float(info.bound))
    assert np.diff(bounds).min() >= -1e-13
    assert bounds[-1] - bounds[0] > 1e-6
    tighter = float(converged(lgp.VariationalInference(), model, data).bound)
    assert bounds[-1] < tighter < evidence
    assert evidence - tighter < 0.02 * amplitude


def test_polya_gamma_fixed_point_is_that_of_jaakkola_and_jordan(x64):
    """sigma(z) >= sigma(c) exp((z - c) / 2 - lambda(c) (z^2 - c^2)), maximised over every c."""
    K = jnp.asarray(KERNEL.gram(X, X))
    signs = jnp.asarray(2 * BINARY - 1)

    def bound(log_c):
        c = jnp.exp(log_c)
        curvature = (jax.nn.sigmoid(c) - 0.5) / c
        B = jnp.eye(len(X)) + K * curvature
        linear = 0.5 * signs
        gaussian = 0.5 * linear @ jnp.linalg.solve(B, K @ linear)
        constants = jax.nn.log_sigmoid(c) - 0.5 * c + 0.5 * curvature * c**2
        return gaussian - 0.5 * jnp.linalg.slogdet(B)[1] + jnp.sum(constants)

    climb = jax.jit(jax.value_and_grad(lambda log_c: -bound(log_c)))
    found = minimize(
        lambda v: tuple(map(np.asarray, climb(v))),
        np.zeros(len(X)),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9},
    )
    ours = converged(lgp.AugmentedVI(), classification(), lgp.Data(X, BINARY))
    np.testing.assert_allclose(ours.bound, -found.fun, rtol=1e-10)
    mean, variance = ours.posterior.marginals(X)
    c = np.exp(found.x)
    np.testing.assert_allclose(np.sqrt(mean**2 + variance)[:, 0], c, rtol=1e-6)
    curvature = (1 / (1 + np.exp(-c)) - 0.5) / c
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(curvature))
    np.testing.assert_allclose(mean[:, 0], S @ signs / 2, atol=1e-6)
    np.testing.assert_allclose(variance[:, 0], np.diagonal(S), atol=1e-6)


def test_the_variational_fixed_point_is_stationary_for_the_elbo(x64):
    points, signs = X[:5], jnp.asarray(2 * BINARY[:5] - 1)
    K = jnp.asarray(KERNEL.gram(points, points))
    nodes, weights = hermite_nodes(1, 60)

    def elbo(mean, root):
        S = root @ root.T
        f = mean[:, None] + jnp.sqrt(jnp.diagonal(S))[:, None] * nodes[:, 0]
        expected = jax.nn.log_sigmoid(signs[:, None] * f) @ weights
        divergence = 0.5 * (
            jnp.trace(jnp.linalg.solve(K, S))
            + mean @ jnp.linalg.solve(K, mean)
            - len(points)
            + jnp.linalg.slogdet(K)[1]
            - jnp.linalg.slogdet(S)[1]
        )
        return jnp.sum(expected) - divergence

    ours = converged(lgp.VariationalInference(), classification(), lgp.Data(points, BINARY[:5]))
    mean = ours.posterior.mean(points)[:, 0]
    root = jnp.linalg.cholesky(ours.posterior.covariance(points)[0])
    value, slopes = jax.value_and_grad(elbo, (0, 1))(mean, root)
    np.testing.assert_allclose(ours.bound, value, rtol=1e-7)
    for slope in slopes:
        np.testing.assert_allclose(jnp.tril(jnp.atleast_2d(slope)), 0.0, atol=1e-6)
    away = jax.grad(elbo, (0, 1))(mean + 0.1, 1.1 * root)
    assert all(np.abs(slope).max() > 1e-2 for slope in away)


def test_a_diagonal_covariance_is_the_best_of_its_family(x64):
    Z, signs = X[:4] + 0.1, jnp.asarray(2 * BINARY - 1)
    L = jnp.linalg.cholesky(KERNEL.gram(Z, Z))
    features = jnp.linalg.solve(L, KERNEL.gram(Z, X)).T
    left = KERNEL.diagonal(X) - jnp.sum(features**2, axis=1)
    nodes, weights = hermite_nodes(1, 60)

    def elbo(mean, deviation):
        variance = left + features**2 @ deviation**2
        f = (features @ mean)[:, None] + jnp.sqrt(variance)[:, None] * nodes[:, 0]
        expected = jax.nn.log_sigmoid(signs[:, None] * f) @ weights
        return jnp.sum(expected) - 0.5 * jnp.sum(
            deviation**2 + mean**2 - 1 - 2 * jnp.log(deviation)
        )

    diagonal = lgp.Inducing(points=Z, covariance="diagonal")
    data = lgp.Data(X, BINARY)
    ours = converged(lgp.VariationalInference(diagonal), classification(), data)
    mean = ours.posterior.white_mean[0]
    deviation = jnp.diagonal(ours.posterior.white_root[0])
    value, slopes = jax.value_and_grad(elbo, (0, 1))(mean, deviation)
    np.testing.assert_allclose(ours.bound, value, rtol=1e-7)
    np.testing.assert_allclose(np.stack(slopes), 0.0, atol=1e-6)
    away = jax.grad(elbo, (0, 1))(mean + 0.1, 1.1 * deviation)
    assert all(np.abs(slope).max() > 1e-2 for slope in away)
    full = converged(lgp.VariationalInference(lgp.Inducing(points=Z)), classification(), data)
    assert ours.bound < full.bound - 1e-3


METHODS = {
    "exact": (lgp.ExactGP(), regression(), SMOOTH),
    "collapsed": (lgp.CollapsedVI(FEW), regression(), SMOOTH),
    "augmented, dense": (lgp.AugmentedVI(), classification(), BINARY),
    "augmented, sparse": (lgp.AugmentedVI(FEW), classification(), BINARY),
    "variational, dense": (lgp.VariationalInference(), classification(), BINARY),
    "variational, sparse": (lgp.VariationalInference(FEW), classification(), BINARY),
}


@pytest.mark.parametrize("case", METHODS)
def test_a_weight_is_a_number_of_copies(x64, case):
    method, model, y = METHODS[case]
    counts = np.array([1, 2, 0, 1, 3, 1, 1, 0, 1, 1, 2])
    weighted = converged(method, model, lgp.Data(X, y, weights=counts))
    copied = converged(method, model, lgp.Data(np.repeat(X, counts, axis=0), np.repeat(y, counts)))
    assert_same(weighted, copied)


def test_a_fit_with_weights_is_a_fit_with_copies():
    counts = np.array([1, 2, 0, 1, 3, 1, 1, 0, 1, 1, 2])
    weighted, copied = (
        lgp.fit(regression(), data, key=jax.random.key(0), method=lgp.ExactGP())
        for data in (
            lgp.Data(X, SMOOTH, weights=counts),
            lgp.Data(np.repeat(X, counts, axis=0), np.repeat(SMOOTH, counts)),
        )
    )
    np.testing.assert_allclose(
        float(weighted.posterior.log_evidence), float(copied.posterior.log_evidence), rtol=1e-6
    )
    for one, other in zip(
        weighted.posterior.predict_f(NEW), copied.posterior.predict_f(NEW), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("representation", [lgp.Dense(), FEW], ids=["dense", "sparse"])
def test_the_quadrature_bound_is_the_tighter_one(x64, representation):
    data = lgp.Data(X, BINARY)
    augmented = converged(lgp.AugmentedVI(representation), classification(), data)
    variational = converged(lgp.VariationalInference(representation), classification(), data)
    assert 0 < variational.bound - augmented.bound < 1


def test_a_row_where_the_latent_is_known_does_no_harm(x64):
    """A linear kernel has no variance at the origin: nothing there may become NaN."""
    points = np.concatenate([X[:5], np.zeros((1, 2))])
    model, data = classification(kernel=lgp.Linear()), lgp.Data(points, BINARY[:6])
    for method in (lgp.VariationalInference(), lgp.AugmentedVI()):
        assert np.isfinite(converged(method, model, data).bound)


def test_known_noise_variance_adds_to_the_learned_one(x64):
    known = np.linspace(0.0, 0.5, len(X))
    data = lgp.Data(X, SMOOTH, noise_variance=known)
    covariance = np.asarray(KERNEL.gram(X, X)) + np.diag(0.3 + known)
    expected = multivariate_normal(np.zeros(len(X)), covariance).logpdf(SMOOTH)
    for method in (lgp.ExactGP(), lgp.CollapsedVI(ROWS), lgp.VariationalInference()):
        np.testing.assert_allclose(converged(method, regression(), data).bound, expected, rtol=1e-8)


def test_laplace_equals_scikit_learn(x64):
    peer = GaussianProcessClassifier(
        sklearn_kernels.ConstantKernel(1.4) * sklearn_kernels.RBF(0.6), optimizer=None
    ).fit(X, BINARY)
    value, gradient = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    model, data = classification(kernel=lgp.RBF(0.6, 1.4)), lgp.Data(X, BINARY)
    space, algorithm = ParameterSpace(model), lgp.Laplace(correct_mean=False).algorithm(model)
    rows = data.to_device()
    sites = initial_sites(algorithm, model, rows)
    ours = evaluate(algorithm, space, jnp.asarray(space.to_vector()), rows, sites)
    np.testing.assert_allclose(ours.bound, value, rtol=1e-8)
    np.testing.assert_allclose(ours.gradient, gradient[::-1], rtol=1e-6)
    posterior = lgp.fit(
        *(model, data),
        key=jax.random.key(0),
        method=lgp.Laplace(correct_mean=False),
        learn_hyperparameters=False,
    ).posterior
    # Theirs is a sum of five error functions in the logistic's place, good to some 1e-4.
    theirs = peer.predict_proba(NEW)
    np.testing.assert_allclose(posterior.predict(NEW).probabilities, theirs, atol=3e-4)
    mean = KERNEL.gram(NEW, X) @ (BINARY - peer.base_estimator_.pi_)
    np.testing.assert_allclose(posterior.predict_f(NEW).mean, mean, rtol=1e-6)


def test_laplace_ends_at_a_mode_of_what_is_not_log_concave(x64):
    model, data = robust(1.4 * lgp.RBF(2.0)), lgp.Data(X, OUTLIER)
    found = converged(lgp.Laplace(), model, data)
    K = np.asarray(model.kernel.gram(X, X))
    f = np.asarray(found.posterior.mean(X))[:, 0]

    def log_prob(f):
        return jnp.sum(jax.vmap(lambda y, f: model.likelihood.log_prob(y, f[None], {}))(OUTLIER, f))

    slope = np.asarray(jax.grad(log_prob)(f)) - np.linalg.solve(K, f)
    curvature = np.asarray(jax.hessian(log_prob)(f)) - np.linalg.inv(K)
    assert np.abs(slope).max() < 1e-7
    assert np.linalg.eigvalsh(curvature).max() < 0
    assert found.sites.precision.min() < 0
    evidence = log_prob(f) - 0.5 * f @ np.linalg.solve(K, f)
    evidence -= 0.5 * np.linalg.slogdet(-K @ curvature)[1]
    np.testing.assert_allclose(found.bound, evidence, rtol=1e-8)


@pytest.mark.parametrize(("model", "y"), [(classification(), BINARY), (robust(), OUTLIER)])
def test_a_power_towards_zero_is_variational(x64, model, y):
    data = lgp.Data(X, y)
    limit = converged(lgp.VariationalInference(), model, data)
    errors = [abs(converged(EP(power=p), model, data).bound - limit.bound) for p in (0.1, 0.01)]
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < 5e-3


def test_expectation_propagation_is_nearest_to_the_evidence(x64):
    """On three rows, whose evidence is found by quadrature."""
    model, data = classification(kernel=4.0 * lgp.RBF(1.0)), lgp.Data(X[:3], BINARY[:3])
    nodes, weights = hermite_nodes(3, 60)
    f = nodes @ np.linalg.cholesky(np.asarray(model.kernel.gram(X[:3], X[:3]))).T
    truth = np.log(weights @ np.exp(-np.logaddexp(0, (1 - 2 * BINARY[:3]) * f).sum(axis=1)))
    evidence = {
        type(method).__name__: float(converged(method, model, data).bound)
        for method in (EP(), lgp.VariationalInference(), lgp.Laplace())
    }
    errors = {name: abs(value - truth) for name, value in evidence.items()}
    assert errors["ExpectationPropagation"] < 5e-3
    assert errors["ExpectationPropagation"] < errors["VariationalInference"] < errors["Laplace"]
    assert evidence["VariationalInference"] < truth


@pytest.mark.parametrize(
    ("likelihood", "mean", "y"),
    [
        (lgp.Poisson(), 7.6, [1800.0, 1000.0, 4000.0]),
        (lgp.Poisson(), 12.0, [1e6, 1.3e6, 2e6]),
        (lgp.Gamma(2000.0), 0.0, [0.5, 1.0, 2.0]),
        (lgp.StudentT(0.02, 4.0), 0.0, [-1.0, 0.2, 1.7]),
    ],
    ids=["counts of thousands", "counts of millions", "Gamma", "Student-t"],
)
def test_expectation_propagation_of_rows_much_narrower_than_the_prior(x64, likelihood, mean, y):
    """Rows that know nothing of each other, whose evidence is that of an integral each."""
    apart = 50.0 * np.arange(3.0)
    model = lgp.LatentGP(lgp.RBF(1.0), likelihood, lgp.ConstantMean(mean))
    fit = lgp.fit(
        model,
        lgp.Data(apart, np.array(y)),
        key=jax.random.key(0),
        method=EP(),
        learn_hyperparameters=False,
    )
    f = np.linspace(mean - 6.0, mean + 6.0, 400_001)
    log_density = jax.vmap(lambda y: jax.vmap(lambda f: likelihood.log_prob(y, f[None], {}))(f))
    log_density = np.asarray(log_density(jnp.asarray(y))) + norm(mean).logpdf(f)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    total = density.sum(axis=1)
    evidence = np.sum(np.log(total * (f[1] - f[0])) + log_density.max(axis=1))
    centre = density @ f / total
    spread = np.sqrt(np.sum(density * (f - centre[:, None]) ** 2, axis=1) / total)
    assert fit.diagnostics.converged
    np.testing.assert_allclose(fit.posterior.log_evidence.value, evidence, rtol=1e-7)
    found = fit.posterior.predict_f(apart)
    np.testing.assert_allclose(found.mean, centre, atol=1e-3 * spread.min())
    np.testing.assert_allclose(np.sqrt(found.variance), spread, rtol=1e-3)


def test_expectation_propagation_of_great_counts_is_near_laplace(x64):
    """Neighbours say something of each other, and each row all the more of itself."""
    y = np.round(np.exp(7.0 + SMOOTH))
    model = lgp.LatentGP(KERNEL, lgp.Poisson(), lgp.ConstantMean(7.0))
    one, other = (converged(method, model, lgp.Data(X, y)) for method in (EP(), lgp.Laplace()))
    np.testing.assert_allclose(one.bound, other.bound, rtol=1e-4)


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_expectation_propagation_of_gaussian_noise_is_exact(x64, power, unit):
    model = regression(kernel=unit**2 * lgp.RBF(0.6), noise_variance=1e-4 * unit**2)
    data = lgp.Data(X, unit * SMOOTH)
    space = ParameterSpace(model)
    one, other = (
        evaluate(
            method.algorithm(model),
            space,
            jnp.asarray(space.to_vector()),
            data.to_device(),
            GaussianSites.none(jnp.zeros((len(X), 1))),
        )
        for method in (EP(power=power), lgp.ExactGP())
    )
    np.testing.assert_allclose(one.bound, other.bound, rtol=1e-9)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("power", [1.0, 0.3])
def test_sparse_power_ep_of_gaussian_noise_has_its_closed_form(x64, power):
    """Bui, Yan & Turner (2017, eq. 16): between the collapsed bound and FITC."""
    data, model = lgp.Data(X, SMOOTH), regression()
    Z = FEW.points
    Kmn = np.asarray(KERNEL.gram(Z, X))
    Q = Kmn.T @ np.linalg.solve(np.asarray(KERNEL.gram(Z, Z)), Kmn)
    left = np.asarray(KERNEL.diagonal(X)) - np.diag(Q)
    total = Q + np.diag(power * left + 0.3)
    truth = multivariate_normal(np.zeros(len(X)), total).logpdf(SMOOTH)
    truth -= 0.5 * (1 - power) / power * np.sum(np.log1p(power * left / 0.3))
    np.testing.assert_allclose(converged(EP(FEW, power=power), model, data).bound, truth, rtol=1e-8)


@pytest.mark.parametrize("representation", [lgp.Dense(signed=True), ROWS.for_sites(SIGNED)])
def test_negative_precisions_are_what_linear_algebra_says(x64, representation):
    generator = np.random.default_rng(3)
    linear = generator.normal(size=(len(X), 1))
    precision = generator.uniform(-0.2, 2.0, size=(len(X), 1))
    assert precision.min() < 0
    sites = GaussianSites(*map(jnp.asarray, (linear, precision, np.zeros(len(X)))))
    posterior = representation.condition(KERNEL, X, sites)
    K, cross = (np.asarray(KERNEL.gram(X, other)) for other in (X, NEW))
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(precision[:, 0]))
    projection = np.linalg.solve(K, cross)
    joint = np.asarray(KERNEL.gram(NEW, NEW)) - projection.T @ (K - covariance) @ projection
    mean, variance = posterior.marginals(NEW)
    np.testing.assert_allclose(mean, projection.T @ covariance @ linear, rtol=1e-8)
    np.testing.assert_allclose(variance[:, 0], np.diag(joint), rtol=1e-8)
    np.testing.assert_allclose(posterior.covariance(NEW)[0], joint, rtol=1e-6, atol=1e-10)
    half_ratio = 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(covariance)[1])
    evidence = 0.5 * linear[:, 0] @ covariance @ linear[:, 0] - half_ratio
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-8)
    at_rows = covariance @ linear[:, 0]
    kl = 0.5 * (np.trace(np.linalg.solve(K, covariance)) - len(X))
    kl += 0.5 * at_rows @ np.linalg.solve(K, at_rows) + half_ratio
    np.testing.assert_allclose(posterior.kl, kl, rtol=1e-8)

    def value(kernel):
        return representation.condition(kernel, X, sites).log_evidence

    gradient = representation.pull_back(posterior, X, sites).kernel
    require_gradient(value, KERNEL, gradient, "The evidence's gradient in the kernel")
    keys = jax.random.split(jax.random.key(0), 4000)
    paths = jax.vmap(lambda key: drawn_values(posterior, key))(keys)
    spread = np.cov(np.asarray(paths).T)
    np.testing.assert_allclose(spread, joint, atol=6 * np.diag(joint).max() / np.sqrt(4000))


def drawn_values(posterior, key):
    """A draw at new inputs by Matheron's rule, the prior's part exact."""
    centres = posterior.centres
    everywhere = jnp.concatenate([centres, NEW])
    key_prior, key_update = jax.random.split(key)
    gram = KERNEL.gram(everywhere, everywhere) + 1e-10 * jnp.eye(len(everywhere))
    prior = jnp.linalg.cholesky(gram) @ jax.random.normal(key_prior, (len(everywhere),))
    at_centres = prior[: len(centres), None]
    weights = posterior.pathwise_update(key_update, lambda _: at_centres)
    return prior[len(centres) :] + weights[0] @ KERNEL.gram(centres, NEW)


@pytest.mark.parametrize(
    "name", ["Dense", "Markov", "LatentNeighbours", *slow_parameters("Inducing", "SpaceTime")]
)
def test_paths_with_negative_precisions_are_about_the_mean(x64, name):
    """Those that leave out these precisions in a draw about it say by how much."""
    generator, number = np.random.default_rng(3), 4000
    t = np.linspace(0, 6, 12)[:, None]
    linear, precision = generator.normal(size=(12, 1)), generator.uniform(-0.3, 1.0, (12, 1))
    sites = GaussianSites(*map(jnp.asarray, (2 * linear, precision, np.zeros(12))))
    kernel, rows, representation = {
        "Dense": (lgp.Matern32(), t, lgp.Dense()),
        "Inducing": (lgp.Matern32(), t, lgp.Inducing(points=t)),
        "Markov": (lgp.Matern32(), t, lgp.Markov()),
        "LatentNeighbours": (lgp.Matern32(), t, lgp.LatentNeighbours(11)),
        "SpaceTime": (
            lgp.Matern32().on(0) * lgp.RBF().on(1),
            np.concatenate([t, 0 * t], axis=1),
            lgp.SpaceTime(1),
        ),
    }[name]
    ready = representation.initialise(rows, None, kernel, jax.random.key(0)).for_sites(SIGNED)
    posterior = ready.for_rows(rows, None, kernel).condition(kernel, jnp.asarray(rows), sites)
    sizes = {"latents": 1, "features": 512, "number": number}
    paths = posterior_paths(posterior, kernel, jax.random.key(1), **sizes)
    draws = np.asarray(paths(kernel, posterior.centres, jnp.asarray(rows)))[..., 0]
    mean, variance = (np.asarray(moment)[:, 0] for moment in posterior.marginals(rows))
    assert np.max(np.abs(draws.mean(0) - mean) / np.sqrt(variance / number)) < 5
    share, error = draws.var(0) / variance, 6 * np.sqrt(2 / number)
    notes = [note for note in posterior.notes if "negative precisions of" in note]
    if name in ("Dense", "Inducing"):
        assert not notes
        assert np.all(np.abs(share - 1) < error)
    else:
        (note,) = notes
        told = float(note.split("at most ")[1].split()[0])
        assert share.min() * (1 - error) < told < 1
        assert share.max() < 1 + error


def test_what_no_posterior_is_has_no_evidence(x64):
    sites = GaussianSites(jnp.ones((len(X), 1)), jnp.full((len(X), 1), -5.0), jnp.zeros(len(X)))
    assert np.isnan(lgp.Dense(signed=True).condition(KERNEL, X, sites).log_evidence)


@pytest.mark.parametrize(
    ("factor", "other"), [(1, lgp.ExpectationPropagation()), (30, lgp.Laplace())]
)
def test_variational_inference_finds_great_counts(factor, other):
    """From the prior's marginals a whole step would lead to exp(100)."""
    # fmt: off
    y = [
        1, 0, 0, 0, 0, 1, 1, 0, 34, 0, 1, 5, 0, 0, 0, 0, 1, 156, 0, 1, 0, 4, 2, 0, 2, 2, 0, 2,
        60, 3,
    ]
    # fmt: on
    X = np.linspace(0, 18, len(y))
    model = lgp.LatentGP(lgp.RBF(1.0, 3.0), lgp.Poisson())
    variational, known = (
        lgp.fit(
            model,
            lgp.Data(X, factor * np.array(y)),
            key=jax.random.key(0),
            method=method,
            learn_hyperparameters=False,
        ).posterior.predict_f(X)
        for method in (lgp.VariationalInference(), other)
    )
    sd = np.sqrt(known.variance)
    np.testing.assert_allclose(variational.mean / sd, known.mean / sd, atol=0.3)
    np.testing.assert_allclose(np.sqrt(variational.variance) / sd, 1, atol=0.3)


def test_first_sites_of_the_largest_latent_are_better_than_none(x64):
    """All rows' slopes together, and no curvature, would lead past where any likelihood is."""
    inputs = np.linspace(0, 6, 1200)
    data = lgp.Data(inputs, np.floor(inputs / 2.001))
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.RobustMax(3))
    algorithm = lgp.VariationalInference(lgp.Inducing(points=data.X[::100])).algorithm(model)
    first = initial_sites(algorithm, model, data)
    none = GaussianSites.none(first.linear)
    known, unknown = (algorithm.resume(model, data, sites) for sites in (first, none))
    known, unknown = (algorithm.sweep(state, data, 1.0)[1].bound for state in (known, unknown))
    assert known > 0.5 * unknown  # both are negative


@pytest.mark.parametrize("scale", [0.1, 0.01])
def test_laplace_ends_at_a_mode_under_narrow_noise_with_outliers(x64, scale):
    inputs = np.linspace(0, 6, 40)[:, None]
    noise = np.random.default_rng(0).standard_t(3, 40)
    model = lgp.LatentGP(lgp.RBF(1.0, 1.0), lgp.StudentT(scale, 4.0))
    data = lgp.Data(inputs, np.sin(inputs[:, 0]) + scale * noise)
    fit = lgp.fit(
        model, data, key=jax.random.key(0), method=lgp.Laplace(), learn_hyperparameters=False
    )
    assert fit.diagnostics.converged
    mean = jnp.asarray(fit.posterior.predict_f(inputs).mean)
    log_prob = jax.vmap(lambda y, f: model.likelihood.log_prob(y, f[None], {}))
    slope = jax.grad(lambda f: jnp.sum(log_prob(data.y, f)))(mean)
    pulled = model.kernel.gram(inputs, inputs) @ slope
    np.testing.assert_allclose(pulled, mean, atol=1e-5 / scale)


def test_laplace_of_tied_latents_is_accelerated(x64):
    targets = np.stack([SMOOTH, SMOOTH[::-1], SMOOTH**2], axis=1)
    likelihood = lgp.LinearCoregionalisation([[1.0, 0.5], [0.3, -1.0], [1.0, 1.0]], 0.1)
    ours = converged(lgp.Laplace(), lgp.LatentGP(KERNEL, likelihood), lgp.Data(X, targets))
    assert int(ours.updates) < 60


def test_expectations_by_quasi_monte_carlo_are_called_no_bound():
    for classes, kind in ((2, "lower bound"), (3, "approximation")):
        model = lgp.LatentGP(KERNEL, lgp.Softmax(classes))
        assert lgp.VariationalInference().algorithm(model).evidence_kind(model) == kind


def test_sites_from_which_there_is_no_way_are_not_called_settled():
    """A rate of exp(f) by a function of the user's, which does not say where its latents are."""
    rate = lgp.CustomLikelihood(lambda y, f: y * f[0] - jnp.exp(f[0]))
    data = lgp.Data(np.arange(5.0), [0.0, 3.0, 4000.0, 0.0, 1.0])
    fit = lgp.fit(
        lgp.LatentGP(lgp.RBF(1.0, 3.0), rate),
        data,
        key=jax.random.key(0),
        method=lgp.VariationalInference(),
        learn_hyperparameters=False,
    )
    by_name = lgp.fit(
        lgp.LatentGP(lgp.RBF(1.0, 3.0), lgp.Poisson()),
        data,
        key=jax.random.key(0),
        method=lgp.VariationalInference(),
        learn_hyperparameters=False,
    )
    constant = float(jnp.sum(jax.scipy.special.gammaln(data.y + 1)))
    lacking = float(by_name.posterior.log_evidence) + constant - float(fit.posterior.log_evidence)
    assert not fit.diagnostics.converged or abs(lacking) < 1e-2
