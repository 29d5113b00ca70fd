"""GPBoost: Vecchia's approximation of the targets' law, in C++, with its own search."""

from time import perf_counter, process_time

import gpboost as gpb
import numpy as np

from contestant import Problem, Result, coverage, gaussian_scores, serve


def neighbours(problem: Problem) -> Result:
    """Its defaults but for kernel and neighbours: random order, its own start and stopping."""
    started, cpu = perf_counter(), process_time()
    model = gpb.GPModel(
        gp_coords=problem.X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=problem.options["neighbours"],
        likelihood="gaussian",
    )
    model.fit(y=problem.y)
    seconds, cpu = perf_counter() - started, process_time() - cpu
    started = perf_counter()
    model.set_prediction_data(num_neighbors_pred=problem.options["predicted"])
    law = model.predict(gp_coords_pred=problem.X_test, predict_var=True, predict_response=True)
    mean, variance = np.asarray(law["mu"]), np.asarray(law["var"])
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "predict_seconds": perf_counter() - started,
        "log_evidence": -float(model.get_current_neg_log_likelihood()),
        "coverage": coverage(problem.y_test, mean, variance),
        **gaussian_scores(problem.y_test, mean, variance),
    }


if __name__ == "__main__":
    serve({"neighbours": neighbours}, packages=("gpboost", "numpy"))
