"""LightGBM and NGBoost, in an environment of their own that is installed when first used."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Worker, start

PEERS = "LightGBM", "NGBoost"


@functools.cache
def _worker() -> tuple[Worker, Path]:
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    return Worker("boosting", folder / "log"), folder


def predicted(peer: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> np.ndarray:
    """Mean, standard deviation, lower and upper bound of 95 % intervals, (4, N)."""
    worker, folder = _worker()
    job = Path(tempfile.mkdtemp(dir=folder))
    for name, array in {"X": X, "y": y, "X_test": X_test}.items():
        np.save(job / f"{name}.npy", array)
    start_of_all = start(X.shape[1], ard=True)
    reply = worker.run({"task": peer, "folder": str(job), "options": {}} | start_of_all)
    if "failure" in reply:
        raise RuntimeError(f"{peer}: {reply['failure']}")
    return np.load(job / "predicted.npy")
