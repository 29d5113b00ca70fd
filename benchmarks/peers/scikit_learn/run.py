"""scikit-learn's exact Gaussian processes, with its own default optimiser (L-BFGS-B)."""

import contextlib
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from contestant import (
    EvidenceTrace,
    Problem,
    Result,
    TimeIsUp,
    bernoulli_scores,
    class_scores,
    gaussian_scores,
    kept,
    serve,
)

WIDE = (1e-6, 1e6)  # bounds that no optimum here touches except by switching an input off


class CountedOptimiser:
    """What scikit-learn runs for `optimizer="fmin_l_bfgs_b"`, counting the evaluations."""

    evaluations = 0

    def __init__(self, trace: EvidenceTrace | None = None) -> None:
        self._trace = trace

    def __call__(
        self, objective: Callable, start: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, float]:
        def traced(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = objective(theta)
            if self._trace:
                self._trace.note(-value)
            return value, gradient

        solution = minimize(traced, start, jac=True, method="L-BFGS-B", bounds=bounds)
        self.evaluations = solution.nfev
        return solution.x, solution.fun


def latent_kernel(problem: Problem) -> Kernel:
    return ConstantKernel(problem.variance, WIDE) * RBF(problem.lengthscale, WIDE)


def exact_regression(problem: Problem) -> Result:
    kernel = latent_kernel(problem) + WhiteKernel(problem.noise_variance, WIDE)
    optimiser = CountedOptimiser()
    started = perf_counter()
    model = GaussianProcessRegressor(kernel, optimizer=optimiser).fit(problem.X, problem.y)
    fitted = perf_counter()
    mean, deviation = model.predict(problem.X_test, return_std=True)  # the noise is in the kernel
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": optimiser.evaluations,
        "log_evidence": model.log_marginal_likelihood_value_,
        **gaussian_scores(problem.y_test, mean, deviation**2),
    }


def binary_classification(problem: Problem) -> Result:
    """Laplace's approximation, logit link."""
    optimiser = CountedOptimiser()
    started = perf_counter()
    model = GaussianProcessClassifier(latent_kernel(problem), optimizer=optimiser)
    model.fit(problem.X, problem.y)
    fitted = perf_counter()
    probability = model.predict_proba(problem.X_test)[:, 1]
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": optimiser.evaluations,
        "log_evidence": model.log_marginal_likelihood_value_,
        **bernoulli_scores(problem.y_test, probability),
    }


def classifier(problem: Problem) -> Result:
    """A support vector machine with Platt scaling; tuned by cross-validation if asked for."""
    model = make_pipeline(StandardScaler(), SVC(probability=True, random_state=0))
    if problem.options["tuned"]:
        gammas = [share / problem.X.shape[1] for share in (0.1, 0.3, 1, 3)]
        grid = {"svc__C": [1, 10, 100, 1000], "svc__gamma": gammas}
        model = GridSearchCV(model, grid, cv=3)
    started, worked = perf_counter(), process_time()
    model.fit(problem.X, problem.y)
    return {
        "seconds": perf_counter() - started,
        "cpu_seconds": process_time() - worked,
        **class_scores(problem.y_test, model.predict_proba(problem.X_test)),
    }


def binary_evidence(problem: Problem) -> Result:
    """Laplace's evidence and gradient at the start, Newton's method from zero."""
    model = GaussianProcessClassifier(latent_kernel(problem), optimizer=None)
    model.fit(problem.X, problem.y)
    laplace = model.base_estimator_
    theta = model.kernel_.theta
    started = perf_counter()
    value, gradient = laplace.log_marginal_likelihood(theta, True, clone_kernel=False)
    return {
        "seconds": perf_counter() - started,
        "log_evidence": value,
        "gradient": np.roll(gradient, -1).tolist(),  # the variance is its first
        "mean_of_f": kept(problem, laplace.f_cached),
    }


def binary_fit(problem: Problem) -> Result:
    """Newton's method starts at zero each time, as by default.

    With `warm_start` it takes a mode of other hyper-parameters for one of these, whose density
    falls in the first step, and the fit ends tens of nats too low.
    """
    trace = EvidenceTrace(problem)
    optimiser = CountedOptimiser(trace)
    model = GaussianProcessClassifier(latent_kernel(problem), optimizer=optimiser)
    with contextlib.suppress(TimeIsUp):
        model.fit(problem.X, problem.y)
    return trace.result()


if __name__ == "__main__":
    serve(
        {
            "exact_regression": exact_regression,
            "binary_classification": binary_classification,
            "binary_evidence": binary_evidence,
            "classifier": classifier,
            "binary_fit": binary_fit,
        },
        packages=("scikit-learn", "numpy", "scipy"),
    )
