"""The command line: tables in, predictions out, and one sentence for every wrong input."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file
from typer.main import get_command

import latentgp
from latentgp.site_inference.search import search
from latentgp.surfaces import cli
from latentgp.surfaces.tables import prediction as table_prediction
from latentgp.surfaces.tables.model import TableModel

ROWS = 40
_generator = np.random.default_rng(0)


def table(task):
    """Numbers, categories, truth values, dates, gaps; what is to be predicted, and weights."""
    size = _generator.normal(50, 10, ROWS)
    frame = pd.DataFrame(
        {
            "size": size,
            "colour": _generator.choice(["red", "blue"], ROWS),
            "new": _generator.integers(0, 2, ROWS).astype(bool),
            "sold on": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS), unit="D"),
            "copies": _generator.integers(1, 3, ROWS),
        }
    )
    frame.loc[[3, 8], "size"] = None
    frame.loc[[5], "colour"] = None
    price = 2 * size + 20 * (frame["colour"] == "red") + _generator.normal(size=ROWS)
    frame["price"] = price if task == "regression" else np.where(price > 110, "high", "low")
    return frame


def write(frame, path):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the console script's function; gives (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["latentgp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:  # Typer exits even when all went well
            cli.main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder with a table and a fitted model of each kind."""
    folder = tmp_path_factory.mktemp("house")
    for task, ending in (("regression", "csv"), ("classification", "parquet")):
        data = write(table(task), folder / f"{task}.{ending}")
        arguments = ["fit", data, "--target", "price", "--out", folder / f"{task}.latentgp"]
        arguments += ["--log", folder / f"{task}.jsonl"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["latentgp", *map(str, arguments)])
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        assert not stopped.value.code
    return folder


