"""Where periods start."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.setup.periods import better_periods, likely_periods, stand_ins

RNG = np.random.default_rng(0)
TIMES = np.sort(RNG.uniform(0, 40, 150))
WAVE = np.sin(2 * np.pi * TIMES / 3.1)


def near(periods, right):
    return np.min(np.abs(np.log(np.asarray(periods) / right))) < 0.02


def test_a_periodogram_has_peaks_at_all_periods_beside_a_trend():
    y = 0.1 * TIMES + WAVE + 0.5 * np.sin(2 * np.pi * TIMES / 0.9) + 0.1 * RNG.normal(size=150)
    found = likely_periods(TIMES[:, None], y[:, None], np.ones(150), 0)
    assert near(found, 3.1)
    assert near(found, 0.9)


def test_a_periodogram_has_peaks_of_waves_whose_size_depends_on_another_input():
    X = np.stack([TIMES, RNG.uniform(-1, 1, 150)], axis=1)
    assert near(likely_periods(X, (X[:, 1] * WAVE)[:, None], np.ones(150), 0)[:1], 3.1)


@pytest.mark.parametrize(
    ("likelihood", "side"), [(lgp.Binomial(), "trials"), (lgp.Poisson(), "exposure")]
)
def test_numbers_for_periodograms_are_of_shares_and_rates(likelihood, side):
    units = np.array([1.0, 100.0, 10.0, 1000.0])
    rows = lgp.Data(np.arange(4.0), units * [1.0, 0.5, 0.2, 0.1], **{side: units})
    found = stand_ins(lgp.LatentGP(lgp.RBF(), likelihood), rows)[:, 0]
    assert np.all(np.diff(found) < 0)


def test_a_periodogram_of_few_places_has_none():
    assert likely_periods(np.ones((9, 1)), np.ones((9, 1)), np.ones(9), 0).size == 0


@pytest.mark.parametrize(
    ("kernel", "path"),
    [
        (lgp.Periodic(period=11.0), "kernel.period"),
        (lgp.RBF(1.0) * lgp.Cosine(period=0.7), "kernel.parts[1].period"),
    ],
)
def test_a_wrong_guess_of_a_period_is_mended_and_said(kernel, path):
    y = WAVE + 0.1 * RNG.normal(size=150)
    fitted = lgp.GPRegressor(kernel, random_state=0).fit(TIMES[:, None], y)
    assert float(lgp.parameters(fitted.model_)[path].value) == pytest.approx(3.1, rel=0.02)
    assert any("periodogram" in note for note in fitted.diagnostics_.notes)


def test_a_wrong_guess_is_mended_for_counts_and_classes():
    counts = RNG.poisson(np.exp(1.5 * WAVE))
    for make, y in ((lgp.GPCountRegressor, counts), (lgp.GPClassifier, counts > 1)):
        fitted = make(lgp.Periodic(period=1.0), random_state=0).fit(TIMES[:, None], y)
        assert float(fitted.model_.kernel.period) == pytest.approx(3.1, rel=0.05)


def test_a_right_guess_and_a_frozen_period_stay():
    data = lgp.Data(TIMES, WAVE + 0.1 * RNG.normal(size=150))
    for start, frozen in ((3.1, ()), (11.0, ("kernel.period",))):
        model = lgp.LatentGP(lgp.Periodic(period=start), lgp.Gaussian(0.1))
        fitted = lgp.fit(model, data, key=jax.random.key(0), frozen=frozen)
        assert float(fitted.model.kernel.period) == pytest.approx(start, rel=0.01)
        assert not fitted.diagnostics.notes


def test_another_period_that_is_much_better_is_named():
    data = lgp.Data(TIMES, WAVE + 0.1 * RNG.normal(size=150))
    model = lgp.LatentGP(lgp.Periodic(period=11.0), lgp.Gaussian(0.1))
    (said,) = better_periods(ParameterSpace(model), model, data)
    assert "a period of 3.084 describes" in said
    right = lgp.LatentGP(lgp.Periodic(period=3.1), lgp.Gaussian(0.1))
    assert better_periods(ParameterSpace(right), right, data) == ()
