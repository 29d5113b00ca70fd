"""Survival times: curves, quantiles and scores that know of censoring; what scikit-learn routes."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import kstest, weibull_min
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latentgp as lgp
from latentgp import metrics
from latentgp.surfaces.estimators.laws import law_of_times
from latentgp.surfaces.evaluation.draws import LatentDraws, scores_of_draws
from latentgp.surfaces.tables.scores import spread_evenly
from latentgp.surfaces.tables.start import sides_of

generator = np.random.default_rng(0)
X = generator.uniform(0, 4, (90, 1))
SCALE = np.exp(1 + np.sin(X[:, 0]))
EVENT = SCALE * generator.exponential(size=90) ** (1 / 1.5)
LIMIT = generator.exponential(8, 90)
TIME, CENSORED = np.minimum(EVENT, LIMIT), (LIMIT < EVENT).astype(float)
NEW = np.linspace(0.5, 3.5, 4)[:, None]


def regressor():
    return lgp.GPRegressor(likelihood="weibull", random_state=0, max_evaluations=30)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, TIME, censored=CENSORED)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_survival_curves_are_the_law_averaged_over_the_latent_function(fitted):
    times = np.array([0.5, 2.0, 8.0])
    f = fitted.posterior_.predict_f(NEW)
    draws = f.mean + np.sqrt(f.variance) * np.random.default_rng(1).normal(size=(20_000, 4))
    shape = fitted.model_.likelihood.shape
    expected = weibull_min.sf(times, shape, scale=np.exp(draws)[..., None]).mean(axis=0)
    curves = fitted.predict_survival(NEW, times)
    assert curves.shape == (4, 3)
    np.testing.assert_allclose(curves, expected, atol=0.01)
    assert np.all(np.diff(curves, axis=1) < 0)


def test_quantiles_are_where_the_curve_is_at_their_level(fitted):
    quantiles = fitted.predict_quantiles(NEW, [0.1, 0.5])
    assert quantiles.shape == (4, 2)
    for row, own in zip(NEW, quantiles, strict=True):
        survival = fitted.predict_survival(row[None], own)[0]
        np.testing.assert_allclose(survival, [0.9, 0.5], atol=1e-9)
    assert fitted.predict_survival(NEW, 2.0).shape == (4, 1)


def test_the_score_of_censored_times_is_the_concordance_index(fitted):
    median = fitted.predict_quantiles(X, 0.5)[:, 0]
    expected = metrics.concordance_index(TIME, median, censored=CENSORED)
    assert fitted.score(X, TIME, censored=CENSORED) == expected
    assert expected > 0.65


def test_the_density_of_a_censored_time_is_the_probability_of_surviving_it(fitted):
    rows = np.flatnonzero(CENSORED)[:3]
    density = fitted.log_predictive_density(X[rows], TIME[rows], censored=np.ones(3))
    survival = np.diag(fitted.predict_survival(X[rows], TIME[rows]))
    np.testing.assert_allclose(density, np.log(survival), rtol=1e-8)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda r: r.score(X, TIME), "The fit had censored, .* give score.*metadata_routing"),
        (lambda r: r.score(X, TIME, np.ones(90), censored=CENSORED), "takes no weights"),
        (lambda r: r.score(X, TIME, censored=2 * CENSORED), "something else than 0 and 1"),
        (lambda r: r.predict_survival(X, [1.0, np.nan]), "times holds NaN"),
        (lambda r: r.predict_quantiles(X, 1.5), "strictly between 0 and 1"),
    ],
)
def test_what_a_survival_model_refuses(fitted, call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call(fitted)


def test_censored_rows_that_come_later_count_too():
    seen = CENSORED == 0
    stream = lgp.GPRegressor(
        likelihood="weibull", random_state=0, n_inducing=8, max_evaluations=10
    ).fit(X[seen], TIME[seen])
    assert 0 < stream.score(X[seen], TIME[seen]) < 1  # R^2, as no row was censored
    stream.partial_fit(X[~seen], TIME[~seen], censored=CENSORED[~seen])
    with pytest.raises(lgp.InputError, match="The fit had censored"):
        stream.score(X, TIME)


def test_a_gaussian_fit_scores_as_before_and_knows_no_censoring():
    plain = lgp.GPRegressor(random_state=0, max_evaluations=20).fit(X, np.log(TIME))
    assert plain.score(X, np.log(TIME)) == pytest.approx(
        sklearn.metrics.r2_score(np.log(TIME), plain.predict(X))
    )
    with pytest.raises(lgp.InputError, match="reads no per-row 'censored'"):
        plain.score(X, np.log(TIME), censored=CENSORED)
    above = plain.predict_survival(NEW, [0.0, 1.0])
    law = plain.posterior_.predict(NEW)
    np.testing.assert_allclose(above[:, 1], 1 - law.cdf(np.ones(4)))


@pytest.mark.usefixtures("routing")
def test_cross_validation_routes_what_belongs_to_a_row():
    scores = cross_val_score(
        make_pipeline(StandardScaler(), regressor()),
        X,
        TIME,
        cv=2,
        params={"censored": CENSORED},
        error_score="raise",
    )
    assert np.all(scores > 0.6)
    exposure = generator.uniform(1, 10, 90)
    counts = generator.poisson(exposure * SCALE)
    counting = lgp.GPCountRegressor(random_state=0, max_evaluations=20)
    params = {"exposure": exposure}
    scores = cross_val_score(counting, X, counts, cv=2, params=params, error_score="raise")
    assert np.all(scores > 0.7)
    with pytest.raises(UnsetMetadataPassedError):  # of weights scikit-learn leaves the choice
        cross_val_score(counting, X, counts, cv=2, params={"sample_weight": exposure})


def times_of(name):
    """Inputs, times of a law, and whether they are censored."""
    draws = np.random.default_rng(1)
    x = draws.uniform(0, 4, (200, 1))
    error = np.log(draws.exponential(size=200)) if name == "weibull" else draws.normal(size=200)
    event, end = np.exp(1 + np.sin(x[:, 0]) + error), draws.exponential(20.0, 200)
    return x, np.minimum(event, end), (end < event) * 1.0


@pytest.mark.quick
@pytest.mark.parametrize("name", ["weibull", "censored-log-normal"])
def test_law_that_times_are_drawn_from_is_chosen(name):
    x, times, censored = times_of(name)
    law, why = law_of_times(lgp.Data(x, times, censored=censored))
    assert law == name
    assert ("log-normal's, " in why[0].partition(" nats")[0]) == (name != "weibull")


@pytest.mark.quick
def test_other_bounds_have_laws_that_take_them():
    both = {"censored": np.array([2.0, 1.0]), "upper": np.array([3.0, 0.0])}
    below = {"censored": np.array([-1.0, 0.0])}
    x = np.arange(2.0)[:, None]
    assert law_of_times(lgp.Data(x, np.ones(2), **both))[0] == "censored-weibull"
    assert law_of_times(lgp.Data(x, np.arange(2.0), **below))[0] == "censored-gaussian"


def test_auto_of_censored_times_says_its_law():
    x, times, censored = times_of("censored-log-normal")
    chosen = lgp.GPRegressor(random_state=0, max_evaluations=5)
    chosen.fit(x, times, censored=censored)
    assert isinstance(chosen.model_.likelihood.base, lgp.LogNormal)
    assert "Likelihood: a log-normal's" in chosen.diagnostics_.verdict
    assert chosen.kernel_choice_ is None
    held = lgp.GPRegressor(learn_hyperparameters=False)
    held.fit(X, TIME, censored=CENSORED)
    assert isinstance(held.model_.likelihood, lgp.Weibull)


@pytest.mark.quick
@pytest.mark.parametrize("kind", [1, -1])
def test_targets_that_were_never_seen_are_refused(kind):
    with pytest.raises(lgp.InputError, match=f"censored is {kind} in every row"):
        lgp.GPRegressor().fit(X, TIME, censored=np.full(90, kind))


@pytest.mark.quick
@pytest.mark.parametrize("law", [lgp.Weibull(), lgp.Censored(lgp.LogNormal())])
def test_level_of_mostly_censored_times_is_the_time_of_all_over_the_events(law):
    weights = np.random.default_rng(3).uniform(1, 2, 90)
    for own, events in ((None, np.sum(1 - CENSORED)), (weights, weights @ (1 - CENSORED))):
        total = TIME.sum() if own is None else weights @ TIME
        found = law.latent_centre(TIME, own, {"censored": CENSORED})
        assert found == pytest.approx(np.log(total / events))
    assert np.isfinite(law.latent_centre(TIME, None, {"censored": np.ones(90)}))


@pytest.mark.quick
def test_transforms_of_the_true_law_are_uniform_though_most_times_are_censored():
    draws = np.random.default_rng(4)
    event, start = draws.exponential(size=4000), draws.exponential(1.5, 4000)
    kind = draws.choice([1, -1, 2, 1, 1], 4000)
    seen = np.where(kind == 1, event < start, np.where(kind == -1, event > start, False))
    upper = np.where(event < start, start, np.inf)
    y = np.where(kind == 2, np.where(event < start, 1e-9, start), start)
    side = {"censored": np.where(seen, 0.0, kind), "upper": np.minimum(upper, 1e3)}
    y = np.where(seen, event, y)
    assert 0.1 < seen.mean() < 0.6
    law = LatentDraws(np.zeros((1, 4000, 1)), lgp.Censored(lgp.Weibull(1.0)), False)
    scores = scores_of_draws(law, y, side)
    assert kstest(spread_evenly(scores.below[0], scores.up_to[0]), "uniform").pvalue > 0.01
    assert kstest(-np.expm1(-y[seen & (kind == 1)]), "uniform").pvalue < 1e-6


@pytest.mark.quick
@pytest.mark.parametrize(
    ("values", "event"),
    [
        ([1, 2, 2], "status=2"),
        ([0, 1, 1], "status"),
        ([False, True, True], "status"),
        (["FALSE", "True", "true"], "status"),
        ([1.0, 2.0, 2.0], "status=2"),
        (["alive", "dead", "dead"], "status=dead"),
        (pd.Categorical(["alive", "dead", "dead"]), "status=dead"),
    ],
)
def test_events_are_read_as_tables_have_them(values, event):
    frame = pd.DataFrame({"time": [1.0, 2.0, 3.0], "status": values})
    assert sides_of(frame, {"event": event})["censored"].tolist() == [1, 0, 0]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"event": "status"}, "holds '1', '2', not 0 and 1: .* such as 'status=2'"),
        ({"censored": "status"}, "where 2 is an event: give it as event, 'status=2'"),
        ({"event": "state"}, "no column 'state'"),
        ({"event": "gaps=2"}, "'gaps' is missing in 1 row.*leave them out"),
        ({"censored": "kind", "upper": "holes"}, "'holes' is missing in 1 row"),
    ],
)
def test_events_and_bounds_that_cannot_be_read_are_refused(columns, sentence):
    frame = pd.DataFrame({"time": [1.0, 2.0, 3.0], "status": [1, 2, 2], "gaps": [1, 2, None]})
    frame = frame.assign(kind=[0, 2, 2], holes=[None, None, 4.0])
    with pytest.raises(lgp.InputError, match=sentence):
        sides_of(frame, columns)


@pytest.mark.quick
def test_upper_bounds_may_be_empty_where_there_is_none():
    frame = pd.DataFrame({"time": [1.0, 2.0], "kind": [1, 2], "to": [None, 4.0]})
    assert sides_of(frame, {"censored": "kind", "upper": "to"})["upper"][1] == 4


@pytest.fixture(scope="module")
def table():
    status = np.where(CENSORED == 1, 1, 2)
    frame = pd.DataFrame({"x": X[:, 0], "time": TIME, "status": status})
    formula = "Surv(time, status == 2) ~ gp(x)"
    settings = {"likelihood": "weibull", "random_state": 0, "max_evaluations": 10}
    return frame, lgp.TableModel.fit(frame, formula=formula, **settings)


def test_formula_of_a_time_and_an_event_predicts_curves_and_scores(table, tmp_path):
    frame, model = table
    assert model.side_columns == {"event": "status=2"}
    assert f"time is seen in {90 - int(CENSORED.sum())} row(s), censored in " in str(model.notes)
    found = model.predict(frame, quantiles=[0.5], above=[1, 2.5])
    encoded = model.encoder.encode(frame)
    curves = model.estimator.predict_survival(encoded, [1, 2.5])
    np.testing.assert_allclose(found["probability_above_1"], curves[:, 0])
    np.testing.assert_allclose(found["probability_above_2.5"], curves[:, 1])
    median = model.estimator.predict_quantiles(encoded, 0.5)[:, 0]
    np.testing.assert_allclose(found["quantile_0.5"], median)
    scores = model.evaluate(frame)
    expected = model.estimator.score(encoded, TIME, censored=CENSORED)
    assert scores["concordance index of medians"] == expected
    assert "concordance index of medians" not in model.evaluate(frame.head(1))
    again = lgp.load(model.save(tmp_path / "model"))
    assert again.evaluate(frame) == scores
    pd.testing.assert_frame_equal(again.predict(frame.drop(columns="status")), model.predict(frame))
    assert model.predict(frame, mean_only=True, above=[1]).shape == (90, 5)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"formula": "Surv(time) ~ x"}, "Surv is of a time and an event"),
        ({"formula": "Surv(time, status == 2) ~ status"}, "the event 'status' is on the right"),
        ({"formula": "time | cens(status) ~ x"}, "side columns hold trials, weights and bounds"),
        ({"formula": "cbind(time, x) ~ status"}, r"or Surv\(time, event\)"),
        ({"target": ["time", "x"]}, r"one target: .*GPRegressor\(\).fit"),
        (
            {"target": "time", "side_columns": {"event": "status=2", "censored": "x"}},
            "leave censored out",
        ),
        ({"target": "time", "side_columns": {"event": "status=7"}}, "no row has an event by"),
    ],
)
def test_what_a_table_of_times_refuses(settings, sentence):
    frame = pd.DataFrame({"x": X[:, 0], "time": TIME, "status": np.where(CENSORED == 1, 1, 2)})
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.TableModel.fit(frame, **settings)


def test_classes_have_no_quantiles():
    frame = pd.DataFrame({"x": X[:20, 0], "y": ["a", "b"] * 10})
    model = lgp.TableModel.fit(frame, "y", random_state=0, max_evaluations=1)
    with pytest.raises(lgp.InputError, match="quantiles and above are of numbers"):
        model.predict(frame, above=[1.0])


def test_intervals_of_persons_are_one_time_until_an_event():
    """What is split at a time, and observed from there on, has the same likelihood."""
    half = TIME / 2
    first = pd.DataFrame({"x": X[:, 0], "start": 0.0, "stop": half, "dead": 0})
    second = pd.DataFrame({"x": X[:, 0], "start": half, "stop": TIME, "dead": 1 - CENSORED})
    whole = second.assign(start=0.0)
    settings = {"method": "laplace", "likelihood": "censored-weibull"}
    settings["learn_hyperparameters"] = False
    models = [
        lgp.TableModel.fit(frame, formula="Surv(start, stop, dead) ~ x", **settings)
        for frame in (pd.concat([first, second]), whole)
    ]
    split, one = (model.estimator for model in models)
    assert split.posterior_.log_evidence == pytest.approx(one.posterior_.log_evidence, rel=1e-5)
    np.testing.assert_allclose(models[0].predict(whole), models[1].predict(whole), rtol=1e-3)
    assert models[0].side_columns == {"entry": "start", "event": "dead"}
    assert 0 <= models[0].evaluate(second)["95 % interval coverage"] <= 1


def test_times_whose_events_were_not_told_are_noted():
    frame = pd.DataFrame({"x": X[:, 0], "futime": TIME, "status": np.where(CENSORED == 1, 1, 2)})
    for target, told in (("futime", True), ("weight", False)):
        table = frame.rename(columns={"futime": target})
        settings = {"random_state": 0, "max_evaluations": 1, "kernel": "rbf"}
        notes = lgp.TableModel.fit(table, target, **settings).notes
        assert any("side_columns={'event': 'status=2'}" in note for note in notes) == told


@pytest.mark.quick
def test_dates_as_times_are_refused_by_name():
    frame = pd.DataFrame({"x": range(3), "end": ["1968-01-03", "1968-01-07", "1969-08-31"]})
    frame["dead"] = [0, 1, 1]
    with pytest.raises(lgp.InputError, match="the target is a date: pass a number"):
        lgp.TableModel.fit(frame, "end", side_columns={"event": "dead"})
