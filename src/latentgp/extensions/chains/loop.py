# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Markov chains: run in pieces of a compiled loop, collected and summarised."""

import dataclasses
import operator
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key, Shaped

from latentgp.errors import RunAborted
from latentgp.extensions.chains.draws import Chains, few_latents, largest_r_hat
from latentgp.extensions.chains.target import Coefficients, Position
from latentgp.runtime.checkpoint import Checkpoint, state_in, tensors_of
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import Run, RunControl, Step
from latentgp.runtime.threads import cores, on_all_cores
from latentgp.typing import Array

_PIECE = 50  # draws of each chain in a compiled call
_REPORTED = "acceptance_rate", "step_size", "lp", "diverging"
_DRAWS_OF_R_HAT = 500  # of each chain, that progress is judged by


class Draw(NamedTuple):
    """The part of a state that is kept as a draw.

    Attributes:
        vector: unconstrained hyper-parameters, shape (P,).
        white: white coefficients, shape (K, M), M of each of K = Q latent functions; of deep models
            those of their layers.
        f: latent functions at the rows that are watched, shape (W, Q).
    """

    vector: Float[Array, "*C S P"]
    white: Float[Array, "*C S K M"]
    f: Float[Array, "*C S W Q"]


@dataclasses.dataclass(frozen=True)
class ChainProgress:
    """Progress of the chains, passed to the callback.

    Attributes:
        sweeps: made by every chain so far, the warm-up's included.
        total: that will be made.
        seconds: since the start of the fit.
        draws: so far; none in the warm-up.
    """

    sweeps: int
    total: int
    seconds: float
    draws: tuple[Draw, ...] = dataclasses.field(default=(), repr=False)

    @property
    def r_hat(self) -> float:
        """The largest of hyper-parameters and some latent functions; NaN in the warm-up."""
        return _r_hat(self.draws)


def groups_of(chains: int) -> int:
    """Number of equal groups of chains: at most one a core, one on a GPU.

    A group is one compiled call; what is sequential in it leaves the other cores to the others.
    """
    return max(d for d in range(1, chains + 1) if chains % d == 0 and d <= cores())


class Sampled(NamedTuple):
    """Chains so far: their state, and the draws kept.

    Attributes:
        state: of all chains.
        pieces: how many were made, those of the warm-up included.
        draws: of every piece after it.
        statistics: of the draws of every piece.
        reason: why they ended before all were made, in words; None if they did not.
    """

    state: Any
    pieces: int
    draws: tuple[Draw, ...]
    statistics: tuple[dict[str, np.ndarray], ...]
    reason: str | None = None

    def notes(self, draws: int) -> tuple[str, ...]:
        """A note where the chains ended before so many draws of each."""
        if self.reason is None:
            return ()
        made = min(draws, sum(part.f.shape[1] for part in self.draws))
        return (f"The chains ended after {made:,} of {draws:,} draws because {self.reason}.",)

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
    drawn: Callable[[], tuple[Draw, dict[str, Any]]],
    pieces: tuple[int, int],
    piece_size: int,
    control: RunControl,
) -> Sampled:
    """Run pieces in turn until all are done, or a callback or the time limit ends the run.

    Args:
        piece: makes `piece_size` sweeps of all chains from a state, with what is random by its
            number; gives the new state, draws (None in the warm-up) and statistics of each.
        start: gives the state where the chains start.
        drawn: makes the draws and statistics of a piece; traced for their shapes, where draws are
            read from a checkpoint, and never run.
        pieces: how many, those of the warm-up and those after it.
        piece_size: sweeps a piece.
        control: callback, limit, progress line, checkpoint.
    """
    run = Run(control)
    run.begins("sampling")
    recalled = _recalled(control.checkpoint, start, drawn, pieces)
    sampled, total = recalled or Sampled(start(), 0, (), ()), sum(pieces)
    reason = None
    try:
        for index in range(sampled.pieces, total):
            if run.aborted and not sampled.draws:
                raise RunAborted(_NO_DRAWS)
            state, new, told = piece(sampled.state, index)
            draws, statistics = sampled.draws, sampled.statistics
            if new is not None:
                draws = *draws, Draw(*(np.asarray(field) for field in new))
                statistics = *statistics, {name: np.asarray(told[name]) for name in told}
            sampled = Sampled(state, index + 1, draws, statistics)
            progress = ChainProgress(
                (index + 1) * piece_size, total * piece_size, run.seconds, draws
            )
            step = Step(
                "sampling",
                "sweep",
                progress.sweeps,
                progress.total,
                partial(_values, progress, told),
            )
            reason = run.made(step, progress, partial(_save, control.checkpoint, sampled))
            if reason is not None and sampled.draws:
                break
    finally:
        run.close()
        _save(control.checkpoint, sampled)
    return sampled._replace(reason=reason if sampled.pieces < total else None)


