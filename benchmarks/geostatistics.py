"""Fields beside gstat and GPBoost on simulated rows: the same model, and the numbers of each.

gstat is R's, by Debian's package r-cran-gstat, which has to be installed; GPBoost is installed when
first used. Printed as JSON: variograms and kriging with a given covariance (gstat), the greatest
likelihood with its hyper-parameters and predictions (GPBoost), and ours of each.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import HERE, environment


def drawn() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with a Gaussian target z of a covariate w, and counts n; and new places."""
    generator = np.random.default_rng(0)
    places = generator.uniform(0, 10, (200, 2))
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    scaled = np.sqrt(3) * apart / 2
    covariance = 1.5 * (1 + scaled) * np.exp(-scaled) + 1e-9 * np.eye(200)
    f = np.linalg.cholesky(covariance) @ generator.normal(size=200)
    w = generator.uniform(-1, 1, 200)
    z = 3 + 0.5 * w + f + np.sqrt(0.2) * generator.normal(size=200)
    counts = generator.poisson(np.exp(0.5 + f))
    rows = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "w": w, "z": z, "n": counts})
    new = pd.DataFrame({"x": [2.0, 5.0, 12.0], "y": [2.0, 5.0, 5.0], "w": [0.0, 0.5, -0.5]})
    return rows, new


def ours(rows: pd.DataFrame, new: pd.DataFrame) -> dict:
    """The same by latentgp."""
    import jax

    import latentgp as lgp

    X, z = rows[["x", "y"]].to_numpy(), rows["z"].to_numpy()
    settings = {"bins": 5, "cutoff": 5.0}
    found = lgp.fields.variogram(X, z, **settings)
    north = lgp.fields.variogram(X, z, directions=[90], tolerance=22.5, **settings)
    kernel = lgp.Matern12(lengthscale=2.0, variance=1.5)
    line = lgp.fields.model_variogram(kernel, [0.5, 2.0, 5.0], noise_variance=0.2)
    said = {
        "latentgp": lgp.__version__,
        "pairs": found.pairs[0].tolist(),
        "classical": found.classical[0].tolist(),
        "robust": found.robust[0].tolist(),
        "north": north.classical[0].tolist(),
        "line": line.gamma[0].tolist(),
    }
    field, flat = kernel.on(0, 1), lgp.kernels.Constant(1e7)  # a flat prior of the mean
    drift = flat + lgp.kernels.FixedEffects([1e7]).on(2)
    noise, key = lgp.Gaussian(0.2), jax.random.key(0)
    columns = ["x", "y", "w"]
    for name, model in {
        "simple": lgp.LatentGP(field, noise, lgp.ConstantMean(3.0)),
        "ordinary": lgp.LatentGP(field + flat, noise),
        "universal": lgp.LatentGP(field + drift, noise),
    }.items():
        data = lgp.Data(rows[columns].to_numpy(), z)
        fit = lgp.fit(model, data, key=key, learn_hyperparameters=False)
        law = fit.posterior.predict(new[columns].to_numpy())
        said |= {f"{name} mean": law.mean.tolist(), f"{name} variance": law.variance.tolist()}
    for name, law, target in (
        ("gaussian", lgp.Gaussian(0.1), "z"),
        ("poisson", lgp.Poisson(), "n"),
    ):
        model = lgp.LatentGP(lgp.Matern32(lengthscale=1.0), law, lgp.ConstantMean(0.0))
        method = lgp.ExactGP() if name == "gaussian" else lgp.Laplace(correct_mean=False)
        data = lgp.Data(X, rows[target].to_numpy(float))
        fit = lgp.fit(model, data, key=key, method=method, priors=None)
        mean, variance = fit.posterior.predict_f(new[["x", "y"]].to_numpy())
        own: Any = fit.model
        noise_variance = [float(own.likelihood.noise_variance)] if name == "gaussian" else []
        said[name] = {
            "covariance": [
                *noise_variance,
                float(own.kernel.variance),
                float(own.kernel.lengthscale),
            ],
            "intercept": float(own.mean.value),
            "log_likelihood": float(fit.posterior.log_evidence),
            "mean": mean.tolist(),
            "variance": variance.tolist(),
        }
    return said


def main() -> None:
    """All three on the same rows."""
    rows, new = drawn()
    print(json.dumps(ours(rows, new)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "rows.csv", Path(folder) / "new.csv"]
        for path, table in zip(paths, (rows, new), strict=True):
            table.to_csv(path, index=False)
        peers = HERE / "peers"
        for command in (
            ["Rscript", peers / "gstat" / "kriging.R"],
            [environment("gpboost"), peers / "gpboost" / "geostatistics.py"],
        ):
            done = subprocess.run([*command, *paths], capture_output=True, text=True, check=True)
            print(done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
