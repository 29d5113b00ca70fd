"""Rows in memory and in files: each once an epoch, in an order of the seed's own, checked."""

import collections
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

import latentgp as lgp
from latentgp.rows import RowsInMemory, read_ahead
from latentgp.rows import source as base
from latentgp.runtime import devices
from latentgp.runtime.mesh import shard_rows

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


@pytest.mark.parametrize("column", [None, "count"])
def test_rows_that_stay_on_an_accelerator_come_in_the_same_blocks(monkeypatch, column):
    frame = table(107)
    weights = None if column is None else frame[column].to_numpy(float)
    data = lgp.Data(frame[["a", "b"]].to_numpy(), frame["y"].to_numpy(), weights=weights)
    with jax.enable_x64(True):
        copied = list(base.blocks_of(RowsInMemory(data), (1, 2), 30, 1, axes=(3,)))
        source = RowsInMemory(data)
        monkeypatch.setattr(base, "fits_accelerator", lambda size: True)
        taken = list(base.blocks_of(source, (1, 2), 30, 1, axes=(3,)))
    assert source.resident_blocks((1, 2), 30, 1, (3,)) is not None
    assert len(copied) == len(taken) == 3
    for block, other in zip(copied, taken, strict=True):
        real = np.asarray(block.weights) > 0
        np.testing.assert_array_equal(block.weights, other.weights, strict=True)
        np.testing.assert_array_equal(block.X[real], other.X[real], strict=True)
        np.testing.assert_array_equal(block.y[real], other.y[real], strict=True)


def test_rows_stay_on_an_accelerator_that_has_room(monkeypatch):
    data = lgp.Data(np.zeros((100, 2)), np.zeros(100))
    kind = collections.namedtuple("Device", "memory_stats")
    found = []
    for room in (9600, 9599):
        device = kind(lambda room=room: {"bytes_limit": room})
        monkeypatch.setattr(devices.jax, "local_devices", lambda device=device: [device])
        monkeypatch.setattr(devices, "on_processor", lambda: False)
        found.append(RowsInMemory(data).resident_blocks((1,), 10, 0, ()) is not None)
    assert found == [True, False]


@pytest.mark.quick
def test_parts_of_an_epoch_share_its_order(monkeypatch):
    """Which many workers would permute all rows for."""
    source, seeds = RowsInMemory(lgp.Data(np.arange(10.0), np.zeros(10))), []
    generator = np.random.default_rng
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed: seeds.append(seed) or generator(seed)
    )
    whole = list(source.epoch((3,), 4))
    for start in range(3):
        np.testing.assert_array_equal(rows_of(source.epoch((3,), 4, start)), rows_of(whole[start:]))
    assert not np.array_equal(rows_of(source.epoch((4,), 4)), rows_of(whole))
    assert seeds == [(3,), (4,)]


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


def test_a_sample_of_files_is_evenly_spaced_and_reads_few_values(tmp_path):
    pd.DataFrame({"a": np.arange(2000.0), "y": 1.0}).to_parquet(tmp_path / "rows.parquet")
    source = lgp.FileRows(tmp_path, target="y")
    seen = []
    sample = source.checked(lambda data: seen.append(data.size)).sample(200)
    np.testing.assert_array_equal(sample.X[:, 0], np.arange(0, 2000, 10))
    assert sum(seen) == 200


def test_rows_of_weight_zero_are_none(tmp_path):
    frame = table(1000).assign(count=0.0)
    frame.loc[700:, "count"] = 0.5
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    source = lgp.FileRows(tmp_path, target="y", weights="count")
    assert (source.size, source.total_weight) == (300, 150)
    found = rows_of(source.epoch((0,), 64))
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.sort(frame["a"][700:]))
    frame.assign(count=0).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(lgp.InputError, match="no row that counts by count; fill"):
        lgp.FileRows(tmp_path, target="y", weights="count")
    frame.assign(count=-frame["count"]).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(lgp.InputError, match=r"row 700 .* 'count' is negative"):
        lgp.FileRows(tmp_path, target="y", weights="count")


