"""GPBoost: Vecchia's approximation, in C++, with its own search.

Of the targets' law with Gaussian noise, of the latents' with Laplace's approximation otherwise.
"""

from time import perf_counter, process_time

import gpboost as gpb
import numpy as np

from contestant import (
    Problem,
    Result,
    bernoulli_scores,
    coverage,
    gaussian_scores,
    poisson_scores,
    serve,
)


def neighbours(problem: Problem) -> Result:
    """Its defaults but for kernel and neighbours: random order, its own start and stopping."""
    likelihood = problem.options.get("likelihood", "gaussian")
    constant = np.ones((len(problem.y), 1)) if likelihood == "poisson" else None
    constant_new = np.ones((len(problem.y_test), 1)) if likelihood == "poisson" else None
    started, cpu = perf_counter(), process_time()
    model = gpb.GPModel(
        gp_coords=problem.X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=problem.options["neighbours"],
        likelihood="bernoulli_logit" if likelihood == "bernoulli" else likelihood,
    )
    model.fit(y=problem.y, X=constant)
    seconds, cpu = perf_counter() - started, process_time() - cpu
    started = perf_counter()
    model.set_prediction_data(num_neighbors_pred=problem.options["predicted"])
    law = model.predict(
        gp_coords_pred=problem.X_test,
        X_pred=constant_new,
        predict_var=True,
        predict_response=likelihood != "poisson",
    )
    mean, variance = np.asarray(law["mu"]), np.asarray(law["var"])
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "predict_seconds": perf_counter() - started,
        "log_evidence": -float(model.get_current_neg_log_likelihood()),
        **scores(likelihood, problem.y_test, mean, variance),
    }


def places(problem: Problem) -> Result:
    """A Matérn field of places, and of times before them where there are any, with fixed effects.

    The last columns of X are the covariates. Mean and deviation of new targets go to the folder.
    """
    number = problem.X.shape[1] - problem.options["covariates"]

    def effects(X: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(X)), X[:, number:]])

    started = perf_counter()
    model = gpb.GPModel(
        gp_coords=np.ascontiguousarray(problem.X[:, :number]),
        cov_function="matern_space_time" if problem.options["time"] else "matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=problem.options["neighbours"],
        likelihood="gaussian",
    )
    model.fit(y=problem.y, X=effects(problem.X))
    fitted = perf_counter()
    law = model.predict(
        gp_coords_pred=np.ascontiguousarray(problem.X_test[:, :number]),
        X_pred=effects(problem.X_test),
        predict_var=True,
    )
    done = perf_counter()
    moments = np.stack([np.ravel(law["mu"]), np.sqrt(np.ravel(law["var"]))])
    np.save(problem.folder / "predicted.npy", moments)
    found = [model.get_cov_pars(format_pandas=False), model.get_coef(format_pandas=False)]
    model_of = "; ".join(" ".join(f"{v:.4g}" for v in np.ravel(part)) for part in found)
    return {"fit_seconds": fitted - started, "predict_seconds": done - fitted, "model": model_of}


def effects(problem: Problem) -> Result:
    """Effects of levels, beside coefficients or beside trees.

    The first columns of X tell levels apart, and `slope` is one that effects of the first of them
    have a slope in. Trees split `columns`, by default settings.
    """
    groups, slope = problem.options["groups"], problem.options["slope"]
    split, X, y = problem.options["columns"], problem.X, np.ascontiguousarray(problem.y)

    def levels(X: np.ndarray, suffix: str = "") -> dict[str, np.ndarray]:
        found = {f"group_data{suffix}": np.ascontiguousarray(X[:, :groups])}
        if slope is not None:
            found[f"group_rand_coef_data{suffix}"] = np.ascontiguousarray(X[:, [slope]])
        return found

    def model_of(X: np.ndarray) -> gpb.GPModel:
        first = {} if slope is None else {"ind_effect_group_rand_coef": [1]}
        return gpb.GPModel(**levels(X), **first, likelihood="gaussian")

    started = perf_counter()
    if split is None:
        lines = np.ptp(X, axis=0) > 0
        lines[:groups] = False
        centre, scale = X[:, lines].mean(axis=0), X[:, lines].std(axis=0)

        def fixed(X: np.ndarray) -> np.ndarray:
            return np.column_stack([np.ones(len(X)), (X[:, lines] - centre) / scale])

        model, trees = model_of(X), 0
        model.fit(y=y, X=fixed(X))
        predicted = model.predict(X_pred=fixed(problem.X_test), **levels(problem.X_test, "_pred"))
        mean = np.asarray(predicted["mu"])
    else:
        model, trees = model_of(X), 100  # as many as it makes unless told otherwise
        table = gpb.Dataset(X[:, split], y)
        booster = gpb.train({"verbose": 0}, table, num_boost_round=trees, gp_model=model)
        at = problem.X_test
        mean = booster.predict(at[:, split], pred_latent=False, **levels(at, "_pred"))
        mean = np.asarray(mean["response_mean"])
    return {
        "seconds": perf_counter() - started,
        "mse": float(np.mean((problem.y_test - mean) ** 2)),
        "trees": trees,
    }


def scores(likelihood: str, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """Of targets or probabilities, of counts of the latents."""
    if likelihood == "bernoulli":
        return bernoulli_scores(y, mean)
    if likelihood == "poisson":
        return poisson_scores(y, mean, variance)
    return {"coverage": coverage(y, mean, variance), **gaussian_scores(y, mean, variance)}


if __name__ == "__main__":
    serve(
        {"neighbours": neighbours, "places": places, "effects": effects},
        packages=("gpboost", "numpy"),
    )
