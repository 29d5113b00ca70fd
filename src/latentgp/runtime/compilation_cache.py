"""Compiled programs: limit of a process, and the cache shared with later ones."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = Path("/proc/sys/vm/max_map_count")
_PROCESSORS = Path("/proc/cpuinfo")
_MOST_BYTES = 500_000_000
_WORTH_KEEPING = 0.1
_ENDING = "-cache"  # of a file of JAX's


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


def keep_programs(folder: str | Path | None = None) -> Path | None:
    """Keep JAX's compiled programs in a folder for later processes on this machine.

    The first fit of a process, to data of a size that was fitted before, then starts about three
    times as fast. The command line does this by itself. Numbers are the same, as programs are.

    Args:
        folder: by default one of the user's cache, of this kind of processor alone. Where programs
            in it have come to more than 500 MB they are deleted. Whoever can write to it can have
            this process run what they like.

    Returns:
        The folder; None if JAX has been told of one already, or this one cannot be written to.

    Example:
        >>> keep_programs("/proc/nowhere") is None
        True
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return None
    try:
        folder = (_usual_folder() if folder is None else Path(folder)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if sum(map(_size, folder.glob(f"*{_ENDING}"))) > _MOST_BYTES:
            _forget(folder, "")
    except (OSError, RuntimeError):  # no room, no rights, no home
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
    compilation_cache.reset_cache()  # JAX looks where to once, at the first program
    return folder


def forget_unreadable(folder: Path, message: str) -> bool:
    """Whether a warning of JAX's is of a program it cannot read; those of that name are deleted.

    A process that was killed while it wrote a file leaves half of it, which JAX would warn of for
    ever.
    """
    about = re.search(r"Error reading persistent compilation cache entry for '([^']+)'", message)
    if about:
        _forget(folder, f"{about[1]}-")
    return about is not None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # another process has deleted it
        return 0


def _forget(folder: Path, beginning: str) -> None:
    for file in folder.glob(f"*{_ENDING}"):
        if file.name.startswith(beginning):
            with contextlib.suppress(OSError):  # others may have been quicker
                file.unlink()


def _usual_folder() -> Path:
    """Programs for one kind of processor may stop a process on another."""
    kind = platform.machine() + platform.processor()
    try:
        lines = _PROCESSORS.read_text().splitlines()
        kind += "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))
    except OSError:
        pass
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG base directory specification has relative paths ignored.
    cache = asked if asked.is_absolute() else Path.home() / ".cache"
    return cache / "latentgp" / f"programs-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
