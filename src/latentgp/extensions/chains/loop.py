# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Markov chains: run in pieces of a compiled loop, collected and summarised."""

import dataclasses
import operator
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
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.loop import Algorithm, Steps, run_loop
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import Run, RunControl, RunProgress
from latentgp.runtime.threads import cores, on_all_cores
from latentgp.typing import Array, RandomKey, RowLatents

_REPORTED = "acceptance_rate", "step_size", "lp", "diverging"
_DRAWS_OF_R_HAT = 500  # of each chain, that progress is judged by
_OVER_STEPS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("acceptance_rate", "hyperparameter_acceptance_rate"), jnp.mean),
    **dict.fromkeys(("n_steps", "factorisations", "prior_proposed", "prior_accepted"), jnp.sum),
    **dict.fromkeys(("diverging", "reached_max_treedepth"), jnp.any),
    "tree_depth": jnp.max,
}
_last = operator.itemgetter(-1)


class Draw(NamedTuple):
    """The part of a state that is kept as a draw."""

    vector: Float[Array, "*C S H"]  # unconstrained hyper-parameters
    white: Float[Array, "*C S functions M"]  # of Q latent functions, of deep models of their layers
    f: Float[Array, "*C S W Q"]  # latent functions at the rows that are watched


def groups_of(chains: int) -> int:
    """Number of equal groups of chains, each one call: at most one a core, one on a GPU."""
    return max(d for d in range(1, chains + 1) if chains % d == 0 and d <= cores())


class ChainRecord(NamedTuple):
    """Chains so far: their state, and the draws kept."""

    state: Any  # of all chains
    pieces: int = 0  # how many were made, those of the warm-up included
    draws: tuple[Draw, ...] = ()  # of every piece after it
    statistics: tuple[dict[str, np.ndarray], ...] = ()  # of the draws of every piece

    def joined(self) -> tuple[Draw, dict[str, np.ndarray]]:
        """All draws of each chain, and their statistics."""
        parts = zip(self.draws, self.statistics, strict=True)
        return jax.tree.map(lambda *pieces: np.concatenate(pieces, axis=1), *parts)


@dataclasses.dataclass
class ChainLoop(Algorithm[ChainRecord]):
    """Pieces of the warm-up and of draws."""

    phase: ClassVar[str] = "sampling"

    # of all chains from a state, by its number: new state, draws (None in the warm-up), statistics
    piece: Callable[[Any, int], tuple[Any, Draw | None, dict[str, Any]]]
    start: Callable[[], Any]  # gives the state where the chains start
    # draws and statistics of a piece, traced for shapes of a checkpoint, and never run
    drawn: Callable[[], tuple[Draw, dict[str, Any]]]
    pieces: tuple[int, int]  # how many, those of the warm-up and those after it
    piece_size: int  # sweeps a piece

    def init(self) -> ChainRecord:
        return ChainRecord(self.start())

    def steps(self, state: ChainRecord, run: Run) -> Steps[ChainRecord]:
        for index in range(state.pieces, sum(self.pieces)):
            if run.aborted and not state.draws:
                raise RunAborted(
                    "The run was aborted before the first draws were made, so there is no result; "
                    "start it again."
                )
            chains, new, told = self.piece(state.state, index)
            draws, statistics = state.draws, state.statistics
            if new is not None:
                draws = *draws, Draw(*(np.asarray(field) for field in new))
                statistics = *statistics, {name: np.asarray(told[name]) for name in told}
            state = ChainRecord(chains, index + 1, draws, statistics)
            sweeps, total = (index + 1) * self.piece_size, sum(self.pieces) * self.piece_size
            yield (
                state,
                RunProgress(
                    self.phase,
                    sweeps,
                    total,
                    unit="sweep",
                    has_result=bool(draws),
                    values=partial(_values, draws, told),
                    details={"sweeps": sweeps, "draws": draws},
                ),
            )

    def to_tensors(self, state: ChainRecord) -> dict[str, np.ndarray]:
        tensors = {**tensors_of(state.state), "pieces": np.array([state.pieces])}
        if not state.draws:
            return tensors
        draw, told = state.joined()
        tensors |= {f"draws.{name}": values for name, values in draw._asdict().items()}
        return tensors | {f"statistics.{name}": values for name, values in told.items()}

    def from_tensors(self, stored: dict[str, np.ndarray]) -> ChainRecord:
        made, (cold, warm) = int(stored["pieces"][0]), self.pieces
        if not 0 <= made <= cold + warm:
            raise ValueError(f"it says that {made:,} of {cold + warm:,} pieces were made")
        state = state_in(stored, jax.eval_shape(self.start))
        if made <= cold:
            return ChainRecord(state, made)

        draw, told = jax.eval_shape(self.drawn)
        read = partial(_of_pieces, stored, made - cold)
        draws = Draw(*(read(f"draws.{name}", one) for name, one in draw._asdict().items()))
        statistics = {name: read(f"statistics.{name}", one) for name, one in told.items()}
        return ChainRecord(state, made, (draws,), (statistics,))


