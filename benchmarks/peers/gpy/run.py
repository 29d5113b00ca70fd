"""GPy's Laplace approximation and expectation propagation for binary classes, probit link."""

import contextlib
from time import perf_counter
from typing import Any

import GPy
import numpy as np
from GPy.inference.latent_function_inference import EP, Laplace

from contestant import EvidenceTrace, Problem, Result, TimeIsUp, kept, serve

ROUNDS = 10  # of alternation


class TracedLaplace(Laplace):
    """Notes the evidence of every evaluation."""

    def __init__(self, trace: EvidenceTrace) -> None:
        super().__init__()
        self._trace = trace

    def inference(self, *arguments: Any, **named: Any) -> tuple:
        result = super().inference(*arguments, **named)
        self._trace.note(float(result[1]))
        return result


class TracedEP(EP):
    """The same, but where sites are those of other hyper-parameters: that is no evidence."""

    def __init__(self, trace: EvidenceTrace, **settings: Any) -> None:
        super().__init__(**settings)
        self._trace = trace

    def inference(self, *arguments: Any, **named: Any) -> tuple:
        own_sites = self.ep_mode == "nested" or self._ep_approximation is None
        result = super().inference(*arguments, **named)
        if own_sites:
            self._trace.note(float(result[1]))
        return result


def binary_model(problem: Problem, method: Laplace | EP) -> GPy.core.GP:
    """Its making evaluates evidence and gradient at the start."""
    np.random.seed(0)  # noqa: NPY002 - GPy draws the order in which sites are visited from it
    lengthscale, n_inputs = problem.lengthscale, problem.X.shape[1]
    kernel = GPy.kern.RBF(n_inputs, problem.variance, lengthscale, ARD=len(lengthscale) > 1)
    likelihood = GPy.likelihoods.Bernoulli(gp_link=GPy.likelihoods.link_functions.Probit())
    return GPy.core.GP(problem.X, problem.y[:, None], kernel, likelihood, inference_method=method)


def binary_evidence(problem: Problem) -> Result:
    """One value and gradient, at the start, with sites from nothing."""
    ep = EP(**problem.options.get("settings", {}))
    started = perf_counter()
    model = binary_model(problem, Laplace() if problem.options["method"] == "Laplace" else ep)
    seconds = perf_counter() - started
    parameters = model.kern.lengthscale, model.kern.variance
    return {
        "seconds": seconds,
        "log_evidence": float(model.log_likelihood()),
        "gradient": np.concatenate([p.gradient * p.values for p in parameters]).tolist(),
        "mean_of_f": kept(problem, model.posterior.mean[:, 0]),
    }


def binary_fit(problem: Problem) -> Result:
    """L-BFGS; with sites held in it ("alternated", the default of EP) by rounds of it."""
    trace = EvidenceTrace(problem)
    if problem.options["method"] == "Laplace":
        method, rounds = TracedLaplace(trace), 1
    else:
        method = TracedEP(trace, **problem.options.get("settings", {}))
        rounds = 1 if method.ep_mode == "nested" else ROUNDS
    with contextlib.suppress(TimeIsUp):
        model = binary_model(problem, method)
        for _ in range(rounds):
            model.optimize("lbfgsb")
    return trace.result()


if __name__ == "__main__":
    serve(
        {"binary_evidence": binary_evidence, "binary_fit": binary_fit},
        packages=("GPy", "paramz", "numpy", "scipy"),
    )
