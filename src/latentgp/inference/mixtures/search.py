"""The search for hyper-parameters with the mixture at its best, without noise."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.inference.mixtures.bound import MixtureBound
from latentgp.inference.mixtures.family import GaussianMixture
from latentgp.inference.mixtures.natural import profiled
from latentgp.runtime.progress import INTERRUPTED, Run, RunControl
from latentgp.typing import Array

_MOST_STEPS, _MOST_ALONE = 200, 1000  # of an ascent at some hyper-parameters, at the only ones


class MixtureProgress(NamedTuple):
    """Progress, passed to the callback after an evaluation or some steps.

    Attributes:
        made: evaluations of the best bound over mixtures, or steps along estimated slopes.
        bound: the last one, in nats; of a batch its estimate.
        seconds: since the start of the fit.
    """

    made: int
    bound: float
    seconds: float


class Looked(NamedTuple):
    """What the history keeps of an evaluation."""

    bound: float
    value: float
    seconds: float
    restart: int


@dataclasses.dataclass
class Found:
    """The end of a search, or where it is.

    Attributes:
        vector: hyper-parameters, shape (P,).
        mixture: the mixture there.
        records: of all evaluations.
        steps: of the mixture, in all.
        passed_over: those that changed nothing.
        failed: values of log p that were not finite.
        rise: nats gained by the last step, relative to the bound.
        reason: why it ended; empty while it goes on.
        converged: whether by itself.
    """

    vector: Float[np.ndarray, "P"]
    mixture: GaussianMixture
    records: list[Looked] = dataclasses.field(default_factory=list)
    steps: int = 0
    passed_over: int = 0
    failed: int = 0
    rise: float = 0.0
    reason: str = ""
    converged: bool = False


class _Ended(Exception):
    pass


def search_profiled(
    bound: MixtureBound,
    found: Found,
    limits: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
    *,
    tolerance: float,
    at_most: int,
    control: RunControl,
    key: Key[Array, ""],
) -> None:
    """L-BFGS-B in the hyper-parameters, the bound at its best over mixtures everywhere.

    Args:
        bound: the bound; expectations have no noise.
        found: where it starts, and what is brought up to date.
        limits: of the vector.
        tolerance: nats below which an iteration ends the search.
        at_most: evaluations.
        control: limits and callback.
        key: random key.
    """
    from scipy.optimize import minimize  # takes long to import

    run, unit, best = Run(control), 0.0, -np.inf
    reached, ended = -np.inf, True

    def evaluate(vector: Float[np.ndarray, "P"]) -> tuple[float, Float[np.ndarray, "P"]]:
        nonlocal best, ended
        most, share = (_MOST_STEPS, 1e-3) if vector.size else (_MOST_ALONE, 0.1)
        steps, enough = jnp.asarray(most), jnp.asarray(share * tolerance)
        at = profiled(bound, jnp.asarray(vector), found.mixture, enough, steps, key)
        value, gradient = float(at.value), np.asarray(at.gradient)
        found.steps += int(at.climb.steps)
        found.failed += int(at.climb.at.terms.failed)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return best - 1e3 * (1 + abs(best)) if np.isfinite(best) else -1e300, 0 * gradient
        bound_there = float(at.climb.at.terms.bound)
        if value > best:
            best, found.vector = value, np.array(vector)
            ended = int(at.climb.steps) < most or float(at.climb.rise) <= tolerance
            found.mixture = at.climb.at.mixture
            found.rise = float(at.climb.rise) / max(abs(bound_there), 1.0)
        found.records.append(Looked(bound_there, value, run.seconds, 0))
        progress = MixtureProgress(len(found.records), bound_there, run.seconds)
        run.show(
            f"learning: evaluation {progress.made} of at most {at_most}, bound "
            f"{bound_there:,.2f} nats, {run.seconds:.0f} s"
        )
        reason = run.ending(progress, lambda: None)
        if reason is not None:
            found.reason = reason
            raise _Ended
        if len(found.records) >= at_most:
            found.reason = f"max_evaluations={at_most} were made"
            raise _Ended
        return value, gradient

    def objective(vector: Float[np.ndarray, "P"]) -> tuple[float, Float[np.ndarray, "P"]]:
        nonlocal unit
        value, gradient = evaluate(vector)
        unit = unit or max(float(np.linalg.norm(gradient)), 1e-12)
        return -value / unit, -gradient / unit

    def stand_still(intermediate_result: Any) -> None:
        nonlocal reached
        value = -unit * float(intermediate_result.fun)
        rise, reached = value - reached, value
        if rise <= tolerance:
            raise StopIteration

    found.converged, found.reason = False, ""
    try:
        if not found.vector.size:
            evaluate(found.vector)
            found.converged = bool(np.isfinite(best)) and ended
            found.reason = "hyper-parameters were not learned"
            if not ended:
                found.reason = f"the mixture still rose after {_MOST_ALONE} steps"
            return
        minimize(
            objective,
            np.clip(found.vector, *limits),
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack(limits, axis=1),
            callback=stand_still,
            options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 100_000, "maxfun": 100_000},
        )
        found.converged = np.isfinite(best)
        found.reason = f"an iteration gained less than {tolerance:.1e} nats"
    except _Ended:
        pass
    except KeyboardInterrupt:
        found.reason = INTERRUPTED
    finally:
        run.close()
