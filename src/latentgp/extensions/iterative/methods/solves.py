"""Hyper-parameters learned by stochastic gradients of the evidence, by solves alone."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.errors import check_choices, check_ranges
from latentgp.extensions.iterative.gradients.ascent import (
    Ascent,
    AscentState,
    AscentTold,
    Optimiser,
    ascent_piece,
)
from latentgp.extensions.iterative.gradients.gradient import SolvedEvidence
from latentgp.extensions.iterative.gradients.settings import Solves
from latentgp.extensions.iterative.methods.sgld import site_method
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.progress import Algorithm, Run, RunProgress, Steps, run_loop
from latentgp.typing import HyperVector, RandomKey

_PIECE = 10  # iterations of a compiled call
_MOVED = 0.1  # on the unconstrained scale


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
            held = method.run(problem)
            return dataclasses.replace(
                held, diagnostics=dataclasses.replace(held.diagnostics, method=self)
            )
        told, ending = self._searched(problem, space)
        quarter = max(1, len(told.vector) // 4)
        last, before = told.vector[-quarter:], told.vector[-2 * quarter : -quarter]
        vector = last.mean(axis=0)
        moved = float(np.max(np.abs(vector - before.mean(axis=0)), initial=0.0))
        model = jax.tree.map(np.asarray, space.to_model(jnp.asarray(vector)))
        held = dataclasses.replace(problem, model=model)
        found = method.run(held.with_options(learn_hyperparameters=False))
        own: Any = found.diagnostics
        diagnostics = dataclasses.replace(
            own,
            method=self,
            ending=ending,
            evaluations=len(told.vector),
            converged=own.converged
            and len(told.vector) == self.iterations
            and moved <= _MOVED
            and bool(np.all(told.solved)),
            warnings=(*own.warnings, *_sentences(moved, told)),
        )
        return dataclasses.replace(found, diagnostics=diagnostics)

    def _searched(self, problem: Problem, space: Any) -> tuple[Any, str]:
        """Reports of all iterations, and the reason for their end."""
        data = problem.data
        evidence = SolvedEvidence(
            site_method(Dense()).algorithm(problem.model),
            space,
            data.to_device(),
            self.solves.settled(data.size),
        )
        size = self.step_size or (1.0 if self.optimiser == "adagrad" else 0.1)
        lower, upper = problem.bounds(quiet=False)
        search = Ascent(
            evidence,
            self.optimiser,
            step_size=jnp.asarray(size),
            lower=jnp.asarray(lower),
            upper=jnp.asarray(upper),
        )
        loop = _AscentLoop(search, space.to_vector(), problem.key, self.iterations)
        (_, told), reason = run_loop(loop, problem.control_with(self, self, space))
        ending = reason or f"all {self.iterations} iterations were made"
        return jax.tree.map(lambda part: part[: self.iterations], told), ending


class _Iterations(NamedTuple):
    """State of a search, and what its iterations told; None before there are any."""

    state: AscentState
    told: AscentTold | None


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
        return _Iterations(self.search.init(jnp.asarray(self.vector), self.key), None)

    def steps(self, state: _Iterations, run: Run) -> Steps[_Iterations]:
        own, told = state
        begun = 0 if told is None else len(told.steps) // self.size
        for index in range(begun, -(-self.iterations // _PIECE)):
            key = jax.random.fold_in(self.key, index)
            own, new = ascent_piece(self.search, own, key, self.size)
            new = jax.tree.map(np.asarray, new)
            told = new if told is None else jax.tree.map(_one_after_another, told, new)
            made = min((index + 1) * _PIECE, self.iterations)
            details = {"iteration": made, "vector": np.asarray(own.vector)}
            step = RunProgress(self.phase, made, self.iterations, unit="iteration", details=details)
            yield _Iterations(own, told), step

    def to_tensors(self, state: _Iterations) -> dict[str, np.ndarray]:
        if state.told is None:
            return {}
        kept = {f"told.{name}": values for name, values in state.told._asdict().items()}
        return tensors_of(state.state) | kept

    def from_tensors(self, stored: dict[str, np.ndarray], run: Run) -> _Iterations:
        told = AscentTold(*(stored[f"told.{name}"] for name in AscentTold._fields))
        made = len(told.steps)
        shapes = (made, len(self.vector)), (made,), (made,)
        if tuple(part.shape for part in told) != shapes or not made or made % self.size:
            raise ValueError("its iterations are of other shapes")
        run.went_on_after(float(stored["seconds"][0]))
        return _Iterations(state_in(stored, self.init().state), told)


def _one_after_another(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


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
