"""Contenders on one split: what is checked before, scored after, printed and drawn."""

import re

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import latentgp as lgp
from latentgp import GPCountRegressor
from latentgp.errors import InputError
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.cli.report import comparison_picture, print_comparison
from latentgp.surfaces.evaluation import comparison
from latentgp.surfaces.evaluation.comparison import (
    LEVELS,
    Comparison,
    ComparisonRow,
    compare,
    verdict,
)
from latentgp.surfaces.evaluation.row_scores import error_of_mean, scores_of
from latentgp.surfaces.tables.scores import coverages

pytestmark = pytest.mark.quick

ROWS = 60
_generator = np.random.default_rng(0)
_x = _generator.uniform(0, 6, ROWS)
_f = np.sin(_x)
NAN = float("nan")


def found(*names, nlpd=0.5):
    far = {"error": 1.234, "absolute_error": 0.8765, "crps": 0.765}
    rest = {"coverage": 0.9, "calibration_error": 0.02, "seconds": 123.4}
    rows = [ComparisonRow(name, nlpd, 0.01, **far, **rest) for name in names]
    return Comparison("regression", tuple(rows), 42, 18)


class TestBeforeAnyFit:
    def test_a_class_that_no_row_to_learn_from_has(self, monkeypatch):
        monkeypatch.setattr(comparison, "_one", lambda *_: pytest.fail("fitted"))
        frame = pd.DataFrame({"x": _x, "y": np.where(_f > 0, "a", "b")})
        for row in range(ROWS):
            frame.loc[row, "y"] = "rare"
            if row in np.random.default_rng(0).permutation(ROWS)[:18]:
                break
            frame.loc[row, "y"] = "a"
        with pytest.raises(InputError, match="only held-out rows have the class 'rare': merge"):
            compare(frame, "y")

    def test_the_likelihood_says_the_task(self, monkeypatch):
        monkeypatch.setattr(
            comparison,
            "_one",
            lambda *given: (
                ComparisonRow(given[4], 1.0, NAN, note=given[3]),
                np.ones(len(given[1])),
            ),
        )
        frame = pd.DataFrame({"x": _x, "y": 1 + _generator.poisson(np.exp(_f))})
        compared = compare(frame, "y", likelihoods=["poisson", "negative-binomial"], methods=["ep"])
        assert compared.task == "count"
        assert compare(frame, "y", methods=["ep"]).task == "regression"


@pytest.mark.filterwarnings("ignore")
def test_errors_are_of_the_difference_from_the_best():
    y, said = _f + 0.1 * _generator.normal(size=ROWS), []
    compared = compare(
        pd.DataFrame({"x": _x, "y": y}),
        "y",
        likelihoods=["gaussian"],
        methods=["exact", "laplace"],
        max_evaluations=5,
        progress=said.append,
    )
    best, other = compared.rows
    assert 0 < best.crps < best.absolute_error < best.error
    np.testing.assert_allclose([best.crps, best.error], [other.crps, other.error], rtol=1e-3)
    assert said == ["1 of 2: fitting gaussian, exact ...", "2 of 2: fitting gaussian, laplace ..."]
    assert best.standard_error == 0
    # The two are one posterior, so rows differ by next to nothing; each NLPD does by much more.
    assert other.standard_error < 1e-3


