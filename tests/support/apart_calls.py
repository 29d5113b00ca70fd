"""Calls that a process of its own makes in tests."""

import os
import signal
import time

import numpy as np


def grown(megabytes):
    """Sum of so many megabytes of ones, which are there at once and let go."""
    return float(np.ones(megabytes * 125_000).sum()) * 8e-6


def failing():
    raise ValueError("of no use")


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def waiting(seconds):
    time.sleep(seconds)
