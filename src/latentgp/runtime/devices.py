"""Kind of device that JAX computes on."""

from __future__ import annotations

import jax


def on_processor() -> bool:
    """Whether JAX computes on the processor (read when a program is traced)."""
    return jax.default_backend() == "cpu"


def fits_accelerator(size: int) -> bool:
    """Whether so many bytes are at most a quarter of an accelerator's memory."""
    stats = None if on_processor() else jax.local_devices()[0].memory_stats()
    return 4 * size <= (stats or {}).get("bytes_limit", 0)
