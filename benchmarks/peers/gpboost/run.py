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


def categories(problem: Problem) -> Result:
    """Effects of the levels of the first columns beside coefficients of the others, or trees.

    Of trees there are as many as predict a fifth of the rows best, held out; its other settings are
    its defaults. A column of slopes has one for each level of the first.
    """
    groups, slope = problem.options["groups"], problem.options["slope"]

    def of(X: np.ndarray, known: str = "") -> dict[str, np.ndarray]:
        found = {f"group_data{known}": X[:, :groups]}
        return found | ({f"group_rand_coef_data{known}": X[:, slope]} if slope is not None else {})

    def model(X: np.ndarray) -> gpb.GPModel:
        more = {} if slope is None else {"ind_effect_group_rand_coef": [1]}
        return gpb.GPModel(**of(X), **more, likelihood="gaussian")

    started, (X, X_test, y) = perf_counter(), (problem.X, problem.X_test, problem.y)
    if not problem.options["trees"]:
        own = model(X)
        own.fit(y=y, X=np.column_stack([np.ones(len(X)), X[:, groups:]]))
        at = np.column_stack([np.ones(len(X_test)), X_test[:, groups:]])
        mean = own.predict(**of(X_test, "_pred"), X_pred=at, predict_var=False)["mu"]
    else:
        out = np.random.default_rng(0).random(len(y)) < 0.2
        settings = {"objective": "regression", "metric": "mse", "verbose": 0}
        own = model(X[~out])
        own.set_prediction_data(**of(X[out], "_pred"))
        rows = gpb.Dataset(X[~out], y[~out])
        chosen = gpb.train(
            params=settings,
            train_set=rows,
            gp_model=own,
            num_boost_round=1000,
            valid_sets=[gpb.Dataset(X[out], y[out], reference=rows)],
            early_stopping_rounds=50,
            use_gp_model_for_validation=True,
            verbose_eval=False,
        )
        whole = {"train_set": gpb.Dataset(X, y), "gp_model": model(X), "params": settings}
        booster = gpb.train(**whole, num_boost_round=max(1, chosen.best_iteration))
        found = booster.predict(
            data=X_test, **of(X_test, "_pred"), predict_var=False, pred_latent=False
        )
        mean = found["response_mean"]
    return {
        "fit_seconds": perf_counter() - started,
        "mse": float(np.mean((np.ravel(mean) - problem.y_test) ** 2)),
    }


def scores(likelihood: str, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Result:
    """Of targets or probabilities, of counts of the latents."""
    if likelihood == "bernoulli":
        return bernoulli_scores(y, mean)
    if likelihood == "poisson":
        return poisson_scores(y, mean, variance)
    return {"coverage": coverage(y, mean, variance), **gaussian_scores(y, mean, variance)}


if __name__ == "__main__":
    tasks = {"neighbours": neighbours, "places": places, "categories": categories}
    serve(tasks, packages=("gpboost", "numpy"))
