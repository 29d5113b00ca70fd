"""Tables in files, learned from in batches: through the library and the command line."""

import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.extensions.batches.loop import BatchSearch
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.files.pieces import TableFiles
from latentgp.surfaces.tables import TableEncoder, once, read_table, split_target
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.prediction import predict_files
from latentgp.surfaces.tables.rows import Frames, TableRows, sample_of
from slow import slow_parameters


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
        pytest.param("amount", "csv", "root mean squared error", 0.15, marks=pytest.mark.slow),
        ("label", "parquet", "log loss", 0.45),
        ("visits", "csv", "negative log predictive density", 1.6),
    ],
)
def test_a_folder_is_learned_in_batches(tmp_path, target, kind, score, limit):
    frame = table(3000, target=target).sort_values(target)  # the last file has no target
    frame = pd.concat([frame, table(600, seed=3, target=target).assign(**{target: None})])
    folder = write(frame, tmp_path / "rows", kind, parts=6)
    model = TableModel.fit_files(folder, target, **SETTINGS)
    assert isinstance(model.estimator.method_, lgp.Stochastic)
    scores = model.evaluate(table(500, seed=1, target=target))
    assert scores[score] < limit
    again = lgp.load(lgp.save(model, tmp_path / "model"))
    frame = table(20, seed=2, target=target)
    pd.testing.assert_frame_equal(again.predict(frame), model.predict(frame))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_sample_is_evenly_spaced_over_the_files(tmp_path, monkeypatch, kind, parts):
    monkeypatch.setattr("latentgp.surfaces.files.csv._BLOCK_BYTES", 10_000)
    monkeypatch.setattr("latentgp.surfaces.files.pieces._PIECE_ROWS", 300)
    frame = table(3000)
    frame["size"] = np.arange(3000)
    sample = sample_of(TableFiles(write(frame, tmp_path / "rows", kind, parts)), 300)
    np.testing.assert_array_equal(sample["size"], np.arange(0, 3000, 10))


def test_a_sample_keeps_ordered_categories(tmp_path):
    size = pd.Categorical(["low", "high", "low", "high"], ["low", "high"], ordered=True)
    frame = pd.DataFrame({"size": size})
    sample = sample_of(TableFiles(write(frame, tmp_path / "rows", parts=2)), 4)
    pd.testing.assert_series_equal(sample["size"], frame["size"])


def rows_of(path, frame, target="amount", weights=None, tell=None):
    """What `TableModel.fit_files` makes of files, without a fit."""
    encoder = TableEncoder.fit(frame[["size", "kind"]])

    def convert(part):
        split = split_target(part, target)
        own = None if weights is None else split.inputs[weights].to_numpy(float)
        encoded = encoder.encode(split.inputs, tell or once())
        return lgp.Data(encoded, split.target.to_numpy(float), weights=own)

    columns = ["size", "kind", target, *([weights] if weights else [])]
    return TableRows(TableFiles(path), convert, columns, target=target, weights=weights)


def targets_of(source):
    blocks = source.epoch((0,), 64)
    return np.sort(np.concatenate([b.y[np.asarray(b.weights) > 0] for b in blocks]))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_of_files_may_have_no_target_and_no_weight(tmp_path, kind):
    frame = table(2000).assign(amount=np.arange(2000.0), often=1.0)
    frame.loc[:1199, "amount"] = np.nan
    frame.loc[1200:1300, "often"] = 0.0
    frame.loc[1300:1310, "often"] = 2.0
    source = rows_of(write(frame, tmp_path / "rows", kind), frame, weights="often")
    assert (source.size, source.total_weight) == (700, 711)
    np.testing.assert_array_equal(targets_of(source), np.arange(1300.0, 2000))
    assert source.sample(100).total_weight == pytest.approx(711)
    parts = [source.part(n, 3) for n in range(3)]
    found = [targets_of(part) for part in parts]
    assert {len(each) for each in found} <= {233, 234}  # of what counts, not of what is read
    np.testing.assert_array_equal(np.concatenate(found), np.arange(1300.0, 2000))
    np.testing.assert_array_equal(parts[0].sample(1).X, parts[2].sample(1).X)


