"""Damaged and doctored files end in what can be used, or in one sentence: no crash, hang or flood.

Every file is read in a process with limits of memory and of seconds.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SUPPORT = Path(__file__).parents[1] / "support"
MODELS = "gibbs", "method_ep", "model_heteroscedastic", "sparse_classifier", "table"
FEW, MANY = 40, 1_000
KINDS = "model", "csv", "parquet", "search", "batches", "chains"
IN_FULL_ONLY = {"search", "batches", "chains"}  # whose programs take long to compile


def originals(kind, folder):
    """Good files of a kind; a checkpoint is made where it is read."""
    folder.mkdir()
    if kind == "model":
        for name in MODELS:
            shutil.copy(SUPPORT / "files" / f"{name}.latentgp", folder)
    if kind in ("csv", "parquet"):
        chance = np.random.default_rng(0)
        for number, rows in enumerate((3, 40, 400)):
            numbers = {name: chance.normal(size=rows) for name in ("x", "y", "a long name")}
            table = pd.DataFrame(numbers | {"count": chance.integers(0, 9, rows)})
            if kind == "csv":
                table.to_csv(folder / f"{number}.csv", index=False)
            else:
                table.to_parquet(folder / f"{number}.parquet", row_group_size=150)


def outcomes(kind, folder, cases):
    """What became of each case, and of the process: its exit status, and the last case begun."""
    originals(kind, folder)
    command = [sys.executable, SUPPORT / "untrusted.py", kind, folder, "0", f"{cases}"]
    paths = os.pathsep.join([f"{SUPPORT}", *sys.path])
    done = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, (told[-1:], done.returncode, done.stderr[-2_000:])
    return {line["case"]: line["outcome"] for line in told if "outcome" in line}


def check(kind, folder, cases):
    found = outcomes(kind, folder, cases)
    assert len(found) == cases
    wrong = {case: what for case, what in found.items() if what not in ("read", "refused")}
    assert not wrong
    assert "refused" in found.values()  # the mutations do change something


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in IN_FULL_ONLY])
def test_a_few_mutated_files(tmp_path, kind):
    check(kind, tmp_path / kind, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutated_files(tmp_path, kind):
    check(kind, tmp_path / kind, MANY)
