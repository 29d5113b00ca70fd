"""Precomputed Gram matrices: the same answers as the kernel, refusals, further points."""

import jax
import numpy as np
import pytest

import latentgp as lgp

RNG = np.random.default_rng(1)
X = RNG.uniform(0.0, 4.0, (20, 1))
NEW = np.array([[0.5], [2.2], [3.9]])
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=20)
KERNEL = lgp.RBF(0.7) + 0.3 * lgp.Linear()
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def grams():
    with jax.enable_x64(True):
        both = np.concatenate([X, NEW])
        return np.asarray(KERNEL.gram(both, both))


def fitted(kernel, inputs):
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.05))
    data = lgp.Data(inputs, Y)
    return lgp.fit(model, data, key=KEY, learn_hyperparameters=False).posterior


def test_predictions_are_those_of_the_kernel(grams):
    expected = fitted(KERNEL, X).predict_f(NEW)
    whole = fitted(lgp.Precomputed(grams), np.arange(20.0)).predict_f([20.0, 21.0, 22.0])
    narrow = lgp.Precomputed(grams[:20, :20]).extended(grams[20:, :20], np.diagonal(grams)[20:])
    later = fitted(narrow, np.arange(20.0)).predict_f([20.0, 21.0, 22.0])
    for found in (whole, later):
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, atol=1e-8)


def test_points_that_are_not_there_are_refused(grams):
    kernel = lgp.Precomputed(grams)
    with pytest.raises(lgp.InputError, match=r"knows the points 0 to 22, got \[23.0\]"):
        fitted(kernel, np.arange(4.0, 24.0))
    posterior = fitted(2.0 * kernel, np.arange(20.0))
    for wrong in (-1.0, 0.5, 23.0):
        with pytest.raises(lgp.InputError, match="knows the points"):
            posterior.predict([wrong])
    with pytest.raises(lgp.InputError, match="reads one column"):
        fitted(kernel, np.zeros((20, 2)))
    with pytest.raises(lgp.InputError, match="values between rows"):
        lgp.fit(
            lgp.LatentGP(kernel, lgp.Gaussian(0.1)),
            lgp.Data(np.arange(20.0), Y),
            key=KEY,
            method=lgp.CollapsedVI(lgp.Inducing(5)),
        )


@pytest.mark.quick
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "square Gram matrix"),
        (np.ones(3), "square Gram matrix"),
        ([[1.0, 0.5], [0.4, 1.0]], "not symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "indefinite: its smallest eigenvalue is -1"),
        ([[1.0, np.nan], [np.nan, 1.0]], "not finite"),
    ],
)
def test_matrices_that_are_no_covariances_are_refused(matrix, message):
    with pytest.raises(lgp.InputError, match=message) as caught:
        lgp.Precomputed(matrix)
    assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_further_points_that_do_not_fit_are_refused():
    kernel = lgp.Precomputed(np.eye(2))
    with pytest.raises(lgp.InputError, match=r"covariances with the first 2 points"):
        kernel.extended(np.ones((1, 3)), [1.0])
    with pytest.raises(lgp.InputError, match="not negative"):
        kernel.extended(np.ones((1, 2)), [-1.0])
    with pytest.raises(lgp.InputError, match="differ from the diagonal"):
        lgp.Precomputed(np.eye(2), [1.0, 2.0])
    with pytest.raises(lgp.InputError, match="2 rows and 3 columns"):
        lgp.Precomputed(np.ones((2, 3)), [1.0, 1.0])


def test_singular_matrices_are_taken():
    Z = RNG.normal(size=(30, 2))
    lgp.Precomputed(Z @ Z.T)
    lgp.Precomputed((Z @ Z.T).astype(np.float32))


@pytest.mark.slow
def test_draws_share_one_gram_matrix(grams):
    """Hyper-parameters differ from draw to draw, the matrix does not, and is kept once."""
    both = (lgp.Precomputed(grams), lgp.Precomputed(np.eye(23)))
    model = lgp.LatentGP(lgp.WeightedSum(both), lgp.Gaussian(0.05))
    method = lgp.NUTS(chains=2, warmup=30, draws=10)
    posterior = lgp.fit(model, lgp.Data(np.arange(20.0), Y), key=KEY, method=method).posterior
    models = posterior.components.models
    assert models.kernel.parts[0].matrix.shape == (1, 23, 23)
    assert models.kernel.weights.shape == (20, 2)
    found = posterior.predict_f([20.0, 21.0])
    one, rows = [], posterior.components.centres[:, 0].astype(int)
    for draw in range(20):
        weights = np.asarray(models.kernel.weights[draw])
        K = weights[0] * grams + weights[1] * np.eye(23)
        L = np.linalg.cholesky(K[np.ix_(rows, rows)])
        one.append(K[20:22, rows] @ np.linalg.solve(L.T, posterior.components.white[draw, 0]))
    np.testing.assert_allclose(found.mean, np.mean(one, axis=0), atol=1e-5)
    assert posterior.sample_f([20.0, 21.0], key=KEY, number=3).shape == (3, 2)
