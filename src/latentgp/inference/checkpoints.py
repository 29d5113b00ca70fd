"""What both drivers do around a search: its checkpoint file, and its progress line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import load_file, save_file

from latentgp.errors import InputError
from latentgp.sharding import is_first_process

Content = TypeVar("Content")
CHECKPOINT_SECONDS = 10.0
_SILENT_SECONDS = 1.0


class Checkpoint:
    """A file that names the model, method and data that it belongs to.

    Args:
        path: of the file; None for none.
        identity: that name.
    """

    def __init__(self, path: str | Path | None, identity: str):
        self.path = None if path is None else Path(path)
        self.identity = identity

    def read(self, understand: Callable[[dict[str, np.ndarray]], Content]) -> Content | None:
        """What is in the file, None if there is no file.

        Raises:
            InputError: it cannot be read, or belongs to something else.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            stored = load_file(self.path)
            identity = bytes(stored["identity"]).decode()
            content = understand(stored) if identity == self.identity else None
        except Exception as error:
            raise InputError(
                f"The checkpoint {self.path} cannot be read ({error}); remove it to start afresh."
            ) from error
        if content is None:
            raise InputError(
                f"The checkpoint {self.path} belongs to another model, method or data; "
                "remove it, or name another file."
            )
        return content

    def write(self, tensors: dict[str, np.ndarray]) -> None:
        """Replace the file, whole or not at all; the first of several processes does it."""
        if self.path is None or not is_first_process():
            return
        identity = np.frombuffer(self.identity.encode(), np.uint8)
        partial = self.path.with_name(self.path.name + ".partial")
        save_file({**tensors, "identity": identity}, partial)
        partial.replace(self.path)


class ProgressLine:
    """One line on standard error, for what takes longer than a second."""

    def __init__(self, verbose: int):
        self._verbose = verbose and is_first_process()
        self._status: Any = None

    def show(self, text: str, seconds: float) -> None:
        """Write it over, given for how long there has been work."""
        if not self._verbose or seconds < _SILENT_SECONDS:
            return
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(text)

    def close(self) -> None:
        """Take it away."""
        if self._status is not None:
            self._status.stop()
