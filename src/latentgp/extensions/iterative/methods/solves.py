"""Hyper-parameters learned by stochastic gradients of the evidence, by solves alone."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, check_choices
from latentgp.extensions.iterative.gradients.ascent import (
    Ascent,
    AscentState,
    AscentTold,
    Optimiser,
    ascent_piece,
)
from latentgp.extensions.iterative.gradients.gradient import SolvedEvidence
from latentgp.extensions.iterative.gradients.settings import Solves
from latentgp.extensions.iterative.methods.sgld import check_noise, site_method
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.representations import Dense, Representation
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.progress import Run, Step
from latentgp.setup.priors import search_bounds

_PIECE = 10  # iterations of a compiled call
_MOVED = 0.1  # on the unconstrained scale


class AscentProgress(NamedTuple):
    """Progress of a search along stochastic gradients, passed to the callback.

    Attributes:
        iteration: how many were made.
        total: that will be made.
        vector: unconstrained hyper-parameters, shape (P,).
        seconds: since the start of the fit.
    """

    iteration: int
    total: int
    vector: Float[np.ndarray, "P"]
    seconds: float


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
        >>> fit = lgp.fit(model, data, method=lgp.SolvesGP(iterations=60), key=jax.random.key(0))
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
        if self.iterations < 4 or (self.step_size is not None and self.step_size <= 0):
            raise InputError(
                "SolvesGP needs at least four iterations and a positive step_size, got "
                f"{self.iterations} and {self.step_size}."
            )

    def run(self, problem: Problem) -> Fit:
        """Hyper-parameters near their most probable values, and a Gaussian posterior."""
        check_noise(self, problem.model)
        space = problem.space(problem.scales(problem.data))
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
        found = method.run(
            dataclasses.replace(
                problem, model=model, learn_hyperparameters=False, control=problem.control
            )
        )
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
        lower, upper = search_bounds(space, problem.scales(data), quiet=False)
        search = Ascent(
            evidence,
            self.optimiser,
            step_size=jnp.asarray(size),
            lower=jnp.asarray(lower),
            upper=jnp.asarray(upper),
        )
        run, size = Run(problem.control_with(self, self, space)), min(_PIECE, self.iterations)
        first = search.init(jnp.asarray(space.to_vector()), problem.key)
        state, told = _recalled(run, first, size)
        ending = f"all {self.iterations} iterations were made"

        def save() -> None:
            if run.control.checkpoint.path is not None and told is not None:
                kept = {f"told.{name}": values for name, values in told._asdict().items()}
                seconds = np.array([run.seconds])
                run.control.checkpoint.write({**tensors_of(state), **kept, "seconds": seconds})

        try:
            begun = 0 if told is None else len(told.steps) // size
            for index in range(begun, -(-self.iterations // _PIECE)):
                key = jax.random.fold_in(problem.key, index)
                state, new = ascent_piece(search, state, key, size)
                new = jax.tree.map(np.asarray, new)
                told = new if told is None else jax.tree.map(_one_after_another, told, new)
                made = min((index + 1) * _PIECE, self.iterations)
                vector = np.asarray(state.vector)
                progress = AscentProgress(made, self.iterations, vector, run.seconds)
                step = Step("learning", "iteration", made, self.iterations)
                reason = run.made(step, progress, save)
                if reason is not None:
                    ending = reason
                    break
        finally:
            run.close()
            save()
        return jax.tree.map(lambda part: part[: self.iterations], told), ending


def _one_after_another(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


def _recalled(run: Run, first: AscentState, size: int) -> tuple[AscentState, AscentTold | None]:
    """State and what was told by then, of the checkpoint; those of the start without one."""

    def understand(stored: dict[str, np.ndarray]) -> tuple[AscentState, AscentTold, float]:
        told = AscentTold(*(stored[f"told.{name}"] for name in AscentTold._fields))
        made, parameters = len(told.steps), len(first.vector)
        shapes = (made, parameters), (made,), (made,)
        if tuple(part.shape for part in told) != shapes or not made or made % size:
            raise ValueError("its iterations are of other shapes")
        return state_in(stored, first), told, float(stored["seconds"][0])

    found = run.control.checkpoint.read(understand)
    if found is None:
        return first, None
    run.went_on_after(found[2])
    return found[:2]


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
