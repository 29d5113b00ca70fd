"""Tracing of a posterior's predictions as functions of any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export
from jax.extend.core import ClosedJaxpr

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood
from latentgp.posteriors.posterior import Posterior
from latentgp.posteriors.predictive import QUESTIONS
from latentgp.runtime.x64 import double_precision, fresh
from latentgp.surfaces.export.runtime.predictor import program_for

_PIECE = 64  # rows at a time of what cannot be traced for any number
_NUMBERS = 1 << 21  # at a time, of the largest array on the way
_NODES = 64  # of quadrature a row, about
LEVELS = 2  # quantiles that are found together
_FEW_SIDES = 3  # names of side information, of which every choice is traced


class TracedPredictions(NamedTuple):
    """Predictions of a posterior as functions of arrays."""

    # by name: "marginals" of inputs, and questions of marginals and side information
    programs: dict[str, ClosedJaxpr]
    arguments: dict[str, tuple[str, ...]]  # of each program, their names
    rows_at_once: int  # so many rows at most
    fixed: bool  # whether a program takes that number of rows and no other


@double_precision
def trace(
    posterior: Posterior, *, second_class: bool = False, quantiles: bool = True
) -> TracedPredictions:
    """Trace predictions, and the second class's probability given f if asked, or InputError."""
    problem: Exception | None = None
    for rows, most in _sizes():
        try:
            return _traced(posterior, rows, most, second_class, quantiles)
        except InputError:
            raise
        except Exception as error:  # JAX has many for a number of rows that it must know
            problem = error
    raise InputError(
        f"The predictions of this posterior by {type(posterior.components).__name__} cannot be "
        f"traced ({str(problem).splitlines()[0]}); fit with Dense() or Inducing(...)."
    )


def _sizes() -> list[tuple[Any, int | None]]:
    """Numbers of rows to try, and their bounds: any, any up to some, some."""
    (every,) = export.symbolic_shape("n")
    (few,) = export.symbolic_shape("n", constraints=[f"n <= {_PIECE}"])
    return [(every, None), (few, _PIECE), (_PIECE, _PIECE)]


def _traced(
    posterior: Posterior, rows: Any, most: int | None, second_class: bool, quantiles: bool
) -> TracedPredictions:
    components = jax.tree.map(jnp.asarray, fresh(posterior.components.prepared()))
    law = components.law
    classes = law.likelihood.targets == "class"

    def of_rows(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, *shape), jnp.float64)

    traced = jax.make_jaxpr(components.marginals, return_shape=True)
    marginals, found = traced(of_rows(components.inputs))
    programs: dict[str, ClosedJaxpr] = {"marginals": marginals}
    arguments: dict[str, tuple[str, ...]] = {"marginals": ("X",)}
    for sides in side_choices(law.likelihood):
        for name, question in QUESTIONS.items():
            fits = name == "latent" or (name == "probabilities") == classes
            if not fits or (name == "quantiles" and not quantiles):
                continue
            side = {known: of_rows() for known in sides}
            levels = [jax.ShapeDtypeStruct((LEVELS,), jnp.float64)] * (name == "quantiles")
            ask = jax.make_jaxpr(_as_function(question, law))
            try:
                programs[program_for(name, sides)] = ask(*found, side, *levels)
            except InputError:  # the likelihood has no such moments or quantiles
                continue
            order = ("mean", "spread", *sorted(sides), *(["levels"] if levels else []))
            arguments[program_for(name, sides)] = order
    if second_class:
        second = jax.vmap(lambda f: law.likelihood.class_probabilities(f[None], {})[1])
        programs["second_class"] = jax.make_jaxpr(second)(of_rows())
        arguments["second_class"] = ("f",)
    numbers = max(components.columns, _NODES * components.size)
    fitting = 1 << max(5, min(10, (_NUMBERS // numbers).bit_length() - 1))
    return TracedPredictions(programs, arguments, most or fitting, isinstance(rows, int))


def _as_function(question: Callable[..., Any], law: Any) -> Callable[..., Any]:
    return lambda mean, spread, side, levels=(): question(law, levels, mean, spread, side)


def side_choices(likelihood: Likelihood) -> list[tuple[str, ...]]:
    """The choices of side information that predictions may come with."""
    names = tuple(likelihood.side_information)
    few = len(names) <= _FEW_SIDES
    counts = range(len(names) + 1) if few else (0, len(names))
    return [choice for count in counts for choice in combinations(names, count)]
