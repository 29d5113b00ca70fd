"""The exact process with its matrix over devices: numbers of one device, and no whole matrix."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "support" / "sharded.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a process with four emulated devices finds."""
    command = [sys.executable, SCRIPT, tmp_path_factory.mktemp("sharded")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_factor_solves_and_inverse_are_those_of_the_whole_matrix(found):
    """Blocks that do not divide the rows, three devices and four, inverse by columns and by R."""
    for case, errors in found[0][0].items():
        assert max(errors.values()) < 1e-12, case


def test_a_matrix_that_is_not_positive_definite_gives_nan_everywhere(found):
    assert np.isnan(found[0][1]).all()


def test_evidence_and_gradient_are_those_of_one_device(found):
    for case, error in found[1].items():
        assert error < 1e-10, case


def test_no_device_has_a_whole_matrix(found):
    largest, memory = found[2]
    assert largest == 1.0
    assert memory < 3.0
    assert found[3][0] == [[1, 48, 192]] * 4


def test_predictions_copies_files_draws_and_updates_are_those_of_one_device(found):
    for case, error in found[3][1].items():
        assert error < 1e-10, case


def test_sites_that_move_are_refused(found):
    assert "with ExactGP alone; leave devices out" in found[4]
