"""A table in, predictions of the right kind out: orders, intervals, what belongs to a row."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.posteriors import predictive
from latentgp.runtime.buckets import Buckets
from latentgp.site_inference.search import search
from latentgp.surfaces.evaluation.row_scores import scores_of
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.scores import coverages
from latentgp.surfaces.tables.start import choose_task, start
from likelihood_cases import COMPLETE

ROWS = 60
OBJECTS = list({type(case[0]): case[0] for case in COMPLETE}.values())
_generator = np.random.default_rng(0)
_x = _generator.uniform(0, 6, ROWS)
_f = np.sin(_x)


def fitted(target, method="laplace", more=None, **settings):
    """A model of `y` from `x`, of few evaluations, and its table."""
    frame = pd.DataFrame({"x": _x, "y": target, **(more or {})})
    settings = {"max_evaluations": 5, "random_state": 0, **settings}
    return TableModel.fit(frame, "y", method=method, **settings), frame


class TestOrder:
    SCORE = 1 + np.digitize(_f, np.linspace(-0.9, 0.9, 9))
    GRADE = np.array(["low", "middle", "high"])[np.digitize(_f, [-0.4, 0.4])]

    @pytest.mark.parametrize("kind", [int, float, str])
    @pytest.mark.filterwarnings("ignore")
    def test_numbers_are_in_their_own_order(self, kind):
        model, _ = fitted(self.SCORE.astype(kind), task="ordinal")
        labels = [str(number) for number in range(1, 11)]
        assert model.estimator.classes_.tolist() == labels
        assert any(note == f"in the order {' < '.join(labels)}" for note in model.notes)

    def test_text_needs_an_order(self):
        with pytest.raises(InputError, match="text, which has no order of its own; give order="):
            fitted(self.GRADE, task="ordinal")

    @pytest.mark.filterwarnings("ignore")
    def test_an_order_that_is_given(self):
        order = ["low", "middle", "high"]
        model, _ = fitted(self.GRADE, task="ordinal", order=order)
        assert model.estimator.classes_.tolist() == order

    @pytest.mark.parametrize("order", [range(10, 0, -1), np.arange(10.0, 0, -1)])
    @pytest.mark.filterwarnings("ignore")
    def test_an_order_of_numbers(self, order):
        model, _ = fitted(self.SCORE, order=order)
        assert model.estimator.classes_.tolist() == [str(number) for number in range(10, 0, -1)]

    @pytest.mark.parametrize("target", [_f, GRADE], ids=["number", "class"])
    def test_weights_of_zero_are_refused_in_a_sentence(self, target):
        with pytest.raises(InputError, match=r"weights must not be .* zero in every row; give"):
            fitted(target, more={"w": np.zeros(ROWS)}, weights="w")

    @pytest.mark.parametrize("name", ["size", ["size"]])
    def test_a_column_that_is_left_out_may_stand_alone(self, name):
        frame = pd.DataFrame({"size": _f, "x": _f**2, "y": _f})
        started = start(frame, "y", "auto", "auto", None, {}, None, name, {})
        assert started.encoder.feature_names == ["x"]


class TestIntervalsOfTwoClasses:
    LABEL = np.where(_f > 0.2 * _generator.normal(size=ROWS), "yes", "no")

    @pytest.mark.parametrize("likelihood", ["logit", "probit", "bayesian-svm"])
    @pytest.mark.filterwarnings("ignore")
    def test_they_hold_the_probability(self, likelihood):
        method = "augmented" if likelihood == "bayesian-svm" else "laplace"
        model, frame = fitted(self.LABEL, method, likelihood=likelihood)
        predicted = model.predict(frame)
        assert (predicted["probability_yes_lower"] <= predicted["probability_yes"]).all()
        assert (predicted["probability_yes"] <= predicted["probability_yes_upper"]).all()
        # At a level of nothing, both ends are the probability at the latent mean.
        names = ["probability_yes_lower", "probability_yes_upper"]
        ends = model.predict(frame, level=1e-9)[names].to_numpy()
        f = model.estimator.posterior_.mean_f(model.encoder.encode(frame))
        given = model.estimator.model_.likelihood.class_probabilities
        np.testing.assert_allclose(ends[:, 0], [given(np.array([v]), {})[1] for v in f], rtol=1e-5)
        np.testing.assert_allclose(ends[:, 0], ends[:, 1], rtol=1e-6)

    @pytest.mark.filterwarnings("ignore")
    def test_a_level_that_is_none_is_refused(self):
        model, frame = fitted(self.LABEL)
        for level in (95, 0.0, float("nan"), "0.9"):
            with pytest.raises(InputError, match="level must be strictly between 0 and 1"):
                model.predict(frame, level)

    @pytest.mark.filterwarnings("ignore")
    def test_two_latent_functions_have_none(self):
        model, frame = fitted(self.LABEL, likelihood="softmax")
        assert list(model.predict(frame)) == ["prediction", "probability_no", "probability_yes"]


@pytest.mark.parametrize("target", [_f, TestIntervalsOfTwoClasses.LABEL], ids=["number", "class"])
@pytest.mark.filterwarnings("ignore")
def test_marginals_are_computed_once(target, monkeypatch):
    model, frame = fitted(target, "auto")
    find, calls = Buckets.map, []

    def counting(rows, function, *arguments, **settings):
        calls.extend([1] if function is predictive._believed else [])
        return find(rows, function, *arguments, **settings)

    monkeypatch.setattr(Buckets, "map", counting)
    model.predict(frame)
    model.evaluate(frame)
    assert len(calls) == 2


@pytest.mark.filterwarnings("ignore")
def test_the_start_of_a_fit_in_batches_leaves_no_settings(tmp_path):
    frame = pd.DataFrame({"x": _x, "y": _f + 0.1 * _generator.normal(size=ROWS)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    settings = {"n_inducing": 5, "batch_size": 20, "epochs": 1, "random_state": 0}
    model = TableModel.fit_files(tmp_path / "rows.csv", "y", max_seconds=500.0, **settings)
    assert model.estimator.max_evaluations == 200
    assert model.estimator.max_seconds == 500


@pytest.mark.filterwarnings("ignore")
def test_a_fit_in_batches_that_is_stopped_at_its_start_goes_no_further(
    tmp_path, monkeypatch, ctrl_c
):
    frame = pd.DataFrame({"x": _x, "y": _f + 0.1 * _generator.normal(size=ROWS)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    report, calls = search.Search.report, []

    def second_time(*given):
        calls.append(1)
        if len(calls) == 2:
            ctrl_c()
        return report(*given)

    monkeypatch.setattr(search.Search, "report", second_time)
    with pytest.raises(KeyboardInterrupt):
        TableModel.fit_files(tmp_path / "rows.csv", "y", n_inducing=5, batch_size=20)
    assert len(calls) == 2


class TestLikelihoodObjects:
    @pytest.mark.parametrize("likelihood", OBJECTS, ids=lambda own: type(own).__name__)
    def test_the_task_follows(self, likelihood):
        target = pd.Series(np.arange(10) % 3, name="y")
        choice = choose_task(target, "auto", likelihood, {}, None)
        kinds = {"real": "regression", "count": "count", "class": "classification"}
        ordered = isinstance(likelihood, lgp.Ordinal)
        assert choice.task == ("ordinal" if ordered else kinds[likelihood.targets])
        assert choice.likelihood is likelihood
        assert type(likelihood).__name__ in choice.notes[0]

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("asked", [{}, {"task": "regression"}, {"formula": "y ~ gp(x)"}])
    def test_a_table_is_fitted_as_an_array_is(self, asked):
        y = _f + 0.1 * _generator.standard_t(3, ROWS)
        frame = pd.DataFrame({"x": _x, "y": y})
        settings = {"likelihood": lgp.StudentT(), "random_state": 0, "max_evaluations": 5}
        model = TableModel.fit(frame, None if "formula" in asked else "y", **asked, **settings)
        assert isinstance(model.estimator.model_.likelihood, lgp.StudentT)
        if "formula" not in asked:
            right = lgp.GPRegressor(**settings).fit(frame[["x"]], y).predict(frame[["x"]])
            np.testing.assert_allclose(model.predict(frame)["mean"], right)

    @pytest.mark.filterwarnings("ignore")
    def test_beside_what_a_row_carries(self):
        model, frame = fitted(
            np.minimum(5, _generator.poisson(3, ROWS)),
            more={"n": np.full(ROWS, 5)},
            likelihood=lgp.Binomial(),
            side_columns={"trials": "n"},
        )
        assert model.task == "count"
        assert (model.predict(frame)["mean"] < 5).all()


class TestDates:
    MONTHS = pd.date_range("2015-01-01", periods=ROWS, freq="MS")

    def fitted(self, months, name="month"):
        values = np.arange(ROWS) + 0.1 * _f
        return fitted(values, "auto", {name: months}, leave_out=["x"], max_evaluations=20)

    @pytest.mark.filterwarnings("ignore")
    def test_months_are_forecast_as_dates_are(self):
        model, frame = self.fitted(self.MONTHS.strftime("%Y-%m"))
        other, _ = self.fitted(self.MONTHS)
        new = pd.DataFrame({"month": ["2020-01", "2020-06"]})
        right = other.predict(new.assign(month=pd.to_datetime(new["month"])))
        pd.testing.assert_frame_equal(model.predict(new), right)
        assert abs(right["mean"][0] - ROWS) < 10
        shown = model.effects(frame).dependence("month", points=3)
        assert shown.values.dtype.kind == "M"

    @pytest.mark.filterwarnings("ignore")
    def test_a_duration_is_predicted_in_a_unit_that_is_named(self):
        wait = pd.to_timedelta(10 + 3 * _x, "min")
        model, frame = fitted(wait, "auto", max_evaluations=20)
        assert "y: duration in minutes of 60 seconds" in model.notes
        np.testing.assert_allclose(model.predict(frame)["mean"], 10 + 3 * _x, atol=0.5)
        assert model.evaluate(frame)["root mean squared error"] < 0.5
        with pytest.raises(InputError, match=r"the weights column 'y' holds dates or durations"):
            TableModel.fit(frame.assign(z=_f), "z", weights="y")


class TestLeaveOneOut:
    def test_rows_with_gaps_in_a_formula_are_left_out_as_in_the_fit(self):
        frame = pd.DataFrame({"x": _x, "z": np.cos(5 * _x)})
        frame["y"] = _f + frame["z"] + 0.1 * np.cos(40 * _x)
        frame.loc[::4, "z"] = np.nan
        settings = {"random_state": 0, "max_evaluations": 3}
        said = r"left out 15 of 60 row\(s\), with gaps in 'z'"
        with pytest.warns(UserWarning, match=said):
            model = TableModel.fit(frame, formula="y ~ z + gp(x)", **settings)
        with pytest.warns(UserWarning, match=said):
            found = model.leave_one_out(frame)
        whole = model.leave_one_out(model.without_gaps(frame))
        np.testing.assert_array_equal(found.log_density, whole.log_density)
        frame.loc[1, "y"] += 0.1
        with pytest.raises(InputError, match="1 of 45 different rows are none that were fitted"):
            model.leave_one_out(model.without_gaps(frame))

    def test_the_weights_of_the_fit_are_remembered(self, tmp_path):
        more = {"w": np.random.default_rng(0).uniform(0.1, 1.9, ROWS)}
        model, frame = fitted(_f + 0.1 * np.cos(40 * _x), "exact", more, weights="w")
        model = lgp.load(model.save(tmp_path / "model"))
        expected = model.leave_one_out(frame, weights="w")
        np.testing.assert_array_equal(model.leave_one_out(frame).log_density, expected.log_density)
        assert model.evaluate(frame) == model.evaluate(frame, weights="w")
        with pytest.warns(UserWarning, match="no column 'w': its rows count alike"):
            alike = model.evaluate(frame.drop(columns="w"))
        assert alike == pytest.approx(model.evaluate(frame.assign(w=1.0)))
        with pytest.raises(InputError, match="no column 'w'"):
            model.leave_one_out(frame.drop(columns="w"))


class TestScores:
    @pytest.mark.filterwarnings("ignore")
    def test_of_counts(self):
        counts = _generator.poisson(np.exp(1 + _f))
        model, frame = fitted(counts, likelihood="poisson")
        scores, mean = model.evaluate(frame), model.predict(frame, mean_only=True)["mean"]
        assert scores["mean absolute error"] == pytest.approx(np.abs(counts - mean).mean())
        expected = sklearn.metrics.mean_poisson_deviance(counts, mean)
        assert scores["Poisson deviance"] == pytest.approx(expected)

    @pytest.mark.filterwarnings("ignore")
    def test_crps_is_of_every_law_of_numbers(self):
        y = _f + 0.1 * _generator.normal(size=ROWS)
        gaussian = fitted(y, "exact")[0].evaluate(fitted(y, "exact")[1])
        near = lgp.StudentT(scale=0.1, degrees_of_freedom=1e4)  # as good as Gaussian
        settings = {"likelihood": near, "frozen": ["likelihood.degrees_of_freedom"]}
        model, frame = fitted(y, task="regression", **settings)
        assert model.evaluate(frame)["CRPS"] == pytest.approx(gaussian["CRPS"], rel=0.05)

    def test_tails_without_a_deviation_are_spoken_of_once(self, tmp_path):
        y = _f + 0.1 * _generator.standard_t(1.0, ROWS)
        law = lgp.StudentT(scale=0.1, degrees_of_freedom=1.5)
        frozen = {"frozen": ["likelihood.degrees_of_freedom"], "max_evaluations": 3}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, frame = fitted(y, task="regression", likelihood=law, **frozen)
        with pytest.warns(UserWarning, match="infinite, as .* of 1.5 degrees of freedom, has") as w:
            predicted = model.predict(frame)
        assert len(w) == 1
        assert np.isinf(predicted["std"]).all()
        assert np.isfinite(predicted[["lower", "upper"]]).all(axis=None)
        with pytest.warns(UserWarning, match="go by the interval, and by the mean absolute error"):
            scores = model.evaluate(frame)
        assert scores["CRPS"] < scores["mean absolute error"]


class TestWhatARowCarries:
    DAYS = _generator.uniform(1, 5, ROWS)
    VISITS = 1 + _generator.poisson(DAYS * np.exp(1 + _f))

    @pytest.mark.parametrize(
        ("name", "task", "likelihood", "law"),
        [
            ("exposure", "auto", "auto", ("count", "auto")),
            ("trials", "auto", "auto", ("count", "binomial")),
            ("trials", "count", "auto", ("count", "binomial")),
            ("censored", "auto", "auto", ("regression", "auto")),
            ("event", "auto", "auto", ("regression", "auto")),
            ("exposure", "auto", "negative-binomial", ("count", "negative-binomial")),
        ],
    )
    def test_it_says_what_was_left_open(self, name, task, likelihood, law):
        choice = choose_task(pd.Series(self.VISITS, name="y"), task, likelihood, {name: "c"}, None)
        assert choice[:2] == law
        assert any(name in note or likelihood in note for note in choice.notes)

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"task": "regression", "side_columns": {"exposure": "c"}}, "exposure belongs to the "),
            ({"task": "classification", "side_columns": {"trials": "c"}}, "trials belongs to the "),
            ({"likelihood": "poisson", "side_columns": {"censored": "c"}}, "censored belongs to "),
            ({"side_columns": {"exposures": "c"}}, "no side column 'exposures'"),
            ({"task": "count", "order": ["1", "2"]}, "an order belongs to the task ordinal"),
            ({"task": "counts"}, "task must be one of 'auto', .*, got 'counts'"),
        ],
    )
    def test_what_belongs_to_another_task_is_refused(self, settings, says):
        with pytest.raises(InputError, match=says):
            fitted(self.VISITS, more={"c": self.DAYS}, **settings)

    @pytest.mark.filterwarnings("ignore:.*evaluations")
    def test_exposure_that_is_missing_is_said_or_refused(self):
        model, frame = fitted(
            self.VISITS, more={"days": self.DAYS}, side_columns={"exposure": "days"}
        )
        bare = frame.drop(columns="days")
        with pytest.warns(UserWarning, match="no column 'days': .* in one unit of exposure"):
            a_day = model.predict(bare)
        np.testing.assert_allclose(a_day["mean"] * self.DAYS, model.predict(frame)["mean"])
        assert model.evaluate(frame)["root mean squared error"] < 10
        with pytest.raises(InputError, match="no column 'days'"):
            model.evaluate(bare)

    @pytest.mark.filterwarnings("ignore:.*evaluations")
    @pytest.mark.parametrize("kind", ["number", "count", "class"])
    def test_scores_of_weighted_rows_are_those_of_copies(self, kind):
        numbers = {"number": self.DAYS + _f, "count": self.VISITS, "class": self.VISITS > 9}
        model, frame = fitted(numbers[kind], more={"copies": np.arange(ROWS) % 3})
        copies = frame.loc[frame.index.repeat(frame["copies"])]
        expected = model.evaluate(copies)
        assert model.evaluate(frame, weights="copies") == pytest.approx(expected)
        assert model.evaluate(frame) != pytest.approx(expected)

    @pytest.mark.filterwarnings("ignore")
    def test_errors_are_of_rows_that_are_not_censored(self):
        life = 5 * np.exp(_f) * _generator.weibull(2, ROWS)
        until = _generator.uniform(2, 15, ROWS)
        more = {"lost": (until < life).astype(int)}
        model, frame = fitted(np.minimum(life, until), more=more, side_columns={"censored": "lost"})
        scores, seen = model.evaluate(frame), frame["lost"] == 0
        assert scores["censored rows left out below"] == (~seen).sum() > 5
        predicted = model.predict(frame)[seen]
        unknown = model.predict(frame.assign(lost=np.nan), above=[1234567, 1234568])
        np.testing.assert_array_equal(unknown.loc[seen, "mean"], predicted["mean"])
        assert unknown.columns[-2:].str[-7:].tolist() == ["1234567", "1234568"]
        error = np.sqrt(np.mean((predicted["mean"] - frame["y"][seen]) ** 2))
        assert scores["root mean squared error"] == pytest.approx(error)
        X, y, side = model.encoded(frame)
        found = scores_of(model.estimator.posterior_.predict(X, **side), y)
        assert coverages(found, 0.95, np.ones(ROWS)) == scores["95 % interval coverage"]
        expected = model.estimator.score(X, y, censored=side["censored"])
        assert scores["concordance index of medians"] == pytest.approx(expected)
