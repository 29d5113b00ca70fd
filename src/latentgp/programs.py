"""Compiled programs, of which a process can hold only so many."""

from pathlib import Path

import jax

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = Path("/proc/sys/vm/max_map_count")


def make_room_for_programs() -> None:
    """Forget all that JAX has compiled once half of the process's memory maps are in use.

    XLA gives every function that it compiles for the CPU maps of its own, some 500 for a fit to
    another number of rows, and Linux lets a process have 65,530: after a hundred such fits the
    compiler would fail. What is needed again is compiled again. Elsewhere nothing is done.
    """
    try:
        limit = int(_MOST_MAPS.read_text())
        with _MAPS.open("rb") as maps:
            used = sum(1 for _ in maps)
    except (OSError, ValueError):
        return
    if used > limit // 2:
        jax.clear_caches()
