"""Predictions piece by piece: few pieces are under way, and an abort ends them."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.runtime import buckets
from latentgp.runtime.buckets import Buckets
from latentgp.runtime.switch import Switch, obeying, within_a_fit

ROWS = np.arange(64.0 * 10)
WIDE = 1 << 20  # columns for which a piece has 64 rows

pytestmark = pytest.mark.quick


class Counter:
    """A function of rows that counts the pieces it has made, and does something at the third."""

    def __init__(self, at_third=lambda: None):
        self.made, self.at_third = 0, at_third

    def __call__(self, rows):
        return jax.pure_callback(self.count, jax.ShapeDtypeStruct(rows.shape, rows.dtype), rows)

    def count(self, rows):
        self.made += 1
        if self.made == 3:
            self.at_third()
        return np.asarray(rows)


def answers(function):
    return Buckets.of(ROWS, WIDE).map(function).to_numpy()


def slow(rows):
    """Some milliseconds for every piece, during which a device would be given all of them."""
    matrix = jnp.outer(rows, rows)
    return jax.lax.fori_loop(0, 400, lambda _, A: jnp.tanh(A @ matrix), matrix)[0]


def test_at_most_two_pieces_are_under_way(monkeypatch):
    """What an interrupt leaves for the device to do is soon done."""
    honest, found, waiting = buckets._mapped, [], []

    def watched(*arguments):
        waiting.append(sum(not one.is_ready() for one in found))
        found.append(honest(*arguments))
        return found[-1]

    monkeypatch.setattr(buckets, "_mapped", watched)
    assert answers(slow).shape == ROWS.shape
    assert len(waiting) == 10
    assert max(waiting) <= 1


def test_an_abort_ends_a_prediction_between_two_pieces():
    switch = Switch()
    function = Counter(switch.abort)
    with (
        obeying(switch),
        pytest.raises(lgp.RunAborted, match=r"after (192|256) of 640 rows of a prediction, so"),
    ):
        answers(function)
    assert function.made <= 5


def test_what_a_fit_asks_of_its_result_is_not_aborted():
    switch = Switch()
    switch.abort()
    with obeying(switch), within_a_fit():
        np.testing.assert_array_equal(answers(Counter()), ROWS)


def test_a_paused_prediction_waits():
    begin = threading.Event()

    def call():
        begin.wait()
        return answers(Counter(run.pause))

    run = lgp.run_in_background(call)
    begin.set()
    while not run.paused:
        assert not run.done
        threading.Event().wait(0.01)
    run.resume()
    np.testing.assert_array_equal(run.result(60), ROWS)
