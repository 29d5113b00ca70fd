"""Rows in memory and in files: each once an epoch, in an order of the seed's own, checked."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import jax
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.sources import RowsInMemory, read_ahead

KEY = jax.random.key(0)


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (rows, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=rows)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "count": rng.integers(1, 4, rows)})


@pytest.fixture(params=["file", "folder", "csv", "csv folder"])
def files(request, tmp_path):
    """1,000 rows in one way or another, and the table."""
    whole = table(1000)
    if request.param == "file":
        path = tmp_path / "rows.parquet"
        whole.to_parquet(path, row_group_size=130)
    elif request.param == "csv":
        path = tmp_path / "rows.csv"
        whole.to_csv(path, index=False)
    else:
        path = tmp_path / "rows"
        path.mkdir()
        for number, part in enumerate(np.array_split(np.arange(1000), 3)):
            frame = whole.iloc[part]
            if request.param == "folder":
                frame.to_parquet(path / f"{number}.parquet", row_group_size=100)
            else:
                frame.to_csv(path / f"{number}.csv", index=False)
    return path, whole


def rows_of(blocks):
    return np.concatenate([b.X[np.asarray(b.weights) > 0] for b in blocks])


def test_an_epoch_of_files_has_every_row_once(files):
    path, whole = files
    source = lgp.FileRows(path, target="y", weights="count", buffer_rows=300)
    assert source.inputs == ("a", "b")
    assert (source.size, source.total_weight) == (1000, whole["count"].sum())
    blocks = list(source.epoch((3,), 64))
    assert {block.size for block in blocks} == {64}
    read, known = rows_of(blocks), whole[["a", "b"]].to_numpy()
    np.testing.assert_allclose(
        read[np.lexsort(read.T)], known[np.lexsort(known.T)], rtol=0, atol=1e-12
    )
    assert np.sum([b.total_weight for b in blocks]) == source.total_weight
    again, other, rest = source.epoch((3,), 64), source.epoch((4,), 64), source.epoch((3,), 64, 5)
    np.testing.assert_array_equal(rows_of(again), read)
    assert not np.array_equal(rows_of(other), read)
    np.testing.assert_array_equal(rows_of(rest), rows_of(blocks[5:]))


def test_a_sample_of_files_counts_as_all(files):
    sample = lgp.FileRows(files[0], target="y", weights="count").sample(100)
    assert 100 <= sample.size <= 110
    assert sample.total_weight == pytest.approx(files[1]["count"].sum())


@pytest.mark.parametrize("where", ["files", "memory"])
def test_a_share_is_held_out(where, tmp_path):
    whole = table(2000)
    whole.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    source = lgp.FileRows(tmp_path, target="y", inputs=["a", "b"])
    if where == "memory":
        source = RowsInMemory(lgp.Data(whole[["a", "b"]], whole["y"]))
    rest, held = source.split(0.25)
    assert rest.size + held.size == 2000
    assert held.size == pytest.approx(500, abs=60)
    kept = rows_of(rest.epoch((1,), 100))
    both = np.concatenate([kept, held.X])
    assert len(np.unique(both, axis=0)) == 2000


def test_a_fit_from_files_is_as_good_as_from_memory(tmp_path):
    whole, test = table(3000), table(500, seed=1)
    whole.to_parquet(tmp_path / "rows.parquet", row_group_size=400)
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(40)), batch_size=200, epochs=10)
    densities = []
    for data in (
        lgp.FileRows(tmp_path, target="y", inputs=["a", "b"], buffer_rows=1000),
        lgp.Data(whole[["a", "b"]], whole["y"]),
    ):
        fit = lgp.fit(model, data, key=KEY, method=method)
        predictive = fit.posterior.predict(test[["a", "b"]])
        densities.append(np.mean(predictive.log_prob(test["y"])))
    assert densities[0] == pytest.approx(densities[1], abs=0.02)


def test_auto_reads_files_in_batches(tmp_path):
    table(1500).to_parquet(tmp_path / "rows.parquet")
    source = lgp.FileRows(tmp_path / "rows.parquet", target="y", inputs=["a", "b"])
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(20)), epochs=1)
    with pytest.raises(lgp.InputError, match="needs all rows in memory"):
        lgp.fit(model, source, key=KEY, method=lgp.ExactGP())
    assert lgp.fit(model, source, key=KEY, method=method).posterior.log_evidence.value > -2000
    chosen = lgp.fit(model, source, key=KEY, max_seconds=0.0).diagnostics
    assert isinstance(chosen.method, lgp.Stochastic)


class TestErrors:
    def test_names(self, tmp_path):
        table(10).to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(lgp.InputError, match=r"no column 'yy'.*name one of y"):
            lgp.FileRows(tmp_path, target="yy")
        with pytest.raises(lgp.InputError, match="does not exist"):
            lgp.FileRows(tmp_path / "nowhere", target="y")
        (tmp_path / "empty").mkdir()
        with pytest.raises(lgp.InputError, match="holds no file"):
            lgp.FileRows(tmp_path / "empty", target="y")

    def test_text(self, tmp_path):
        pd.DataFrame({"a": ["u", "v"], "y": [1.0, 2.0]}).to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(lgp.InputError, match=r"'a' of .* is of .*string, not of numbers"):
            lgp.FileRows(tmp_path, target="y")

    def test_a_type_that_changes(self, tmp_path):
        for number, kind in enumerate((float, str)):
            table(10).astype({"b": kind}).to_parquet(tmp_path / f"{number}.parquet")
        with pytest.raises(lgp.InputError, match=r"'b' is double in .*0\.parquet and .*1\.parquet"):
            lgp.FileRows(tmp_path, target="y")

    def test_a_type_that_changes_within_a_file(self, tmp_path):
        frame = table(60_000).astype({"b": object})
        frame.loc[50_000, "b"] = "seven"
        frame.to_csv(tmp_path / "rows.csv", index=False)
        with pytest.raises(lgp.InputError, match=r"rows\.csv cannot be read: .*'seven'"):
            lgp.FileRows(tmp_path / "rows.csv", target="y")

    @pytest.mark.parametrize("kept", [0.999, 0.5])
    def test_a_truncated_file(self, tmp_path, kept):
        path = tmp_path / "rows.parquet"
        table(1000).to_parquet(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(lgp.InputError, match=r"rows\.parquet cannot be read"):
            lgp.FileRows(path, target="y")

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_not_finite_is_named_and_what_was_learned_is_kept(self, tmp_path, value):
        frame = table(4000)
        frame.loc[3210, "b"] = value
        frame.to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
        source = lgp.FileRows(tmp_path, target="y", inputs=["a", "b"], buffer_rows=500)
        message = r"rows\.parquet, rows 3000 and on: column 'b' .* in row 3210"
        with pytest.raises(lgp.InputError, match=message):
            list(source.epoch((0,), 100))

    def test_targets_that_the_likelihood_cannot_give(self, tmp_path):
        table(100).to_parquet(tmp_path / "rows.parquet")
        source = lgp.FileRows(tmp_path, target="y", inputs=["a", "b"])
        model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
        with pytest.raises(lgp.InputError, match=r"rows\.parquet, rows 0 and on: .*Bernoulli"):
            lgp.fit(model, source, key=KEY)


def test_a_failure_while_reading_leaves_the_checkpoint(tmp_path):
    frame = table(4000)
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(4):
        frame.iloc[1000 * number : 1000 * (number + 1)].to_parquet(folder / f"{number}.parquet")
    source = lgp.FileRows(folder, target="y", inputs=["a", "b"], buffer_rows=1000)
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    method = lgp.Stochastic(
        lgp.CollapsedVI(lgp.Inducing(20)), batch_size=50, epochs=5, tolerance=0.0
    )

    def spoil(progress):
        path = folder / "2.parquet"
        path.write_bytes(path.read_bytes()[:-100])

    checkpoint = tmp_path / "search"
    with pytest.raises(lgp.InputError, match=r"2\.parquet cannot be read"):
        lgp.fit(model, source, key=KEY, method=method, checkpoint=checkpoint, callback=spoil)
    assert checkpoint.exists()


PROGRAM = """
import sys, jax, numpy as np, latentgp as lgp
folder, checkpoint, out, slow = sys.argv[1:]
source = lgp.FileRows(folder, target="y", inputs=["a", "b"], buffer_rows=700)
model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
method = lgp.Stochastic(
    lgp.CollapsedVI(lgp.Inducing(20)), batch_size=25, epochs=6, tolerance=0.0
)
import time
from latentgp.inference import checkpoints
checkpoints.CHECKPOINT_SECONDS = 0.0
def tell(progress):
    print(progress.steps, flush=True)
    time.sleep(float(slow))
