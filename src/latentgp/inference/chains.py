"""Markov chains: run in pieces of a compiled loop, collected, and looked at as ArviZ does."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from latentgp.arrays import Array
from latentgp.precision import double_precision

_WATCHED_ROWS = 200
_SILENT_SECONDS = 1.0


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


class Driving(NamedTuple):
    """How the loop around the chains is watched.

    Attributes:
        callback: told now and then; true ends the sampling with the draws there are.
        max_seconds: no piece is begun after it once there are draws.
        verbose: 1 shows a progress line for anything longer than a second.
    """

    callback: Callable[[Any], bool | None] | None = None
    max_seconds: float | None = None
    verbose: int = 0


class ChainProgress(NamedTuple):
    """What a callback is told now and then.

    Attributes:
        sweeps: made by every chain so far, the warm-up's included.
        total: that will be made.
        seconds: since the start of the sampling.
    """

    sweeps: int
    total: int
    seconds: float


class Chains(eqx.Module):
    """Draws of C chains, S each, after the warm-up.

    Attributes:
        vector: unconstrained hyper-parameters, shape (C, S, P); P = 0 if they are fixed.
        white: white coefficients, shape (C, S, Q, M).
        f: latent functions at the watched rows, shape (C, S, W, Q).
        centres: where the coefficients belong, shape (M, D).
        watched: which rows these are, shape (W,).
        acceptance: mean acceptance rate of each chain's accept-reject steps, shape (C,); one
            where every step is exact.
        divergences: draws whose trajectory diverged (Hamiltonian samplers).
        jitter: added to the diagonal of the prior covariance at the last draw; units of f squared.
        seconds: that the sampling took, compilation included.
    """

    vector: Float[np.ndarray, "C S P"]
    white: Float[np.ndarray, "C S Q M"]
    f: Float[np.ndarray, "C S W Q"]
    centres: Float[np.ndarray, "M D"]
    watched: Float[np.ndarray, "W"]
    acceptance: Float[np.ndarray, "C"]
    divergences: int = eqx.field(static=True)
    jitter: float = eqx.field(static=True)
    seconds: float = eqx.field(static=True)


class ChainSummary(NamedTuple):
    """The worst figures over everything watched (Vehtari et al. 2021).

    Attributes:
        r_hat: largest rank-normalised split R-hat; NaN with too few draws.
        ess_bulk: smallest effective sample size of the bulk.
        ess_tail: smallest effective sample size of the 5 % and 95 % quantiles.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float


def watched_rows(size: int) -> np.ndarray:
    """At most 200 rows, evenly spaced, whose latents are kept draw by draw."""
    return np.unique(np.linspace(0, size - 1, min(size, _WATCHED_ROWS)).astype(int))


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


def collect(
    piece: Callable[[Any, int], tuple[Any, Draw | None, Any]],
    state: Any,
    pieces: int,
    piece_size: int,
    driving: Driving,
) -> tuple[list[Draw], list[Any], Any]:
    """Run pieces one after another until all are made, or a callback or the clock ends it.

    Args:
        piece: makes `piece_size` sweeps of all chains from a state; gives the new state, draws
            (None in the warm-up) and what is to be averaged.
        state: where the chains start.
        pieces: how many.
        piece_size: sweeps a piece.
        driving: callback, limit, progress line.
    """
    started, status = time.perf_counter(), None
    draws: list[Draw] = []
    infos: list[Any] = []
    try:
        for index in range(pieces):
            state, new, info = piece(state, index)
            if new is not None:
                draws.append(Draw(*(np.asarray(field) for field in new)))
                infos.append(info)
            seconds = time.perf_counter() - started
            progress = ChainProgress((index + 1) * piece_size, pieces * piece_size, seconds)
            if driving.verbose and seconds > _SILENT_SECONDS:
                if status is None:
                    from rich.console import Console

                    status = Console(stderr=True).status("")
                    status.start()
                status.update(
                    f"sampling: sweep {progress.sweeps:,} of {progress.total:,}, {seconds:.0f} s"
                )
            wants_end = driving.callback is not None and driving.callback(progress)
            late = driving.max_seconds is not None and seconds > driving.max_seconds
            if (wants_end or late) and draws:
                break
    except KeyboardInterrupt:  # what was drawn is kept
        if not draws:
            raise
    finally:
        if status is not None:
            status.stop()
    return draws, infos, state


def summarise(chains: Chains) -> ChainSummary:
    """R-hat and effective sample sizes, the worst of all hyper-parameters and watched latents."""
    arviz = import_arviz()
    shape = chains.f.shape
    series = {"f": chains.f.reshape(*shape[:2], -1)}
    if chains.vector.shape[-1]:
        series["hyperparameters"] = chains.vector
    if shape[1] < 4:
        return ChainSummary(np.nan, np.nan, np.nan)
    data = arviz.convert_to_dataset(series)

    def worst(function: Callable[..., Any], choose: Callable[..., Any], **settings: Any) -> float:
        values = function(data, **settings)
        return float(choose([choose(values[name].values) for name in series]))

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ChainSummary(
            worst(arviz.rhat, np.max) if shape[0] > 1 else np.nan,
            worst(arviz.ess, np.min, method="bulk"),
            worst(arviz.ess, np.min, method="tail"),
        )


def import_arviz() -> Any:
    """ArviZ, without the notice that its next version will be another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz
