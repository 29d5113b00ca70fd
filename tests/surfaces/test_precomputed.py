"""Estimators of Gram matrices: scikit-learn's manner, what is asked of new rows, refusals."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import latentgp as lgp

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(24, 2)), RNG.normal(size=(3, 2))
LABELS = np.where(X[:, 0] > 0, "yes", "no")
Y = 5 + np.sin(X[:, 0])


def gram(A, B):
    return 4.0 * rbf_kernel(A, B, gamma=0.5)


@pytest.fixture(scope="module")
def regressor():
    return lgp.GPRegressor("precomputed", random_state=0).fit(gram(X, X), Y)


@pytest.fixture(scope="module")
def held():
    """Hyper-parameters as they are given, by the kernel and by its Gram matrix."""
    kernels = lgp.Constant(1.0) * lgp.RBF(1.0, 4.0), "precomputed"
    by_kernel, by_gram = (
        lgp.GPClassifier(kernel, learn_hyperparameters=False, random_state=0).fit(inputs, LABELS)
        for kernel, inputs in zip(kernels, (X, gram(X, X)), strict=True)
    )
    return by_kernel, by_gram


def test_probabilities_are_those_of_the_kernel(held):
    by_kernel, by_gram = held
    expected = by_kernel.predict_proba(NEW)
    np.testing.assert_allclose(by_gram.predict_proba(gram(NEW, X)), expected, atol=1e-5)
    with_variances = np.column_stack([gram(NEW, X), np.full(3, 4.0)])
    np.testing.assert_allclose(by_gram.predict_proba(with_variances), expected, atol=1e-5)
    np.testing.assert_allclose(
        by_gram.predict_proba(gram(X, X)), by_kernel.predict_proba(X), atol=1e-5
    )
    more = by_gram.predict_proba(np.column_stack([gram(NEW, X), np.full(3, 40.0)]))
    assert np.all(np.abs(more - 0.5) < np.abs(expected - 0.5))
    assert by_gram.predict(gram(NEW, X)).tolist() == by_kernel.predict(NEW).tolist()
    assert by_gram.predict_proba(np.zeros((0, 24))).shape == (0, 2)


def test_the_scale_is_learned_and_predictions_are_sharp(regressor):
    mean, std = regressor.predict(gram(NEW, X), return_std=True)
    np.testing.assert_allclose(mean, 5 + np.sin(NEW[:, 0]), atol=0.3)
    assert np.all(std < 0.5)
    assert not np.isclose(float(regressor.model_.kernel.parts[0].variance), 4.0)
    assert regressor.predict_interval(gram(NEW, X))[0].shape == (3,)


def test_cross_validation_takes_rows_and_columns():
    classifier = lgp.GPClassifier("precomputed", learn_hyperparameters=False, random_state=0)
    assert get_tags(classifier).input_tags.pairwise
    assert not get_tags(lgp.GPClassifier()).input_tags.pairwise
    assert cross_val_score(classifier, gram(X, X), LABELS, cv=2).mean() > 0.7


def test_it_is_saved(regressor, tmp_path):
    again = lgp.load(regressor.save(tmp_path / "regressor"))
    np.testing.assert_array_equal(again.predict(gram(NEW, X)), regressor.predict(gram(NEW, X)))


def test_variances_that_differ_are_asked_for():
    K = X @ X.T + 0.1 * np.eye(len(X))
    fitted = lgp.GPRegressor("precomputed", learn_hyperparameters=False).fit(K, X[:, 0])
    assert fitted.predict(K[:3], return_std=True)[1].shape == (3,)  # rows of the fit
    with pytest.raises(lgp.InputError, match=r"give X of shape \(S, 25\)"):
        fitted.predict(NEW @ X.T)
    variances = np.sum(NEW**2, axis=1) + 0.1
    mean, std = fitted.predict(np.column_stack([NEW @ X.T, variances]), return_std=True)
    assert mean.shape == std.shape == (3,)


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.ones((24, 3)), "square Gram matrix of all pairs"),
        (np.tril(gram(X, X)), "not symmetric"),
        (gram(X, X) - 3.0 * np.eye(24), "indefinite"),
        (np.zeros((24, 24)), "is zero"),
    ],
)
def test_wrong_matrices_are_refused(K, message):
    with pytest.raises(lgp.InputError, match=message) as caught:
        lgp.GPClassifier("precomputed").fit(K, LABELS)
    assert "\n" not in str(caught.value)


def test_what_needs_inputs_is_refused(regressor):
    with pytest.raises(lgp.InputError, match="from covariances with the 24 rows"):
        regressor.predict(np.ones((2, 5)))
    with pytest.raises(lgp.InputError, match="must not be negative"):
        regressor.predict(np.column_stack([gram(NEW, X), [-1.0, 1.0, 1.0]]))
    for ask in (
        lambda: regressor.sample_y(gram(NEW, X)),
        lambda: regressor.predict(gram(NEW, X), return_cov=True),
        lambda: regressor.partial_fit(gram(X, X), Y),
    ):
        with pytest.raises(lgp.InputError, match="needs covariances between new rows"):
            ask()
    with pytest.raises(lgp.InputError, match="needs values between rows"):
        lgp.GPRegressor("precomputed", n_inducing=5).fit(gram(X, X), Y)
    with pytest.raises(lgp.InputError, match='"precomputed", or None'):
        lgp.GPRegressor("linear").fit(X, Y)
