"""Compiled programs: limit of a process, and the cache shared with later ones."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache as jax_cache
from jax._src.compilation_cache_interface import CacheInterface
from jax.experimental.compilation_cache import compilation_cache

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = Path("/proc/sys/vm/max_map_count")
_PROCESSORS = Path("/proc/cpuinfo")
_MOST_BYTES = 500_000_000
_WORTH_KEEPING = 0.02
_ENDING = "-program"
_CHECKSUM = hashlib.sha256().digest_size
_LONG_AGO = 3600.0  # seconds, after which what is being written has been left behind


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

    The first fit of a process does it by itself, in a folder of the user's cache, unless the
    environment says `LATENTGP_CACHE=0`, or JAX has been told of a folder of its own. A first fit
    to data of a size that was fitted before then has nothing to compile. Numbers are the same.

    Args:
        folder: by default one of the user's cache, of this kind of processor alone. Where programs
            in it have come to more than 500 MB the older half is deleted. Whoever can write to it
            can have this process run what they like.

    Returns:
        The folder; None if JAX has been told of one by others, or this one cannot be written to.

    Example:
        >>> keep_programs("/proc/nowhere") is None
        True
    """
    told = jax.config.values["jax_compilation_cache_dir"]
    if told is not None and not _is_ours():
        return None
    try:
        folder = (_usual_folder() if folder is None else Path(folder)).absolute()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_room_in(folder)
    except (OSError, RuntimeError):  # no room, no rights, no home
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
    compilation_cache.reset_cache()  # JAX looks where to once, at the first program
    jax_cache._cache, jax_cache._cache_initialized = ProgramFiles(folder), True
    return folder


@cache
def keep_programs_by_default() -> None:
    """`keep_programs`, once a process, unless it was called before or LATENTGP_CACHE=0."""
    if not _is_ours() and os.environ.get("LATENTGP_CACHE") != "0":
        keep_programs()


def _is_ours() -> bool:
    """Whether JAX keeps programs where `keep_programs` has said."""
    return isinstance(jax_cache._cache, ProgramFiles)


class ProgramFiles(CacheInterface):
    """Programs in files that are whole, or not there.

    JAX writes its files in place, so that a process that is killed leaves half of one, of which all
    later ones warn. These are written beside and renamed, and end with a checksum. What cannot be
    read or written is compiled as if nothing were kept.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def get(self, key: str) -> Any:
        """A program; None where there is no whole file of it."""
        file = self._path / f"{key}{_ENDING}"
        with contextlib.suppress(OSError):
            whole = file.read_bytes()
            program, checksum = whole[:-_CHECKSUM], whole[-_CHECKSUM:]
            if hashlib.sha256(program).digest() == checksum:
                return program
            file.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keep a program, unless the folder takes no more."""
        beside = self._path / f"{os.getpid()}-{threading.get_ident()}.part"
        try:
            beside.write_bytes(value + hashlib.sha256(value).digest())
            beside.replace(self._path / f"{key}{_ENDING}")
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()


def _make_room_in(folder: Path) -> None:
    """Delete the older half of the programs where they are too many, and parts of files."""
    files = []
    for file in folder.iterdir():
        with contextlib.suppress(OSError):  # another process has deleted it
            about = file.stat()
            if file.name.endswith(_ENDING):
                files.append((about.st_mtime, about.st_size, file))
            elif file.suffix == ".part" and about.st_mtime < time.time() - _LONG_AGO:
                file.unlink()
    left = sum(size for _, size, _ in files)
    if left <= _MOST_BYTES:
        return
    for _, size, file in sorted(files):
        if left > _MOST_BYTES // 2:
            with contextlib.suppress(OSError):
                file.unlink()
            left -= size


def _usual_folder() -> Path:
    """Programs for one kind of processor may stop a process on another."""
    kind = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = _PROCESSORS.read_text().splitlines()
        kind += "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG base directory specification has relative paths ignored.
    cache = asked if asked.is_absolute() else Path.home() / ".cache"
    return cache / "latentgp" / f"programs-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