@pytest.mark.filterwarnings("ignore")
def test_coverage_of_counts_is_that_of_the_probability_integral_transform():
    X, rate = _x[:, None], np.exp(_f - 1.0)
    counts = GPCountRegressor(method="laplace", random_state=0, max_evaluations=5)
    counts.fit(X, _generator.poisson(rate))
    posterior = counts.posterior_
    X = np.repeat(X, 50, axis=0)
    predictive = posterior.predict(X)
    # Targets of the predictive law itself: covered as often as each level says.
    y = predictive.sample(key=jax.random.key(1))[0]
    observed = coverages(scores_of(predictive, y), LEVELS, np.ones(len(y)))
    np.testing.assert_allclose(observed, LEVELS, atol=4 * 0.5 / np.sqrt(len(y)))
    inside = np.mean((y >= predictive.interval(0.5)[0]) & (y <= predictive.interval(0.5)[1]))
    assert inside > 0.6  # which the interval itself does not
    f, s = predictive.latent_mean[:1, 0], np.sqrt(predictive.latent_variance[:1, 0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    by_hand = stats.poisson.cdf(1, np.exp(f + s * nodes)) @ weights / weights.sum()
    np.testing.assert_allclose(posterior.predict(X[:1]).cdf([1.0]), [by_hand], rtol=1e-6)


@pytest.mark.parametrize("columns", ["80", "200"])
def test_every_column_is_printed(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    names = ("heteroscedastic-student-t, variational", "gaussian, exact")
    print_comparison(found(*names), "price")
    out = capsys.readouterr().out
    for words in (
        "NLPD",
        "behind",
        "s.e.",
        "RMSE",
        "MAE",
        "CRPS",
        "in 95 %",
        "calib.",
        "123.4",
        "90.0",
    ):
        assert words in out
    assert all(len(line) <= int(columns) for line in out.splitlines())
    rows = out[out.index("contender") :].replace("\n", " ").split()
    assert "".join(rows).startswith("contender")
    assert any(word.startswith("heteroscedas") for word in rows)


def test_the_picture_holds_its_label(tmp_path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, path, **_: drawn.append(self) or path.touch())
        comparison_picture(
            found("heteroscedastic-student-t, variational", "exact"), tmp_path / "a.png"
        )
    (figure,) = drawn
    FigureCanvasAgg(figure).draw()
    box = figure.axes[0].xaxis.label.get_window_extent()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert "difference from the best" in figure.axes[0].get_xlabel()


def test_without_a_fit_there_is_no_picture(tmp_path):
    with pytest.raises(InputError, match="no contender could be fitted"):
        comparison_picture(found("poisson", nlpd=NAN), tmp_path / "a.png")


def test_weights_that_are_no_copies_do_not_change_the_error_of_a_mean():
    values = np.random.default_rng(0).normal(size=100)
    usual = np.std(values, ddof=1) / 10
    for weights in (np.ones(100), np.full(100, 0.3), np.full(100, 0.005)):
        assert error_of_mean(values, weights) == pytest.approx(usual)
    half = np.where(np.arange(100) < 50, 1.5, 1e-9)  # which are 50 rows
    assert error_of_mean(values, half) == pytest.approx(np.std(values[:50], ddof=1) / 50**0.5)


class TestDepth:
    def scored(self, name, nlpd, bound=NAN):
        return ComparisonRow(name, float(np.mean(nlpd)), NAN, bound=bound), np.asarray(nlpd)

    def test_a_weight_is_so_many_rows(self):
        generator = np.random.default_rng(0)
        weights = generator.integers(0, 4, 30)
        few, more = generator.normal(size=(2, 30))
        for rows in (slice(None), slice(0, 9)):
            own, counts = few[rows], weights[rows]
            said = verdict([self.scored("a", own)], [self.scored("b", more[rows])], counts)
            copies = (np.repeat(values, counts) for values in (own, more[rows]))
            of_copies = ([self.scored(*pair)] for pair in zip("ab", copies, strict=True))
            assert said == verdict(*of_copies)
        estimator = lgp.GPRegressor(learn_hyperparameters=False, random_state=0)
        X = few[:, None]
        estimator.fit(X, more)
        scores = scores_of(estimator.posterior_.predict(X), more)
        copies = scores.mapped(lambda values: np.repeat(values, weights, axis=0))
        np.testing.assert_allclose(
            coverages(scores, LEVELS, weights),
            coverages(copies, LEVELS, np.ones(weights.sum())),
        )

    def test_verdict(self):
        flat = self.scored("one", [1.0, 1.0, 1.0, 1.0], bound=-1.2)
        ahead = self.scored("two", [0.8, 0.9, 0.8, 0.9], bound=-1.0)
        told = verdict([flat], [ahead, self.scored("three", [0.9] * 4, bound=-1.1)])
        assert told.startswith("Depth pays here: two is ahead of one by 0.150 ± 0.029 nats a row.")
        assert told.endswith("two has the highest bound, -1.000.")
        assert verdict([ahead], [flat]).startswith("Depth does not pay here: one is behind two")
        assert "highest bound" not in verdict([flat], [self.scored("two", [0.5] * 4)])
        assert verdict([flat], [self.scored("two", [NAN] * 4)]).startswith("There is no verdict")

    @pytest.mark.slow
    def test_the_command_line_says(self, tmp_path):
        rng = np.random.default_rng(0)
        x = rng.uniform(-3, 3, 60)
        y = np.sign(x - 0.5) + 0.1 * rng.normal(size=60)
        pd.DataFrame({"x": x, "y": y}).to_csv(tmp_path / "jump.csv", index=False)
        line = ["compare", str(tmp_path / "jump.csv"), "--target", "y", "--method", "auto"]
        told = CliRunner().invoke(
            app, [*line, "--likelihood", "gaussian", "--depth", "1", "--depth", "2"]
        )
        assert told.exit_code == 0, told.output
        said = " ".join(told.output.split())
        assert re.search(
            "Depth (pays|does not pay) here: gaussian, 2 layers is .* gaussian by", said
        )
        assert "nats a row. gaussian" in said

    def test_representations_have_one(self):
        with pytest.raises(InputError, match="leave depths out"):
            compare(
                pd.DataFrame({"x": [1.0], "y": [1.0]}), "y", depths=[2], representations="usual"
            )
