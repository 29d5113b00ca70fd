"""Pilot of representations: what is tried, on how many rows, and what it advises."""

import sys

import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.errors import InputError, ProcessLost
from latentgp.runtime.apart import MeasuredCall
from latentgp.surfaces import cli
from latentgp.surfaces.cli.report import comparison_picture, print_comparison
from latentgp.surfaces.evaluation import comparison, pilot
from latentgp.surfaces.evaluation.comparison import Comparison, ComparisonRow, compare
from latentgp.surfaces.evaluation.plots import cost_front
from latentgp.surfaces.tables.model import TableModel

ROWS = 60
_generator = np.random.default_rng(0)
_x = np.sort(_generator.uniform(0, 6, ROWS))
FRAME = pd.DataFrame({"x": _x, "y": np.sin(_x) + 0.1 * _generator.normal(size=ROWS)})
NAN = float("nan")


def contender(name, nlpd, error, seconds, memory=2e8):
    return ComparisonRow(name, nlpd, error, 0.3, coverage=0.95, seconds=seconds, memory=memory)


@pytest.fixture
def here(monkeypatch):
    """Fits are pretended, and each says what it was asked for."""
    asked = []

    def fit(train, test, target, task, contender, seed, settings):
        asked.append((contender, len(train), len(test), settings))
        order = len(asked)
        row = ComparisonRow(
            str(contender), float(order), NAN, 0.1, coverage=0.9, seconds=9.0 - order
        )
        return row, np.full(len(test), float(order))

    def call(function, *arguments, seconds):
        return MeasuredCall(function(*arguments), 3e8)

    monkeypatch.setattr(comparison, "_one", fit)
    monkeypatch.setattr(comparison, "apart", call)
    return asked


@pytest.mark.quick
class TestPlan:
    def test_dense_is_left_out_of_many_rows(self):
        few, notes = pilot.candidates("usual", 4_000)
        assert list(few) == list(pilot.REPRESENTATIONS)
        assert notes == []
        many, notes = pilot.candidates("usual", 4_001)
        assert "dense" not in many
        assert notes == ["dense is left out: of 4001 rows it is too slow, 4000 are the most."]
        with pytest.raises(InputError, match="4000 are the most; name others of inducing-200"):
            pilot.candidates(["dense"], 5_000)
        with pytest.raises(InputError, match="no representation 'sparse': name some of induc"):
            pilot.candidates(["sparse"], 5)

    def test_a_new_representation_is_one_line(self, here, monkeypatch):
        own = pilot.Candidate(lgp.Inducing(7))
        monkeypatch.setitem(pilot.REPRESENTATIONS, "seven", own)
        found = compare(FRAME, "y", representations=["seven"])
        assert "representation=lgp.Inducing(number=7))" in found.advice
        assert here[0][3]["representation"] is own.representation

    def test_budgets_are_kept_whatever_fits_take(self):
        for used in (0.0, 1.0):  # of what a fit may take at most
            left, spent = 120.0, 0.0
            for fits in (4, 3, 2, 1):
                search, end = pilot.share(left, fits)
                assert 1 <= search < end
                spent += used * end
                left -= used * end
            assert spent < 1.35 * 120

    def test_rows_are_fewer_where_there_is_no_closed_form(self):
        for names, task in ((["auto"], "regression"), (["gaussian"], "regression")):
            assert pilot.is_gaussian(names, task)
        for names, task in ((["gaussian", "student-t"], "regression"), (["auto"], "count")):
            assert not pilot.is_gaussian(names, task)
        number = pilot.rows_within(120, gaussian=True)
        assert number == 12_000
        assert pilot.rows_within(120, gaussian=False) < number / 5
        with pytest.raises(InputError, match="budget must be a positive number of seconds, got 0"):
            pilot.rows_within(0, gaussian=True)

    def test_searches_that_were_cut_short_are_said(self):
        ended = contender("dense", 0.4, 0.01, 5.0)._replace(note="because max_seconds=3 had passed")
        assert pilot.cut_short([contender("both", 0.3, 0.0, 20.0)]) == []
        (note,) = pilot.cut_short([contender("both", 0.3, 0.0, 20.0), ended])
        assert "before dense had been learned" in note

    def test_both_are_for_gaussian_noise(self):
        few, notes = pilot.candidates("usual", 100, gaussian=False)
        assert "both" not in few
        assert notes == ["both is left out: it is for Gaussian noise."]
        line = pilot.line_of_python("y", pilot.REPRESENTATIONS["both"].representation)
        assert line.endswith("representation=lgp.Neighbours(inducing=lgp.Inducing(number=200)))")

    def test_a_sample_is_said(self, here):
        found = compare(FRAME, "y", representations="usual", budget=0.4)
        assert (found.trained_on, found.held_out) == (28, 12)
        assert found.notes[0].startswith("These are 40 of 60 rows, drawn at random")
        assert "some 1.5 times as long" in found.notes[0]
        assert [asked[0].representation for asked in here] == list(pilot.REPRESENTATIONS)
        for asked in here:
            assert asked[3]["max_seconds"] >= 1
        assert compare(FRAME, "y", representations="usual").notes == ()

    def test_points_are_those_of_the_representations(self):
        with pytest.raises(InputError, match="leave n_inducing out"):
            compare(FRAME, "y", representations="usual", n_inducing=5)


CODE = {name: f"take {name}" for name in "abc"}


