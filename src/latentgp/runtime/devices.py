"""Kind of device that JAX computes on."""

from __future__ import annotations

import jax


def on_processor() -> bool:
    """Whether JAX computes on the processor (read when a program is traced)."""
    return jax.default_backend() == "cpu"
