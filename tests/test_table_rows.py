"""Tables in files, learned from in batches: through the library and the command line."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.cli import app
from latentgp.table_model import TableModel
from latentgp.table_prediction import predict_files
from latentgp.table_rows import sample_of
from latentgp.tables import read_table


def table(rows, seed=0, target="amount"):
    rng = np.random.default_rng(seed)
    size, kind = rng.uniform(-2, 2, rows), rng.choice(["red", "green", "blue"], rows)
    f = np.sin(2 * size) + np.where(kind == "red", 1.0, 0.0)
    y = {
        "amount": 100 + f + 0.1 * rng.normal(size=rows),
        "label": np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-4 * f)), "yes", "no"),
        "visits": rng.poisson(np.exp(f)),
    }
    frame = pd.DataFrame({"size": size, "kind": kind, target: y[target]})
    frame.loc[rng.choice(rows, rows // 50), "size"] = np.nan
    frame.loc[rng.choice(rows, 3), target] = np.nan
    return frame


def write(frame, folder, kind="parquet", parts=3):
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(frame)), parts)):
        if kind == "parquet":
            frame.iloc[part].to_parquet(folder / f"{number}.parquet", row_group_size=500)
        else:
            frame.iloc[part].to_csv(folder / f"{number}.csv", index=False)
    return folder


SETTINGS = {"n_inducing": 20, "batch_size": 200, "epochs": 8, "random_state": 0}


@pytest.mark.parametrize(
    ("target", "kind", "score", "limit"),
    [
        ("amount", "csv", "root mean squared error", 0.15),
        ("label", "parquet", "log loss", 0.45),
        ("visits", "csv", "negative log predictive density", 1.6),
    ],
)
def test_a_folder_is_learned_in_batches(tmp_path, target, kind, score, limit):
    folder = write(table(3000, target=target), tmp_path / "rows", kind)
    model = TableModel.fit_files(folder, target, **SETTINGS)
    assert isinstance(model.estimator.method_, lgp.Stochastic)
    scores = model.evaluate(table(500, seed=1, target=target))
    assert scores[score] < limit
    again = lgp.load(lgp.save(model, tmp_path / "model"))
    frame = table(20, seed=2, target=target)
    pd.testing.assert_frame_equal(again.predict(frame), model.predict(frame))


def test_a_sample_is_from_all_over_the_files(tmp_path):
    frame = table(3000)
    frame["size"] = np.arange(3000.0)
    sample = sample_of(write(frame, tmp_path / "rows"), 300)
    assert 290 <= len(sample) <= 360
    assert sample["size"].max() > 2900


def test_a_class_that_the_sample_did_not_hold_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("latentgp.table_model._SAMPLED_ROWS", 300)
    frame = table(3000, target="label")
    frame.loc[1501, "label"] = "maybe"
    folder = write(frame, tmp_path / "rows", parts=2)
    with pytest.raises(lgp.InputError, match=r"1\.parquet, rows 0 and on: .*'maybe'"):
        TableModel.fit_files(folder, "label", **SETTINGS)


@pytest.fixture(scope="module")
def model():
    return TableModel.fit(table(400), "amount", n_inducing=15, random_state=0)


class TestPrediction:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr("latentgp.sources.files._PIECE_ROWS", 200)
        return write(table(1300, seed=3), tmp_path / "rows")

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    @pytest.mark.parametrize("with_inputs", [True, False])
    def test_parts_together_are_the_whole(self, model, folder, tmp_path, ending, with_inputs):
        out = tmp_path / f"predicted.{ending}"
        seen = []
        rows = predict_files(model, folder, out, with_inputs=with_inputs, callback=seen.append)
        assert rows == 1300 == seen[-1].rows == seen[-1].total
        assert len(seen) > 6
        whole = pd.concat([pd.read_parquet(f) for f in sorted(folder.iterdir())])
        expected = model.predict(whole.reset_index(drop=True))
        found = read_table(out)
        prefix = "predicted_" if with_inputs else ""
        np.testing.assert_allclose(found[prefix + "mean"], expected["mean"], rtol=1e-10)
        np.testing.assert_allclose(found[prefix + "upper"], expected["upper"], rtol=1e-10)
        assert ("size" in found) == with_inputs
        assert sorted(f.name for f in tmp_path.iterdir()) == [f"predicted.{ending}", "rows"]

    def test_an_interrupted_run_goes_on(self, model, folder, tmp_path, monkeypatch):
        out = tmp_path / "predicted.parquet"

        def stop(progress):
            if progress.rows > 600:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            predict_files(model, folder, out, callback=stop)
        done = len(list((tmp_path / "predicted.parquet.parts").glob("0*")))
        assert done == 4
        calls = []
        predict = TableModel.predict
        monkeypatch.setattr(
            TableModel, "predict", lambda *a, **k: calls.append(1) or predict(*a, **k)
        )
        assert predict_files(model, folder, out) == 1300
        assert len(calls) == 9 - done

    def test_parts_of_other_predictions_are_left_alone(self, model, folder, tmp_path):
        out = tmp_path / "predicted.parquet"
        with pytest.raises(KeyboardInterrupt):
            predict_files(model, folder, out, callback=self.interrupt)
        with pytest.raises(lgp.InputError, match="holds parts of other predictions"):
            predict_files(model, folder, out, level=0.5)

    @staticmethod
    def interrupt(progress):
        raise KeyboardInterrupt

    def test_the_mean_alone(self, model, folder, tmp_path):
        frame = table(50, seed=5)
        alone = model.predict(frame, mean_only=True)
        assert list(alone) == ["mean"]
        np.testing.assert_allclose(alone["mean"], model.predict(frame)["mean"], rtol=1e-10)


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments])

    def test_fit_and_go_on(self, tmp_path):
        folder = write(table(3000), tmp_path / "rows")
        common = ["fit", folder, "--target", "amount", "--n-inducing", 25, "--batch-size", 100]
        common += ["--checkpoint", tmp_path / "state", "--out"]
        first = self.run(*common, tmp_path / "one", "--epochs", 8)
        assert first.exit_code == 0, first.output
        assert (tmp_path / "state" / "search.safetensors").exists()
        second = self.run(*common, tmp_path / "two", "--epochs", 8)
        assert second.exit_code == 0, second.output
        frame = table(30, seed=4)
        one, two = (lgp.load(tmp_path / name).predict(frame) for name in ("one", "two"))
        pd.testing.assert_frame_equal(one, two)
        predicted = self.run("predict", tmp_path / "one", folder, "--out", tmp_path / "p.parquet")
        assert "3000 predictions written" in predicted.output

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--restarts", 2, "--batch-size", 10], "takes no restarts"),
            (["--method", "laplace", "--batch-size", 100], "keeps something of every row"),
            (["--batch-size", 0], "batch_size"),
        ],
    )
    def test_what_batches_cannot_do_is_said(self, tmp_path, options, message):
        folder = write(table(300), tmp_path / "rows")
        command = ["fit", folder, "--target", "amount", "--out", tmp_path / "model", *options]
        result = self.run(*command)
        assert message in str(result.exception)

    def test_a_checkpoint_needs_batches(self, tmp_path):
        table(50).to_csv(tmp_path / "rows.csv", index=False)
        command = ["fit", tmp_path / "rows.csv", "--target", "amount", "--out", tmp_path / "model"]
        result = self.run(*command, "--checkpoint", tmp_path / "state")
        assert "--batch-size" in str(result.exception)