class TestTheWayItIsMeant:
    def test_fit_says_what_it_did(self, run, house, tmp_path):
        code, out, _ = run(
            "fit", house / "regression.csv", "--target", "price", "--out", tmp_path / "m"
        )
        assert code == 0
        for words in ("Converged", "ExactGP", "few enough", "regression of 'price'", "2 categor"):
            assert words in out
        assert (tmp_path / "m").exists()

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_predictions_of_numbers(self, run, house, tmp_path, ending):
        path = tmp_path / f"out.{ending}"
        code, out, _ = run(
            "predict", house / "regression.latentgp", house / "regression.csv", "--out", path
        )
        assert code == 0
        assert f"{ROWS} predictions" in out
        written = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
        assert list(written) == ["mean", "std", "lower", "upper"]
        assert len(written) == ROWS
        assert np.isfinite(written.to_numpy()).all()
        truth = pd.read_csv(house / "regression.csv")["price"]
        assert np.mean((written["lower"] < truth) & (truth < written["upper"])) > 0.8
        assert np.corrcoef(written["mean"], truth)[0, 1] > 0.8

    def test_predictions_of_classes_next_to_the_inputs(self, run, house, tmp_path):
        path = tmp_path / "out.csv"
        run(
            *("predict", house / "classification.latentgp", house / "classification.parquet"),
            *("--out", path, "--with-inputs", "--level", 0.5),
        )
        written = pd.read_csv(path)
        assert len(written) == ROWS
        assert written["colour"].isna().sum() == 1
        probabilities = written[["predicted_probability_high", "predicted_probability_low"]]
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert (
            written["predicted_probability_low_lower"]
            .lt(written["predicted_probability_low_upper"])
            .all()
        )
        assert (written["predicted_prediction"] == written["price"]).mean() > 0.8

    def test_more_than_two_classes(self, run, house, tmp_path):
        frame = pd.read_csv(house / "regression.csv")
        frame["price"] = pd.qcut(frame["price"], 3, labels=["high", "low", "middle"]).astype(str)
        data, model, path = (tmp_path / name for name in ("three.csv", "three.m", "out.csv"))
        frame.to_csv(data, index=False)
        assert run("fit", data, "--target", "price", "--out", model)[0] == 0
        assert run("predict", model, data, "--out", path)[0] == 0
        written = pd.read_csv(path)
        names = [f"probability_{label}" for label in ("high", "low", "middle")]
        assert list(written) == ["prediction", *names]
        np.testing.assert_allclose(written[names].sum(axis=1), 1)
        code, out, _ = run("evaluate", model, data, "--plot", tmp_path / "picture.png")
        assert code == 0
        assert "log loss" in out
        assert (tmp_path / "picture.png").stat().st_size > 1000

    @pytest.mark.parametrize(
        ("name", "method"),
        [
            ("black-box", "BlackBoxVI"),
            pytest.param("particle-flow", "DensityApproximation", marks=pytest.mark.slow),
        ],
    )
    def test_methods_without_sites(self, run, house, tmp_path, name, method):
        data, model, path = house / "classification.parquet", tmp_path / "m", tmp_path / "out.csv"
        code, out, _ = run("fit", data, "--target", "price", "--method", name, "--out", model)
        assert code == 0
        assert f"with {method} (asked for)" in out
        assert run("predict", model, data, "--out", path)[0] == 0
        written = pd.read_csv(path)
        probabilities = written[["probability_high", "probability_low"]]
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert (written["prediction"] == pd.read_parquet(data)["price"]).mean() > 0.8

    def test_counts_with_exposure(self, run, house, tmp_path):
        frame = pd.read_csv(house / "regression.csv")
        frame["days"] = np.linspace(1, 4, ROWS)
        frame["price"] = _generator.poisson(2 * frame["days"])
        data, model, path = (tmp_path / name for name in ("counts.csv", "counts.m", "out.csv"))
        frame.to_csv(data, index=False)
        arguments = ("fit", data, "--target", "price", "--out", model, "--exposure", "days")
        code, out, _ = run(*arguments, "--likelihood", "poisson", "--method", "laplace")
        assert code == 0
        assert "count of 'price', because the likelihood is 'poisson'" in out
        assert run("evaluate", model, data, "--plot", tmp_path / "picture.png")[0] == 0
        run("predict", model, data, "--out", path)
        written = pd.read_csv(path)
        assert list(written) == ["mean", "std", "lower", "upper"]
        assert np.corrcoef(written["mean"], frame["days"])[0, 1] > 0.9
        assert "days" not in latentgp.load(model).encoder.feature_names

    def test_successes_among_trials(self, run, house, tmp_path):
        frame = pd.read_csv(house / "regression.csv")
        frame["visits"] = np.arange(ROWS) % 7 + 1
        frame["price"] = _generator.binomial(frame["visits"], 0.4)
        data, model, path = (tmp_path / name for name in ("visits.csv", "visits.m", "out.csv"))
        frame.to_csv(data, index=False)
        arguments = ("fit", data, "--target", "price", "--out", model, "--trials", "visits")
        assert run(*arguments, "--likelihood", "binomial")[0] == 0
        run("predict", model, data, "--out", path)
        assert np.all(pd.read_csv(path)["upper"] <= frame["visits"])

    def test_ordered_classes(self, run, house, tmp_path):
        frame = pd.read_csv(house / "regression.csv")
        grades = pd.qcut(frame["price"], 3, labels=["low", "middle", "high"])
        frame["price"] = grades
        data, model, path = (tmp_path / name for name in ("grades.parquet", "grades.m", "o.csv"))
        frame.to_parquet(data)
        code, out, _ = run("fit", data, "--target", "price", "--out", model)
        assert code == 0
        assert "ordinal of 'price', because its type is category with an order" in out
        run("predict", model, data, "--out", path)
        written = pd.read_csv(path)
        names = [f"probability_{label}" for label in ("low", "middle", "high")]
        assert list(written) == ["prediction", *names]
        assert (written["prediction"] == grades.astype(str)).mean() > 0.8

    def test_the_level_widens_the_interval(self, run, house, tmp_path):
        widths = []
        for level in (0.5, 0.99):
            path = tmp_path / "out.csv"
            arguments = ("--out", path, "--level", level)
            run("predict", house / "regression.latentgp", house / "regression.csv", *arguments)
            written = pd.read_csv(path)
            widths.append((written["upper"] - written["lower"]) / written["std"])
        np.testing.assert_allclose(widths[0], 2 * 0.67449, rtol=1e-4)
        np.testing.assert_allclose(widths[1], 2 * 2.57583, rtol=1e-4)

    @pytest.mark.parametrize(
        ("task", "score"), [("regression.csv", "CRPS"), ("classification.parquet", "log loss")]
    )
    def test_evaluate_scores_and_draws(self, run, house, tmp_path, task, score):
        model, picture = house / Path(task).with_suffix(".latentgp"), tmp_path / "picture.png"
        code, out, _ = run("evaluate", model, house / task, "--plot", picture)
        assert code == 0
        assert score in out
        assert picture.read_bytes().startswith(b"\x89PNG")

    def test_evaluate_warns_of_a_thing_once(self, run, house, tmp_path):
        frame = pd.read_csv(house / "regression.csv").assign(colour="green")
        write(frame, tmp_path / "green.csv")
        model, picture = house / "regression.latentgp", tmp_path / "picture.png"
        _, _, err = run("evaluate", model, tmp_path / "green.csv", "--plot", picture)
        assert err.count("categories that training never saw: 'green'") == 1

    @pytest.mark.parametrize("task", ["regression", "classification"])
    def test_info(self, run, house, task):
        code, out, _ = run("info", house / f"{task}.latentgp")
        assert code == 0
        for words in ("of 'price'", "log evidence", "Converged", "colour = red", "lengthscale"):
            assert words in out

    def test_info_has_every_length_scale_beside_its_input(self, run, house):
        _, out, _ = run("info", house / "regression.latentgp")
        model = latentgp.load(house / "regression.latentgp")
        rows = out[out.index("the most relevant input first:") :].splitlines()[2:]
        inputs = [row.split("  ")[0] for row in rows]
        assert sorted(inputs) == sorted(model.encoder.feature_names)
        ratios = [float(row.split()[-1]) for row in rows]
        assert ratios == sorted(ratios)
        best = model.encoder.feature_names.index(inputs[0])
        lengthscale = model.estimator.model_.kernel.lengthscale[best]
        frame = pd.read_csv(house / "regression.csv")
        spread = model.encoder.encode(frame)[:, best].std()
        assert ratios[0] == pytest.approx(lengthscale / spread, rel=0.01)

    @pytest.mark.slow
    def test_info_and_predictions_of_draws(self, run, house, tmp_path):
        frame = pd.read_parquet(house / "classification.parquet")
        with pytest.warns(UserWarning, match="chain"):
            model = TableModel.fit(
                *(frame, "price"),
                method=latentgp.GibbsSampling(chains=2, draws=20, warmup=10),
            )
        path = latentgp.save(model, tmp_path / "drawn.latentgp")
        code, out, _ = run("info", path)
        assert code == 0
        assert "log evidence" not in out
        assert "R-hat" in out
        code, _, _ = run(
            *("predict", path, house / "classification.parquet", "--out", tmp_path / "p.csv")
        )
        assert code == 0
        written = pd.read_csv(tmp_path / "p.csv")
        lower, upper = (name for name in written if name.endswith(("_lower", "_upper")))
        assert written[lower].lt(written[upper]).all()

    def test_compare(self, run, house, tmp_path):
        picture = tmp_path / "picture.png"
        code, out, err = run(
            *("compare", house / "classification.parquet", "--target", "price"),
            *("--method", "variational", "--method", "laplace", "--method", "exact"),
            *("--plot", picture),
        )
        assert code == 0
        assert "2 of 3: fitting laplace ..." in err
        assert "classification of 'price': 28 rows to learn from, 12 held out" in out
        assert "exact: ExactGP needs Gaussian noise" in out.replace("\n", " ")
        assert picture.stat().st_size > 1000

    def test_series_of_a_table(self, run, tmp_path):
        rng = np.random.default_rng(0)
        days = pd.date_range("2024-01-01", periods=90)
        each = [
            pd.DataFrame({"day": days, "shop": shop, "sold": level + np.sin(np.arange(90) / 9)})
            for shop, level in (("north", 0.0), ("south", 5.0))
        ]
        rows = pd.concat(each).sample(frac=0.8, random_state=0)
        rows["sold"] += 0.1 * rng.normal(size=len(rows))
        rows.to_csv(tmp_path / "shops.csv", index=False)
        new = pd.DataFrame({"day": ["2024-02-10", "2024-02-10"], "shop": ["north", "south"]})
        new.to_csv(tmp_path / "new.csv", index=False)
        settings = "--target", "sold", "--time", "day", "--by", "shop"
        code, out, _ = run("fit", tmp_path / "shops.csv", *settings, "--out", tmp_path / "m")
        assert code == 0
        assert "2 independent series" in out
        assert "level, a trend and no season" in out
        written = tmp_path / "p.csv"
        code, _, _ = run("predict", tmp_path / "m", tmp_path / "new.csv", "--out", written)
        assert code == 0
        means = pd.read_csv(written)["mean"]
        np.testing.assert_allclose(means, np.sin(40 / 9) + np.array([0.0, 5.0]), atol=0.15)

    def test_weights_are_no_input(self, run, house, tmp_path):
        code, _, _ = run(
            *("fit", house / "regression.csv", "--target", "price", "--out", tmp_path / "m"),
            *("--weights", "copies", "--method", "collapsed", "--n-inducing", 15, "--seed", 3),
        )
        assert code == 0
        model = latentgp.load(tmp_path / "m")
        assert "copies" not in model.encoder.feature_names
        assert model.estimator.posterior_.latent.centres.shape[0] == 15
        assert model.estimator.random_state == 3


