"""Inducing points of each latent function."""

import jax
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

import latentgp as lgp
from latentgp.extensions.black_box.mixtures.own_points import OwnPoints

KEY = jax.random.key(0)
X = np.linspace(0.0, 4.0, 15)[:, None]
LIKELIHOOD = lgp.LinearCoregionalisation(
    np.array([[1.0, 0.3], [-0.4, 0.8]]), noise_variance=[0.2, 0.2]
)
KERNEL = lgp.PerLatent(lgp.RBF(0.7, 1.2), lgp.Matern52(1.5, 0.8))
MODEL = lgp.LatentGP(KERNEL, LIKELIHOOD, lgp.ConstantMean(0.1))
Y = np.stack([np.sin(2 * X[:, 0]), np.cos(X[:, 0])], axis=1)
DATA = lgp.Data(X, Y)
POINTS = np.stack([X[1:13:2] + 0.05, X[2:14:2] + 0.1])
HELD = {"key": KEY, "learn_hyperparameters": False}


def own(points, **settings):
    return lgp.BlackBoxVI(lgp.Inducing(points=X[:3]), own_points=points, **settings)


@pytest.mark.usefixtures("x64")
def test_the_posterior_is_that_of_dense_algebra(tmp_path):
    """Gaussian noise: q(u) and bound in closed form, latents stacked (Titsias 2009, eq. 10)."""
    fit = lgp.fit(MODEL, DATA, method=own(POINTS), **HELD)
    new = np.linspace(-0.5, 4.5, 8)[:, None]
    W, noise = np.asarray(LIKELIHOOD.mixing), 0.2
    kernels = KERNEL.each
    K = [np.asarray(k.gram(Z, Z)) for k, Z in zip(kernels, POINTS, strict=True)]

    def projections(inputs):
        crosses = [np.asarray(k.gram(Z, inputs)) for k, Z in zip(kernels, POINTS, strict=True)]
        return [np.linalg.solve(own_K, c).T for own_K, c in zip(K, crosses, strict=True)], crosses

    at_rows, crosses = projections(X)
    zero, size = np.zeros((6, 6)), 6
    prior = np.block([[K[0], zero], [zero, K[1]]])
    A = np.block([[W[p, q] * at_rows[q] for q in (0, 1)] for p in (0, 1)])
    target = (Y - 0.1 * W.sum(axis=1)).T.ravel()
    precision = np.linalg.inv(prior) + A.T @ A / noise
    S = np.linalg.inv(precision)
    mean = S @ A.T @ target / noise
    found = fit.posterior.predict_f(new)
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    np.testing.assert_array_equal(again.posterior.predict_f(new).variance, found.variance)
    np.testing.assert_array_equal(again.diagnostics.method.own_points, POINTS)
    at_new, _ = projections(new)
    for q in (0, 1):
        part = slice(size * q, size * (q + 1))
        np.testing.assert_allclose(found.mean[:, q], 0.1 + at_new[q] @ mean[part], atol=1e-6)
    Q = A @ prior @ A.T + noise * np.eye(len(target))
    factor = cho_factor(Q, lower=True)
    logs = np.log(np.diagonal(factor[0])).sum()
    exact = -0.5 * target @ cho_solve(factor, target) - logs - 0.5 * len(target) * np.log(2 * np.pi)
    left = [
        np.asarray(k.diagonal(X)) - np.einsum("nm,mn->n", a, c)
        for k, a, c in zip(kernels, at_rows, crosses, strict=True)
    ]
    trace = sum((W[p, q] ** 2 * left[q]).sum() for p in (0, 1) for q in (0, 1))
    joint = exact - 0.5 * trace / noise
    # Latents are independent: blocks of the precision are inverted one by one, and the bound falls.
    blocks = [np.linalg.inv(precision[s, s]) for s in (slice(0, 6), slice(6, 12))]
    gap = 0.5 * (np.linalg.slogdet(S)[1] - sum(np.linalg.slogdet(b)[1] for b in blocks))
    np.testing.assert_allclose(fit.posterior.log_evidence.value, joint - gap, atol=1e-5)
    for q in (0, 1):
        residual = np.asarray(kernels[q].diagonal(new)) - np.einsum(
            "nm,mk,nk->n", at_new[q], K[q], at_new[q]
        )
        variance = residual + np.einsum("nm,mk,nk->n", at_new[q], blocks[q], at_new[q])
        np.testing.assert_allclose(found.variance[:, q], variance, atol=2e-5)


@pytest.mark.parametrize("coordinates", ["white", pytest.param("values", marks=pytest.mark.slow)])
def test_the_same_points_are_shared_ones(coordinates):
    noisy = lgp.LatentGP(KERNEL, lgp.HeteroscedasticGaussian())
    data = lgp.Data(X, np.sin(2 * X[:, 0]))
    settings = {"coordinates": coordinates, "start_means": np.zeros((1, 6, 2))}
    shared = lgp.BlackBoxVI(lgp.Inducing(points=POINTS[0]), **settings)
    one = lgp.fit(noisy, data, method=shared, **HELD)
    other = lgp.fit(noisy, data, method=own(POINTS[[0, 0]], **settings), **HELD)
    a, b = (fit.posterior.predict_f(X + 0.1) for fit in (one, other))
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-6)
    np.testing.assert_allclose(a.variance, b.variance, atol=1e-6)
    assert one.posterior.log_evidence.value == pytest.approx(other.posterior.log_evidence.value)


@pytest.mark.slow
def test_they_are_learned_apart():
    start = POINTS[[0, 0]]
    method = own(start, optimiser="alternating", learn_points=True)
    found = lgp.fit(MODEL, DATA, method=method, **HELD)
    held = lgp.fit(MODEL, DATA, method=own(start), **HELD)
    assert found.posterior.log_evidence.value > held.posterior.log_evidence.value
    assert len(found.posterior.latent.points) == 12
    united, places = OwnPoints(start).united()
    np.testing.assert_array_equal(united[places], start)
    assert len(united) == 6


def test_other_shapes_are_refused():
    with pytest.raises(lgp.InputError, match=r"must have shape \(2, M, 1\)"):
        lgp.fit(MODEL, DATA, method=own(POINTS[:1]), **HELD)
    with pytest.raises(lgp.InputError, match="needs inducing variables"):
        lgp.BlackBoxVI(own_points=POINTS)
