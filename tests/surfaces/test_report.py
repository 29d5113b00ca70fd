import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import latentgp as lgp
from browser import CHROMIUM, look_at, small_picture
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.estimators.fingerprints import are_known
from latentgp.surfaces.evaluation.comparison import LEVELS
from latentgp.surfaces.report import as_table_model, write_report
from latentgp.surfaces.report.baselines import Baseline, baselines
from latentgp.surfaces.report.forecast import forecast
from latentgp.surfaces.report.judged import judged
from latentgp.surfaces.report.opening import in_short
from latentgp.surfaces.report.sections import scores
from latentgp.surfaces.tables.scores import coverages
from latentgp.surfaces.tables.values import text_of
from report_fits import fitted
from slow import slow_parameters

STORED = Path(__file__).parent / "stored"
WIDTHS = (390, 1280)
HELD = {"random_state": 0, "learn_hyperparameters": False, "method": "laplace"}


@pytest.fixture(scope="module", params=["classifier", *slow_parameters("counts", "series")])
def page(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / f"{request.param}.html"
    return write_report(*fitted(request.param), path, command="latentgp report ...")


class Read(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.outside, self.svgs, self.open = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.svgs += [given] if tag == "svg" else []
        for name in ("href", "src", "xlink:href"):
            target = given.get(name, "")
            self.links += [target[1:]] if target.startswith("#") else []
            self.outside += [target] if re.match("(?!data:)[a-z]+:", target) else []
        if tag not in ("meta", "link", "br", "path", "use", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


def test_a_page_is_whole_and_needs_nothing_else(page):
    text = page.read_text()
    read = Read(text)
    assert len(text) < 3_000_000
    assert read.outside == []
    assert "@import" not in text
    assert "<script" not in text
    assert sorted(read.ids) == sorted(set(read.ids))
    assert set(read.links) <= set(read.ids)
    assert not read.open
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in read.svgs)
    assert len(read.svgs) >= 3
    assert text.count("<title>") > 20  # values where the pointer rests
    for name in (
        "short",
        "model",
        "verdict",
        "scores",
        "calibration",
        "residuals",
        "effects",
        "again",
    ):
        assert f'<section id="{name}"' in text


def test_curves_say_what_they_are_the_probability_of(page):
    text = page.read_text()
    if page.stem == "classifier":
        assert "Mean of P(ill = yes) by dose" in text
        assert "predicted probability of ill = yes" in text
        assert "share in the variance of P(ill = yes)" in text
        assert ">probability<" not in text
    assert "The path is what" in text
    assert "±" not in text
    assert "kernel.lengthscale[0]:" not in text  # length-scales have the name of their column
    assert ("What comes next?" in text) == (page.stem == "series")


ODD = "a column with a name of many words, as tables have them [mg/l]"


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A report on long names, many categories, dates in text, many inputs and three classes."""
    rng = np.random.default_rng(7)
    words = [f"{a} {b} upon the water" for a in ("Upper", "Lower", "Saint") for b in "ABCDEFGH"]
    frame = pd.DataFrame({f"{ODD} {d}": rng.normal(size=90) for d in range(3)})
    frame["town or village"] = rng.choice(words, 90)
    frame["cost in $ and more $"] = rng.choice(["1 $", "2 $"], 90)
    frame["day"] = pd.date_range("2021-01-01", periods=90).strftime("%d.%m.%Y")
    three = np.digitize(frame[f"{ODD} 0"], [-0.5, 0.5])
    frame["the state of the patient"] = np.array(["well again", "as before", "worse"])[three]
    model = lgp.TableModel.fit(
        frame, "the state of the patient", random_state=0, method="laplace", max_evaluations=3
    )
    page = tmp_path_factory.mktemp("odd") / "odd.html"
    return write_report(model, frame, page)


def test_a_report_on_odd_columns_says_what_it_is_about(odd):
    text = odd.read_text()
    assert "P(the state of the patient = worse)" in text
    assert "The 20 most frequent of 24." in text
    assert "day: 2021-0" in text  # where the pointer rests: dates have a date axis


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is absent")
@pytest.mark.parametrize("width", WIDTHS)
def test_odd_names_neither_overlap_nor_are_cut(odd, width, tmp_path):
    said, console = look_at(odd, width, tmp_path)
    assert said["wrong"] == []
    assert console == []


def of_places(kind):
    """A small table with places, and a fit of it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"lon": rng.uniform(170, 190, 90), "lat": rng.uniform(40, 50, 90)})
    f = np.sin(frame["lon"]) + np.cos(frame["lat"] / 2)
    if kind == "globe":
        frame["lon"] = (frame["lon"] + 180) % 360 - 180
        kernel = lgp.kernels.OnSphere(lgp.Matern32(lengthscale=200.0))
        estimator = lgp.GPRegressor(kernel=kernel, random_state=0)
        return estimator, frame, (f + 0.2 * rng.normal(size=90)).to_numpy(), {}
    if kind == "classes":
        y = np.where(f + rng.logistic(size=90) > 0, "here", "absent")
        return lgp.GPClassifier(kernel=lgp.Matern32(2.0), random_state=0), frame, y, {}
    exposure = rng.uniform(1, 5, 90)
    y = rng.poisson(exposure * np.exp(f))
    return lgp.GPCountRegressor(random_state=0), frame, y, {"exposure": exposure}


