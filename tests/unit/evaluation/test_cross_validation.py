"""Cross-validation, comparison of models, predictive checks and conformal intervals."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import latentgp as lgp
from latentgp.surfaces.evaluation.weights import _draws

KEY = jax.random.key(0)
RNG = np.random.default_rng(1)
X = np.sort(RNG.uniform(0, 6, 30))
DATA = lgp.Data(X, np.sin(X) + 0.2 * RNG.normal(size=30))
MODEL = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.04))
HELD = {"learn_hyperparameters": False}


def test_folds_of_one_row_are_leave_one_out():
    whole = lgp.cross_validate(MODEL, DATA, key=KEY, folds=30, **HELD)
    loo = lgp.leave_one_out(lgp.fit(MODEL, DATA, key=KEY, **HELD))
    for name in ("log_density", "mean", "std", "pit"):
        np.testing.assert_allclose(getattr(whole, name), getattr(loo, name), atol=1e-8)
    assert whole.elpd == pytest.approx(loo.elpd)
    assert sorted(whole.fold) == list(range(30))


def test_weights_are_of_one_sum():
    draws = {f"kernel.parts[{n}].weights": np.ones((2, 5, n + 2)) for n in range(2)}
    posterior: Any = SimpleNamespace(hyperparameters=draws, model=MODEL)
    with pytest.raises(lgp.InputError, match="The kernel has 2 sums with weights"):
        _draws(posterior)


def test_groups_are_left_out_together():
    groups = np.repeat(["a", "b", "c", "d", "e"], [3, 12, 5, 4, 6])
    found = lgp.cross_validate(MODEL, DATA, key=KEY, folds=3, groups=groups, **HELD)
    of_group = [np.unique(found.fold[groups == g]) for g in np.unique(groups)]
    assert all(len(folds) == 1 for folds in of_group)
    assert sorted(np.bincount(found.fold)) == [9, 9, 12]
    rest = DATA.select(found.fold != 0)
    own = lgp.fit(MODEL, rest, key=KEY, **HELD).posterior.predict(X[found.fold == 0])
    expected = own.log_prob(DATA.y[found.fold == 0])
    np.testing.assert_allclose(found.log_density[found.fold == 0], expected, atol=1e-8)


def test_time_is_predicted_by_what_came_before():
    days = np.datetime64("2026-01-01") + np.arange(30)[::-1]
    found = lgp.cross_validate(MODEL, DATA, key=KEY, folds=2, time=days, **HELD)
    assert found.fold.tolist() == [1] * 10 + [0] * 10 + [-1] * 10
    assert np.isnan(found.log_density[20:]).all()
    assert found.weights.sum() == 20
    own = lgp.fit(MODEL, DATA.select(np.arange(10, 30)), key=KEY, **HELD).posterior
    expected = own.predict(X[:10]).log_prob(DATA.y[:10])
    np.testing.assert_allclose(found.log_density[:10], expected, atol=1e-8)
    assert "2 pieces of time" in str(found)


def test_hyperparameters_can_be_held():
    held = lgp.cross_validate(MODEL, DATA, key=KEY, folds=2, refit=False, priors=None)
    learned = lgp.fit(MODEL, DATA, key=KEY, priors=None).model
    own = lgp.fit(learned, DATA.select(held.fold == 1), key=KEY, **HELD).posterior
    test = held.fold == 0
    expected = own.predict(X[test]).log_prob(DATA.y[test])
    np.testing.assert_allclose(held.log_density[test], expected, atol=1e-6)


def test_fits_that_have_not_converged_are_told():
    short = lgp.cross_validate(MODEL, DATA, key=KEY, folds=2, max_evaluations=1)
    assert short.warnings[0].startswith(
        "2 of 2 fits have not converged; that of fold 0: The search"
    )
    assert short.warnings[0] in str(short)
    held = lgp.cross_validate(MODEL, DATA, key=KEY, folds=2, max_evaluations=1, refit=False)
    assert held.warnings[0].startswith("1 of 3 fits have not converged; that of all rows")
    assert lgp.cross_validate(MODEL, DATA, key=KEY, folds=2, **HELD).warnings == ()
    meant = lgp.ExactGP(search=lgp.ShortSearch(evaluations=1))
    assert lgp.cross_validate(MODEL, DATA, key=KEY, folds=2, method=meant).warnings == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": np.zeros(30), "time": X}, "got both"),
        ({"groups": np.zeros(3)}, "one entry a row"),
        ({"folds": 31}, "at most 30"),
        ({"groups": np.zeros(30), "folds": 2}, "at most 1"),
        ({"time": X, "folds": 30}, "at most 29"),
    ],
)
def test_folds_that_cannot_be(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.cross_validate(MODEL, DATA, key=KEY, **settings)


def test_stacking_satisfies_the_conditions_of_the_optimum():
    table = RNG.normal(size=(400, 5)) * [1.0, 0.5, 0.3, 1.0, 2.0] - [1.0, 0.8, 0.8, 2.0, 3.0]
    weights = lgp.stacking_weights(table)
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights >= 0)
    density = np.exp(table)
    gain = np.mean(density / (density @ weights)[:, None], axis=0)
    np.testing.assert_allclose(gain[weights > 1e-6], 1.0, atol=1e-4)
    assert np.all(gain < 1 + 1e-4)
    twice = lgp.stacking_weights(np.vstack([table, table[:50]]))
    counts = np.where(np.arange(400) < 50, 2, 1)
    np.testing.assert_allclose(lgp.stacking_weights(table, sample_weight=counts), twice, atol=1e-5)
    far = lgp.stacking_weights(table - 5000)  # densities that are zero in double precision
    np.testing.assert_allclose(far, weights, atol=1e-5)


def test_models_compare_row_by_row():
    other = lgp.LatentGP(lgp.RBF(20.0), lgp.Gaussian(0.3))
    found = {
        name: lgp.fit(model, DATA, key=KEY, **HELD).leave_one_out()
        for name, model in {"flat": other, "curve": MODEL}.items()
    }
    table = lgp.compare_models(found)
    assert table.names == ("curve", "flat")
    away = found["flat"].log_density - found["curve"].log_density
    assert table.difference[1] == pytest.approx(away.sum())
    assert table.difference_error[1] == pytest.approx(np.sqrt(30) * away.std())
    assert table.weights[0] > 0.8
    assert "curve" in str(table)
    with pytest.raises(lgp.InputError, match="two models"):
        lgp.compare_models({"curve": found["curve"]})


def test_replicates_have_the_law_of_the_data():
    fit = lgp.fit(MODEL, DATA, key=KEY, **HELD)
    check = lgp.predictive_check(fit, DATA, key=KEY, number=2000)
    assert list(check.observed) == ["mean", "standard deviation", "smallest", "largest"]
    assert check.observed["mean"] == pytest.approx(DATA.y.mean())
    predictive = fit.posterior.predict(X)
    np.testing.assert_allclose(check.replicates.mean(axis=0), predictive.mean, atol=0.03)
    np.testing.assert_allclose(check.replicates.var(axis=0), predictive.variance, rtol=0.2)
    assert all(0.02 < tail < 0.98 for tail in check.tail_probabilities.values())
    far = lgp.predictive_check(fit, lgp.Data(X, DATA.y + 3), lambda y: y.mean(), key=KEY)
    assert next(iter(far.tail_probabilities.values())) == 0
    weighted = lgp.predictive_check(fit, DATA.reweighted(np.full(30, 2.0)), key=KEY, number=5)
    assert weighted.replicates.shape == (5, 60)
    with pytest.raises(lgp.InputError, match="whole numbers"):
        lgp.predictive_check(fit, DATA.reweighted(np.full(30, 0.5)))


def test_priors_are_checked_too():
    before = lgp.sample_prior(MODEL, DATA, key=KEY, number=50)
    check = lgp.predictive_check(before, DATA)
    np.testing.assert_allclose(check.replicated["mean"], before.y.mean(axis=1))
    counted = (np.arange(30) % 2).astype(float)
    check = lgp.predictive_check(before, DATA.reweighted(counted))
    np.testing.assert_allclose(check.observed["mean"], np.average(DATA.y, weights=counted))
    np.testing.assert_allclose(check.replicated["mean"], before.y[:, 1::2].mean(axis=1))
    with pytest.raises(lgp.InputError, match="one target a row; give rows of weight 2 twice"):
        lgp.predictive_check(before, DATA.reweighted(2 * counted))


@pytest.mark.slow
def test_chains_are_checked_at_the_rows_they_watched():
    classes = lgp.LatentGP(lgp.RBF(1.0), lgp.Bernoulli())
    rows = lgp.Data(X, (DATA.y > 0).astype(float))
    chains = lgp.fit(
        classes, rows, key=KEY, method=lgp.GibbsSampling(chains=2, warmup=50, draws=100), **HELD
    )
    found = lgp.predictive_check(chains, rows, number=100)
    assert list(found.observed) == ["share of 0", "share of 1"]
    assert found.replicates.shape == (100, 30)
    assert "share of 1" in str(found)
    other = lgp.predictive_check(chains, lgp.Data(X[:20] + 0.1, rows.y[:20]), number=50)
    assert other.replicates.shape == (50, 20)
    assert other.observed["share of 1"] == np.mean(rows.y[:20])


def test_conformal_intervals_cover():
    """A model that believes in a tenth of the noise: corrected intervals hold what they should."""
    generator = np.random.default_rng(3)
    x = generator.uniform(0, 6, 900)
    y = np.sin(x) + 0.4 * generator.standard_t(3, size=900)
    poor = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.0016))
    fit = lgp.fit(poor, lgp.Data(x[:300], y[:300]), key=KEY, **HELD)
    new = fit.posterior.predict(x[600:])
    lower, upper = new.interval(0.9)
    assert np.mean((lower < y[600:]) & (y[600:] < upper)) < 0.5
    held_out = fit.posterior.predict(x[300:600])
    for calibration, known in (
        (held_out, y[300:600]),
        (fit.leave_one_out(), y[:300]),
    ):
        lower, upper = lgp.conformal_interval(new, calibration, known, level=0.9)
        share = np.mean((lower < y[600:]) & (y[600:] < upper))
        assert 0.85 < share < 0.95
    lower, upper = lgp.conformal_interval(new, fit.posterior.predict(x[300:305]), y[300:305])
    assert np.all(np.isinf(upper - lower))
    classes = lgp.LatentGP(lgp.RBF(1.0), lgp.Bernoulli())
    some = lgp.fit(classes, lgp.Data(X, (X > 3) * 1.0), key=KEY, method=lgp.Laplace(), **HELD)
    with pytest.raises(lgp.InputError, match="one number a target"):
        lgp.conformal_interval(some.posterior.predict(X), some.leave_one_out(), X)


def test_bounds_are_not_taken_for_targets():
    law, kind = lgp.LatentGP(lgp.RBF(1.0), lgp.Censored(lgp.Gaussian(0.04))), (X > 3) * 1.0
    data = lgp.Data(X, DATA.y, censored=kind)
    fit = lgp.fit(law, data, key=KEY, method=lgp.Laplace(), **HELD)
    new = fit.posterior.predict(X)
    with pytest.raises(lgp.InputError, match="from the beginning, but some rows have censored"):
        lgp.predictive_check(fit, data)
    loo = fit.leave_one_out()
    assert np.all(loo.up_to[kind == 1] == 1)
    assert np.all(loo.below[kind == 1] < 1)
    np.testing.assert_array_equal(loo.below[kind == 0], loo.up_to[kind == 0])
    for calibration in (loo, fit.posterior.predict(X, censored=kind)):
        with pytest.raises(lgp.InputError, match=f"but {int(kind.sum())} are censored"):
            lgp.conformal_interval(new, calibration, DATA.y)
    lower, upper = lgp.conformal_interval(new, new, DATA.y)
    assert np.all(lower < upper)
    heavy = lgp.LatentGP(lgp.RBF(1.0), lgp.GeneralisedPareto(0.6))
    times = lgp.Data(X, np.exp(DATA.y))
    wide = lgp.fit(heavy, times, key=KEY, method=lgp.Laplace(), **HELD).posterior.predict(X)
    with pytest.raises(lgp.InputError, match="deviations that are finite and positive"):
        lgp.conformal_interval(wide, wide, times.y)


@pytest.mark.slow
def test_transforms_are_uniform_where_the_model_is_right():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.1))
    rows = lgp.Data(np.linspace(0, 40, 200), np.zeros(200))
    y = lgp.sample_prior(model, rows, key=KEY, number=1, priors=None).y[0]
    pit = lgp.fit(model, lgp.Data(rows.X, y), key=KEY, **HELD).leave_one_out().pit
    assert stats.kstest(pit, "uniform").pvalue > 0.01
