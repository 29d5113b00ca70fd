"""Rows over several devices and processes: the numbers of one, and an end when one is lost."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import latentgp as lgp
from latentgp.methods.problem import Problem
from latentgp.surfaces.cli.app import main

SCRIPT = Path(__file__).parents[2] / "support" / "spread.py"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(folder, processes, cases="all", checkpoint="no"):
    port = free_port()
    return [
        subprocess.Popen(
            [
                *(sys.executable, SCRIPT),
                *map(str, (number, processes, port, folder, cases, checkpoint)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]


def outputs_of(running, timeout):
    """What processes print; none is left behind."""
    try:
        return [process.communicate(timeout=timeout) for process in running]
    finally:
        for process in running:
            process.kill()


def results(running):
    """Of each process what it found, and how often each fit told of its progress."""
    outputs = outputs_of(running, timeout=300)
    for process, (_, errors) in zip(running, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process finds, on one device, on four, and some of it on three."""
    folder = tmp_path_factory.mktemp("rows")
    [(found, _)] = results(start(folder, 1))
    return folder, *found


# A search for hyper-parameters carries rounding on; with files each process has rows of its own.
LIMITS = {"searched": 1e-6, "learned": 1e-3, "deep": 1e-3, "files": 0.2}


def same(found, known, limits):
    for name, values in found.items():
        limit = limits.get(name, 1e-10)
        np.testing.assert_allclose(values, known[name], rtol=limit, atol=limit, err_msg=name)


@pytest.mark.slow
def test_four_devices_find_what_one_does(alone):
    _, one, four, *_ = alone
    assert set(four) == set(one)
    same(four, one, {**LIMITS, "files": 1e-10})


@pytest.mark.slow
def test_three_devices_find_what_one_does(alone):
    _, one, _, three, _ = alone
    same(three, one, LIMITS)


