"""Batches for a method that "auto" chose."""

from __future__ import annotations

from latentgp.extensions.batches.method import Stochastic
from latentgp.methods.base import Method


def in_batches(method: Method) -> Stochastic:
    """The method, in batches of rows."""
    return Stochastic.of(method)