def _r_hat(draws: Sequence[Draw]) -> float:
    """R-hat so far, of draws that are evenly spaced and few enough to be cheap."""
    if not draws:
        return float("nan")
    step = max(1, sum(part.f.shape[1] for part in draws) // _DRAWS_OF_R_HAT)
    parts = [(part.vector[:, ::step], few_latents(part.f[:, ::step])) for part in draws]
    vector, f = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
    return largest_r_hat(vector, f)


_NO_DRAWS = (
    "The run was aborted before the first draws were made, so there is no result; start it again."
)


def _values(progress: ChainProgress, told: dict[str, Any]) -> dict[str, float]:
    """Reported values of a piece; R-hat, which takes time, only if wanted."""
    values = {"R-hat": progress.r_hat}
    return values | {name: float(np.mean(told[name])) for name in _REPORTED if name in told}


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


def _recalled(
    checkpoint: Checkpoint,
    start: Callable[[], Any],
    drawn: Callable[[], tuple[Draw, dict[str, Any]]],
    pieces: tuple[int, int],
) -> Sampled | None:
    """Contents of the checkpoint, None without one; the functions give the shapes of `collect`."""

    def understand(stored: dict[str, np.ndarray]) -> Sampled:
        made, (cold, warm) = int(stored["pieces"][0]), pieces
        if not 0 <= made <= cold + warm:
            raise ValueError(f"it says that {made:,} of {cold + warm:,} pieces were made")
        state = state_in(stored, jax.eval_shape(start))
        if made <= cold:
            return Sampled(state, made, (), ())

        draw, told = jax.eval_shape(drawn)
        read = partial(_of_pieces, stored, made - cold)
        draws = Draw(*(read(f"draws.{name}", one) for name, one in draw._asdict().items()))
        statistics = {name: read(f"statistics.{name}", one) for name, one in told.items()}
        return Sampled(state, made, (draws,), (statistics,))

    return checkpoint.read(understand)


def _of_pieces(
    stored: dict[str, np.ndarray], number: int, name: str, one: jax.ShapeDtypeStruct
) -> np.ndarray:
    """An array of so many pieces, or ValueError if it is not as that of one piece says."""
    array, (chains, draws, *rest) = stored[name], one.shape
    shape = chains, number * draws, *rest
    if (array.shape, array.dtype) != (shape, one.dtype):
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}, not {shape} and {one.dtype}"
        )
    return array


class Sampler(eqx.Module):
    """Markov transition that leaves a target invariant, as `init` and `step` of one chain.

    Attributes:
        target: a `Target`, the log density and the map to the rows.
        adapts_in_init: the whole warm-up is made by `init`.
    """

    adapts_in_init: ClassVar[bool] = False

    target: eqx.AbstractVar[Any]

    @property
    def shares_work(self) -> bool:
        """Whether chains side by side multiply one matrix, so that one call for all is best."""
        return False

    @abstractmethod
    def init(self, key: Key[Array, ""]) -> Any:
        """Initial state, over-dispersed to the target, after any adaptation by a chain alone."""

    @abstractmethod
    def step(self, state: Any, key: Key[Array, ""]) -> tuple[Any, dict[str, Array]]:
        """The next state, and statistics of the step by ArviZ's names.

        "acceptance_rate" and "diverging" are among them.
        """

    @abstractmethod
    def position(self, state: Any) -> Position:
        """Position of a chain."""

    def f_at_rows(self, state: Any, key: Key[Array, ""]) -> Float[Array, "N Q"]:
        """A draw of f at the rows given a state."""
        return self.target.latents(self.position(state), key)

    def record(self, state: Any, key: Key[Array, ""], watched: Int[Array, "W"]) -> Any:
        """Record of a state within the loop: the draw, unless overridden."""
        position = self.position(state)
        return Draw(position.vector, position.white, self.f_at_rows(state, key)[watched])

    def draw(self, record: Any, watched: Int[Array, "W"]) -> Draw:
        """The draw that a record stands for, worked out for many at once after the loop."""
        return record

    @abstractmethod
    def moved(self, state: Any, position: Position) -> Any:
        """State at another position, or under a changed target, with its adaptation kept."""

    def tuned(self, states: Any) -> Any:
        """States of all chains after a piece of the warm-up, by what all have seen."""
        return states

    def told(self, steps: dict[str, Shaped[Array, "T"]]) -> dict[str, Shaped[Array, ""]]:
        """Statistics of the steps between two draws that are kept; of the last one by default."""
        return {name: values[-1] for name, values in steps.items()}