WRONG = {
    "no such table": ("fit {}/nowhere.csv --target price --out {}/m", "nowhere.csv does not exist"),
    "bad ending": ("fit {}/regression.latentgp --target price --out {}/m", "does not end in .csv"),
    "no such column": (
        "fit {}/regression.csv --target prize --out {}/m",
        "no column 'prize': did you mean 'price'",
    ),
    "no such folder": (
        "fit {}/regression.csv --target price --out {}/nowhere/m",
        "nowhere does not exist",
    ),
    "text as a number": (
        "fit {}/regression.csv --target colour --task regression --out {}/m",
        "the target 'colour' is not a number in every row",
    ),
    "too many classes": (
        "fit {}/regression.csv --target size --task classification --out {}/m",
        "too many to learn any",
    ),
    "no inducing points": (
        "fit {}/regression.csv --target price --n-inducing 0 --out {}/m",
        "n_inducing must be a positive number",
    ),
    "a method that does not fit": (
        "fit {}/classification.parquet --target price --method exact --out {}/m",
        "ExactGP needs Gaussian noise",
    ),
    "a method of all rows on batches": (
        "fit {}/nowhere.csv --target price --batch-size 9 --method exact --out {}/m",
        "method='exact' keeps sites of every row",
    ),
    "a sampler on batches": (
        "fit {}/nowhere.csv --target price --batch-size 9 --method gibbs --out {}/m",
        "method='gibbs' keeps sites of every row",
    ),
    "epochs without batches": (
        "fit {}/regression.csv --target price --epochs 3 --out {}/m",
        "--epochs is for a fit in batches: add --batch-size 1000",
    ),
    "no time": (
        "fit {}/regression.csv --target price --max-seconds -1 --out {}/m",
        "--max-seconds must be positive, got -1",
    ),
    "a parameter that there is not": (
        "fit {}/regression.csv --target price --freeze kernel.period --out {}/m",
        'no parameter "kernel.period"',
    ),
    "a prior that is none": (
        "fit {}/regression.csv --target price --prior kernel.variance=exit(1) --out {}/m",
        "give a parameter's path, = and one of LogNormal, Normal",
    ),
    "a prior of other numbers": (
        "fit {}/regression.csv --target price --prior kernel.variance=Gamma(1) --out {}/m",
        "(got 1): give Gamma the number(s) concentration, rate",
    ),
    "a prior of impossible numbers": (
        "fit {}/regression.csv --target price --prior kernel.variance=Gamma(1,-2) --out {}/m",
        "invalid rate parameter",
    ),
    "a column to leave out": (
        "fit {}/regression.csv --target price --leave-out sice --out {}/m",
        "no column 'sice': did you mean 'size'",
    ),
    "an address without a port": (
        "fit {}/regression.csv --target price --coordinator localhost --out {}/m",
        "must be host and port of process 0, such as 10.0.0.1:4000, got 'localhost'",
    ),
    "no processes": (
        "fit {}/regression.csv --target price --out {}/m --coordinator h:1 --num-processes 0",
        "processes must be at least 1, got 0",
    ),
    "restarts of several processes": (
        "fit {}/regression.csv --target price --coordinator localhost:1 --restarts 1 --out {}/m",
        "takes no restarts",
    ),
    "no such weights": (
        "fit {}/regression.csv --target price --weights w --out {}/m",
        "no column 'w'",
    ),
    "missing weights": (
        "fit {}/regression.csv --target price --weights size --out {}/m",
        "the weights column 'size' is missing in 2 row(s)",
    ),
    "events of no value": (
        "fit {}/regression.csv --target price --event colour --out {}/m",
        "the event column 'colour' is missing in 1 row(s)",
    ),
    "quantiles of classes": (
        "predict {}/classification.latentgp {}/classification.parquet --above 3 --out {}/p.csv",
        "quantiles and above are of numbers and counts",
    ),
    "no such model": (
        "predict {}/nowhere {}/regression.csv --out {}/p.csv",
        "There is no file",
    ),
    "a table as a model": (
        "predict {}/regression.csv {}/regression.csv --out {}/p.csv",
        "is damaged or not a file written by latentgp",
    ),
    "a foreign model": (
        "predict {}/foreign {}/regression.csv --out {}/p.csv",
        "was not written by latentgp",
    ),
    "a model of no table": (
        "info {}/kernel",
        "holds a RBF, not a model of a table",
    ),
    "missing columns": (
        "predict {}/regression.latentgp {}/narrow.csv --out {}/p.csv",
        "lacks 2 column(s) that the model was trained on: add 'size', 'new'",
    ),
    "a bad level": (
        "predict {}/regression.latentgp {}/regression.csv --level 95 --out {}/p.csv",
        "--level must be strictly between 0 and 1, got 95.0",
    ),
    "a bad ending of predictions": (
        "predict {}/regression.latentgp {}/regression.csv --out {}/p.xlsx",
        "p.xlsx does not end in .csv",
    ),
    "nothing to compare with": (
        "evaluate {}/regression.latentgp {}/narrow.csv",
        "there is no column 'price'",
    ),
    "a bad ending of a picture": (
        "evaluate {}/regression.latentgp {}/regression.csv --plot {}/p.doc",
        "has no picture's ending",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_answered_in_one_sentence(run, house, name):
    narrow = pd.read_csv(house / "regression.csv").drop(columns=["size", "new", "price"])
    write(narrow, house / "narrow.csv")
    save_file({"weight": np.ones(3)}, house / "foreign")
    latentgp.save(latentgp.RBF(), house / "kernel")
    line, says = WRONG[name]
    code, _, err = run(*line.replace("{}", str(house)).split())
    assert code == 1
    errors = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(errors) == 1, err
    assert errors[0].startswith("error: ")
    assert says in errors[0]
    assert not (house / "m").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fit {}/regression.csv --target price --out /proc/m", "/proc/m cannot be written"),
        ("fit {}/regression.csv --target price --out {}", "is a folder: name a file to write"),
        ("fit {}/regression.csv --target price --out {}/regression.csv", "is the table itself"),
        ("fit {}/regression.csv --target price --out /dev/null", "is no regular file"),
        ("fit {}/regression.csv --target price --out {}/m --log {}/none/l", "cannot be written"),
        ("predict {}/regression.latentgp {}/regression.csv --out {}/p.xlsx", "not end in .csv"),
        ("predict {}/regression.latentgp {}/regression.csv --out /proc/p.csv", "cannot be written"),
        ("predict {}/regression.latentgp {}/regression.csv --out {}/regression.csv", "among the"),
        ("evaluate {}/regression.latentgp {}/regression.csv --plot {}/p.doc", "picture's ending"),
        ("evaluate {}/regression.latentgp {}/regression.csv --plot /proc/p.png", "cannot be writ"),
        ("compare {}/regression.csv --target price --plot {}/p.doc", "picture's ending"),
        ("compare {}/regression.csv --target price --plot /proc/p/p.png", "cannot be written"),
        ("demo --out /proc/pictures", "/proc/pictures cannot be written"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(run, house, monkeypatch, line, says):
    for name in ("fit", "predict", "evaluate"):
        monkeypatch.setattr(TableModel, name, lambda *_, **__: pytest.fail("worked"))
    before = {path: path.read_bytes() for path in house.iterdir()}
    code, _, err = run(*line.replace("{}", str(house)).split())
    assert code == 1
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert says in err
    assert {path: path.read_bytes() for path in house.iterdir()} == before


def test_a_model_is_kept_when_nobody_reads_what_is_said_of_it(house, tmp_path):
    script = Path(sys.executable).with_name("latentgp")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [
            *(script, "fit", house / "regression.csv", "--target", "price"),
            *("--out", tmp_path / "m"),
        ],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert all(line.startswith("learning") for line in done.stderr.splitlines())  # progress
    assert latentgp.load(tmp_path / "m").target == "price"


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_a_search_that_is_stopped_leaves_what_was_learned(
    run, house, tmp_path, monkeypatch, ctrl_c
):
    evaluate, calls = search.Search.report, []

    def third_time(*given):
        calls.append(1)
        if len(calls) == 3:
            ctrl_c()
        return evaluate(*given)

    monkeypatch.setattr(search.Search, "report", third_time)
    fit = ("fit", house / "regression.csv", "--target", "price", "--out", tmp_path / "m")
    code, out, err = run(*fit)
    assert code == 130
    assert "ended early because it was interrupted" in out
    assert err.splitlines()[-1].startswith("stopped: ")
    assert err.splitlines()[-1].endswith("m was written with what was learned until then")
    assert len(latentgp.load(tmp_path / "m").estimator.history_.bound) == 3


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "stopped: no model was written"),
        (["--batch-size", 10, "--checkpoint", "{}/kept"], "written; the same command goes on from"),
    ],
)
def test_a_fit_that_is_stopped_says_so(run, house, tmp_path, monkeypatch, more, says):
    monkeypatch.setattr(TableModel, "fit", interrupted)
    monkeypatch.setattr(TableModel, "fit_files", interrupted)
    more = [str(part).replace("{}", str(tmp_path)) for part in more]
    fit = ("fit", house / "regression.csv", "--target", "price", "--out", tmp_path / "m")
    code, _, err = run(*fit, *more)
    assert code == 130
    assert says in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_priors_frozen_parameters_and_limits_reach_the_estimator(run, house, tmp_path):
    fit = ("fit", house / "regression.csv", "--target", "price", "--out", tmp_path / "m")
    options = ("--freeze", "kernel.variance", "--prior", "kernel.lengthscale=LogNormal(1, 0.01)")
    assert run(*fit, *options, "--max-seconds", 100)[0] == 0
    estimator = latentgp.load(tmp_path / "m").estimator
    assert estimator.frozen == ("kernel.variance",)
    assert estimator.max_seconds == 100
    assert float(estimator.priors["kernel.lengthscale"].loc) == 1.0
    np.testing.assert_allclose(estimator.model_.kernel.lengthscale, np.e, rtol=0.1)


