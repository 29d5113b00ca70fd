"""Laplace's approximation about the mean of the bound in place of the mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import latentgp as lgp

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
X = np.linspace(0, 4, 12)[:, None]
KERNEL = lgp.RBF(0.8, 9.0)


def fitted(likelihood, y, *, data=None, **settings):
    model = lgp.LatentGP(KERNEL, likelihood)
    method = lgp.Laplace(**settings)
    data = lgp.Data(X, y) if data is None else data
    return lgp.fit(model, data, method=method, key=KEY, learn_hyperparameters=False)


CASES = {
    "logistic": (lgp.Bernoulli(), (np.sin(2 * X[:, 0]) > 0).astype(float)),
    "Poisson": (lgp.Poisson(), np.array([0, 1, 4, 9, 3, 0, 0, 2, 6, 1, 0, 0.0])),
}


@pytest.mark.parametrize("name", CASES)
def test_the_mean_is_that_of_the_highest_bound_given_the_covariance(name):
    """Against SciPy, with expectations by 60 nodes of Gauss and Hermite."""
    likelihood, y = CASES[name]
    mode, mean = (fitted(likelihood, y, correct_mean=own) for own in (False, True))
    variance = mode.posterior.predict_f(X).variance
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    K = np.asarray(KERNEL.gram(X, X))
    spread = np.sqrt(variance)[:, None] * nodes

    @jax.jit
    @jax.value_and_grad
    def loss(m):
        def log_prob(y, f):
            return jax.vmap(lambda f: likelihood.log_prob(y, f[None], {}))(f)

        values = jax.vmap(log_prob)(jnp.asarray(y), m[:, None] + spread)
        return 0.5 * m @ jnp.linalg.solve(K, m) - jnp.sum(values @ weights)

    best = minimize(loss, mode.posterior.predict_f(X).mean, jac=True, tol=1e-12).x
    found = mean.posterior.predict_f(X)
    np.testing.assert_allclose(found.mean, best, atol=1e-4)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-6)
    assert float(mean.posterior.log_evidence) == float(mode.posterior.log_evidence)
    moved = np.max(np.abs(best - mode.posterior.predict_f(X).mean) / np.sqrt(variance))
    assert f"up to {moved:.2g} posterior deviations from the mode" in mean.diagnostics.verdict
    assert "from the mode" not in mode.diagnostics.verdict


def test_sites_that_couple_classes_move_the_mean_too():
    """K^-1 m is the expected slope of log p, by 24^3 nodes, under dense algebra's covariance."""
    labels = np.array([0, 0, 1, 1, 2, 2, 0, 1, 2, 2, 1, 0.0])
    likelihood = lgp.Softmax(3)
    fit = fitted(likelihood, labels, coupled=True)
    mode = fitted(likelihood, labels, coupled=True, correct_mean=False)
    K = np.asarray(KERNEL.gram(X, X))
    W = np.zeros((12, 3, 12, 3))
    W[np.arange(12), :, np.arange(12), :] = mode.sites.precision[mode.rows.origin]
    precision = np.einsum("nm,qr->nqmr", np.linalg.inv(K), np.eye(3)) + W
    S = np.linalg.inv(precision.reshape(36, 36)).reshape(12, 3, 12, 3)
    S = S[np.arange(12), :, np.arange(12), :]
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", *[weights / weights.sum()] * 3).ravel()
    m = fit.posterior.predict_f(X).mean
    f = m[:, None] + np.einsum("nqr,sr->nsq", np.linalg.cholesky(S), grid)
    probabilities = np.exp(f - np.logaddexp.reduce(f, axis=2, keepdims=True))
    slope = np.eye(3)[labels.astype(int)] - np.einsum("nsq,s->nq", probabilities, weights)
    np.testing.assert_allclose(K @ slope, m, atol=0.02)
    assert np.abs(K @ slope - mode.posterior.predict_f(X).mean).max() > 0.5


