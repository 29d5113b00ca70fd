"""Which cases a run takes: each has one turn in its period, and turns are alike."""

from types import SimpleNamespace

import numpy as np
import pytest

from slow import PERIODS, USUAL_PERIOD, in_turn

pytestmark = pytest.mark.quick


def case(file, mark):
    return SimpleNamespace(
        path=SimpleNamespace(name=file), get_closest_marker=lambda name: name == mark
    )


@pytest.mark.parametrize(
    ("mark", "period"), [("slow", PERIODS["slow"]), (None, USUAL_PERIOD), ("quick", 1)]
)
def test_every_case_has_one_turn_in_its_period(mark, period):
    cases = [case(file, mark) for file in ("test_a.py", "test_b.py") for _ in range(300)]
    due = np.array([[*in_turn(cases, turn)] for turn in range(period)])
    np.testing.assert_array_equal(due.sum(axis=0), 1)
    assert np.ptp(due.sum(axis=1)) <= 2  # one a file


def test_kinds_of_a_file_have_turns_of_their_own():
    cases = [case("test_a.py", mark) for mark in ("slow", None, "quick") for _ in range(20)]
    due = [[*in_turn(cases, turn)][-20:] for turn in range(3)]
    assert np.all(due)