def test_a_model_knows_its_command_with_what_was_turned_off():
    line = ["table.csv", "--out", "model", "--target", "y", "--no-globe"]
    context = get_command(cli.app.app).commands["fit"].make_context("fit", list(line))
    assert cli.app._as_typed(context) == f"latentgp fit {' '.join(line)}"


def test_a_log_has_a_line_about_every_step_of_a_fit(house):
    lines = [json.loads(line) for line in (house / "regression.jsonl").read_text().splitlines()]
    estimator = latentgp.load(house / "regression.latentgp").estimator
    first, last = lines[0], lines[-1]
    assert (first["event"], first["latentgp"]) == ("begin", latentgp.__version__)
    steps = [line for line in lines if line["event"] == "step"]
    assert len(steps) == len(estimator.history_.bound)
    assert steps[-1]["values"]["bound"] == estimator.history_.bound[-1]
    assert (last["event"], last["converged"]) == ("end", True)
    evidence = estimator.posterior_.log_evidence
    assert last["log_evidence"] == [evidence.value, evidence.kind]


def test_predictions_that_are_stopped_say_so(run, house, tmp_path, monkeypatch):
    predict = ("predict", house / "regression.latentgp", house / "regression.csv")
    monkeypatch.setattr(TableModel, "predict", interrupted)
    assert run(*predict, "--out", tmp_path / "p.csv")[::2] == (
        130,
        "stopped: nothing was written\n",
    )
    monkeypatch.setattr(table_prediction, "is_large", lambda _: True)
    code, _, err = run(*predict, "--out", tmp_path / "p.csv")
    assert code == 130
    assert "the same command goes on from the rows predicted so far" in err