def _r_hat(draws: Sequence[Draw]) -> float:
    """R-hat of evenly spaced draws, few enough to be cheap; NaN in the warm-up."""
    if not draws:
        return float("nan")
    step = max(1, sum(part.f.shape[1] for part in draws) // _DRAWS_OF_R_HAT)
    parts = [(part.vector[:, ::step], few_latents(part.f[:, ::step])) for part in draws]
    vector, f = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
    return largest_r_hat(vector, f)


def _values(draws: Sequence[Draw], told: dict[str, Any]) -> dict[str, float]:
    """Reported values of a piece; R-hat, which takes time, only if wanted."""
    return {"R-hat": _r_hat(draws)} | {
        name: float(np.mean(told[name])) for name in _REPORTED if name in told
    }


def _of_pieces(
    stored: dict[str, np.ndarray], number: int, name: str, one: jax.ShapeDtypeStruct
) -> np.ndarray:
    """An array of so many pieces, or ValueError if it is not as that of one piece says."""
    chains, draws, *rest = one.shape
    shape = chains, number * draws, *rest
    if name not in stored and one.dtype == bool:  # a flag that earlier versions do not write
        return np.zeros(shape, bool)
    array = stored[name]
    if (array.shape, array.dtype) != (shape, one.dtype):
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}, not {shape} and {one.dtype}"
        )
    return array


class Transition(eqx.Module):
    """Markov transition of one chain, as `init` and `step`.

    Defaults for overriding: `within_piece`, `keys`, `draw`, `tuned`, `told`.
    """

    adapts_in_init: ClassVar[bool] = False  # the whole warm-up is made by `init`
    draws_a_piece: ClassVar[int] = 50  # of each chain in a compiled call, or what half a warm-up is
    one_by_one: ClassVar[bool] = False  # a call has one chain: of branches one is taken

    @property
    def shares_work(self) -> bool:
        """Whether chains side by side multiply one matrix, so that one call for all is best."""
        return False

    @abstractmethod
    def init(self, key: RandomKey) -> Any:
        """Initial state, over-dispersed to the target, after any adaptation by a chain alone."""

    @abstractmethod
    def step(self, state: Any, key: RandomKey) -> tuple[Any, dict[str, Array]]:
        """The next state, and statistics of the step by ArviZ's names."""

    @abstractmethod
    def record(self, state: Any, key: RandomKey, watched: Int[Array, "W"]) -> Any:
        """Record of a state within the loop, of which a draw is made."""

    @abstractmethod
    def coefficients(self, state: Any) -> Coefficients:
        """Coefficients' context for one chain."""

    def within_piece(self, states: Any, piece: int, warmup: int, sweeps: int) -> "Transition":
        """The transition in a piece, by what all chains have seen; `warmup` counts pieces."""
        return self

    def keys(self, key: RandomKey, thin: int) -> tuple[Key[Array, "T"], RandomKey]:
        """Keys of the steps between two draws, and of what is random in the draw."""
        key_steps, key_draw = jax.random.split(key)
        return jax.random.split(key_steps, thin), key_draw

    def draw(self, record: Any, watched: Int[Array, "W"]) -> Draw:
        """The draw that a record stands for, worked out for many at once after the loop."""
        return record

    def tuned(self, states: Any) -> Any:
        """States of all chains after a piece of the warm-up, by what all have seen."""
        return states

    def told(self, steps: dict[str, Shaped[Array, "T"]]) -> dict[str, Shaped[Array, ""]]:
        """Statistics of the steps between two draws: sums of counts, means of rates, the last."""
        return {name: _OVER_STEPS.get(name, _last)(values) for name, values in steps.items()}


class Sampler(Transition):
    """Transition that leaves a target invariant.

    "acceptance_rate" and "diverging" are among the statistics of a step.
    """

    target: eqx.AbstractVar[Any]  # a `Target`, the log density and the map to the rows

    @abstractmethod
    def position(self, state: Any) -> Position:
        """Position of a chain."""

    @abstractmethod
    def moved(self, state: Any, position: Position) -> Any:
        """State at another position, or under a changed target, with its adaptation kept."""

    def f_at_rows(self, state: Any, key: RandomKey) -> RowLatents:
        """A draw of f at the rows given a state."""
        return self.target.latents(self.position(state), key)

    def record(self, state: Any, key: RandomKey, watched: Int[Array, "W"]) -> Any:
        """The draw, unless overridden."""
        position = self.position(state)
        return Draw(position.vector, position.white, self.f_at_rows(state, key)[watched])

    def coefficients(self, state: Any) -> Coefficients:
        return self.target.coefficients(self.position(state))


