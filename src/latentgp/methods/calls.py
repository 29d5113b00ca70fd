"""Calls that a likelihood makes outside of JAX during a fit, and what became of them."""

from __future__ import annotations

from typing import Any

from jax.errors import JaxRuntimeError

from latentgp.errors import InputError
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit


def run_with_calls_told(method: Method, problem: Problem) -> Fit:
    """Result or error of a method, with a record of the likelihood's calls outside of JAX."""
    calls: Any = problem.model.likelihood.calls
    rows = problem.rows.given  # as the user numbers them; none where they are in files
    rows = rows if problem.source is None else rows.select(slice(0))
    calls.begin()
    try:
        result = method.run(problem)
    except InputError as error:
        said = calls.told(rows.y, rows.side_information)
        raise InputError(" ".join([str(error), *said])) from error
    except JaxRuntimeError:
        if calls.interrupted:
            raise KeyboardInterrupt from None
        raise
    said = calls.told(rows.y, rows.side_information)
    return result.warned_before(said).not_converged() if said else result