@pytest.mark.parametrize("most", [20_000, 100])
@pytest.mark.parametrize("where", ["files", "memory"])
def test_a_share_is_held_out(where, most, tmp_path, monkeypatch):
    monkeypatch.setattr("latentgp.rows.source._MOST_HELD_OUT", most)
    whole = table(2000).assign(a=np.arange(2000.0))
    whole.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    source = lgp.FileRows(tmp_path, target="y", inputs=["a", "b"])
    if where == "memory":
        source = RowsInMemory(lgp.Data(whole[["a", "b"]], whole["y"]))
    rest, held = source.split(0.25)
    assert held.size == pytest.approx(min(500, most), abs=20)
    assert np.max(np.diff(held.X[:, 0])) < 10 * 2000 / held.size  # from all over
    both = np.concatenate([rows_of(rest.epoch((1,), 100)), held.X])
    np.testing.assert_array_equal(np.sort(both[:, 0]), np.arange(2000))


def test_rows_in_an_order_are_taken_by_a_cpu_as_they_are(x64):
    X = np.arange(30.0).reshape(10, 3)
    data = lgp.Data(X, X[:, 0], weights=np.ones(10), trials=np.arange(10.0))
    order = np.array([9, 0, 3, 3, 5, 1, 2, 7])
    made = base.in_order(data, order)
    np.testing.assert_array_equal(made.X, X[order])
    np.testing.assert_array_equal(made.side_information["trials"], order)
    shared, copied = shard_rows(made, shared=True), shard_rows(made)
    for ours, theirs in zip(*map(jax.tree.leaves, (made, shared)), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.ctypes.data == theirs.unsafe_buffer_pointer()
    made.X[:] = 0.0
    np.testing.assert_array_equal(copied.X, X[order])


@pytest.mark.parametrize("where", ["files", "memory"])
def test_a_share_that_leaves_nothing_is_refused(where, tmp_path):
    table(1).to_parquet(tmp_path / "rows.parquet")
    source = lgp.FileRows(tmp_path, target="y")
    if where == "memory":
        source = RowsInMemory(lgp.Data([0.0], [0.0]))
    with pytest.raises(lgp.InputError, match=r"held_out=0\.1 leaves 0 of 1 rows to learn from"):
        source.split(0.1)


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


@pytest.mark.slow
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

    def test_truth_values_are_numbers(self, tmp_path):
        text = "a,y\nTrue,1\nFALSE,0\ntrue,2\n"
        (tmp_path / "rows.csv").write_text(text)
        (block,) = lgp.FileRows(tmp_path, target="y").epoch((0,), 3)
        assert sorted(zip(block.X[:, 0], block.y, strict=True)) == [(0, 0), (1, 1), (1, 2)]

    def test_two_columns_of_one_name(self, tmp_path):
        (tmp_path / "rows.csv").write_text("a,a,y\n1,2,3\n")
        with pytest.raises(lgp.InputError, match="more than one column named 'a'"):
            lgp.FileRows(tmp_path, target="y")

    @pytest.mark.parametrize("text", ["", "\n", "a,y\n"])
    def test_no_rows(self, tmp_path, text):
        (tmp_path / "rows.csv").write_text(text)
        with pytest.raises(lgp.InputError, match=r"rows\.csv (is empty|has no rows)"):
            lgp.FileRows(tmp_path / "rows.csv", target="y")

    def test_a_type_that_changes(self, tmp_path):
        for number, kind in enumerate((float, str)):
            table(10).astype({"b": kind}).to_parquet(tmp_path / f"{number}.parquet")
        with pytest.raises(lgp.InputError, match=r"'b' is double in .*0\.parquet and .*1\.parquet"):
            lgp.FileRows(tmp_path, target="y")

    def test_a_type_that_changes_within_a_file(self, tmp_path):
        frame = table(60_000).astype({"b": object})
        frame.loc[50_000, "b"] = "seven"
        frame.to_csv(tmp_path / "rows.csv", index=False)
        with pytest.raises(lgp.InputError, match=r"'seven' in row 50000 of .*rows\.csv"):
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
    def test_what_is_not_finite_is_named(self, tmp_path, value):
        frame = table(4000)
        frame.loc[3210, "b"] = value
        frame.to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
        source = lgp.FileRows(tmp_path, target="y", inputs=["a", "b"], buffer_rows=500)
        message = r"rows\.parquet, row 3210 .*: column 'b' is missing or not finite"
        with pytest.raises(lgp.InputError, match=message):
            list(source.epoch((0,), 100))

    def test_targets_that_the_likelihood_cannot_give(self, tmp_path):
        table(100).to_parquet(tmp_path / "rows.parquet")
        source = lgp.FileRows(tmp_path, target="y", inputs=["a", "b"])
        model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
        with pytest.raises(lgp.InputError, match=r"rows\.parquet, row 0 .*: Bernoulli"):
            lgp.fit(model, source, key=KEY)


def test_a_failure_while_reading_keeps_what_was_learned(tmp_path):
    frame = table(4000)
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(4):
        frame.iloc[1000 * number : 1000 * (number + 1)].to_parquet(folder / f"{number}.parquet")
    path = folder / "2.parquet"
    content, stat = path.read_bytes(), path.stat()
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    method = lgp.Stochastic(
        lgp.CollapsedVI(lgp.Inducing(20)), batch_size=50, epochs=3, tolerance=0.0
    )

    def fit(name, callback):
        source = lgp.FileRows(folder, target="y", inputs=["a", "b"], buffer_rows=1000)
        found = lgp.fit(
            model, source, key=KEY, method=method, checkpoint=tmp_path / name, callback=callback
        )
        return found.posterior.predict_f(np.ones((1, 2))).mean

    learned, further, every = [], [], []

    def spoil(progress):
        learned.append(progress.steps)
        path.write_bytes(content[:-100])

    with pytest.raises(lgp.InputError, match=r"2\.parquet has changed since"):
        fit("search", spoil)
    assert learned
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    resumed = fit("search", lambda progress: further.append(progress.steps))
    whole = fit("whole", lambda progress: every.append(progress.steps))
    assert learned + further == every
    np.testing.assert_array_equal(resumed, whole)


@pytest.mark.parametrize("buffer_rows", [100, 450])
def test_what_is_read_and_not_given_yet_is_bounded(tmp_path, buffer_rows):
    table(3000).to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    source = lgp.FileRows(tmp_path, target="y", buffer_rows=buffer_rows)
    read, given, most = [], 0, 0
    for block in source.checked(lambda data: read.append(data.size)).epoch((0,), 30):
        most = max(most, sum(read) - given)
        given += int(np.sum(np.asarray(block.weights) > 0))
    assert sum(read) == given == 3000
    assert buffer_rows <= most <= buffer_rows + 100 + 30  # a row group and a block more


PROGRAM = """
import sys, jax, numpy as np, latentgp as lgp
folder, checkpoint, out, slow = sys.argv[1:]
source = lgp.FileRows(folder, target="y", inputs=["a", "b"], buffer_rows=700)
model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
method = lgp.Stochastic(
    lgp.CollapsedVI(lgp.Inducing(20)), batch_size=25, epochs=6, tolerance=0.0
)
import time
from latentgp.runtime import checkpoint as checkpoints
checkpoints.CHECKPOINT_SECONDS = 0.0
def tell(progress):
    print(progress.steps, flush=True)
    time.sleep(float(slow))
fit = lgp.fit(
    model, source, key=jax.random.key(1), method=method, checkpoint=checkpoint, callback=tell
)
np.save(out, fit.posterior.predict_f(np.linspace(-3, 3, 20)[:, None] * [1, 0.5]).mean)
"""


@pytest.mark.slow
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

    def test_the_next_parts_are_read_while_one_is_worked_on(self):
        begun = [threading.Event() for _ in range(5)]

        def parts():
            for number, event in enumerate(begun):
                event.set()
                yield number

        reading = read_ahead(parts())
        assert next(reading) == 0
        assert begun[3].wait(10)  # two wait, one more is read
        assert list(reading) == [1, 2, 3, 4]

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


@pytest.mark.parametrize(("rows", "processes"), [(130, 2), (130, 3), (2, 3)])
def test_processes_read_every_row_that_counts_in_as_many_blocks(
    tmp_path, monkeypatch, rows, processes
):
    frame = table(1000).assign(count=0.0)
    frame.loc[1000 - rows :, "count"] = 1.0
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
    source = lgp.FileRows(tmp_path, target="y", weights="count", inputs=["a"])
    monkeypatch.setattr(base, "shard_own_rows", lambda column, axis, shared: column)
    monkeypatch.setattr(base.jax, "process_count", lambda: processes)
    parts = [source.part(number, processes) for number in range(processes)]
    own = [list(base.blocks_of(part, (0,), 10 * processes)) for part in parts]
    assert {len(blocks) for blocks in own} == {-(-rows // (10 * processes))}
    read = np.concatenate([rows_of(blocks) for blocks in own])[:, 0]
    np.testing.assert_array_equal(np.sort(read), np.sort(frame["a"][1000 - rows :]))


def test_a_search_with_another_buffer_does_not_go_on(tmp_path):
    table(600).to_parquet(tmp_path / "rows.parquet")
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(10)), batch_size=200, epochs=1)

    def run(buffer_rows):
        path = tmp_path / "rows.parquet"
        source = lgp.FileRows(path, target="y", inputs=["a", "b"], buffer_rows=buffer_rows)
        lgp.fit(model, source, key=KEY, method=method, checkpoint=tmp_path / "search")

    run(300)
    with pytest.raises(lgp.InputError, match="made with another set of rows"):
        run(200)


def test_an_index_of_pandas_is_no_input(tmp_path):
    """The number of a row, where a table was shuffled before it was written, would be one."""
    frame = table(100)
    shuffled = frame.sample(frac=1.0, random_state=0)
    shuffled.to_parquet(tmp_path / "numbered.parquet")
    shuffled.set_index("count").to_parquet(tmp_path / "named.parquet")
    assert lgp.FileRows(tmp_path / "numbered.parquet", target="y").inputs == ("a", "b", "count")
    assert lgp.FileRows(tmp_path / "named.parquet", target="y").inputs == ("a", "b")
    asked = lgp.FileRows(tmp_path / "named.parquet", target="y", inputs=["a", "count"])
    np.testing.assert_array_equal(asked.sample(100).X[:, 1], shuffled["count"])


def test_what_a_column_is_for_tells_rows_from_others(tmp_path):
    table(100).to_parquet(tmp_path / "rows.parquet")
    roles = {"weights": "count"}, {"exposure": "count"}, {"noise_variance": "count"}, {}
    known = [
        lgp.FileRows(tmp_path / "rows.parquet", target="y", inputs=["a", "b"], **role).identity()
        for role in roles
    ]
    X, y, count = np.ones((5, 1)), np.ones(5), np.arange(1.0, 6.0)
    known += [
        RowsInMemory(lgp.Data(X, y, **{name: count})).identity()
        for name in ("weights", "noise_variance")
    ]
    assert len(set(known)) == len(known)


def test_equal_files_elsewhere_have_an_equal_layout(tmp_path):
    for name, rows in (("one", 300), ("other", 300), ("less", 200)):
        (tmp_path / name).mkdir()
        table(rows).to_parquet(tmp_path / name / "rows.parquet", row_group_size=100)
    one, other, less = (
        lgp.FileRows(tmp_path / name, target="y") for name in ("one", "other", "less")
    )
    assert one.layout() == other.layout() != less.layout()
    assert one.identity() != other.identity()


def test_the_footer_of_a_file_is_read_once(tmp_path, monkeypatch):
    table(1000).to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    opened, known = [], pyarrow.parquet.ParquetFile

    def open_file(path, metadata=None):
        opened.append(metadata is None)
        return known(path, metadata=metadata)

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", open_file)
    source = lgp.FileRows(tmp_path / "rows.parquet", target="y")
    assert sum(block.size for block in source.epoch((0,), 100)) == 1000
    assert len(opened) > 50
    assert sum(opened) == 1


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    table(1000).to_parquet(path, row_group_size=100)
    source = lgp.FileRows(path, target="y")
    table(1000, seed=1).to_parquet(path, row_group_size=100)
    with pytest.raises(lgp.InputError, match="has changed since it was opened; open it again"):
        list(source.epoch((0,), 100))


def test_names_of_folders_are_not_read(tmp_path):
    (tmp_path / "carrier=AA").mkdir()
    table(50).to_parquet(tmp_path / "carrier=AA" / "rows.parquet")
    with pytest.warns(UserWarning, match="carrier=AA, whose names are not read"):
        lgp.FileRows(tmp_path, target="y")


def test_a_quote_that_never_ends_is_named(tmp_path):
    (tmp_path / "rows.csv").write_text('"a,y\n' + "1,2\n" * 50_000)
    with pytest.raises(lgp.InputError, match=r"rows\.csv cannot be read"):
        lgp.FileRows(tmp_path / "rows.csv", target="y")


def test_an_empty_checkpoint_is_refused(tmp_path):
    """As a loss of power may leave it: whoever has it should know."""
    (tmp_path / "search").write_bytes(b"")
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    data = lgp.Data(np.arange(5.0), np.arange(5.0))
    with pytest.raises(lgp.InputError, match=r"cannot be read \(it is empty"):
        lgp.fit(model, data, key=KEY, checkpoint=tmp_path / "search")