def run_chains(
    sampler: Sampler,
    *,
    chains: int,
    warmup: int,
    draws: int,
    thin: int,
    watched: Int[np.ndarray, "W"],
    key: Key[Array, ""],
    control: RunControl,
) -> Chains:
    """Run chains of a sampler side by side.

    Args:
        sampler: the transition.
        chains: how many.
        warmup: steps of each after `init` that are thrown away, at least so many.
        draws: that are kept of each chain.
        thin: keeps every `thin`-th state.
        watched: rows whose latents are kept.
        key: random key.
        control: callback, limit, progress line, checkpoint.
    """
    started = time.perf_counter()
    key_init, key_run = jax.random.split(key)
    keys = jax.random.split(key_init, chains)
    number = min(_PIECE, draws)
    cold, warm = -(-warmup // (number * thin)), -(-draws // number)
    groups = 1 if sampler.shares_work else groups_of(chains)
    calls = count()

    def piece(states: Any, index: int) -> tuple[Any, Draw | None, dict[str, Any]]:

        def run(group: tuple[Any, Key[Array, "C"]]) -> Any:
            result = _piece(sampler, group[0], watched, group[1], (number, thin))
            return jax.block_until_ready(result)

        members = divide_chains(states, jax.random.fold_in(key_run, index), groups)
        results = list(on_all_cores(run, members, alone=int(next(calls) == 0)))
        after, kept, told = join_chains(results)
        if index < cold:
            return sampler.tuned(after), None, told
        return after, kept, told

    start = partial(_start, sampler, keys)

    def drawn() -> tuple[Draw, dict[str, Any]]:
        return _piece(sampler, start(), watched, keys, (number, thin))[1:]

    sampled = collect(piece, start, drawn, (cold, warm), number * thin, control)
    columns, statistics = sampled.joined(draws)
    last = jax.tree.map(lambda leaf: leaf[0], sampled.state)
    coefficients = _coefficients(sampler, last)
    return Chains(
        *columns,
        centres=jax.tree.map(np.asarray, coefficients.centres),
        statistics=statistics,
        jitter=float(coefficients.jitter),
        seconds=time.perf_counter() - started,
        notes=sampled.notes(draws),
    )


@partial(Program, static_argnums=(2,))
def divide_chains(
    states: Any, key: Key[Array, ""], groups: int
) -> list[tuple[Any, Key[Array, "C"]]]:
    """States of the chains of each group, and a key for each of them."""
    chains = len(jax.tree.leaves(states)[0])
    parts = states, jax.random.split(key, chains)
    bounds = [number * chains // groups for number in range(groups + 1)]
    places = [slice(*ends) for ends in pairwise(bounds)]
    return [jax.tree.map(operator.itemgetter(place), parts) for place in places]


@Program
def join_chains(groups: Sequence[Any]) -> Any:
    """Results of the groups, along one axis of chains."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups)


@Program
def _start(sampler: Sampler, keys: Key[Array, "C"]) -> Any:
    return jax.vmap(lambda key: sampler.init(key))(keys)


@Program
def _coefficients(sampler: Sampler, state: Any) -> Coefficients:
    """Coefficients' context for one chain."""
    return sampler.target.coefficients(sampler.position(state))


@partial(Program, static_argnums=(4,))
def _piece(
    sampler: Sampler,
    states: Any,
    watched: Int[Array, "W"],
    keys: Key[Array, "C"],
    counts: tuple[int, int],
) -> tuple[Any, Draw, dict[str, Shaped[Array, "C S"]]]:
    """Steps of some chains in one loop; keeps every `thin`-th state."""
    number, thin = counts

    def keep(state: Any, key: Key[Array, ""]) -> tuple[Any, Any]:
        key_steps, key_f = jax.random.split(key)
        step_keys = jax.random.split(key_steps, thin)
        state, steps = jax.lax.scan(lambda s, k: sampler.step(s, k), state, step_keys)
        return state, (sampler.record(state, key_f, watched), sampler.told(steps))

    def chain(state: Any, key: Key[Array, ""]) -> tuple[Any, Any, Any]:
        state, (records, told) = jax.lax.scan(keep, state, jax.random.split(key, number))
        return state, records, told

    states, records, told = jax.vmap(chain)(states, keys)
    of_chain = jax.vmap(lambda record: sampler.draw(record, watched))
    return states, jax.vmap(of_chain)(records), told
