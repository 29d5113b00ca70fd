"""Runs of a search: where they end, and what they do not evaluate twice."""

from collections import defaultdict
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import latentgp as lgp
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

    def climbed(wrong):
        found = Records()
        traits = SimpleNamespace(estimates_evidence=True, needs_all_rows=False)
        algorithm = SimpleNamespace(representation=SimpleNamespace(traits=traits))
        runs = object.__new__(hyperparameters._Runs)
        runs._algorithm, runs._search, runs._known = algorithm, found, defaultdict(dict)
        runs._bounds, runs.endings = (np.array([-2.0]), np.array([2.0])), {}

        def evaluate(self, vector, data, run):
            gradient = np.where(np.abs(vector) < 0.02, wrong, -1_000 * vector)
            value = -500 * float(vector[0] ** 2)
            found.records.append(Record(vector.copy(), value, value, gradient, 0.0, run))
            return found.records[-1]

        monkeypatch.setattr(hyperparameters._Runs, "_evaluate", evaluate)
        rows = lgp.Data([0.0], [0.0], weights=[ROWS])
        runs._climb_from(np.array([0.5]), rows, 0, 1e-6, 0.3)
        values = [record.value for record in found.records]
        after = len(values) - 1 - int(np.argmax(values))
        return runs.endings[0], after, runs._promises_nothing(0, rows)

    return climbed


@pytest.mark.quick
def test_estimates_that_no_step_raises_end_a_run_where_little_is_promised(climb):
    """A gradient of three promises 0.009 nats of 1,000 rows, one of 300 ninety."""
    (converged, reason), after, nothing = climb(3.0)
    assert (converged, nothing) == (True, True)
    assert after == _FEWEST_STEPS
    assert reason == f"{NO_STEP_OF_ESTIMATE}, whose gradient promises 0.009 nats"
    (converged, _), _, nothing = climb(8.0)  # 0.064 nats: a climb with a new start is due
    assert (converged, nothing) == (True, False)
    (converged, reason), after, nothing = climb(300.0)
    assert (converged, nothing) == (False, False)
    assert after > _ESTIMATED_STEPS
    assert reason.endswith("promises 90 nats")


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
