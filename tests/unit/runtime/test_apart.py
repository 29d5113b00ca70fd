"""Calls in processes of their own: results, memory, and what becomes of those that fail."""

import sys
import threading

import numpy as np
import pytest

import apart_calls
from latentgp.errors import InputError, ProcessLost
from latentgp.runtime.apart import _memory, apart


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system counts otherwise")
def test_memory_is_of_the_call_alone():
    held = np.ones(60_000_000)  # 480 MB, of which a child would inherit the peak by getrusage
    value, memory = apart(apart_calls.grown, 200, seconds=120)
    assert value == pytest.approx(200)
    assert 195e6 < memory < 260e6
    assert held[-1] == 1


@pytest.mark.parametrize(
    ("call", "seconds", "says"),
    [
        ((apart_calls.failing,), 120, "its process failed: ValueError: of no use"),
        ((apart_calls.killed,), 120, "ended by signal 9: too little memory, perhaps"),
        ((apart_calls.waiting, 60), 1, "no result within 1 s"),
    ],
    ids=["failing", "killed", "waiting"],
)
def test_why_there_is_no_result(call, seconds, says):
    with pytest.raises(ProcessLost, match=says):
        apart(*call, seconds=seconds)


def test_what_cannot_be_handed_over_is_named():
    with pytest.raises(InputError, match="cannot be handed to a process of its own"):
        apart(apart_calls.grown, threading.Lock(), seconds=120)


def test_memory_of_an_accelerator_is_what_it_counts(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_in_use": 5, "peak_bytes_in_use": 9}

    monkeypatch.setattr("jax.local_devices", lambda: [Device()])
    assert [_memory("VmRSS"), _memory("VmHWM")] == [5.0, 9.0]
