"""celerite2's C++ solver: values alone, Matérn-3/2 alone, which it approximates by `eps`."""

from time import perf_counter

import celerite2
import numpy as np

from contestant import Problem, Result, serve


def series_evidence(problem: Problem) -> Result:
    """The log evidence of a time series."""
    if problem.options["kernel"] != "matern32" or problem.options["gradient"]:
        raise NotImplementedError("values with Matérn-3/2 alone")
    t, y = np.ascontiguousarray(problem.X[:, 0]), problem.y
    started = perf_counter()
    term = celerite2.terms.Matern32Term(
        sigma=problem.variance**0.5, rho=problem.lengthscale[0], eps=0.01
    )
    process = celerite2.GaussianProcess(term)
    process.compute(t, diag=np.full(len(t), problem.noise_variance))
    value = process.log_likelihood(y)
    return {"seconds": perf_counter() - started, "log_evidence": float(value)}


if __name__ == "__main__":
    serve({"series_evidence": series_evidence}, packages=("celerite2", "numpy"))
