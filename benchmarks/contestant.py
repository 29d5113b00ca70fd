"""What every contestant's process shares: the talk with the harness, the scores, the clock.

Runs inside each contestant's own environment: NumPy, SciPy and the standard library only.
"""

import functools
import importlib.metadata
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import OptimizeResult, minimize

Result: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)  # hashed by identity, so compiled functions can be kept by it
class Problem:
    """One job: standardised data, where the hyper-parameters start, and the task's options."""

    X: np.ndarray  # N x D
    y: np.ndarray  # N: standardised, or 0 and 1
    X_test: np.ndarray
    y_test: np.ndarray
    Z: np.ndarray | None  # M x D, the inducing points, which stay where they are
    lengthscale: np.ndarray  # D, or 1 for an isotropic kernel
    variance: float
    noise_variance: float
    options: Mapping[str, Any]


@functools.lru_cache(maxsize=1)  # repetitions of a job get the same object
def load_problem(line: str) -> Problem:
    job = json.loads(line)
    names = ("X", "y", "X_test", "y_test", "Z")
    files = {name: Path(job["folder"], f"{name}.npy") for name in names}
    arrays = {name: np.load(file) if file.exists() else None for name, file in files.items()}
    return Problem(
        **arrays,
        lengthscale=np.array(job["lengthscale"]),
        variance=job["variance"],
        noise_variance=job["noise_variance"],
        options=job["options"],
    )


def serve(tasks: Mapping[str, Callable[[Problem], Result]], packages: Sequence[str]) -> None:
    """Answer jobs, one JSON line each, from standard input until it closes.

    Replies go to the file descriptor named by the first argument, so that whatever a library
    prints cannot be taken for one.
    """
    with os.fdopen(int(sys.argv[1]), "w", buffering=1) as replies:
        versions = {package: importlib.metadata.version(package) for package in packages}
        print(json.dumps({"versions": versions}), file=replies)
        for line in sys.stdin:
            try:
                result = tasks[json.loads(line)["task"]](load_problem(line))
            except Exception as error:
                traceback.print_exc()
                result = {"failure": f"{type(error).__name__}: {error}"}
            # ru_maxrss is in KiB on Linux; it is the peak since the process started.
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps(result | {"peak_MiB": peak}, default=float), file=replies)


def gaussian_scores(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """RMSE and mean negative log predictive density (nats a row); `variance` includes noise."""
    squared_error = (y - mean) ** 2
    nlpd = 0.5 * np.mean(np.log(2 * np.pi * variance) + squared_error / variance)
    return {"rmse": float(np.sqrt(squared_error.mean())), "nlpd": float(nlpd)}


def bernoulli_scores(y: np.ndarray, probability: np.ndarray) -> Result:
    """Log loss (nats a row) and share of errors, from the probability of class 1."""
    of_truth = np.where(y == 1, probability, 1 - probability)
    log_loss = -np.mean(np.log(np.maximum(of_truth, np.finfo(float).tiny)))
    return {"log_loss": float(log_loss), "error": float(np.mean((probability > 0.5) != (y == 1)))}


def lbfgs(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray
) -> OptimizeResult:
    """SciPy's L-BFGS-B with its default tolerances, which is also what scikit-learn runs."""
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B")


class LossTrace:
    """Held-out log loss against training time; the time spent on evaluating it is not counted."""

    def __init__(self, problem: Problem, probabilities: Callable[[], np.ndarray]) -> None:
        self._y_test = problem.y_test
        self._probabilities = probabilities
        self._max_seconds = problem.options["max_seconds"]
        self._interval = problem.options["evaluate_every"]
        self._target = problem.options["target"]
        self._due = 0.0
        self._points: list[Result] = []
        self._started = perf_counter()  # moves on by every evaluation

    def tick(self) -> bool:
        """Call after each step or few: evaluates where due; False once the time is up."""
        elapsed = perf_counter() - self._started
        time_is_up = elapsed >= self._max_seconds
        if elapsed >= self._due or time_is_up:
            self.record()
            self._due = elapsed + self._interval
        return not time_is_up

    def record(self) -> None:
        """Evaluate now: what a method that stops by itself calls at its end."""
        elapsed = perf_counter() - self._started
        scores = bernoulli_scores(self._y_test, self._probabilities())
        self._points.append({"training_seconds": elapsed} | scores)
        self._started = perf_counter() - elapsed

    def result(self) -> Result:
        """`seconds` is the training time to the target log loss, None if never reached."""
        reached = [p["training_seconds"] for p in self._points if p["log_loss"] <= self._target]
        lowest = min(point["log_loss"] for point in self._points)
        return {
            "seconds": reached[0] if reached else None,
            "lowest_log_loss": lowest,
            "trace": self._points,
            **self._points[-1],
        }
