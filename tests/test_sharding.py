"""Rows over several devices and processes: the numbers of one, and an end when one is lost."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import latentgp as lgp

SCRIPT = Path(__file__).parent / "spread.py"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(folder, processes, dying="none"):
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, *map(str, (number, processes, port, folder, dying))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]


def figures(running):
    outputs = [process.communicate(timeout=300) for process in running]
    for process, (_, errors) in zip(running, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process finds, on one device and on four."""
    folder = tmp_path_factory.mktemp("rows")
    return folder, *figures(start(folder, 1))[0]


# A search for hyper-parameters carries rounding on; with files each process has rows of its own.
LIMITS = {"searched": 1e-6, "learned": 1e-3, "files": 0.2}


def same(found, known, limits):
    for name, values in known.items():
        limit = limits.get(name, 1e-10)
        np.testing.assert_allclose(found[name], values, rtol=limit, atol=limit, err_msg=name)


def test_four_devices_find_what_one_does(alone):
    _, one, four, *_ = alone
    same(four, one, {**LIMITS, "files": 1e-10})


def test_sums_in_pairs_are_sums_of_any_number_of_devices(alone):
    for number, found in alone[-1].items():
        np.testing.assert_array_equal(found, sum(range(int(number) + 1)))


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_find_what_one_does(alone, processes):
    folder, one, *_ = alone
    for found in figures(start(folder, processes)):
        same(found[0], one, LIMITS)


def test_a_process_that_dies_ends_the_others_with_a_sentence(alone):
    folder = alone[0]
    started = time.monotonic()
    running = start(folder, 2, dying=1)
    _, errors = running[0].communicate(timeout=120)
    assert running[1].wait() == 9
    assert running[0].returncode != 0
    assert "Another of the processes has ended or cannot be reached" in errors
    assert list(folder.glob("*.search"))
    assert time.monotonic() - started < 100


@pytest.mark.slow
def test_the_command_line_fits_with_two_processes(alone, tmp_path):
    port = free_port()
    command = [sys.executable, "-c", "from latentgp.cli import main; main()", "fit"]
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
    with pytest.raises(lgp.InputError, match="ExactGP cannot spread rows over devices"):
        lgp.fit(
            model,
            lgp.Data([0.0, 1.0], [0.0, 1.0]),
            key=jax.random.key(0),
            method=lgp.ExactGP(),
            devices=jax.devices(),
        )


def test_a_number_that_is_no_process_is_refused():
    with pytest.raises(lgp.InputError, match="from 0 to 1"):
        lgp.join_processes("127.0.0.1:1", 2, 2)