@pytest.mark.parametrize("kind", ["globe", *slow_parameters("classes", "counts")])
def test_rows_with_places_have_maps_and_a_variogram(kind, tmp_path):
    estimator, frame, y, side = of_places(kind)
    page = estimator.fit(frame, y, **side).report(frame, y, tmp_path / "page.html", **side)
    text = page.read_text()
    assert Read(text).outside == []
    assert len(text) < 3_000_000
    section = text.partition('<section id="places"')[2].partition("</section>")[0]
    names = re.findall(r'<svg[^>]* aria-label="([^"]*)"', section)
    assert [name.partition(" ")[0] for name in names] == [
        "Prediction",
        "Standard",
        "Two",
        "Residuals",
        "Variogram",
    ]
    assert re.search(r"\d+ of 12 points are in the band", section)
    assert ("expect before any target is seen" in section) == (kind == "globe")
    assert ("distance [km]" in section) == (kind == "globe")
    assert ("P(y = here)" in section) == (kind == "classes")
    if CHROMIUM is not None:
        assert look_at(page, WIDTHS[0], tmp_path)[0]["wrong"] == []


def test_baselines_know_groups_and_what_is_censored():
    """Numbers of groups in their order, and the density at a limit, flattered the model."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 8, 160)
    x = rng.uniform(size=160)
    y = x + 2 * rng.normal(size=8)[group] + 0.3 * rng.normal(size=160)
    frame = pd.DataFrame({"x": x, "clinic": group.astype(str), "y": y})
    settings = {"random_state": 0, "max_evaluations": 3}
    model = lgp.TableModel.fit(frame, formula="y ~ x + (1 | clinic)", **settings)
    assert model.encoder.numbered == (len(model.encoder.feature_names) - 1,)
    mean, linear = baselines(judged(model, frame))
    assert np.std(y - linear.mean) < 0.35 < np.std(y - mean.mean)

    late = (y > 1.0).astype(float)
    frame = pd.DataFrame({"x": x, "y": np.exp(np.minimum(y, 1.0)), "late": late})
    model = lgp.TableModel.fit(frame, "y", side_columns={"censored": "late"}, **settings)
    for one in baselines(rows := judged(model, frame)):
        assert np.all(one.log_density[late == 1] <= 0)  # of probabilities
        left = rows.y[late == 0] - one.mean[late == 0]
        assert one.log_density[late == 0].mean() == pytest.approx(
            stats.norm.logpdf(left, 0, np.std(rows.y - one.mean)).mean(), abs=0.2
        )


@pytest.mark.parametrize("side", ["exposure", *slow_parameters("trials")])
def test_baselines_know_in_how_much_was_counted(side):
    """With one share or rate for all rows, a baseline of it is all that there is to know."""
    rng = np.random.default_rng(0)
    x, units = rng.uniform(size=200), rng.integers(1, 200, 200).astype(float)
    law = stats.poisson(0.3 * units) if side == "exposure" else stats.binom(units.astype(int), 0.3)
    y = law.rvs(random_state=rng)
    name = {"exposure": "poisson", "trials": "binomial"}[side]
    regressor = lgp.GPCountRegressor(likelihood=name, **HELD)
    regressor.fit(x[:, None], y, **{side: units})
    for found in baselines(judged(*as_table_model(regressor, x, y, **{side: units}))):
        np.testing.assert_allclose(found.mean, 0.3 * units, rtol=0.1)
        assert np.mean(found.log_density) == pytest.approx(np.mean(law.logpmf(y)), abs=0.02)


@pytest.mark.slow
def test_over_dispersed_shares_are_beta_binomial():
    rng = np.random.default_rng(0)
    x, trials = rng.uniform(size=200), np.full(200, 50.0)
    y = rng.binomial(50, rng.beta(2.0, 3.0, 200))
    regressor = lgp.GPCountRegressor(likelihood="binomial", **HELD)
    regressor.fit(x[:, None], y, trials=trials)
    same, _ = baselines(judged(*as_table_model(regressor, x, y, trials=trials)))
    law = stats.betabinom(50, 2.0, 3.0)
    assert np.mean(same.log_density) == pytest.approx(np.mean(law.logpmf(y)), abs=0.02)


def test_rows_whose_target_is_written_as_missing_are_left_out():
    day = np.arange(12.0)
    sold = [f"{value:.2f}" for value in 10 + np.sin(day)]
    frame = pd.DataFrame({"day": day, "sold": sold})
    model = lgp.TableModel.fit(frame, "sold", time="day", random_state=0, max_evaluations=3)
    frame.loc[[3, 7], "sold"] = ["-", "?"]
    rows = judged(model, frame)
    assert rows.frame.index.tolist() == np.delete(np.arange(12), [3, 7]).tolist()
    assert len(rows.frame) == len(rows.y) == len(rows.uncensored)
    assert forecast(rows) is not None


def test_columns_named_as_the_target_and_side_information_are():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(30, 3)), columns=["y", "exposure", "y_"])
    exposure = rng.uniform(1, 5, 30)
    y = rng.poisson(exposure * np.exp(2 * X["y"]))
    regressor = lgp.GPCountRegressor(likelihood="poisson", **HELD).fit(X, y, exposure=exposure)
    model, frame = as_table_model(regressor, X, y, exposure=exposure)
    assert frame.columns.tolist() == ["y", "exposure", "y_", "exposure_", "y__"]
    rows = judged(model, frame)
    np.testing.assert_array_equal(rows.X, X)
    np.testing.assert_array_equal(rows.y, y)
    np.testing.assert_array_equal(rows.data.side_information["exposure"], exposure)


def test_rows_of_the_fit_are_left_out_and_new_ones_are_not(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(60, 2))
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.normal(size=60)
    regressor = lgp.GPRegressor(random_state=0).fit(X[:40], y[:40])
    seen = regressor.report(X[:40], y[:40], tmp_path / "seen.html").read_text()
    new = regressor.report(X[40:], y[40:], tmp_path / "new.html").read_text()
    assert "each row is predicted from all others" in seen
    assert "learned from: 100 %" in seen
    assert "the rows are new to the model" in new
    assert "learned from: 0 %" in new
    assert "ahead of a linear model" in seen
    assert "Prior and posterior of length-scale of x1: 95 % from" in seen
    assert "Prior of length-scale of x1, and the fitted value" in new
    assert "GPRegressor(random_state=0).fit(X, y)" in seen
    assert "these rows are new to the model" in new


def test_later_rows_are_known_too():
    X = np.linspace(0, 1, 30)[:, None]
    y = np.sin(5 * X[:, 0])
    regressor = lgp.GPRegressor(random_state=0).fit(X[:20], y[:20])
    regressor.partial_fit(X[20:], y[20:])
    assert are_known(regressor, X, y).all()


def test_rows_are_predicted_as_new_ones_unless_the_model_is_known_to_have_seen_them():
    """A cavity of a row that was never there made log densities of -1000."""
    X = np.linspace(0, 6, 300)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
    regressor = lgp.GPRegressor(random_state=0, learn_hyperparameters=False).fit(X, y)
    new, far = np.array([[7.0], [8.0], [9.0]]), np.full(3, 3.0)
    as_new = regressor.log_predictive_density(new, far)
    rows = judged(*as_table_model(regressor, new, far))
    assert (rows.seen, rows.left_out, rows.how) == (0.0, False, "the rows are new to the model")
    np.testing.assert_allclose(rows.log_density, as_new)

    left = regressor.leave_one_out(X, y).log_density
    rows = judged(*as_table_model(regressor, np.append(new, X[::2], 0), np.append(far, y[::2])))
    assert rows.seen == 150 / 153
    assert rows.how.startswith("each of the 150 it learned from is predicted from all others")
    np.testing.assert_allclose(rows.log_density, np.append(as_new, left[::2]))
    assert not rows.whole
    assert not judged(*as_table_model(regressor, X[::2], y[::2])).whole
    assert judged(*as_table_model(regressor, X, y)).whole

    del regressor.row_fingerprints_  # as in files of before
    rows = judged(*as_table_model(regressor, new, far))
    assert rows.seen is None
    assert "nobody knows" in rows.how
    np.testing.assert_allclose(rows.log_density, as_new)


@pytest.mark.parametrize("labels", [[0, 1], [2.0, 3.0], [False, True]], ids=str)
def test_labels_need_not_be_text(labels):
    X = np.linspace(-3, 3, 40)[:, None]
    y = np.array(labels)[(X[:, 0] > 0).astype(int)]
    classifier = lgp.GPClassifier(random_state=0, learn_hyperparameters=False).fit(X, y)
    rows = judged(*as_table_model(classifier, X, y))
    assert rows.whole
    assert rows.classes.tolist() == [text_of(label) for label in labels]
    assert classifier.classes_.tolist() == labels
    np.testing.assert_array_equal(rows.data.y, X[:, 0] > 0)


def test_several_outputs_have_no_report(tmp_path):
    X = np.linspace(-3, 3, 20)[:, None]
    regressor = lgp.GPRegressor(random_state=0, learn_hyperparameters=False)
    Y = np.append(X, 2 * X, axis=1)
    with pytest.raises(lgp.InputError, match="a report is of one output"):
        regressor.fit(X, Y).report(X, Y, tmp_path / "page.html")


@pytest.mark.parametrize("kind", ["numbers", "counts", "classes"])
def test_a_weight_is_so_many_rows(kind):
    rng = np.random.default_rng(0)
    x, weights = np.linspace(0, 6, 60), rng.integers(0, 4, 60)
    estimator = {
        "numbers": lgp.GPRegressor(random_state=0, learn_hyperparameters=False),
        "counts": lgp.GPCountRegressor(likelihood="poisson", **HELD),
        "classes": lgp.GPClassifier(**HELD),
    }[kind]
    y = np.sin(x) + 0.1 * rng.normal(size=60)
    y = {"numbers": y, "counts": rng.poisson(np.exp(y)), "classes": np.where(y > 0, "b", "a")}[kind]
    estimator.fit(x[:, None], y, sample_weight=weights)
    pages = []
    for copies, own in (((x, y), weights), ([np.repeat(a, weights) for a in (x, y)], None)):
        rows = judged(*as_table_model(estimator, *copies, sample_weight=own))
        contenders = [Baseline("this model", rows.log_density, rows.mean, rows.probabilities)]
        alike = np.full(len(rows.y), -2.0)
        contenders.append(Baseline("another", alike, rows.mean, rows.probabilities))
        pages.append(str([scores(rows, contenders), in_short(rows, contenders, None)]))
        if rows.below is not None:
            pages[-1] += str(coverages(rows, LEVELS, rows.weights).round(8))
    first, second = (re.sub(r"\d+ rows|row\(s\).*?;", "", page) for page in pages)
    assert first == second


@pytest.mark.slow
def test_chains_have_traces_and_priors(tmp_path):
    X = np.random.default_rng(4).uniform(size=(30, 1))
    method = lgp.NUTS(chains=2, warmup=100, draws=100)
    regressor = lgp.GPRegressor(method=method, random_state=0).fit(X, np.sin(5 * X[:, 0]))
    text = regressor.report(X, np.sin(5 * X[:, 0]), tmp_path / "chains.html").read_text()
    assert "Traces of kernel" in text
    assert "Ranks of kernel" in text
    assert "Prior and posterior of length-scale of x0" in text


def test_the_command_line_writes_it_and_says_effects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"dose": rng.uniform(size=40), "sex": rng.choice(["f", "m"], 40)})
    frame["pain"] = 2 * frame["dose"] + (frame["sex"] == "m")
    frame.to_csv("pain.csv", index=False)

    def run(*words):
        ran = CliRunner().invoke(app, [*words])
        assert ran.exit_code == 0, ran.output
        return ran.output

    run("fit", "pain.csv", "--target", "pain", "--out", "m")
    assert "Report written to report.html" in run("report", "m", "pain.csv")
    page = Path("report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    commands = "latentgp fit pain.csv --out m --target pain\nlatentgp report m pain.csv</pre>"
    assert commands in page
    shares = run("effects", "m", "pain.csv", "--plot", "shares.png")
    assert "dose" in shares
    assert Path("shares.png").exists()
    told = run("effects", "m", "pain.csv", "--column", "sex", "--what-if", "dose=0.2..0.7")
    assert "dose = 0.2 -> dose = 0.7" in told
    wrong = CliRunner().invoke(app, ["effects", "m", "pain.csv", "--what-if", "dose"])
    assert "write COLUMN=BEFORE..AFTER" in str(wrong.exception)


def test_targets_between_bounds_by_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(6)
    x = rng.uniform(0, 5, 60)
    y = 10 + x + 0.1 * rng.normal(size=60)
    code = np.where(np.arange(60) % 3 == 0, 2, 0)
    lower = np.where(code == 2, np.floor(y), y)
    frame = pd.DataFrame({"x": x, "y": lower, "code": code, "to": np.floor(y) + 1})
    frame.to_csv("bounds.csv", index=False)
    words = "fit bounds.csv --target y --likelihood censored-gaussian --censored code --upper to"
    ran = CliRunner().invoke(app, [*words.split(), "--out", "m"])
    assert ran.exit_code == 0, ran.output
    mean = lgp.load("m").predict(pd.DataFrame({"x": [1.0, 4.0]}))["mean"]
    np.testing.assert_allclose(mean, [11.0, 14.0], atol=0.2)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is absent")
class TestInABrowser:
    @pytest.mark.parametrize("width", WIDTHS)
    def test_every_figure_is_seen_and_no_text_is_cut(self, page, width, tmp_path):
        said, console = look_at(page, width, tmp_path)
        assert console == []
        assert said["wrong"] == []
        assert said["width"] == width
        assert said["figures"] == page.read_text().count("<figure>")

    def test_what_is_cut_is_seen(self, page, tmp_path):
        broken = tmp_path / "broken.html"
        text = page.read_text().replace("width: 100%; height: auto", "width: 900px")
        broken.write_text(text.replace("</main>", "<script>nothing()</script></main>"))
        said, console = look_at(broken, 390, tmp_path)
        assert any("wider than the screen" in words for words in said["wrong"])
        assert any("nothing is not defined" in line for line in console)

    @pytest.mark.parametrize("dark", [False, True])
    def test_it_looks_as_it_did(self, page, dark, tmp_path):
        stored = STORED / f"report-{page.stem}-{'dark' if dark else 'light'}.npy"
        found = small_picture(page, 1280, tmp_path, dark=dark)
        assert np.abs(found - np.load(stored)).mean() < 0.04
        assert (found.mean() < 0.5) == dark