def test_files_without_any_target_are_refused(tmp_path):
    frame = table(100).assign(amount=np.nan)
    folder = write(frame, tmp_path / "rows")
    with pytest.raises(lgp.InputError, match="no row that counts by amount; fill"):
        rows_of(folder, frame)
    with pytest.raises(lgp.InputError, match="'amount' is missing in every row"):
        TableModel.fit_files(folder, "amount", **SETTINGS)


@pytest.mark.parametrize("column", ["size", "amount", "often"])
def test_errors_name_the_row_of_the_file(tmp_path, column):
    frame = table(2000).assign(often=1.0)
    frame.loc[:1499, "amount"] = np.nan
    frame.loc[[1733, 1741], "amount"] = 1.0
    frame.loc[[1733, 1741], column] = np.inf
    folder = write(frame, tmp_path / "rows", parts=2)
    with pytest.raises(lgp.InputError, match=r"1\.parquet, row 733 .*infinity in 1 row") as caught:
        targets_of(rows_of(folder, table(50), weights="often"))
    if column != "amount":
        assert f"column '{column}' holds infinity in 1 row (index 733)" in str(caught.value)


def test_a_surprise_in_many_parts_is_told_once(tmp_path):
    frame = table(3000)
    folder = write(frame, tmp_path / "rows")
    known = frame[(frame["kind"] != "red") & frame["size"].notna()]
    source = rows_of(folder, known, tell=once())
    with pytest.warns(UserWarning, match="column") as caught:
        list(chain(source.epoch((0,), 64), source.epoch((1,), 64)))
    told = sorted(str(each.message) for each in caught)
    assert len(told) == 2
    assert "column 'kind' holds categories that training never saw: 'red'" in told[0]
    assert "column 'size' is missing in" in told[1]


CSV = [
    "a;b\n1;x, y\n2;z\n",
    "a\tb\n1.5\t\n2\tz\n",
    "a, b\n1, 2.5\n2, ?\n",
    "a, b\n1, True\n2, FALSE\n",
    "\n\na,b\n1,True\n\n2,False\n",
    "a,b\n,TRUE\n9007199254740993,false\n",
    "a,b\n9007199254740993,007\n2,x\n",
    'a,b\n1,"two\nlines"\n2,"say ""so"""\n',
    ",b\n0,2024-01-31\n1,2024-02-01T12:00\n",
    "a,b\r\n1,NULL\r\n2,inf\r\n",
    "\ufeffa,b\n1,12:30\n2,n/a",
    "a,b\n1,01067\n2,10115\n",
    "a,b\n1,01067\n2,\n0.005,10115\n",
]


@pytest.mark.parametrize("text", CSV)
def test_csv_is_read_in_parts_as_it_is_read_whole(tmp_path, text):
    (tmp_path / "rows.csv").write_bytes(text.encode())
    parts = pd.concat(Frames(tmp_path / "rows.csv"))
    pd.testing.assert_frame_equal(parts, read_table(tmp_path / "rows.csv"), check_index_type=False)


def test_csv_columns_are_what_all_rows_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr("latentgp.surfaces.files.csv._BLOCK_BYTES", 1000)
    frame = pd.DataFrame({"late": [np.nan] * 500 + [1.5] * 500, "code": ["7"] * 999 + ["x7"]})
    frame["whole"] = np.r_[np.arange(999.0), 0.5]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    parts = list(Frames(tmp_path / "rows.csv"))
    assert len(parts) > 5
    pd.testing.assert_frame_equal(
        pd.concat(parts), read_table(tmp_path / "rows.csv"), check_index_type=False
    )


def test_files_of_a_folder_agree_by_what_they_hold(tmp_path):
    for number, text in enumerate(["a,b\n1,\n2,\n", "b,a\nx,0.5\n", "a,b", "a,b\n"]):
        (tmp_path / f"{number}.csv").write_text(text)
    whole = pd.concat(Frames(tmp_path), ignore_index=True)
    assert whole["a"].tolist() == [1.0, 2.0, 0.5]
    assert whole["b"].isna().tolist() == [True, True, False]
    (tmp_path / "4.csv").write_text("a,b\n1,2\n")
    with pytest.raises(lgp.InputError, match=r"'b' is string in .*1\.csv and int64 in .*4\.csv"):
        list(Frames(tmp_path))
    (tmp_path / "4.csv").write_text("a,c\n1,2\n")
    with pytest.raises(lgp.InputError, match=r"column '[bc]' is in one of .*4\.csv only"):
        Frames(tmp_path)


