"""Markov chains: run in pieces of a compiled loop, collected, and looked at as ArviZ does."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from latentgp.runtime.checkpoint import Checkpoint, state_in, tensors_of
from latentgp.runtime.progress import Driving, ProgressLine
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array


class Draw(NamedTuple):
    """What is kept of a state.

    Attributes:
        vector: unconstrained hyper-parameters, shape (P,).
        white: white coefficients of the latent functions, shape (Q, M).
        f: latent functions at the rows that are watched, shape (W, Q).
    """

    vector: Float[Array, "*C S P"]
    white: Float[Array, "*C S Q M"]
    f: Float[Array, "*C S W Q"]


class ChainProgress(NamedTuple):
    """What a callback is told now and then.

    Attributes:
        sweeps: made by every chain so far, the warm-up's included.
        total: that will be made.
        seconds: since the start of the fit.
    """

    sweeps: int
    total: int
    seconds: float


def groups_of(chains: int) -> int:
    """Into how many equal groups chains are divided: at most one a core, one on a GPU.

    A group is one compiled call; what is sequential in it leaves the other cores to the others.
    """
    cores = (os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    return max(d for d in range(1, chains + 1) if chains % d == 0 and d <= cores)


def in_groups(function: Callable[..., Any], parts: Sequence[Any], *, at_once: bool) -> list[Any]:
    """A function of each group's part; at once on a thread each, or one after another.

    The first call of a compiled function is to be made one after another: it compiles.
    """
    function = double_precision(function)  # the context belongs to a thread
    if not at_once or len(parts) == 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(function, parts))


class Sampled(NamedTuple):
    """How far chains have come.

    Attributes:
        state: of all chains.
        pieces: how many were made, those of the warm-up included.
        draws: of every piece after it.
        statistics: of the draws of every piece.
    """

    state: Any
    pieces: int
    draws: tuple[Draw, ...]
    statistics: tuple[dict[str, np.ndarray], ...]

    def joined(self, draws: int) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """The first so many draws of each chain, field by field, and their statistics."""
        fields = zip(*self.draws, strict=True)
        columns = [np.concatenate(parts, axis=1)[:, :draws] for parts in fields]
        return columns, {name: all[:, :draws] for name, all in _joined(self.statistics).items()}


def _joined(pieces: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([p[name] for p in pieces], axis=1) for name in pieces[0]}


def collect(
    piece: Callable[[Any, int], tuple[Any, Draw | None, dict[str, Any]]],
    start: Callable[[], Any],
    pieces: int,
    piece_size: int,
    driving: Driving,
) -> Sampled:
    """Run pieces one after another until all are made, or a callback or the clock ends it.

    Args:
        piece: makes `piece_size` sweeps of all chains from a state, with what is random by its
            number; gives the new state, draws (None in the warm-up) and statistics of each.
        start: gives the state where the chains start.
        pieces: how many.
        piece_size: sweeps a piece.
        driving: callback, limit, progress line, checkpoint.
    """
    line = ProgressLine(driving.verbose)
    line.show("sampling: getting ready", time.perf_counter() - driving.started)
    sampled = _recalled(driving.checkpoint, start) or Sampled(start(), 0, (), ())
    first, began = sampled.pieces, time.perf_counter()
    try:
        for index in range(first, pieces):
            state, new, told = piece(sampled.state, index)
            _, _, draws, statistics = sampled
            if new is not None:
                draws = *draws, Draw(*(np.asarray(field) for field in new))
                statistics = *statistics, {name: np.asarray(told[name]) for name in told}
            sampled = Sampled(state, index + 1, draws, statistics)
            seconds = time.perf_counter() - driving.started
            progress = ChainProgress((index + 1) * piece_size, pieces * piece_size, seconds)
            made = index + 1 - first
            rest = (time.perf_counter() - began) / made * (pieces - index - 1)
            line.show(
                f"sampling: sweep {progress.sweeps:,} of {progress.total:,}, {seconds:.0f} s, "
                f"about {rest:.0f} s left",
                seconds,
            )
            wants_end = driving.callback is not None and driving.callback(progress)
            late = driving.max_seconds is not None and seconds > driving.max_seconds
            if driving.checkpoint.is_due():
                _save(driving.checkpoint, sampled)
            if (wants_end or late) and sampled.draws:
                break
    except KeyboardInterrupt:  # what was drawn is kept
        if not sampled.draws:
            raise
    finally:
        line.close()
        _save(driving.checkpoint, sampled)
    return sampled


def _save(checkpoint: Checkpoint, sampled: Sampled) -> None:
    if checkpoint.path is None:
        return
    tensors = {**tensors_of(sampled.state), "pieces": np.array([sampled.pieces])}
    for name, parts in zip(Draw._fields, zip(*sampled.draws, strict=True), strict=False):
        tensors[f"draws.{name}"] = np.concatenate(parts, axis=1)
    if sampled.statistics:
        known = _joined(sampled.statistics)
        tensors |= {f"statistics.{name}": values for name, values in known.items()}
    checkpoint.write(tensors)


def _recalled(checkpoint: Checkpoint, start: Callable[[], Any]) -> Sampled | None:
    """What the checkpoint holds, if there is one; of the start only shapes are looked at."""

    def understand(stored: dict[str, np.ndarray]) -> Sampled:
        draws, statistics = (), ()
        if "draws.f" in stored:
            draws = (Draw(*(stored[f"draws.{name}"] for name in Draw._fields)),)
            own = {n.partition(".")[2]: n for n in stored if n.startswith("statistics.")}
            statistics = ({name: stored[entry] for name, entry in own.items()},)
        pieces = int(stored["pieces"][0])
        return Sampled(state_in(stored, jax.eval_shape(start)), pieces, draws, statistics)

    return checkpoint.read(understand)
