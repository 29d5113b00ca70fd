"""Cases that only `make test-slow` runs."""

import pytest


def slow_parameters(*values):
    """Parameters of a test under the slow marker: another case of the test runs without it."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