def test_parquet_files_of_a_folder_agree_by_what_they_hold(tmp_path):
    for number, values in enumerate([[1, 2], [0.5, 1.5], [None, None]]):
        pd.DataFrame({"a": values}).to_parquet(tmp_path / f"{number}.parquet")
    whole = pd.concat(Frames(tmp_path), ignore_index=True)
    np.testing.assert_array_equal(whole["a"], [1, 2, 0.5, 1.5, np.nan, np.nan])


def test_a_class_that_the_sample_did_not_hold_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("latentgp.surfaces.tables.model._SAMPLED_ROWS", 300)
    frame = table(3000, target="label")
    frame.loc[1501, "label"] = "maybe"
    folder = write(frame, tmp_path / "rows", parts=2)
    with pytest.raises(lgp.InputError, match=r"1\.parquet, row 1 .*'maybe'"):
        TableModel.fit_files(folder, "label", **SETTINGS)


@pytest.fixture(scope="module")
def model():
    return TableModel.fit(table(400), "amount", n_inducing=15, random_state=0)


class TestPrediction:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr("latentgp.surfaces.files.pieces._PIECE_ROWS", 200)
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

    def test_numbers_of_rows_keep_their_digits(self, model, tmp_path):
        frame = table(300).assign(number=2**53 + np.arange(300))
        frame.to_csv(tmp_path / "rows.csv", index=False)
        predict_files(model, tmp_path / "rows.csv", tmp_path / "out.csv", with_inputs=True)
        found = read_table(tmp_path / "out.csv")
        np.testing.assert_array_equal(found["number"], frame["number"])

    def test_predictions_do_not_take_the_name_of_a_column(self, model, tmp_path):
        table(30).to_csv(tmp_path / "rows.csv", index=False)
        first, second = tmp_path / "first.csv", tmp_path / "second.csv"
        predict_files(model, tmp_path / "rows.csv", first, with_inputs=True)
        with pytest.raises(lgp.InputError, match="has a column 'predicted_mean' already"):
            predict_files(model, first, second, with_inputs=True)

    @pytest.mark.parametrize("large", [True, False])
    def test_an_index_with_a_name_is_kept(self, model, tmp_path, monkeypatch, large):
        monkeypatch.setattr(
            "latentgp.surfaces.tables.prediction._LARGE_NUMBERS", 0 if large else 1000
        )
        lgp.save(model, tmp_path / "model")
        named = table(30).assign(id=np.arange(100, 130)).set_index("id")
        named.to_parquet(tmp_path / "rows.parquet")
        command = ["predict", tmp_path / "model", tmp_path / "rows.parquet", "--with-inputs"]
        CliRunner().invoke(
            app, [*map(str, command), "--out", str(tmp_path / "out.csv")], catch_exceptions=False
        )
        found = read_table(tmp_path / "out.csv")
        np.testing.assert_array_equal(found["id"], named.index)
        assert "predicted_mean" in found

    def test_what_cannot_be_written_is_said(self, model, folder, tmp_path, monkeypatch):
        (tmp_path / "out.csv").mkdir()
        with pytest.raises(lgp.InputError, match="is a folder: name a file"):
            predict_files(model, folder, tmp_path / "out.csv")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("latentgp.surfaces.tables.prediction._join", full)
        with pytest.raises(lgp.InputError, match="No space left on device"):
            predict_files(model, folder, tmp_path / "other.csv")
        monkeypatch.undo()
        assert predict_files(model, folder, tmp_path / "other.csv") == 1300  # what is done is kept

    def test_parts_of_other_labels_are_left_alone(self, tmp_path, folder):
        """Fitted again with labels written in another way, the posterior is the same."""
        words = table(150, target="label")
        numbers = words.assign(label=np.where(words["label"] == "yes", "1", "0"))
        settings = {"n_inducing": 10, "random_state": 0, "task": "classification"}
        one, other = (TableModel.fit(frame, "label", **settings) for frame in (words, numbers))
        with pytest.raises(KeyboardInterrupt):
            predict_files(one, folder, tmp_path / "out.csv", callback=self.interrupt)
        with pytest.raises(lgp.InputError, match="holds parts of other predictions"):
            predict_files(other, folder, tmp_path / "out.csv")

    def test_parts_that_end_elsewhere_are_not_read_twice(self, folder):
        whole = pd.concat([part.batch.to_pandas() for part in Frames(folder).after(0)])
        parts = list(Frames(folder).after(333))
        rest = pd.concat([part.batch.to_pandas() for part in parts])
        np.testing.assert_array_equal(rest["size"], whole["size"].to_numpy()[333:])
        first = parts[0]
        rows = first.convert(lambda frame: frame)
        read = pd.read_parquet(first.path)["size"]
        np.testing.assert_array_equal(rows["size"], read[rows.index])

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

    def test_parts_that_are_done_are_not_read_again(self, model, folder, tmp_path, monkeypatch):
        with pytest.raises(KeyboardInterrupt):
            predict_files(model, folder, tmp_path / "out.csv", callback=self.after_600)
        batches, read = TableFiles.batches, []
        monkeypatch.setattr(TableFiles, "batches", lambda *a: read.append(a[1]) or batches(*a))
        predict_files(model, folder, tmp_path / "out.csv")
        assert min(piece.before + piece.rows for piece in read) > 600

    @staticmethod
    def after_600(progress):
        if progress.rows > 600:
            raise KeyboardInterrupt

    @pytest.mark.parametrize("stopped", ["pathlib.Path.write_text", "shutil.rmtree"])
    def test_a_run_that_ends_among_its_folders_can_be_repeated(
        self, model, folder, tmp_path, monkeypatch, stopped
    ):
        out = tmp_path / "out.csv"
        with monkeypatch.context() as patch:
            patch.setattr(stopped, self.stop)
            with pytest.raises(KeyboardInterrupt):
                predict_files(model, folder, out)
        assert predict_files(model, folder, out) == 1300
        assert sorted(f.name for f in tmp_path.iterdir()) == ["out.csv", "rows"]

    @staticmethod
    def stop(path, *_, ignore_errors=False):
        if not ignore_errors:
            for mark in Path(path).glob("made-of.txt"):
                mark.unlink()
            raise KeyboardInterrupt

    @pytest.mark.parametrize("ending", ["csv", *slow_parameters("parquet")])
    def test_a_run_that_is_killed_goes_on_to_the_same_file(self, model, tmp_path, ending):
        whole = table(6000, seed=3).assign(number=2**60 + np.arange(6000))
        whole.loc[::7, "number"] = None
        whole["number"] = whole["number"].astype("Int64")
        (tmp_path / "rows").mkdir()
        whole.to_parquet(tmp_path / "rows" / "0.parquet", row_group_size=20)
        lgp.save(model, tmp_path / "model")
        command = [
            sys.executable,
            "-c",
            "from latentgp.surfaces.cli.app import main; main()",
            "predict",
        ]
        out, known = (tmp_path / f"{name}.{ending}" for name in ("out", "known"))
        command += [tmp_path / "model", tmp_path / "rows", "--with-inputs", "--out", out]
        running = subprocess.Popen(map(str, command), stderr=subprocess.PIPE)
        parts = tmp_path / f"out.{ending}.parts"
        while running.poll() is None and not list(parts.glob("0*"))[3:]:
            time.sleep(0.005)
        running.kill()
        assert running.wait() == -9, running.stderr.read()
        assert not out.exists()
        done = []
        predict_files(model, tmp_path / "rows", out, with_inputs=True, callback=done.append)
        assert 0 < len(done) < 300
        predict_files(model, tmp_path / "rows", known, with_inputs=True)
        assert out.read_bytes() == known.read_bytes()
        numbers = pd.read_csv(out, dtype={"number": "Int64"}) if ending == "csv" else None
        if ending == "parquet":
            numbers = pd.read_parquet(out, dtype_backend="numpy_nullable")
        pd.testing.assert_series_equal(numbers["number"], whole["number"])

    def test_columns_that_are_empty_at_first(self, model, tmp_path):
        frame = table(300).assign(flag=[None] * 299 + [True], day=None)
        frame.loc[299, "day"] = pd.Timestamp("2024-02-01")
        write(frame, tmp_path / "rows")
        predict_files(model, tmp_path / "rows", tmp_path / "out.parquet", with_inputs=True)
        found = pd.read_parquet(tmp_path / "out.parquet")
        assert found["flag"].tolist() == [None] * 299 + [True]
        assert found["day"].notna().sum() == 1

    def test_predictions_among_the_rows_are_refused(self, model, folder):
        for out in (folder / "out.parquet", folder / "more" / "out.csv", folder / "0.parquet"):
            with pytest.raises(lgp.InputError, match="would be among the rows"):
                predict_files(model, folder, out)
        with pytest.raises(lgp.InputError, match="would be among the rows"):
            predict_files(model, folder / "0.parquet", folder / "0.parquet")

    def test_errors_name_file_and_row_and_warnings_come_once(self, model, tmp_path):
        frame = table(1300).assign(kind="black")
        frame.loc[1033, "size"] = np.inf
        folder = write(frame, tmp_path / "rows", parts=2)
        with (
            pytest.warns(UserWarning, match="categories that training never saw") as caught,
            pytest.raises(lgp.InputError, match=r"1\.parquet, row 383 .*infinity in 1 row"),
        ):
            predict_files(model, folder, tmp_path / "out.csv")
        assert len(caught) == 1

    def test_progress_is_shown(self, model, folder, tmp_path, monkeypatch):
        shown = []
        monkeypatch.setattr(
            "latentgp.runtime.progress.ProgressLine.show", lambda *a: shown.append(a[1])
        )
        predict_files(model, folder, tmp_path / "out.csv", verbose=1)
        assert shown[-1]().startswith("predicting: row 1,300 of 1,300")

    def test_the_mean_alone(self, model, folder, tmp_path):
        frame = table(50, seed=5)
        alone = model.predict(frame, mean_only=True)
        assert list(alone) == ["mean"]
        np.testing.assert_allclose(alone["mean"], model.predict(frame)["mean"], rtol=1e-10)


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments])

    def test_fit_and_go_on(self, tmp_path, monkeypatch, ctrl_c):
        folder = write(table(3000), tmp_path / "rows")
        common = ["fit", folder, "--target", "amount", "--n-inducing", 25, "--batch-size", 100]
        common += ["--epochs", 5, "--out"]
        report, rounds = BatchSearch._report, []

        def interrupted(*arguments):
            rounds.append(1)
            if len(rounds) == 3:
                ctrl_c()
            return report(*arguments)

        monkeypatch.setattr(BatchSearch, "_report", interrupted)
        resumed = [*common, tmp_path / "two", "--checkpoint", tmp_path / "state"]
        first = self.run(*resumed)
        assert first.exit_code != 0
        kept = f"learned until then; the same command goes on from {tmp_path}"
        assert kept in str(first.exception)
        assert lgp.load(tmp_path / "two").target == "amount"
        assert (tmp_path / "state" / "search.safetensors").exists()
        rounds[:] = [1] * 9
        second = self.run(*resumed)
        assert second.exit_code == 0, second.output
        made = len(rounds) - 9
        rounds[:] = [1] * 9
        assert self.run(*common, tmp_path / "one").exit_code == 0
        assert made == len(rounds) - 9 - 3
        frame = table(30, seed=4)
        one, two = (lgp.load(tmp_path / name).predict(frame) for name in ("one", "two"))
        pd.testing.assert_frame_equal(one, two)

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_predictions_of_large_files_are_those_of_small_ones(
        self, model, tmp_path, monkeypatch, ending
    ):
        lgp.save(model, tmp_path / "model")
        frame = table(400, seed=5).assign(new=[None, True] * 200, number=np.arange(400))
        frame.to_csv(tmp_path / "rows.csv", index=False)
        frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
        found = []
        for limit in (1, 10**9):
            for name in ("_LARGE_BYTES", "_LARGE_NUMBERS"):
                monkeypatch.setattr(f"latentgp.surfaces.tables.prediction.{name}", limit)
            out = tmp_path / f"{limit}.{ending}"
            command = ["predict", tmp_path / "model", tmp_path / f"rows.{ending}"]
            result = self.run(*command, "--with-inputs", "--out", out)
            assert "400 predictions written" in result.output
            found.append(read_table(out))
        pd.testing.assert_frame_equal(*found, rtol=1e-12)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--restarts", 2, "--batch-size", 10], "takes no restarts"),
            (["--method", "laplace", "--batch-size", 100], "keeps sites of every row"),
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
        (tmp_path / "state").write_text("")
        options = ["--batch-size", 10, "--checkpoint", tmp_path / "state"]
        assert "cannot be made" in str(self.run(*command, *options).exception)
