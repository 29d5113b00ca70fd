"""LightGBM and NGBoost, as they set themselves: moments and intervals of new rows."""

import warnings
from time import perf_counter

import lightgbm
import numpy as np
from ngboost import NGBRegressor
from sklearn.model_selection import KFold, cross_val_predict

from contestant import Problem, Result, serve

LEVEL = 0.95


def conformal(problem: Problem) -> Result:
    """LightGBM: its noise's deviation and its interval are of five-fold residuals."""
    started = perf_counter()
    model = lightgbm.LGBMRegressor(n_jobs=1, verbose=-1, random_state=0)
    folds = KFold(5, shuffle=True, random_state=0)
    residuals = problem.y - cross_val_predict(model, problem.X, problem.y, cv=folds)
    level = min(1.0, np.ceil(LEVEL * (len(problem.y) + 1)) / len(problem.y))
    half = np.quantile(abs(residuals), level)
    mean = model.fit(problem.X, problem.y).predict(problem.X_test)
    deviation = np.full(len(mean), np.sqrt(np.mean(residuals**2)))
    return kept(problem, started, mean, deviation, mean - half, mean + half)


def natural(problem: Problem) -> Result:
    """NGBoost: a normal law whose two parameters are boosted."""
    started = perf_counter()
    model = NGBRegressor(verbose=False, random_state=0).fit(problem.X, problem.y)
    law = model.pred_dist(problem.X_test)
    lower, upper = law.dist.interval(LEVEL)
    return kept(problem, started, law.loc, law.scale, lower, upper)


def kept(problem: Problem, started: float, *columns: np.ndarray) -> Result:
    """The seconds; mean, deviation and interval are in the job's folder, a column a row."""
    seconds = perf_counter() - started
    np.save(problem.folder / "predicted.npy", np.stack(columns))
    return {"seconds": seconds}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve({"LightGBM": conformal, "NGBoost": natural}, packages=("lightgbm", "ngboost"))
