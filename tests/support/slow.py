"""Turns of the cases: a run takes those whose turn it is at the commit."""

import os
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest

# A case runs at one commit in so many, by its mark. Periods are prime, so that pushes of several
# commits each come to all cases too.
PERIODS = {"slow": 151, "quick": 1, "always": 1}
USUAL_PERIOD = 11


def slow_parameters(*values):
    """Parameters of a test under the slow marker: another case of the test runs without it."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def in_turn(items, turn):
    """Whether it is the turn of each case.

    The cases of a file are cut into as many slices as there are turns: neighbours share programs.
    """
    kinds = [(item.path.name, period_of(item)) for item in items]
    sizes, places = Counter(kinds), Counter()
    for file, period in kinds:
        slice_ = places[file, period] * period // sizes[file, period]
        places[file, period] += 1
        yield (zlib.crc32(file.encode()) + slice_ + turn) % period == 0


def period_of(item):
    """In how many commits a case has one turn."""
    periods = (PERIODS[mark] for mark in PERIODS if item.get_closest_marker(mark))
    return next(periods, USUAL_PERIOD)


def turn_of_commit():
    """Number of the commit; TURN where that is set, and the hash where history is cut off."""
    if "TURN" in os.environ:
        return int(os.environ["TURN"])
    if told_by_git("rev-parse", "--is-shallow-repository") == "true":
        return int(told_by_git("rev-parse", "HEAD"), 16)
    return int(told_by_git("rev-list", "--first-parent", "--count", "HEAD") or "0")


def told_by_git(*asked):
    """What Git answers in one line, nothing without Git or a repository."""
    command = ["git", "-C", str(Path(__file__).parent), *asked]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
