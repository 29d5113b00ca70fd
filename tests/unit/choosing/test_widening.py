"""Predictive variances averaged over hyper-parameters, of few rows."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import latentgp as lgp
from latentgp.choosing import widening as room
from latentgp.choosing.evidence import KernelShape, RowBlock, negative_log_evidence, optimum
from latentgp.choosing.widening import widening

pytestmark = pytest.mark.usefixtures("x64")


def rows_of(number, inputs=1, noise=0.5):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(number, inputs))
    y = np.sin(2 * X[:, 0]) + noise * rng.normal(size=number)
    y = (y - y.mean()) / y.std()
    return RowBlock(X, y, np.ones(number), np.ones(number))


def best_of(rows):
    inputs = rows.X.shape[1]
    start = np.append(np.full(inputs, 0.5 * np.log(inputs)), [0.0, np.log(0.1)])
    return optimum(KernelShape("RBF", inputs), [rows], start, 100)


def test_is_what_a_grid_of_hyperparameters_makes_of_it(monkeypatch):
    monkeypatch.setattr(room, "_PAIRS", 2_000)
    monkeypatch.setattr(room, "_PAIRS_OF_ROWS", 10**6)
    rows = rows_of(12)
    found = best_of(rows)
    axis = np.linspace(-6, 6, 21)
    places = found.logarithms + np.array(list(product(axis, axis, axis)))

    def left_out(places):
        """Means and variances by solving without each row, in place of the formula."""
        scale, variance, noise = np.exp(places.T)[:, :, None, None]
        K = variance * np.exp(-0.5 * (rows.X - rows.X.T) ** 2 / scale**2)
        for n in range(len(rows.y)):
            others = np.arange(len(rows.y)) != n
            C = K[:, others][:, :, others] + noise * np.eye(len(rows.y) - 1)
            gain = np.linalg.solve(C, K[:, others, n : n + 1])[:, :, 0]
            explained = np.sum(gain * K[:, others, n], axis=1)
            yield gain @ rows.y[others], (variance + noise)[:, 0, 0] - explained

    log_density = [-negative_log_evidence(p, found.candidate, [rows])[0] for p in places]
    mean, spread = np.array(list(left_out(places))).transpose(1, 2, 0)
    seen = norm.logpdf(rows.y, mean, np.sqrt(spread))
    logs = np.array(log_density)[:, None] - seen
    weights = np.exp(logs - logsumexp(logs, axis=0))
    centre = np.sum(weights * mean, axis=0)
    total = np.sum(weights * (spread + (mean - centre) ** 2), axis=0)
    mode = optimum(found.candidate, [rows], found.logarithms, 200).logarithms
    at_best = np.array(list(left_out(mode[None])))[:, 1, 0]
    shown = np.mean((rows.y - centre) ** 2 / total)
    expected = np.mean(total / at_best) * max(1, shown)
    assert widening(found, rows) == pytest.approx(expected, rel=0.1)


def test_is_less_the_more_rows_there_are():
    few, many = (widening(best_of(rows_of(n, 4)), rows_of(n, 4)) for n in (15, 200))
    assert few > 1.1
    assert 1 <= many < 1.05


class TestOfAnEstimator:
    X = np.random.default_rng(1).normal(size=(25, 4))
    y = X[:, 0] + np.random.default_rng(2).normal(size=25)

    def fitted(self, **settings):
        return lgp.GPRegressor(random_state=0, **settings).fit(self.X, self.y)

    def test_deviations_that_are_too_small_are_told(self):
        own = self.fitted()
        factor = own.kernel_choice_.widening
        assert factor > 1.2
        (note,) = [n for n in own.diagnostics_.remarks if "Standard deviations are" in n]
        assert f"about {np.sqrt(factor):.2f} times too small" in note
        assert "25 rows" in note

    @pytest.mark.parametrize(
        "settings", [{"priors": None}, {"kernel": lgp.RBF(np.ones(4))}, {"method": "exact"}]
    )
    def test_not_of_what_is_asked_for(self, settings):
        remarks = self.fitted(**settings).diagnostics_.remarks
        assert not [n for n in remarks if "Standard deviations are" in n]

    def test_next_to_no_rows_are_noted(self):
        own = lgp.GPRegressor(random_state=0).fit(self.X[:3], self.y[:3])
        assert "Deviations rest on the priors" in own.diagnostics_.verdict
        assert "more than on the 3 rows" in own.diagnostics_.verdict