@pytest.mark.quick
class TestAdvice:
    def test_the_fastest_within_two_standard_errors(self):
        rows = [contender("a", 0.3, 0.0, 50), contender("b", 0.31, 0.006, 5)]
        rows += [contender("c", 0.4, 0.01, 1), contender("d", NAN, NAN, 0.1)]
        assert pilot.advice(rows, CODE) == (
            "Take b: it is the fastest of 2 within two standard errors of the best, a (0.010 ± "
            "0.006 nats behind). take b"
        )

    def test_the_best(self):
        rows = [contender("a", 0.3, 0.0, 50), contender("b", 0.4, 0.006, 5)]
        assert pilot.advice(rows, CODE).startswith("Take a: it has the best score and no")
        alone = [contender("a", 0.3, NAN, 50)]  # of one row that is held out
        assert pilot.advice(alone, CODE).startswith("Take a")
        assert pilot.advice([contender("a", NAN, NAN, 1)], CODE).startswith("No repres")

    def test_the_line_says_all_that_was_asked_for(self):
        line = pilot.line_of_python(
            "it's", lgp.Neighbours(30), task="count", likelihood="poisson", method="auto"
        )
        assert line == (
            """lgp.TableModel.fit(frame, "it's", task='count', likelihood='poisson', """
            "representation=lgp.Neighbours(number=30))"
        )


@pytest.mark.quick
class TestReport:
    def found(self):
        rows = [contender("neighbours-20", 0.3, 0.0, 20.0), contender("dense", 0.4, 0.01, 5.0, NAN)]
        rows += [ComparisonRow("inducing-500", NAN, NAN, seconds=60.0, note="There is no fit.")]
        return Comparison("regression", tuple(rows), 42, 18, ("Few rows.",), "Take both.")

    def test_every_column_is_printed(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        print_comparison(self.found(), "price")
        out = capsys.readouterr().out
        assert all(len(line) <= 80 for line in out.splitlines())
        heading, *rows = (line.split() for line in out.splitlines()[1:5])
        assert " ".join(heading) == "contender NLPD behind ± s.e. RMSE in 95 % calib. s memory"
        assert rows[0][-3:] == ["20.0", "200", "MB"]
        assert rows[1][-2:] == ["5.0", "?"]
        assert rows[2][-3:] == ["-", "60.0", "-"]
        assert out.endswith("- inducing-500: There is no fit.\n- Few rows.\nTake both.\n")

    def test_the_picture_says_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr("latentgp.surfaces.evaluation.plots.save_figure", lambda axes, _: axes)
        drawn = comparison_picture(self.found(), tmp_path / "a.png")
        words = [text.get_text() for text in drawn.texts]
        assert words == ["neighbours-20\n200 MB", "dense\n?"]
        assert drawn.get_xscale() == "log"


@pytest.mark.quick
def test_the_front_is_of_those_that_no_faster_one_beats():
    seconds, scores = [4.0, 1.0, 2.0, 8.0, 1.0], [0.3, 0.5, 0.6, 0.1, 0.4]
    axes = cost_front(None, list("abcde"), seconds, scores, [0.0, NAN, 0.1, 0.1, 0.1])
    (line,) = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-post"]
    np.testing.assert_array_equal(line.get_xydata(), [[1, 0.4], [4, 0.3], [8, 0.1]])
    with pytest.raises(InputError, match="1 names and 2 scores"):
        cost_front(None, ["a"], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0])


@pytest.mark.quick
def test_a_process_that_ends_is_a_note(monkeypatch):
    def lost(*_, **__):
        raise ProcessLost("no result within 60 s")

    monkeypatch.setattr(comparison, "apart", lost)
    found = compare(FRAME, "y", representations=["dense"])
    assert found.rows[0].note == "There is no fit: no result within 60 s. Raise the budget."
    assert found.advice == "No representation could be fitted; the notes say why."


@pytest.mark.quick
def test_the_command(here, monkeypatch, capsys, tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    words = f"compare {tmp_path}/t.csv --target y --representations --plot {tmp_path}/p.png"
    monkeypatch.setattr(sys, "argv", ["latentgp", *words.split()])
    with pytest.raises(SystemExit):
        cli.main()
    out = " ".join(capsys.readouterr().out.split())
    assert "inducing-200 1.000 0.000 0.000 0.1 90.0 % nan 8.0 300 MB" in out
    assert "Take inducing-200: it has the best score" in out
    assert (tmp_path / "p.png").stat().st_size > 1000


@pytest.mark.quick
def test_batches_keep_nothing_of_every_row():
    with pytest.raises(
        InputError, match=r"representation=Neighbours\(number=9\) keeps coefficients of"
    ):
        TableModel.fit_files("t.csv", "y", representation=lgp.Neighbours(9))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_fits_apart_are_those_of_this_process():
    settings = {"max_evaluations": 5, "seed": 1}
    found = compare(FRAME, "y", representations=["inducing-200", "dense"], **settings)
    (here,) = compare(FRAME, "y", likelihoods=["gaussian"], methods=["exact"], **settings).rows
    assert [row.note for row in found.rows] != ["", ""]  # the search was cut short
    for row in found.rows:
        # With no fewer points than rows nothing is lost.
        np.testing.assert_allclose(row.nlpd, here.nlpd, atol=0.01)
        np.testing.assert_allclose(row.coverage, here.coverage)
        assert 1e6 < row.memory < 2e9
    by_name = {row.name: row for row in found.rows}
    np.testing.assert_allclose(by_name["dense"].nlpd, here.nlpd, rtol=1e-6)
