"""Rows pass one door: checked, merged, scaled once, and the method chosen once."""

import sys

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing import choice
from latentgp.posteriors import components
from latentgp.rows import arrays, data, spread

_rng = np.random.default_rng(0)
X = _rng.normal(size=(30, 2))
Y = X[:, 0] + 0.1 * _rng.normal(size=30)
WEIGHTS = np.where(np.arange(30) < 3, 2.0, 1.0)


@pytest.fixture
def counted(monkeypatch):
    """How often each function was called, in whatever module it was imported."""
    calls = {}

    def count(module, name):
        original = getattr(module, name)

        def counting(*arguments, **settings):
            label = f"{name} of {arguments[0]}" if name == "check_finite" else name
            if name != "check_finite" or len(arguments[1]) == len(X):  # not a verdict's sample
                calls[label] = calls.get(label, 0) + 1
            return original(*arguments, **settings)

        for other in list(sys.modules.values()):
            inside = getattr(other, "__dict__", {})
            ours = getattr(other, "__name__", "").startswith("latentgp")
            if ours and inside.get(name) is original:
                monkeypatch.setattr(other, name, counting)
        return original

    count(arrays, "check_finite")
    count(arrays, "as_weights")
    count(data, "_distinct")
    count(spread, "robust_spread")
    count(choice, "choose_for")
    count(sys.modules["latentgp.validation"], "check_data")
    count(choice, "choose_method")
    return calls


@pytest.mark.parametrize(
    ("estimator", "targets"),
    [(lgp.GPRegressor, Y), (lgp.GPClassifier, Y > 0)],
    ids=["regressor", "classifier"],
)
def test_an_estimator_checks_merges_scales_and_chooses_once(counted, estimator, targets):
    fitted = estimator(random_state=0, max_evaluations=2).fit(X, targets, sample_weight=WEIGHTS)
    assert fitted.posterior_ is not None
    named = {name: times for name, times in counted.items() if "of y" not in name}
    assert named.pop("check_finite of weights", 1) == 1
    assert named == {
        "check_finite of X": 1,
        "as_weights": 1,
        "_distinct": 1,
        "robust_spread": 1,
        "check_data": 1,
        "choose_for": 1,
        "choose_method": 1,
    }


def test_a_sampled_posterior_factorises_its_prior_once_for_all_predictions(monkeypatch):
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    rows = lgp.Data(np.linspace(0, 3, 8), [1, 2, 0, 1, 3, 4, 1, 0])
    method = lgp.EllipticalSlice(chains=1, draws=20, warmup=5)
    posterior = lgp.fit(
        model, rows, key=jax.random.key(0), method=method, learn_hyperparameters=False
    ).posterior
    known = posterior._prepared
    assert known.inverse is not None
    calls, inverse_at = [], components._inverse_at
    monkeypatch.setattr(components, "_inverse_at", lambda *a: calls.append(0) or inverse_at(*a))
    for number in (5, 70, 600):
        predictive = posterior.predict(np.linspace(0, 3, number))
        assert np.isfinite(predictive.mean).all()
        assert np.isfinite(predictive.log_prob(np.zeros(number))).all()
    posterior.sample_f(np.linspace(0, 3, 5), key=jax.random.key(1), number=3)
    assert calls == []


def test_marginals_stay_on_the_device_between_questions(monkeypatch):
    """A Gaussian posterior finds them once, whatever is asked."""
    model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    fitted = lgp.fit(model, lgp.Data(X, Y > 0), key=jax.random.key(0), learn_hyperparameters=False)
    predictive = fitted.posterior.predict(X)
    (mean, *_), *_ = (jax.tree.leaves(piece) for piece in predictive._rows.pieces)
    assert isinstance(mean, jax.Array)
    calls = []
    monkeypatch.setattr(components.OneGaussian, "marginals", lambda *a: calls.append(0))
    for answer in (predictive.mean, predictive.probabilities, predictive.latent_variance):
        assert np.isfinite(answer).all()
    assert calls == []


def test_rows_that_were_merged_before_give_the_same_fit():
    model, rows = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)), lgp.Data(X, Y, weights=WEIGHTS)
    key = jax.random.key(0)
    one, other = (lgp.fit(model, r, key=key) for r in (rows, rows.merged_rows()))
    np.testing.assert_array_equal(one.posterior.predict_f(X), other.posterior.predict_f(X))