def run_chains(
    sampler: Transition,
    method: Any,
    watched: Int[np.ndarray, "W"],
    key: RandomKey,
    control: RunControl,
) -> Chains:
    """Run chains of a sampler side by side, as many and as long as the method says.

    Steps of the warm-up are thrown away; then every `thin`-th state is kept, with the latents at
    the watched rows.
    """
    chains, draws, thin = method.chains, method.draws, method.thin
    warmup = 0 if sampler.adapts_in_init else method.warmup
    key_init, key_run = jax.random.split(key)
    keys = jax.random.split(key_init, chains)
    number = min(sampler.draws_a_piece, draws)
    number = min(number, max(1, warmup // (2 * thin))) if warmup else number
    cold, warm = -(-warmup // (number * thin)), -(-draws // number)
    together = 1 if sampler.shares_work else groups_of(chains)
    groups, calls = chains if sampler.one_by_one else together, count()

    def piece(states: Any, index: int) -> tuple[Any, Draw | None, dict[str, Any]]:
        own = sampler.within_piece(states, index, cold, number * thin)

        def run(group: tuple[Any, Key[Array, "C"]]) -> Any:
            return jax.block_until_ready(_piece(own, group[0], watched, group[1], (number, thin)))

        members = divide_chains(states, jax.random.fold_in(key_run, index), groups)
        results = list(on_all_cores(run, members, alone=int(next(calls) == 0)))
        after, kept, told = join_chains(results) if groups > 1 else results[0]
        return (sampler.tuned(after), None, told) if index < cold else (after, kept, told)

    start = partial(_start, sampler, keys)

    def drawn() -> tuple[Draw, dict[str, Any]]:
        return _piece(sampler, start(), watched, keys, (number, thin))[1:]

    loop = ChainLoop(piece, start, drawn, (cold, warm), number * thin)
    sampled, reason = run_loop(loop, control)
    kept, statistics = jax.tree.map(lambda values: values[:, :draws], sampled.joined())
    coefficients, notes = _coefficients(sampler, sampled.state), ()
    if reason is not None and sampled.pieces < cold + warm:
        made = kept.f.shape[1]
        notes = (f"The chains ended after {made:,} of {draws:,} draws because {reason}.",)
    return Chains(
        *kept,
        centres=jax.tree.map(np.asarray, coefficients.centres),
        statistics=statistics,
        jitter=float(coefficients.jitter),
        notes=notes,
    )


@partial(Program, static_argnums=(2,))
def divide_chains(states: Any, key: RandomKey, groups: int) -> list[tuple[Any, Key[Array, "C"]]]:
    """States of the chains of each group, and a key for each of them."""
    chains = len(jax.tree.leaves(states)[0])
    parts = states, jax.random.split(key, chains)
    bounds = [number * chains // groups for number in range(groups + 1)]
    return [jax.tree.map(operator.itemgetter(slice(*ends)), parts) for ends in pairwise(bounds)]


@Program
def join_chains(groups: Sequence[Any]) -> Any:
    """Results of the groups, along one axis of chains."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups)


@Program
def _start(sampler: Transition, keys: Key[Array, "C"]) -> Any:
    return jax.vmap(lambda key: sampler.init(key))(keys)


@Program
def _coefficients(sampler: Transition, states: Any) -> Coefficients:
    """The centres of all chains, and the most jitter of any."""
    centres, jitter = jax.lax.map(sampler.coefficients, states)
    return Coefficients(jax.tree.map(operator.itemgetter(0), centres), jnp.max(jitter))


@partial(Program, static_argnums=(4,))
def _piece(
    sampler: Transition,
    states: Any,
    watched: Int[Array, "W"],
    keys: Key[Array, "C"],
    counts: tuple[int, int],
) -> tuple[Any, Draw, dict[str, Shaped[Array, "C S"]]]:
    """Steps of some chains in one loop; keeps every `thin`-th state."""
    number, thin = counts

    def keep(state: Any, key: RandomKey) -> tuple[Any, Any]:
        step_keys, key_f = sampler.keys(key, thin)
        state, steps = jax.lax.scan(lambda s, k: sampler.step(s, k), state, step_keys)
        return state, (sampler.record(state, key_f, watched), sampler.told(steps))

    def chain(state: Any, key: RandomKey) -> tuple[Any, Any, Any]:
        state, (records, told) = jax.lax.scan(keep, state, jax.random.split(key, number))
        return state, records, told

    if sampler.one_by_one and len(keys) == 1:
        only = chain(*jax.tree.map(lambda leaf: leaf[0], (states, keys)))
        states, records, told = jax.tree.map(lambda leaf: leaf[None], only)
    else:
        states, records, told = jax.vmap(chain)(states, keys)
    of_chain = jax.vmap(lambda record: sampler.draw(record, watched))
    return states, jax.vmap(of_chain)(records), told
