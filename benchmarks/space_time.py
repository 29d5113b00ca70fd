"""Stations over time: `SpaceTime` beside inducing points, at the hyper-parameters of the data.

A draw of a separable process (Matérn 3/2 in time, 5/2 in space) at stations and regular times, a
tenth of the rows held out at random. For each representation: the bound on the log evidence, time
of bound and gradient in the hyper-parameters once compiled, and on rows held out RMSE, NLPD and the
seconds of predictions. Printed as JSON, one line for each, each in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np

CONTESTANTS = ("SpaceTime(50)", "SpaceTime(20)", "Inducing(500)")
NOISE, REPEATS = 0.1, 5


def draw(stations: int, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, columns time, x and y, and targets."""
    import jax

    import latentgp as lgp

    generator = np.random.default_rng(0)
    places = generator.uniform(0, 3, (stations, 2))
    t = 0.1 * np.arange(times)
    with jax.enable_x64(True):
        in_space = np.asarray(lgp.Matern52(lengthscale=0.8).symmetric_gram(places))
        in_time = np.asarray(lgp.Matern32(1.5, variance=1.3).symmetric_gram(t[:, None]))
    root = np.linalg.cholesky(in_space)
    white = generator.normal(size=(times, stations))
    f = np.linalg.cholesky(in_time) @ white @ root.T
    X = np.concatenate([np.repeat(t, stations)[:, None], np.tile(places, (times, 1))], axis=1)
    return X, f.ravel() + np.sqrt(NOISE) * generator.normal(size=f.size)


def measure(contestant: str, stations: int, times: int) -> None:
    """Figures of one representation."""
    import jax

    import latentgp as lgp

    X, y = draw(stations, times)
    held = np.random.default_rng(1).uniform(size=len(y)) < 0.1
    kernel = lgp.Matern32(1.5, variance=1.3).on(0)
    kernel = kernel * lgp.Matern52(lengthscale=0.8).on(1, 2)
    model = lgp.LatentGP(kernel, lgp.Gaussian(NOISE))
    representation = eval(contestant, {"SpaceTime": lgp.SpaceTime, "Inducing": lgp.Inducing})
    key, data = jax.random.key(0), lgp.Data(X[~held], y[~held])
    method = lgp.CollapsedVI(representation)
    begun = time.perf_counter()
    fit = lgp.fit(model, data, key=key, method=method, learn_hyperparameters=False)
    fitted = time.perf_counter() - begun
    predicted = []
    for _ in range(2):
        begun = time.perf_counter()
        prediction = fit.posterior.predict(X[held])
        mean, variance = prediction.mean, prediction.variance
        predicted.append(time.perf_counter() - begun)
    error = y[held] - mean
    nlpd = 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
    with jax.enable_x64(True):
        ready = representation.initialise(data.X, None, kernel, key)
        ready = ready.for_rows(data.X, None, kernel)
        own = lgp.CollapsedVI(ready)
        bound = jax.jit(jax.value_and_grad(lambda model: lgp.log_evidence(model, data, own)))
        model = jax.tree.map(jax.numpy.asarray, model)
        seconds = []
        for _ in range(REPEATS + 1):
            begun = time.perf_counter()
            jax.block_until_ready(bound(model))
            seconds.append(time.perf_counter() - begun)
    found = {
        "representation": contestant,
        "rows": data.size,
        "bound": float(fit.posterior.log_evidence),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "nlpd": float(np.mean(nlpd)),
        "seconds_bound_and_gradient": float(np.median(seconds[1:])),
        "seconds_of_the_first": seconds[0],
        "seconds_fit": fitted,
        "seconds_predictions": predicted[1],
        "seconds_of_the_first_predictions": predicted[0],
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stations", type=int, default=50)
    parser.add_argument("--times", type=int, default=2_000)
    parser.add_argument("--only", nargs="+", default=CONTESTANTS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = arguments.stations, arguments.times
    if arguments.worker:
        measure(arguments.only[0], *size)
        return
    for contestant in arguments.only:
        command = [sys.executable, __file__, "--worker", "--only", contestant]
        command += ["--stations", str(size[0]), "--times", str(size[1])]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