fit = lgp.fit(
    model, source, key=jax.random.key(1), method=method, checkpoint=checkpoint, callback=tell
)
np.save(out, fit.posterior.predict_f(np.linspace(-3, 3, 20)[:, None] * [1, 0.5]).mean)
"""


def test_a_killed_process_is_resumed_with_the_same_bits(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    table(3000).to_parquet(folder / "rows.parquet", row_group_size=500)

    def start(name, slow):
        names = [folder, tmp_path / f"{name}.search", tmp_path / f"{name}.npy", slow]
        program = textwrap.dedent(PROGRAM)
        return subprocess.Popen(
            [sys.executable, "-c", program, *map(str, names)], stdout=subprocess.PIPE, text=True
        )

    killed = start("killed", 0.3)
    for _ in range(3):
        killed.stdout.readline()
    time.sleep(0.1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    resumed = start("killed", 0.0)
    steps = [int(line) for line in resumed.stdout]
    assert resumed.wait() == 0
    whole = start("whole", 0.0)
    every = [int(line) for line in whole.stdout]
    assert whole.wait() == 0
    assert every[3] <= steps[0] + 100
    assert 0 < len(steps) < len(every)
    one, other = (np.load(tmp_path / f"{name}.npy") for name in ("killed", "whole"))
    np.testing.assert_array_equal(one, other)


class TestReadAhead:
    def test_parts_come_in_order(self):
        assert list(read_ahead(iter(range(20)))) == list(range(20))

    def test_an_error_comes_where_it_belongs(self):
        def parts():
            yield 1
            raise ValueError("second")

        reading = read_ahead(parts())
        assert next(reading) == 1
        with pytest.raises(ValueError, match="second"):
            next(reading)

    def test_what_is_not_wanted_any_more_is_not_read(self):
        read = []

        def parts():
            for number in range(1000):
                read.append(number)
                yield number

        reading = read_ahead(parts())
        next(reading)
        reading.close()
        assert len(read) < 10