@pytest.mark.slow
def test_sums_in_pairs_are_sums_of_any_number_of_devices(alone):
    for number, found in alone[-1].items():
        np.testing.assert_array_equal(found, sum(range(int(number) + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_find_what_one_does(alone, processes):
    folder, one, *_ = alone
    for (found,), _ in results(start(folder, processes)):
        assert set(found) == set(one)
        same(found, one, LIMITS)


def disturbed(folder, cases, how):
    """What two processes print of which one is disturbed; both end by themselves."""
    running = start(folder, 2, cases, how)
    errors = [errors for _, errors in outputs_of(running, timeout=300)]
    return [process.returncode for process in running], errors


SENTENCE = "Another of the processes has ended or cannot be reached"


@pytest.mark.parametrize("dying", [1, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_and_new_ones_go_on(alone, tmp_path, dying):
    folder, one, *_ = alone
    shutil.copy(folder / "rows.parquet", tmp_path)
    codes, errors = disturbed(tmp_path, "batches", f"exit:{dying}:batches")
    assert codes[dying] == 9
    assert codes[1 - dying] == 1
    assert SENTENCE in errors[1 - dying]
    done = len(load_file(tmp_path / "batches.search")["rounds"])
    assert done in (2, 3)
    for (found,), told in results(start(tmp_path, 2, "batches", "yes")):
        assert told == {"batches": 8 - done}
        same(found, one, LIMITS)


@pytest.mark.slow
@pytest.mark.parametrize("silent", [1, 0])
def test_a_process_that_is_silent_ends_the_others_and_new_ones_go_on(alone, tmp_path, silent):
    folder, one, *_ = alone
    shutil.copy(folder / "rows.parquet", tmp_path)
    running = start(tmp_path, 2, "batches", f"freeze:{silent}:batches")
    try:
        _, errors = running[1 - silent].communicate(timeout=300)
    finally:
        for process in running:
            process.kill()
    assert "eartbeat" in errors
    for (found,), told in results(start(tmp_path, 2, "batches", "yes")):
        assert told["batches"] < 8
        same(found, one, LIMITS)


@pytest.mark.parametrize(
    "how",
    [
        "raise:1:batches",
        pytest.param("raise:0:searched", marks=pytest.mark.slow),
        pytest.param("exit:1:searched", marks=pytest.mark.slow),
    ],
)
def test_an_error_in_one_process_ends_the_others(alone, tmp_path, how):
    shutil.copy(alone[0] / "rows.parquet", tmp_path)
    kind, number, name = how.split(":")
    failing = int(number)
    codes, errors = disturbed(tmp_path, name, how)
    assert codes[1 - failing] == 1
    assert SENTENCE in errors[1 - failing]
    assert "disturbed" in errors[failing] or kind == "exit"
    assert load_file(tmp_path / f"{name}.search")


@pytest.mark.parametrize(
    ("error", "code"),
    [(lgp.InputError("no"), 1), (lgp.ProcessLost("lost"), 1), (KeyboardInterrupt(), 130)],
)
def test_the_command_line_does_not_wait_for_others_after_an_error(monkeypatch, error, code):
    codes = []

    def fail(*_):
        raise error

    monkeypatch.setattr(sys, "argv", ["latentgp", "info", "nowhere"])
    monkeypatch.setattr("latentgp.surfaces.cli.app._table_model", fail)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(os, "_exit", codes.append)
    with pytest.raises(SystemExit):
        main()
    assert codes == [code]


@pytest.mark.slow
def test_processes_that_see_other_files_refuse(alone, tmp_path):
    """Node 1 has a copy that lacks rows."""
    shutil.copy(alone[0] / "rows.parquet", tmp_path)
    (tmp_path / "none").mkdir()
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    frame.iloc[:400].to_parquet(tmp_path / "none" / "rows.parquet", row_group_size=100)
    codes, errors = disturbed(tmp_path, "files", "yes")
    assert codes == [1, 1]
    assert all("do not see the same rows" in error for error in errors)


def test_files_are_read_by_all_devices_or_none(alone, monkeypatch):
    rows = lgp.FileRows(alone[0] / "rows.parquet", target="y")
    model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(Problem, "from_first_process", lambda problem: problem)
    with pytest.raises(lgp.InputError, match=r"give devices=jax\.devices"):
        lgp.fit(model, rows, key=jax.random.key(0))


def test_a_checkpoint_that_one_process_refuses_is_refused_by_all(alone, tmp_path):
    shutil.copy(alone[0] / "rows.parquet", tmp_path)
    (tmp_path / "searched.search").write_bytes(b"not a checkpoint")
    _, errors = disturbed(tmp_path, "searched", "yes")
    assert all("cannot be read" in error for error in errors)


@pytest.mark.slow
def test_the_command_line_fits_with_two_processes(alone, tmp_path):
    port = free_port()
    command = [sys.executable, "-c", "from latentgp.surfaces.cli.app import main; main()", "fit"]
    command += [alone[0] / "rows.parquet"]
    command += ["--target", "y", "--n-inducing", 10, "--batch-size", 60, "--epochs", 3]
    command += ["--out", tmp_path / "model", "--coordinator", f"127.0.0.1:{port}"]
    running = [
        subprocess.Popen([*map(str, command), "--num-processes", "2", "--process-id", str(number)])
        for number in range(2)
    ]
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    assert lgp.load(tmp_path / "model").task == "classification"


def test_the_last_row_is_shared_out_where_rows_do_not_divide():
    data = lgp.Data(np.arange(5.0), np.zeros(5), weights=[1.0, 1.0, 1.0, 1.0, 6.0])
    divisible = data.divisible(4)
    assert divisible.size == 8
    assert divisible.total_weight == data.total_weight
    merged = divisible.merged()
    assert dict(zip(merged.X[:, 0], merged.weights, strict=True)) == dict(
        zip(data.X[:, 0], data.weights, strict=True)
    )
    assert data.divisible(5) is data


def test_what_cannot_be_spread_is_refused():
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    method = lgp.ExactGP(lgp.MatrixFree())
    with pytest.raises(lgp.InputError, match="ExactGP cannot spread rows over devices"):
        lgp.fit(
            model,
            lgp.Data([0.0, 1.0], [0.0, 1.0]),
            key=jax.random.key(0),
            method=method,
            devices=jax.devices(),
        )


def test_a_number_that_is_no_process_is_refused():
    with pytest.raises(lgp.InputError, match="from 0 to 1"):
        lgp.join_processes("127.0.0.1:1", 2, 2)
