"""Which cases a run takes: each that has turns has one in its period."""

import pytest

from slow import USUAL_PERIOD, in_turn, period_of


@pytest.mark.quick
def test_every_case_has_its_turn(request):
    items = request.session.items
    turns = [list(in_turn(items, turn)) for turn in range(USUAL_PERIOD)]
    for item, *taken in zip(items, *turns, strict=True):
        period = period_of(item)
        assert sum(taken) == (USUAL_PERIOD / period if period else 0)
