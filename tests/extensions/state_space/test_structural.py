"""Level, trend and seasons that a table of a time series has where no kernel is given."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm

import latentgp as lgp
from latentgp.extensions.state_space import structural
from latentgp.extensions.state_space.structural import series_kernel
from latentgp.runtime.x64 import in_x64
from latentgp.surfaces.estimators.likelihoods import COUNTS, REGRESSION

LEVELS = {"Matern12": lgp.Matern12, "Matern32": lgp.Matern32, "Matern52": lgp.Matern52}
YEAR = {"year": 365.2425, "week": 7.0, "day": 1.0}


def block(rows, seed=0):
    generator = np.random.default_rng(seed)
    t = np.sort(generator.random(rows))
    weights = generator.integers(1, 4, rows).astype(float)
    return structural._Series(t, np.sin(9 * t), weights, weights)


def at(parts):
    middle, deviation = structural._priors(parts)
    return middle + 0.3 * np.random.default_rng(1).normal(size=len(middle)), middle, deviation


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("periods", [(), (0.2,), (0.1, 0.35)])
@pytest.mark.quick
def test_gradient_is_that_of_the_evidence(level, periods):
    parts, blocks = structural._Parts(level, periods), [block(30), block(20, seed=1)]
    place, *priors = at(parts)
    _, gradient = structural._negative_log_evidence(place, parts, blocks, *priors)
    for entry, unit in enumerate(1e-5 * np.eye(len(place))):
        above, below = (
            structural._negative_log_evidence(p, parts, blocks, *priors)[0]
            for p in (place + unit, place - unit)
        )
        assert gradient[entry] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("level", LEVELS)
@in_x64
@pytest.mark.quick
def test_evidence_is_that_of_the_kernel(level):
    parts, rows = structural._Parts(level, (0.2,)), block(25)
    t, y = (np.repeat(array, rows.weights.astype(int)) for array in rows[:2])
    place, middle, deviation = at(parts)
    values = np.exp(place)
    kernel = LEVELS[level](lengthscale=values[0], variance=values[1])
    kernel += lgp.Matern32(lengthscale=3.0, variance=values[2])
    season = lgp.Periodic(lengthscale=values[4], period=0.2, variance=values[3])
    kernel += season * lgp.Matern12(lengthscale=values[5])
    gram = np.array(kernel.gram(t[:, None], t[:, None]))
    right = multivariate_normal(cov=gram + 1e-8 * (t[:, None] == t) + values[-1] * np.eye(len(t)))
    right = right.logpdf(y)
    right += norm(middle, deviation).logpdf(place).sum()
    found = -structural._negative_log_evidence(place, parts, [rows], middle, deviation)[0]
    assert found == pytest.approx(right, rel=1e-9)


def test_copies_count_in_the_evidence_that_targets_are_compared_by():
    """Of targets ten times as great it is less by log 10 for each copy of a row."""
    t, rng = np.arange(60.0), np.random.default_rng(0)
    y, weights = np.sin(t / 8) + 0.3 * rng.normal(size=60), rng.integers(1, 4, 60).astype(float)
    one, other = (series_kernel(t, scale * y, None, weights, {}) for scale in (1, 10))
    off = weights.sum() * np.log(10)
    assert one.log_evidence - other.log_evidence == pytest.approx(off, rel=1e-6)
    assert other.total == pytest.approx(weights @ (10 * y))


def monthly(years=8, seed=0):
    """A random walk with a slope, a season and noise, at days of months."""
    generator = np.random.default_rng(seed)
    days = (pd.date_range("2001-01-01", periods=12 * years, freq="MS") - pd.Timestamp("2001")).days
    month = np.arange(12 * years)
    walk = np.cumsum(generator.normal(0.3, 0.5, len(month)))
    season = 4 * np.sin(2 * np.pi * month / 12) + 2 * (month % 12 == 11)
    return np.array(days, float), 100 + walk + season + generator.normal(0, 0.5, len(month))


@pytest.mark.quick
def test_months_have_a_season_of_a_year():
    days, y = monthly()
    found = series_kernel(days, y, None, None, YEAR)
    level, trend, season = found.kernel.parts
    assert "a Matern12 level, a trend and a season of a year" in found.reason
    assert season.parts[0].period == pytest.approx(365.2425)
    assert trend.lengthscale == pytest.approx(3 * np.ptp(days))
    assert set(found.priors) >= {"kernel.parts[0].variance", "kernel.parts[2].parts[1].lengthscale"}
    assert "kernel.parts[2].parts[0].period" in found.frozen
    # In units of their own: the same kernel, in those.
    other = series_kernel(days / 30 + 7, 50 * y - 3, None, None, {"year": 365.2425 / 30})
    assert other.kernel.parts[2].parts[0].period == pytest.approx(365.2425 / 30)
    assert other.noise == pytest.approx(2500 * found.noise, rel=1e-6)
    assert other.kernel.parts[0].variance == pytest.approx(2500 * level.variance, rel=1e-6)


def test_numbers_have_a_season_where_it_is_clear():
    _, y = monthly()
    steps = series_kernel(np.arange(len(y), dtype=float), y, None, None, {})
    assert "a season of 12 steps" in steps.reason
    years = series_kernel(1950 + np.arange(len(y)) / 12, y, None, None, {})
    assert "a season of one unit of time" in years.reason
    assert years.kernel.parts[2].parts[0].period == pytest.approx(1.0)
    walk = np.cumsum(np.random.default_rng(3).normal(size=150))
    assert "no season" in series_kernel(np.arange(150.0), walk, None, None, {}).reason
    odd = np.sin(2 * np.pi * np.arange(150) / 17) + 0.1 * walk
    season = series_kernel(np.arange(150.0), odd, None, None, {}).kernel.parts[2]
    assert season.parts[0].period == pytest.approx(17, rel=0.02)


def test_long_seasons_are_seen_beside_short_ones():
    generator = np.random.default_rng(0)
    day = np.arange(365 * 5.0)
    y = 3 * (day % 7 >= 5) + 4 * np.sin(2 * np.pi * day / 365.25) + generator.normal(size=len(day))
    found = series_kernel(day, y, None, None, YEAR)
    assert "a season of a week and one of a year" in found.reason
    assert found.noise == pytest.approx(1, rel=0.3)
    hour = np.arange(24 * 7 * 20.0) / 24
    y = 3 * np.sin(2 * np.pi * hour) + 2 * (hour % 7 >= 5) + 0.5 * generator.normal(size=len(hour))
    found = series_kernel(hour, y, None, None, YEAR)
    assert "a season of a day and one of a week" in found.reason


@pytest.mark.quick
def test_smooth_functions_have_a_smooth_level():
    t = np.linspace(0, 1, 120)
    y = np.sin(25 * t) + np.cos(9 * t) + 0.05 * np.random.default_rng(0).normal(size=120)
    assert "a Matern52 level" in series_kernel(t, y, None, None, {}).reason


@pytest.mark.quick
def test_several_series_share_a_kernel():
    each = [monthly(6, seed) for seed in range(3)]
    t, y = (np.concatenate(arrays) for arrays in zip(*each, strict=True))
    which = np.repeat(np.arange(3.0), 72)
    found = series_kernel(t, y, which, None, YEAR)
    assert "a season of a year" in found.reason
    assert found.kernel.parts[0].dimensions == (0,)
    assert found.kernel.parts[1].dimensions == (1,)
    assert all(path.startswith("kernel.parts[0].kernel.parts") for path in found.priors)
    order = np.random.default_rng(0).permutation(len(t))
    mixed = series_kernel(t[order], y[order], which[order], None, YEAR)
    assert mixed.reason == found.reason
    assert mixed.noise == pytest.approx(found.noise, rel=1e-9)


def growing(seed=0):
    """Sales whose season, walk and noise are shares of their level."""
    generator, month = np.random.default_rng(seed), np.arange(96.0)
    walk = 0.012 * month + np.cumsum(generator.normal(0, 0.02, 96))
    noise = generator.normal(0, 0.03, 96)
    return 50 * np.exp(walk + 0.3 * np.sin(2 * np.pi * month / 12) + noise)


def test_evidence_tells_shares_from_sums():
    """In any unit of the targets, of which the evidence is a density."""
    month = np.arange(96.0)
    for y, is_of_shares in ((growing(), True), (monthly()[1], False)):
        each = [
            [series_kernel(month, v, None, None, {}) for v in (unit * y, np.log(unit * y))]
            for unit in (1.0, 1000.0)
        ]
        ahead = [logs.as_logarithms_ahead_of(plain) for plain, logs in each]
        assert (ahead[0] > 2) == is_of_shares
        assert ahead[1] == pytest.approx(ahead[0], abs=1e-3)
        change = each[1][0].log_evidence - each[0][0].log_evidence
        assert change == pytest.approx(-96 * np.log(1000), abs=1e-3)


def test_growth_is_forecast_in_shares():
    frame = pd.DataFrame({"month": pd.date_range("2001-01-01", periods=96, freq="MS")})
    frame["sales"] = growing()
    model = lgp.TableModel.fit(frame[:72], "sales", time="month", random_state=0)
    assert any(note.startswith("Likelihood: log-normal") for note in model.notes)
    found, later = model.predict(frame[72:]), frame["sales"][72:]
    assert ((found["lower"] <= later) & (later <= found["upper"])).mean() > 0.8
    walk = 0.02 * np.sqrt(24)  # its deviation at the end, which no forecast can know
    assert np.mean(abs(np.log(found["mean"] / later))) < 2 * walk
    by_sums = {"likelihood": "gaussian", "random_state": 0}
    other = lgp.TableModel.fit(frame[:72], "sales", time="month", **by_sums)
    name = "negative log predictive density"
    assert model.evaluate(frame[72:])[name] < other.evaluate(frame[72:])[name]


@pytest.mark.quick
def test_rows_that_say_nothing_have_no_choice():
    t = np.arange(30.0)
    assert series_kernel(t, np.ones(30), None, None, {}) is None
    assert series_kernel(t[:5], t[:5], None, None, {}) is None
    assert series_kernel(np.zeros(30), t, None, None, {}) is None
    for wild in (np.nan, np.inf, 1e-200, 1e200):
        assert series_kernel(t, wild * np.sin(t), None, None, {}) is None
    for counts in ((t < 5).astype(float), np.zeros(30), -np.ones(30)):
        assert series_kernel(t, np.sin(t), None, counts, {}) is None


@pytest.mark.quick
def test_short_series_do_not_say_what_a_long_one_is_like():
    t = np.concatenate([np.arange(150.0), [0, 1, 0, 1, 3]])
    which = np.concatenate([np.zeros(150), [1, 1, 2, 2, 3]])
    y = np.sin(2 * np.pi * t / 12) + np.random.default_rng(0).normal(0, 0.1, 155)
    found = series_kernel(t, y, which, None, {})
    assert "a season of 12 steps, by the evidence of 150 rows" in found.reason
    assert found.kernel.parts[0].kernel.parts[1].lengthscale == pytest.approx(3 * 149)


@pytest.mark.quick
def test_a_stray_time_is_no_memory():
    t = 1.7e9 + np.tile(np.arange(150.0), 4)
    t[0] = 0.0
    which = np.repeat(np.arange(4.0), 150)
    assert series_kernel(t, np.sin(t / 9), which, None, {}) is not None


LIKELIHOODS = [
    pytest.param(name, marks=[] if name in ("gamma", "stochastic-volatility") else pytest.mark.slow)
    for name in (*REGRESSION, *COUNTS)
]


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_any_likelihood_forecasts_what_there_may_be(likelihood):
    generator = np.random.default_rng(0)
    t = np.arange(40.0)
    y = 1 + np.round(20 * np.exp(0.5 * np.sin(t / 5)) * generator.gamma(20, 1 / 20, 40))
    if likelihood in ("beta", "zero-one-inflated-beta"):
        y = y / 100
    if likelihood == "stochastic-volatility":
        y = generator.normal(size=40)
    frame = pd.DataFrame({"t": t, "y": y})
    sides, task = {}, "count" if likelihood in COUNTS else "regression"
    if "binomial" in likelihood and "negative" not in likelihood:
        frame["trials"], sides = 60, {"trials": "trials"}
    settings = {"likelihood": likelihood, "task": task, "side_columns": sides}
    settings["max_evaluations"] = 10
    try:
        model = lgp.TableModel.fit(frame, "y", time="t", random_state=0, **settings)
    except lgp.InputError as error:
        pytest.skip(f"asks for more than times and numbers: {error}")
    assert any(note.startswith("Kernel: ") for note in model.notes)
    found = model.predict(frame.tail(1).assign(t=60.0).drop(columns="y"))
    assert np.all(np.abs(found["mean"]) < 100 * np.abs(y).max())


@pytest.mark.parametrize(
    "settings",
    [
        {"mean": "linear"},
        {"priors": None},
        {"likelihood": "log-noise"},
        {"frozen": None},
        {"method": lgp.ExactGP(lgp.Markov())},
    ],
    ids=str,
)
def test_other_options_go_with_a_time(settings):
    frame = pd.DataFrame({"t": np.arange(40.0), "y": np.sin(np.arange(40) / 4)})
    frame["y"] += 0.1 * np.random.default_rng(0).normal(size=40)
    if settings.get("mean"):
        settings = settings | {"representation": lgp.Dense()}
    model = lgp.TableModel.fit(frame, "y", time="t", random_state=0, **settings)
    assert any("Matern52" in note or "level" in note for note in model.notes)


def test_table_forecasts_trend_and_season():
    days, y = monthly(10)
    dates = pd.Timestamp("2001") + pd.to_timedelta(days, "D")
    frame = pd.DataFrame({"month": dates, "sales": y})
    known, later = frame[:96], frame[96:]
    model = lgp.TableModel.fit(known, "sales", time="month", random_state=0)
    found = model.predict(later)
    error = np.sqrt(np.mean((found["mean"] - later["sales"]) ** 2))
    seasonal = np.sqrt(np.mean((np.tile(y[84:96], 2) - later["sales"]) ** 2))
    assert error < seasonal
    inside = (found["lower"] <= later["sales"]) & (later["sales"] <= found["upper"])
    assert inside.mean() >= 0.8
    assert any("a season of a year" in note for note in model.notes)
    parts = model.estimator.posterior_.parts(model.encoded(known)[0])
    assert len(parts) == 3
    own = lgp.TableModel.fit(known, "sales", time="month", kernel=lgp.Matern32(lengthscale=90.0))
    assert not any("level" in note for note in own.notes)


def test_counts_have_a_season_too():
    generator = np.random.default_rng(0)
    months = pd.date_range("2001-01-01", periods=96, freq="MS")
    rate = np.exp(3 + np.sin(2 * np.pi * np.arange(96) / 12))
    frame = pd.DataFrame({"month": months, "ill": generator.poisson(rate)})
    model = lgp.TableModel.fit(frame[:72], "ill", time="month", task="count", random_state=0)
    assert any("a season of a year" in note for note in model.notes)
    found = model.predict(frame[72:])["mean"].to_numpy()
    assert np.corrcoef(found, rate[72:])[0, 1] > 0.95


def test_long_series_are_in_state_space_form():
    generator = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=600, freq="h")
    y = 3 * np.sin(2 * np.pi * np.arange(600) / 24) + 0.3 * generator.normal(size=600)
    frame = pd.DataFrame({"hour": hours, "load": y})
    model = lgp.TableModel.fit(frame[:550], "load", time="hour", random_state=0)
    assert isinstance(model.estimator.method_.representation, lgp.Markov)
    told = model.estimator.diagnostics_
    assert told.converged or told.stopped_as_meant
    assert "12 evaluations on 550 of 550 rows" in model.notes[-1]
    found = model.predict(frame[550:])
    assert np.sqrt(np.mean((found["mean"] - y[550:]) ** 2)) < 0.5
