"""Batches for a method that "auto" chose."""

from __future__ import annotations

from typing import Any

from latentgp.extensions.batches.method import Stochastic
from latentgp.methods.base import Method


def in_batches(method: Method | None = None, **settings: Any) -> Stochastic:
    """The method, or the usual one, in batches of rows."""
    return Stochastic(**settings) if method is None else Stochastic.of(method, **settings)
