"""What every contestant's process shares: the talk with the harness, the scores, the clock.

Runs inside each contestant's own environment: NumPy, SciPy and the standard library only.
"""

import functools
import importlib.metadata
import json
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.special import gammaln, logsumexp, ndtr

Result: TypeAlias = dict[str, Any]
CALIBRATION_BINS = 15
_SPACING = 0.1  # between evaluations of the scores, of the time so far


@dataclass(frozen=True, eq=False)  # hashed by identity, so compiled functions can be kept by it
class Problem:
    """One job: standardised data, where the hyper-parameters start, and the task's options."""

    folder: Path  # of this job, for arrays that are too large for a reply
    X: np.ndarray  # N x D
    y: np.ndarray  # N: standardised, or the number of the class
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
        folder=Path(job["folder"]),
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
                reason = " ".join(str(error).split())[:100]
                result = {"failure": f"{type(error).__name__}: {reason}"}
            # ru_maxrss is in KiB on Linux; it is the peak since the process started.
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps(result | {"peak_MiB": peak}, default=float), file=replies)


def gaussian_scores(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """RMSE and mean negative log predictive density (nats a row); `variance` includes noise."""
    squared_error = (y - mean) ** 2
    nlpd = 0.5 * np.mean(np.log(2 * np.pi * variance) + squared_error / variance)
    return {"rmse": float(np.sqrt(squared_error.mean())), "nlpd": float(nlpd)}


def mixture_scores(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """RMSE and NLPD of equal mixtures: S x N moments, of which `variance` includes noise."""
    terms = -0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)
    nlpd = np.log(len(mean)) - np.mean(logsumexp(terms, axis=0))
    return {"rmse": float(np.sqrt(np.mean((y - mean.mean(axis=0)) ** 2))), "nlpd": float(nlpd)}


def coverage(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Share of targets inside their central 95 % intervals; `variance` includes noise."""
    return float(np.mean((y - mean) ** 2 <= 1.959964**2 * variance))


def student_scores(
    y: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    scale: float,
    degrees_of_freedom: float,
) -> Result:
    """RMSE and NLPD under Student's noise, from the mean and variance of f."""
    nu = degrees_of_freedom
    constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)

    def log_density(f: np.ndarray) -> np.ndarray:
        squared = ((y[:, None] - f) / scale) ** 2
        return constant - np.log(scale) - 0.5 * (nu + 1) * np.log1p(squared / nu)

    nlpd = _nlpd(log_density, mean, variance)
    return {"rmse": float(np.sqrt(np.mean((y - mean) ** 2))), "nlpd": nlpd}


def poisson_scores(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """NLPD of counts with rate exp(f), from the mean and variance of f."""

    def log_density(f: np.ndarray) -> np.ndarray:
        return y[:, None] * f - np.exp(f) - gammaln(y + 1)[:, None]

    return {"nlpd": _nlpd(log_density, mean, variance)}


def _nlpd(
    log_density: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, variance: np.ndarray
) -> float:
    """Nats a row; the density is averaged over f by the trapezoidal rule."""
    grid = np.linspace(-8, 8, 201)
    weights = -0.5 * grid**2
    f = mean[:, None] + np.sqrt(variance)[:, None] * grid
    return float(-np.mean(logsumexp(log_density(f) + weights - logsumexp(weights), axis=1)))


def probit_scores(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """`class_scores` under the probit link, from the mean and variance of f."""
    return bernoulli_scores(y, ndtr(mean / np.sqrt(1 + variance)))


SCORES_OF_F = {"probit": probit_scores, "poisson": poisson_scores}


def minus_bound(problem: Problem, mean: np.ndarray, variance: np.ndarray, kl: float) -> Result:
    """Minus the evidence lower bound of a Gaussian, by quadrature, given f at the rows."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    y, f = problem.y[:, None], mean[:, None] + np.sqrt(variance)[:, None] * nodes
    if problem.options["likelihood"] == "poisson":
        log_density = y * f - np.exp(f) - gammaln(y + 1)
    else:
        log_density = -np.logaddexp(0, -(2 * y - 1) * f)
    expected = float(np.sum(log_density @ weights) / weights.sum())
    return {"minus_bound": kl - expected}


def minus_white_bound(
    problem: Problem, lower: np.ndarray, mean: np.ndarray, root: np.ndarray
) -> Result:
    """The same of white coefficients N(mean, root root'), f = lower v at the rows."""
    half, (sign, logs) = lower @ root, np.linalg.slogdet(root @ root.T)
    kl = 0.5 * (np.sum(root**2) + mean @ mean - len(mean) - sign * logs)
    return minus_bound(problem, lower @ mean, np.sum(half**2, axis=1), float(kl))


def bernoulli_scores(y: np.ndarray, probability: np.ndarray) -> Result:
    """`class_scores`, from the probability of class 1."""
    return class_scores(y, np.stack([1 - probability, probability], axis=1))


def class_scores(y: np.ndarray, probabilities: np.ndarray) -> Result:
    """Log loss (nats a row), share of errors and calibration error, from N x K probabilities.

    The last is the mean gap between confidence and accuracy over bins of confidence (Guo et al.
    2017, equation 3).
    """
    of_truth = probabilities[np.arange(len(y)), y.astype(int)]
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bins = np.clip(np.ceil(confidence * CALIBRATION_BINS).astype(int), 1, CALIBRATION_BINS)
    gaps = np.bincount(bins, weights=confidence - right)
    return {
        "log_loss": float(-np.mean(np.log(np.maximum(of_truth, np.finfo(float).tiny)))),
        "error": float(1 - right.mean()),
        "calibration_error": float(np.abs(gaps).sum() / len(y)),
    }


def lbfgs(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray
) -> OptimizeResult:
    """SciPy's L-BFGS-B with its default tolerances, which is also what scikit-learn runs."""
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B")


def kept(problem: Problem, array: np.ndarray) -> str:
    """Leave an array that is too large for a reply where the harness finds it."""
    with tempfile.NamedTemporaryFile(dir=problem.folder, suffix=".npy", delete=False) as file:
        np.save(file, array)
    return file.name


class ScoreTrace:
    """Held-out scores against training time; the time spent on evaluating them is not counted."""

    def __init__(self, problem: Problem, scores: Callable[[], Result]) -> None:
        self._scores = scores
        self._max_seconds = problem.options["max_seconds"]
        self._interval = problem.options["evaluate_every"]
        self._due = 0.0
        self._points: list[Result] = []
        self._ticks = 0
        self._started = perf_counter()  # moves on by every evaluation
        self._cpu_started = process_time()  # likewise

    def tick(self) -> bool:
        """Call before each step or few: evaluates where due; False once the time is up."""
        self._ticks += 1
        elapsed = perf_counter() - self._started
        time_is_up = elapsed >= self._max_seconds
        if elapsed >= self._due or time_is_up:
            self.record()
            self._due = elapsed + min(self._interval, _SPACING * elapsed)
        return not time_is_up

    def record(self) -> None:
        """Evaluate now: what a method that stops by itself calls at its end."""
        elapsed, cpu = perf_counter() - self._started, process_time() - self._cpu_started
        seconds = {"training_seconds": elapsed, "training_cpu_seconds": cpu}
        self._points.append(seconds | self._scores())
        self._started, self._cpu_started = perf_counter() - elapsed, process_time() - cpu

    def result(self, steps_a_tick: int | None = None) -> Result:
        """The last scores, and all of them: when a target was reached, the harness looks up.

        And the time of a step, where it is said how many there were between two ticks.
        """
        last = self._points[-1]
        result = {"trace": self._points, **last}
        if steps_a_tick is not None:
            steps = max(1, self._ticks - 1) * steps_a_tick
            result["step_ms"] = 1000 * last["training_seconds"] / steps
        return result


class TimeIsUp(Exception):
    """Raised inside a fit that has had its `max_seconds`."""


class EvidenceTrace:
    """Log evidences, or bounds, against the time of a fit; it starts when this is made."""

    def __init__(self, problem: Problem) -> None:
        self._max_seconds = problem.options["max_seconds"]
        self._points: list[Result] = []
        self._started = perf_counter()

    def note(self, log_evidence: float) -> None:
        """Call at each evaluation."""
        elapsed = perf_counter() - self._started
        self._points.append({"training_seconds": elapsed, "minus_log_evidence": -log_evidence})
        if elapsed >= self._max_seconds:
            raise TimeIsUp

    def result(self) -> Result:
        """All of them, and the best: when a target was reached, the harness looks up."""
        return {
            "trace": self._points,
            "training_seconds": self._points[-1]["training_seconds"],
            "evaluations": len(self._points),
            "log_evidence": -min(point["minus_log_evidence"] for point in self._points),
        }