def test_weights_that_are_text(run, house, tmp_path):
    code, _, err = run(
        *("fit", house / "classification.parquet", "--target", "size", "--out", tmp_path / "m"),
        *("--weights", "price"),
    )
    assert code == 1
    assert err.splitlines()[-1].startswith("error: the weights column 'price' is not a number")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fit", "data"),
        ("fit a.csv", "--out"),
        ("fit a.csv --target y --out m --method magic", "magic"),
        ("fit a.csv --target y --out m --n-inducing many", "--n-inducing"),
        ("predict m", "data"),
        ("guess", "guess"),
        ("info m --loud", "--loud"),
    ],
)
def test_wrong_usage_says_what_is_wrong(run, line, says):
    code, _, err = run(*line.split())
    assert code == 2
    assert says in err.lower()
    assert "Traceback" not in err


def test_the_console_script(house, tmp_path):
    script = Path(sys.executable).with_name("latentgp")
    out = tmp_path / "p.csv"
    model, data = house / "regression.latentgp", house / "regression.csv"
    done = subprocess.run([script, "predict", model, data, "--out", out], capture_output=True)
    assert done.returncode == 0
    assert len(pd.read_csv(out)) == ROWS
    wrong = subprocess.run([script, "info", out], capture_output=True, text=True)
    assert wrong.returncode == 1
    assert "Traceback" not in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1


OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1",
    "OMPI_COMM_WORLD_SIZE": "2",
}


def started_by_open_mpi(command):
    """Two processes that find what Open MPI tells those it starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    running = []
    for rank in "01":
        ranks = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        more = {**OPEN_MPI, **ranks, "JAX_COORDINATOR_PORT": port}
        pipe = subprocess.PIPE
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", *map(str, command)],
                env={**os.environ, **more},
                stdout=pipe,
                stderr=pipe,
                text=True,
            )
        )
    found = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], found
    return [out for out, _ in found]


@pytest.mark.slow
def test_processes_of_a_cluster_find_each_other():
    program = (
        "import jax, latentgp as lgp\n"
        "lgp.join_processes()\n"
        "print(jax.process_index(), jax.process_count())\n"
        "try:\n"
        "    lgp.join_processes()\n"
        "except lgp.InputError as error:\n"
        "    print(error)\n"
    )
    for rank, out in enumerate(started_by_open_mpi([program])):
        assert f"{rank} 2" in out
        assert "JAX has been used in this process already" in out


@pytest.mark.slow
def test_processes_of_a_cluster_write_one_model(house, tmp_path):
    program = "from latentgp.surfaces.cli.app import main; main()"
    outputs = started_by_open_mpi(
        [
            *(program, "fit", house / "classification.parquet", "--target", "price"),
            *("--out", tmp_path / "m", "--n-inducing", 5, "--batch-size", 10, "--epochs", 2),
            *("--coordinator", "auto"),
        ]
    )
    assert ["Model written" in out for out in outputs] == [True, False]
    assert latentgp.load(tmp_path / "m").task == "classification"


def test_processes_that_do_not_know_of_each_other_are_warned(run, house, tmp_path, monkeypatch):
    fit = ("fit", house / "regression.csv", "--target", "price", "--out", tmp_path / "m")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    _, _, err = run(*fit)
    assert "one of 2 processes (OMPI_COMM_WORLD_SIZE)" in err


@pytest.mark.slow
def test_a_deep_model_of_a_folder(run, tmp_path):
    """By batches, as it learns from a table."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "rows"
    folder.mkdir()
    for part in range(2):
        x = rng.uniform(-2, 2, 150)
        y = np.sign(x) + 0.1 * rng.normal(size=150)
        pd.DataFrame({"x": x, "y": y}).to_parquet(folder / f"{part}.parquet")
    code, _, err = run(
        *("fit", folder, "--target", "y", "--out", tmp_path / "m", "--depth", 2),
        *("--batch-size", 100, "--epochs", 40, "--seed", 0),
    )
    assert code == 0, err
    model = latentgp.load(tmp_path / "m")
    assert model.estimator.model_.depth == 2
    assert isinstance(model.estimator.method_, latentgp.RandomFeatureVI)
    assert model.estimator.method_.batch_size == 100
    assert (
        np.corrcoef(
            model.estimator.predict(np.array([[-1.0], [-0.5], [0.7], [1.0]])), [-1, -1, 1, 1]
        )[0, 1]
        > 0.9
    )
