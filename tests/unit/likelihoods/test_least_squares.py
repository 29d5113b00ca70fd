"""Classes by least squares: exact, one factorisation, temperatures by leave-one-out."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import latentgp as lgp
from latentgp import InputError
from latentgp.choosing.choice import choose_method

CLASSES = 3
_generator = np.random.default_rng(0)
X = _generator.normal(size=(30, 2))
Y = np.argmax(X @ _generator.normal(size=(2, CLASSES)) + _generator.gumbel(size=(30, 3)), axis=1)
KERNEL = lgp.RBF(lengthscale=0.9, variance=0.3)
LIKELIHOOD = lgp.LeastSquares(CLASSES, noise_variance=0.05)
NEW = _generator.normal(size=(7, 2))


def fitted(X=X, y=Y, **settings):
    model = lgp.LatentGP(KERNEL, LIKELIHOOD)
    return lgp.fit(
        model,
        lgp.Data(X, y.astype(float)),
        method=lgp.ExactGP(),
        key=jax.random.key(0),
        **settings,
    )


@pytest.fixture(scope="module")
def posterior():
    return fitted(learn_hyperparameters=False).posterior


def test_the_posterior_is_that_of_a_regression_on_each_indicator(posterior):
    total = 0.0
    marginals = posterior.predict_f(NEW)
    for k in range(CLASSES):
        indicator = (k == Y) - 1 / CLASSES
        own = lgp.fit(
            lgp.LatentGP(KERNEL, lgp.Gaussian(noise_variance=0.05)),
            lgp.Data(X, indicator),
            method=lgp.ExactGP(),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        ).posterior
        total += own.log_evidence.value
        one = own.predict_f(NEW)
        np.testing.assert_allclose(marginals.mean[:, k], one.mean, atol=1e-10)
        np.testing.assert_allclose(marginals.variance[:, k], one.variance, atol=1e-10)
    np.testing.assert_allclose(posterior.log_evidence.value, total, rtol=1e-10)
    assert posterior.log_evidence.kind == "exact"


def test_one_factor_serves_all_classes(posterior):
    assert len(posterior.latent.factor.lower) == 1


def test_without_learning_the_temperature_stays(posterior):
    assert posterior.model.likelihood.temperature == 1.0


def test_the_temperature_maximises_leave_one_out_probabilities():
    learned = fitted(frozen=("kernel.lengthscale", "likelihood.noise_variance")).model
    held = dataclasses.replace(learned, likelihood=lgp.LeastSquares(CLASSES, 0.05))

    def left_out(n):
        rest = np.arange(30) != n
        one = lgp.fit(
            held,
            lgp.Data(X[rest], Y[rest].astype(float)),
            method=lgp.ExactGP(),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        ).posterior.predict_f(X[n : n + 1])
        return one.mean[0], one.variance[0]

    mean, variance = map(np.array, zip(*map(left_out, range(30)), strict=True))

    def loss(temperature):
        scale = 0.05 * temperature
        logits = mean / np.sqrt(scale**2 + np.pi / 4 * variance)
        return np.mean(logsumexp(logits, axis=1) - logits[np.arange(30), Y])

    found = float(learned.likelihood.temperature)
    best = min(loss(t) for t in np.exp(np.linspace(-6, 8, 500)))
    assert loss(found) <= best + 1e-5
    assert loss(1.0) > best + 1e-3


def test_a_short_search_learns_from_some_rows_and_conditions_on_all():
    model = lgp.LatentGP(KERNEL, LIKELIHOOD)
    method = lgp.ExactGP(search=lgp.ShortSearch(rows=12, evaluations=3))
    data = lgp.Data(X, Y.astype(float))
    short = lgp.fit(model, data, method=method, key=jax.random.key(0))
    assert short.diagnostics.evaluations == 3
    told = short.diagnostics
    assert told.stopped_as_meant
    assert not told.converged
    assert not told.warnings
    assert told.verdict.startswith("Stopped as meant after 3 evaluations")
    records = np.maximum.accumulate(short.history.value)
    assert f"its last gain was {np.diff(np.unique(records))[-1]:.2g} nats" in told.notes[0]
    assert np.count_nonzero(short.posterior.latent.precision[0]) == 30
    assert not np.isclose(short.model.kernel.variance, KERNEL.variance)
    shorter = lgp.fit(model, data, method=method, key=jax.random.key(0), max_evaluations=2)
    assert not shorter.diagnostics.converged
    assert not shorter.diagnostics.stopped_as_meant


@pytest.mark.parametrize("settings", [{"rows": 0}, {"evaluations": 0}])
def test_a_search_of_nothing_is_refused(settings):
    with pytest.raises(InputError, match=r"rows must be at least 1|evaluations must be at least 1"):
        lgp.ShortSearch(**settings)


def labelled(classes, rows):
    generator = np.random.default_rng(1)
    centres = 2 * generator.normal(size=(classes, 3))
    y = np.arange(rows) % classes
    return centres[y] + 0.3 * generator.normal(size=(rows, 3)), y


def test_many_classes_of_some_hundred_rows_are_fitted_by_least_squares():
    X, y = labelled(10, 410)
    classifier = lgp.GPClassifier(random_state=0, max_evaluations=2).fit(X, y)
    assert isinstance(classifier.model_.likelihood, lgp.LeastSquares)
    assert isinstance(classifier.method_, lgp.ExactGP)
    assert "one factorisation for all classes" in classifier.method_reason_
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(probabilities, classifier.predict_proba(X))
    assert np.mean(np.log(probabilities[np.arange(410), y])) > -0.5


@pytest.mark.parametrize(("classes", "rows"), [(9, 450), (10, 390), (10, 5_010)])
def test_others_are_not(classes, rows):
    X, y = labelled(classes, rows)
    classifier = lgp.GPClassifier()
    classifier.classes_ = np.arange(classes)
    likelihood = classifier._class_likelihood(lgp.Data(X, y.astype(float)))
    assert isinstance(likelihood, lgp.Softmax)


def test_a_short_search_of_few_rows_is_for_least_squares_alone():
    softmax = choose_method(lgp.LatentGP(KERNEL, lgp.Softmax(3)), 1_000).method
    regression = choose_method(lgp.LatentGP(KERNEL, lgp.Gaussian()), 1_000).method
    assert isinstance(softmax, lgp.VariationalInference)
    assert regression == lgp.ExactGP()
    least_squares = choose_method(lgp.LatentGP(KERNEL, LIKELIHOOD), 1_000).method
    assert least_squares == lgp.ExactGP(search=lgp.ShortSearch())
