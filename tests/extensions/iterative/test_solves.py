"""Hyper-parameters learned along stochastic gradients, beside those of the exact evidence."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from bounded import check_bounds_are_told

KEY = jax.random.key(0)
_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (60, 2))
DATA = lgp.Data(X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * _rng.normal(size=60))
MODEL = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))


def logs(model):
    return np.log([float(info.value) for info in lgp.parameters(model).values()])


@pytest.fixture(scope="module")
def exact():
    return lgp.fit(MODEL, DATA, method=lgp.ExactGP(), key=KEY)


@pytest.mark.parametrize(
    ("optimiser", "settings"),
    [("adagrad", {}), ("adam", {}), ("adam", {"pathwise": True, "probes": 32})],
    ids=["adagrad", "adam", "pathwise"],
)
def test_it_ends_at_the_most_probable_hyperparameters(optimiser, settings, exact, tmp_path):
    solves = lgp.Solves(rank=30, **settings)
    method = lgp.SolvesGP(optimiser=optimiser, solves=solves, iterations=120)
    fit = lgp.fit(MODEL, DATA, method=method, key=KEY)
    np.testing.assert_allclose(logs(fit.model), logs(exact.model), atol=0.1)
    found, wanted = (float(f.posterior.log_evidence) for f in (fit, exact))
    assert found == pytest.approx(wanted, abs=0.2)
    assert fit.diagnostics.converged
    assert "all 120 iterations" in fit.diagnostics.ending
    assert fit.diagnostics.evaluations == 120
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    np.testing.assert_array_equal(again.posterior.mean_f(X[:4]), fit.posterior.mean_f(X[:4]))


def test_a_callback_ends_it_and_what_is_not_settled_is_said():
    told = []

    def ended(progress):
        told.append(progress)
        return progress.iteration >= 20

    fit = lgp.fit(MODEL, DATA, method=lgp.SolvesGP(), key=KEY, callback=ended)
    assert [progress.iteration for progress in told] == [10, 20]
    assert not fit.diagnostics.converged
    assert "callback" in fit.diagnostics.ending
    short = lgp.fit(MODEL, DATA, method=lgp.SolvesGP(iterations=6), key=KEY).diagnostics
    assert not short.converged
    assert any("still moved" in warning for warning in short.warnings)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(lgp.InputError, match="iterations must be at least 4"):
        lgp.SolvesGP(iterations=1)
    model, counts = lgp.LatentGP(lgp.RBF(), lgp.Poisson()), lgp.Data(X, np.arange(60.0))
    with pytest.raises(lgp.InputError, match="needs Gaussian noise on one output"):
        lgp.fit(model, counts, method=lgp.SolvesGP(), key=KEY)


def test_held_hyperparameters_leave_the_exact_posterior(exact):
    fit = lgp.fit(exact.model, DATA, method=lgp.SolvesGP(), key=KEY, learn_hyperparameters=False)
    np.testing.assert_allclose(fit.posterior.mean_f(X[:4]), exact.posterior.mean_f(X[:4]))


def test_hyperparameters_at_their_bounds_are_told(monkeypatch):
    check_bounds_are_told(lgp.SolvesGP(), monkeypatch)
