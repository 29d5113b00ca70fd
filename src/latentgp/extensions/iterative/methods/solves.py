"""Hyper-parameters learned by stochastic gradients of the evidence, by solves alone."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.diagnostics import at_bounds
from latentgp.errors import check_choices, check_ranges
from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.extensions.iterative.gradients.settings import Solves
from latentgp.extensions.iterative.methods.sgld import site_method
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.loop import Algorithm, Steps, run_loop
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import Run, RunProgress
from latentgp.typing import Array, HyperVector, RandomKey, Scalar, Vectors

_PIECE = 10  # iterations of a compiled call
_MOVED = 0.1  # on the unconstrained scale
Optimiser = Literal["adagrad", "adam"]
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # Kingma & Ba 2015


class AscentState(NamedTuple):
    """A search."""

    vector: HyperVector  # unconstrained hyper-parameters
    mean: HyperVector  # of gradients; of Adam
    square: HyperVector  # of gradients, their sum or their mean
    solution: Vectors  # where the next solve for the targets starts
    probes: Probes  # that are held, where they are pathwise
    iteration: Int[Array, ""]  # how many were made


class AscentTold(NamedTuple):
    """Report of iterations: positions, products with the covariance, success of solves."""

    vector: Float[Array, "T H"]
    steps: Int[Array, "T"]
    solved: Bool[Array, "T"]


class Ascent(eqx.Module):
    """Steps along stochastic gradients, probes and preconditioner drawn anew at each or held.

    AdaGrad divides a gradient by the root of the sum of its squares so far (Duchi, Hazan & Singer
    2011), Adam a running mean by the root of that of the squares (Kingma & Ba 2015).
    """

    evidence: SolvedEvidence  # gives the gradients
    optimiser: Optimiser = eqx.field(static=True)  # "adagrad" or "adam"
    step_size: Scalar  # of a hyper-parameter on the unconstrained scale
    lower: HyperVector  # bounds of the search
    upper: HyperVector  # the same

    def init(self, vector: HyperVector, key: RandomKey) -> AscentState:
        """A search that starts at a vector."""
        nothing = jnp.zeros_like(vector)
        solution, probes = self.evidence.no_solution(), self.evidence.probes(key)
        return AscentState(vector, nothing, nothing, solution, probes, jnp.asarray(0))

    def step(self, state: AscentState, key: RandomKey) -> tuple[AscentState, Any]:
        """The next state, and where it is."""
        key_probes, key_solves = jax.random.split(key)
        probes, start = state.probes, state.solution
        if not self.evidence.solves.pathwise:
            probes, start = self.evidence.probes(key_probes), start.at[:, 1:].set(0.0)
        slope = self.evidence.slope(state.vector, probes, start, key_solves)
        g = jnp.where(jnp.isfinite(slope.gradient), slope.gradient, 0.0)
        made = state.iteration + 1
        if self.optimiser == "adagrad":
            mean, square = g, state.square + g**2
            move = g / (jnp.sqrt(square) + _TINY)
        else:
            mean = _FIRST * state.mean + (1 - _FIRST) * g
            square = _SECOND * state.square + (1 - _SECOND) * g**2
            size = jnp.sqrt(square / (1 - _SECOND**made)) + _TINY
            move = mean / (1 - _FIRST**made) / size
        vector = jnp.clip(state.vector + self.step_size * move, self.lower, self.upper)
        sound = jnp.all(jnp.isfinite(slope.solution)) & jnp.all(jnp.isfinite(slope.gradient))
        solution = jnp.where(sound, slope.solution, 0.0)
        after = AscentState(vector, mean, square, solution, probes, made)
        return after, AscentTold(vector, slope.steps, slope.solved & sound)


@partial(Program, static_argnums=(3,))
def ascent_piece(
    search: Ascent, state: AscentState, key: RandomKey, number: int
) -> tuple[AscentState, AscentTold]:
    """So many steps."""
    keys = jax.random.split(key, number)
    return jax.lax.scan(lambda s, k: search.step(s, k), state, keys)


class SolvesGP(Method):
    """Gaussian noise, with hyper-parameters learned by stochastic gradients of the log evidence.

    Gradients are made by solves, with a Nyström preconditioner from rows that are drawn anew at
    every iteration (Cutajar, Osborne, Cunningham & Filippone 2016, 5): no matrix of N rows is
    factorised while hyper-parameters are learned. With `Solves(pathwise=True)` probes are held and
    solves start where the ones before have ended (Lin et al. 2024). Hyper-parameters are the mean
    of the last quarter of the iterations. The posterior is that of a representation, which may
    factorise.

    Args:
        representation: of the posterior of f: `Dense()`, `Inducing(...)` or `Neighbours(...)`.
        solves: how gradients are made.
        optimiser: "adagrad", as published, or "adam".
        step_size: of the logarithm of a hyper-parameter; one as published, of "adagrad", where None
            is this or 0.1 of "adam".
        iterations: how many.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 30)
        >>> data = lgp.Data(X, np.sin(X) + 0.1 * np.cos(9 * X))
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
        >>> method = lgp.iterative.SolvesGP(iterations=60)
        >>> fit = lgp.fit(model, data, method=method, key=jax.random.key(0))
        >>> bool(1 < fit.model.kernel.lengthscale < 3)
        True
    """

    representation: Representation = Dense()
    solves: Solves = Solves()
    optimiser: Optimiser = eqx.field(static=True, default="adagrad")
    step_size: float | None = eqx.field(static=True, default=None)
    iterations: int = eqx.field(static=True, default=100)

    def __check_init__(self) -> None:
        check_choices(self, optimiser=get_args(Optimiser))
        check_ranges(self, iterations="at least 4", step_size="above 0")

    @property
    def needs(self) -> Needs:
        return Needs(gaussian_noise=True)

    def run(self, problem: Problem) -> Fit:
        """Hyper-parameters near their most probable values, and a Gaussian posterior."""
        space = problem.space
        method = site_method(self.representation)
        if not space.size:
            found = method.run(problem)
            own: Any = dataclasses.replace(found.diagnostics, method=self)
            return dataclasses.replace(found, diagnostics=own)
        told, ending = self._searched(problem, space)
        quarter = max(1, len(told.vector) // 4)
        last, before = told.vector[-quarter:], told.vector[-2 * quarter : -quarter]
        vector = last.mean(axis=0)
        moved = float(np.max(np.abs(vector - before.mean(axis=0)), initial=0.0))
        model = jax.tree.map(np.asarray, space.to_model(jnp.asarray(vector)))
        held = dataclasses.replace(problem, model=model)
        found = method.run(held.with_options(learn_hyperparameters=False))
        own, made, names = found.diagnostics, len(told.vector), problem.options.input_names
        bounds = problem.bounds(allows_little_noise=False)
        at_their_bounds = at_bounds(space, vector, bounds, names, problem.data)
        ended = made == self.iterations and moved <= _MOVED and bool(np.all(told.solved))
        diagnostics = dataclasses.replace(
            own,
            method=self,
            ending=ending,
            evaluations=made,
            converged=own.converged and ended,
            warnings=(*own.warnings, *_sentences(moved, told), *at_their_bounds),
        )
        return dataclasses.replace(found, diagnostics=diagnostics)

    def _searched(self, problem: Problem, space: Any) -> tuple[Any, str]:
        """Reports of all iterations, and the reason for their end."""
        data, algorithm = problem.data, site_method(Dense()).algorithm(problem.model)
        solves = self.solves.settled(data.size)
        evidence = SolvedEvidence(algorithm, space, data.to_device(), solves)
        size = self.step_size or (1.0 if self.optimiser == "adagrad" else 0.1)
        step, lower, upper = map(jnp.asarray, (size, *problem.bounds(allows_little_noise=False)))
        search = Ascent(evidence, self.optimiser, step, lower, upper)
        loop = _AscentLoop(search, space.to_vector(), problem.key, self.iterations)
        (_, told), reason = run_loop(loop, problem.control_with(self, self, space))
        ending = reason or f"all {self.iterations} iterations were made"
        return jax.tree.map(lambda part: part[: self.iterations], told), ending


# State of a search, and what its iterations told; None before there are any.
_Iterations = tuple[AscentState, AscentTold | None]


@dataclasses.dataclass
class _AscentLoop(Algorithm[_Iterations]):
    """Pieces of ten iterations, or of all that there are."""

    phase: ClassVar[str] = "learning"

    search: Ascent
    vector: HyperVector
    key: RandomKey
    iterations: int

    @property
    def size(self) -> int:
        return min(_PIECE, self.iterations)

    def init(self) -> _Iterations:
        return self.search.init(jnp.asarray(self.vector), self.key), None

    def steps(self, state: _Iterations, run: Run) -> Steps[_Iterations]:
        own, told = state
        begun = 0 if told is None else len(told.steps) // self.size
        for index in range(begun, -(-self.iterations // _PIECE)):
            key = jax.random.fold_in(self.key, index)
            own, new = ascent_piece(self.search, own, key, self.size)
            new = jax.tree.map(np.asarray, new)
            told = new if told is None else jax.tree.map(lambda *p: np.concatenate(p), told, new)
            made = min((index + 1) * _PIECE, self.iterations)
            details = {"iteration": made, "vector": np.asarray(own.vector)}
            step = RunProgress(self.phase, made, self.iterations, unit="iteration", details=details)
            yield (own, told), step

    def to_tensors(self, state: _Iterations) -> dict[str, np.ndarray]:
        own, told = state
        if told is None:
            return {}
        return tensors_of(own) | {f"told.{name}": part for name, part in told._asdict().items()}

    def from_tensors(self, stored: dict[str, np.ndarray]) -> _Iterations:
        told = AscentTold(*(stored[f"told.{name}"] for name in AscentTold._fields))
        made = len(told.steps)
        shapes = (made, len(self.vector)), (made,), (made,)
        if tuple(part.shape for part in told) != shapes or not made or made % self.size:
            raise ValueError("its iterations are of other shapes")
        return state_in(stored, self.init()[0]), told


def _sentences(moved: float, told: Any) -> list[str]:
    """Problems, one sentence each."""
    said = []
    if moved > _MOVED:
        said.append(
            f"Hyper-parameters still moved in the last iterations, by {moved:.2g} on the "
            "unconstrained scale; raise iterations."
        )
    short = float(np.mean(~told.solved))
    if short:
        said.append(
            f"In {short:.1%} of the iterations a solve ended short of its tolerance, so that "
            "gradients are biased; raise Solves.max_steps or Solves.rank."
        )
    return said
