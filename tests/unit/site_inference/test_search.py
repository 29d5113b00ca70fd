"""Runs of a search: where they end, and what they do not evaluate twice."""

from collections import defaultdict
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.site_inference.methods import base
from latentgp.site_inference.search import hyperparameters
from latentgp.site_inference.search.hyperparameters import (
    _ESTIMATED_STEPS,
    _FEWEST_STEPS,
    NO_STEP_OF_ESTIMATE,
)
from latentgp.site_inference.search.search import Record, Search

ROWS = 1_000.0


class Records:
    """What a run needs of a search."""

    def __init__(self):
        self.records = []

    def replay(self, vector, run, at_most):
        return None

    def best(self, run):
        return max(self.records, key=lambda record: record.value)


@pytest.fixture
def climb(monkeypatch):
    """A run on -500 v^2 whose estimated gradient is wrong by so much near the top."""

    def climbed(wrong, reach=np.inf, beside=0.0):
        found = Records()
        traits = SimpleNamespace(estimates_evidence=True, needs_rows=False, sees_near_rows=False)
        algorithm = SimpleNamespace(representation=SimpleNamespace(traits=traits))
        runs = object.__new__(hyperparameters._Runs)
        runs._algorithm, runs._search, runs._known = algorithm, found, defaultdict(dict)
        size = 1 + bool(beside)
        runs._bounds, runs.endings = (np.full(size, -2.0), np.full(size, 2.0)), {}

        def evaluate(self, vector, data, run):
            top, *rest = vector
            near = wrong if abs(top) < 0.02 else -1_000 * top
            gradient = np.array([near, *(beside for _ in rest)])
            value = -500 * float(top**2) + beside * float(sum(rest))
            found.records.append(Record(vector.copy(), value, value, gradient, 0.0, run))
            return found.records[-1]

        monkeypatch.setattr(hyperparameters._Runs, "_evaluate", evaluate)
        rows = lgp.Data([0.0], [0.0], weights=[ROWS])
        start = np.array([0.5, 0.0][:size])
        runs._climb_from(start, rows, 0, 1e-6, 0.3, reach)
        values = [record.value for record in found.records]
        after = len(values) - 1 - int(np.argmax(values))
        assert all(np.all(abs(record.vector - start) <= reach) for record in found.records)
        return runs.endings[0], after, runs._promises_nothing(0, rows)

    return climbed


@pytest.mark.quick
def test_estimates_that_no_step_raises_end_a_run_where_little_is_promised(climb):
    """A gradient of three promises 0.009 nats of 1,000 rows, one of 300 ninety."""
    (converged, reason, _), after, nothing = climb(3.0)
    assert (converged, nothing) == (True, True)
    assert after == _FEWEST_STEPS
    assert reason == f"{NO_STEP_OF_ESTIMATE}, whose gradient promises 0.009 nats"
    (converged, *_), _, nothing = climb(8.0)  # 0.064 nats: a climb with a new start is due
    assert (converged, nothing) == (True, False)
    (converged, reason, _), after, nothing = climb(300.0)
    assert (converged, nothing) == (False, False)
    assert after > _ESTIMATED_STEPS
    assert reason.endswith("promises 90 nats")


def test_a_climb_goes_no_further_than_it_may(climb):
    """Its end at the edge is one: another climb leads on."""
    (converged, *_), _, nothing = climb(0.0, reach=0.2)
    assert (converged, nothing) == (True, False)


def test_what_leads_over_the_edge_of_a_climb_is_no_gain_of_its_own(climb):
    """Where the gradient beside it is too noisy for a further step."""
    (converged, reason, _), _, nothing = climb(3.0, reach=1.5, beside=100.0)
    assert "no step raised" in reason
    assert (converged, nothing) == (True, False)


def test_a_climb_says_where_it_began(monkeypatch):
    """On the way back from a start without a bound; its edges are around that place."""
    runs = object.__new__(hyperparameters._Runs)
    runs._first, runs._bounds = np.array([-4.0]), (np.array([-9.0]), np.array([9.0]))
    runs._search = SimpleNamespace(next_replayed=lambda run: None)

    def climb_from(self, start, *_):
        if start[0] > 1.0:
            raise hyperparameters._NoBoundError

    monkeypatch.setattr(hyperparameters._Runs, "_climb_from", climb_from)
    begun = runs._climb(np.array([4.0]), lgp.Data([0.0], [0.0]), 0, 1e-6, 0.3)
    np.testing.assert_array_equal(begun, [0.0])


@pytest.mark.slow
def test_a_first_run_on_some_rows_finds_neighbours_again(monkeypatch):
    """Those of the start are others where columns matter in unequal measure."""
    anew, began = [], Search.began_anew
    monkeypatch.setattr(
        Search, "began_anew", lambda self, run: anew.append(run) or began(self, run)
    )
    monkeypatch.setattr(hyperparameters, "_THINNED_FROM", 100)
    monkeypatch.setattr(hyperparameters, "_THINNED_ROWS", 80)
    X = np.random.default_rng(0).uniform(0, 6, (160, 2))
    data = lgp.Data(X, (np.sin(2 * X[:, 0]) > 0).astype(float))
    model = lgp.LatentGP(lgp.Matern32(lengthscale=np.ones(2)), lgp.Bernoulli())
    fit = lgp.fit(model, data, method=lgp.Laplace(lgp.Neighbours(5)), key=jax.random.key(0))
    assert hyperparameters.THINNED_RUN in anew
    assert {hyperparameters.THINNED_RUN, 0} == set(fit.history.restart)
    assert fit.diagnostics.converged


def test_a_run_evaluates_no_point_twice_where_neighbours_stay(monkeypatch):
    seen, report = defaultdict(int), Search.report

    def counted(self, record, kept):
        seen[record.restart, record.vector.tobytes()] += 1
        return report(self, record, kept)

    monkeypatch.setattr(Search, "report", counted)
    X = np.linspace(0.0, 6.0, 30)
    data = lgp.Data(X, np.sin(X) + 0.1 * np.cos(9 * X))
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.1))
    fit = lgp.fit(model, data, method=lgp.ExactGP(lgp.Neighbours(30)), key=jax.random.key(0))
    assert fit.diagnostics.ending.endswith("neighbours were found once")
    assert len(seen) > 5
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("converged", [True, False])
def test_a_search_ended_early_or_converged(converged, monkeypatch):
    """Not both: where steps by estimates promise little more, that is how far it is known."""
    found, reason = base.learn, f"{NO_STEP_OF_ESTIMATE}, whose gradient promises 0.009 nats"

    def learn(*given, **settings):
        ended = found(*given, **settings)
        return ended._replace(converged=converged, reason=reason, kind="no step by estimates")

    monkeypatch.setattr(base, "learn", learn)
    X = np.linspace(0.0, 6.0, 30)
    data, model = lgp.Data(X, np.sin(X)), lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    own = lgp.fit(model, data, key=jax.random.key(0), method=lgp.ExactGP()).diagnostics
    assert own.converged == converged
    assert any("ended early" in warning for warning in own.warnings) != converged
    assert any(reason in note for note in own.notes) == converged