def test_the_mode_stays_where_the_bound_may_have_several_highest_means():
    data = lgp.Data(X, np.where(np.arange(12) == 4, 30.0, np.sin(X[:, 0])))
    own, mode = (
        fitted(lgp.StudentT(0.1), None, data=data, correct_mean=corrected)
        for corrected in (True, False)
    )
    np.testing.assert_array_equal(own.posterior.predict_f(X), mode.posterior.predict_f(X))
    assert "from the mode" not in own.diagnostics.verdict


def test_points_and_weights_move_the_mean_as_rows_do():
    """Through points at all rows, and of a row of weight two as of two rows."""
    likelihood, y = CASES["Poisson"]
    twice = lgp.Data(np.append(X, X[3:4], axis=0), np.append(y, y[3]))
    weighted = lgp.Data(X, y, weights=np.where(np.arange(12) == 3, 2.0, 1.0))
    dense, once = (fitted(likelihood, y, data=data) for data in (twice, weighted))
    through = fitted(likelihood, y, representation=lgp.Inducing(points=X))
    np.testing.assert_allclose(
        dense.posterior.predict_f(X).mean, once.posterior.predict_f(X).mean, atol=1e-5
    )
    np.testing.assert_allclose(
        through.posterior.predict_f(X).mean,
        fitted(likelihood, y).posterior.predict_f(X).mean,
        atol=1e-3,
    )


def test_few_points_move_the_mean_under_the_prior_of_fitc():
    """The prior of Q + diag(K - Q), dense: its bound has the same mean."""
    likelihood, y = CASES["Poisson"]
    kernel, Z = lgp.RBF(0.3, 9.0), X[::3]
    model = lgp.LatentGP(kernel, likelihood)
    cross = np.asarray(kernel.gram(X, Z))
    Q = cross @ np.linalg.solve(np.asarray(kernel.gram(Z, Z)), cross.T)
    prior = Q + np.diag(9.0 - np.diag(Q))
    fit = lgp.fit(
        *(model, lgp.Data(X, y)),
        method=lgp.Laplace(lgp.Inducing(points=Z)),
        key=KEY,
        learn_hyperparameters=False,
    )
    W = fit.sites.precision[fit.rows.origin, 0]
    S = np.linalg.inv(np.linalg.inv(prior) + np.diag(W))
    m = np.zeros(12)
    for _ in range(200):  # Newton's steps with the expected curvature
        rate = np.exp(m + np.diag(S) / 2)
        hessian = np.linalg.inv(prior) + np.diag(rate)
        m = m + np.linalg.solve(hessian, y - rate - np.linalg.solve(prior, m))
    # Elsewhere predictions are of f given u, not of the rows' own f.
    np.testing.assert_allclose(fit.posterior.predict_f(Z).mean, m[::3], atol=1e-4)
    assert "from the mode" in fit.diagnostics.verdict


def test_a_mean_that_does_not_settle_is_said():
    """Twenty counts of zero under a vague prior: E exp(f) is far above exp of the mode."""
    inputs = np.linspace(0, 40, 24)[:, None]
    counts = np.where(np.arange(24) % 6 == 0, 40.0, 0.0)
    model = lgp.LatentGP(lgp.RBF(0.5, 400.0), lgp.Poisson())
    fit, mode = (
        lgp.fit(
            model, lgp.Data(inputs, counts), method=method, key=KEY, learn_hyperparameters=False
        )
        for method in (lgp.Laplace(), lgp.Laplace(correct_mean=False))
    )
    assert "Posterior means are the mode: updates" in fit.diagnostics.verdict
    np.testing.assert_array_equal(
        fit.posterior.predict_f(inputs).mean, mode.posterior.predict_f(inputs).mean
    )


def test_a_row_without_prior_variance_does_not_hide_the_move():
    inputs = np.array([[0.0], [1.0], [2.0], [-1.0]])
    model = lgp.LatentGP(lgp.Linear(4.0), lgp.Bernoulli())
    data = lgp.Data(inputs, np.array([1.0, 1.0, 1.0, 0.0]))
    fit = lgp.fit(model, data, method=lgp.Laplace(), key=KEY, learn_hyperparameters=False)
    assert "posterior deviations from the mode" in fit.diagnostics.verdict
