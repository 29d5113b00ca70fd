"""Checkpoints: files that long work is saved to and resumed from."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from latentgp.errors import InputError, in_a_line, warn_user
from latentgp.runtime.processes import is_first_process, of_first_process
from latentgp.runtime.writing import written_whole

Content = TypeVar("Content")
CHECKPOINT_SECONDS = 10.0
_DIGEST = "digest"


class Checkpoint:
    """A file with a description of its problem, which must be the same when it is read.

    The first of several processes reads and writes it; what it finds counts for all of them.
    `made_with` has values of settings by name, and digests of what is longer by "another" and what
    it is; the first that differs is what others follow from. InputError if the folder is missing.
    """

    def __init__(self, path: str | Path | None = None, made_with: Mapping[str, str] | None = None):
        self.path = None if path is None else Path(path)
        self._made_with = json.dumps(made_with or {}).encode()
        self._written = time.perf_counter()
        if path is not None:
            self._made_with = of_first_process(self._checked)

    def _checked(self) -> bytes:
        """Description of the problem, once the folder is known to exist."""
        assert self.path is not None
        if not self.path.parent.is_dir():
            raise InputError(
                f"There is no folder {self.path.parent} for the checkpoint {self.path}; make it, "
                "or name another file."
            )
        return self._made_with

    def _found(self) -> bytes:
        """Contents of the file; empty if there is none yet."""
        assert self.path is not None
        try:
            found = self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self.unreadable(error) from error
        if not found:
            raise self.unreadable("it is empty")
        return found

    def unreadable(self, error: Exception | str) -> InputError:
        """The error of a file that cannot be gone on from, given why."""
        return InputError(
            f"The checkpoint {self.path} cannot be read ({in_a_line(error)}); remove it to start "
            "afresh, or name another file."
        )

    def read(self, understand: Callable[[dict[str, np.ndarray]], Content]) -> Content | None:
        """Read the file; None if there is none.

        InputError if it cannot be read, or was made with something else.
        """
        found = b"" if self.path is None else of_first_process(self._found)
        if not found:
            return None
        try:
            stored = load(found)
            if not {"made_with", _DIGEST} <= stored.keys():
                raise ValueError("it is no checkpoint of this version of latentgp")
            if not np.array_equal(stored.pop(_DIGEST), checksum(stored)):
                raise ValueError("its checksum differs")
            differs = self._differs(bytes(stored["made_with"]))
            content = None if differs else understand(stored)
        except Exception as error:
            raise self.unreadable(error) from error
        if content is None:
            raise InputError(
                f"The checkpoint {self.path} was made with {differs}; give the same again, or name "
                "another file."
            )
        return content

    def _differs(self, made_with: bytes) -> str:
        """Difference between the file's description and this problem's, in words; or empty."""
        then, now = json.loads(made_with), json.loads(self._made_with)
        others = [name for name in now if then.get(name) != now[name]]
        settings = [name for name in others if not name.startswith("another ")]
        if others and others[0] not in settings:
            return others[0]
        return ", ".join(f"{name}={then.get(name)} (not {now[name]})" for name in settings)

    def is_due(self) -> bool:
        """Whether it is time to write it again."""
        return self.path is not None and time.perf_counter() - self._written > CHECKPOINT_SECONDS

    def write(self, tensors: dict[str, np.ndarray]) -> None:
        """Replace the file, whole or not at all; the first of several processes does it.

        A disk that refuses costs the checkpoint, not the search: there is a warning.
        """
        self._written = time.perf_counter()
        if self.path is None or not is_first_process():
            return
        tensors = {**tensors, "made_with": np.frombuffer(self._made_with, np.uint8)}
        try:
            with written_whole(self.path, SafetensorError) as partial:
                save_file({**tensors, _DIGEST: checksum(tensors)}, partial)
                with partial.open("rb") as written:
                    os.fsync(written.fileno())
        except InputError as error:
            warn_user(f"The search goes on, and tries again later: the checkpoint {error}.")


def checksum(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of tensors with their names, types and shapes, so that damage is noticed."""
    digest = hashlib.sha256()
    for name in sorted(tensors.keys() - {_DIGEST}):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def tensors_of(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a state, for a checkpoint."""
    leaves = enumerate(jax.tree.leaves(state))
    return {f"state.{n}": np.array(leaf).reshape(-1) for n, leaf in leaves}


def state_in(stored: dict[str, np.ndarray], like: Any) -> Any:
    """The state that a checkpoint holds, of the structure and shapes of another."""
    leaves, structure = jax.tree.flatten(like)
    pairs = ((stored[f"state.{n}"], leaf) for n, leaf in enumerate(leaves))
    read = [jnp.asarray(own.reshape(leaf.shape), leaf.dtype) for own, leaf in pairs]
    return jax.tree.unflatten(structure, read)
