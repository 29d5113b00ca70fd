"""Runs of the tests with extensions taken away: what asks for these is skipped, not failed."""

import functools
import os
import re
from pathlib import Path

import pytest

# Public names and names of methods of what was taken away; see `conformance/test_extensions.py`.
GONE = frozenset(os.environ.get("WITHOUT", "").split())
_TESTS = str(Path(__file__).parents[1])


def available(cases):
    """What functions make, by name; without those that ask for what was taken away."""
    made = {}
    for name, make in cases.items():
        try:
            made[name] = make()
        except (AttributeError, ImportError) as error:
            if not asks_for_what_is_gone(error):
                raise
    return made


def asks_for_what_is_gone(error):
    """Whether a test asked for it by an attribute, an import, the name of a method or a verb."""
    if isinstance(error, AttributeError | ImportError):
        names = {error.name, *re.findall(r"'(\w+)'", str(error))}
        own = (error.name or "").startswith("latentgp.extensions.")
        return bool(names & GONE or own) and _asked_by_a_test(error)
    said = str(error)
    got = re.search(r"got '([\w-]+)'", said)
    return "No part of this installation" in said or bool(got and got[1] in GONE)


def _asked_by_a_test(error):
    """Whether no code of the package stands between a test and the error, but `__getattr__`."""
    trace, frames = error.__traceback__, []
    while trace is not None:
        frames.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    own = [code for code in frames if "importlib" not in code.co_filename]
    own = [code for code in own if code.co_name not in ("__getattr__", "shown_in")]
    return own[-1].co_filename.startswith(_TESTS)


def _skipping(report, error):
    if GONE and error is not None and asks_for_what_is_gone(error):
        report.outcome = "skipped"
        report.longrepr = ("", 0, f"asks for what was taken away: {error}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _skipping(report, call.excinfo and call.excinfo.value)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    found = getattr(report, "call", None) and report.call.excinfo
    return _skipping(report, found and _cause(found.value))


@functools.singledispatch
def _cause(error):
    """The error under one of pytest's own of a file that could not be collected."""
    return error.__cause__ or error
