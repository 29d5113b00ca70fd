"""Fields of many places by Fourier functions: time, memory and error by rows.

A Matérn 3/2 field on the unit square, length-scale 0.1, variance one, noise variance 0.1, places
uniform: drawn by a sum over 801 x 801 frequencies. Hyper-parameters are learned from the library's
own start. Each size runs in a process of its own, whose compilation is in the time of the fit.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np

LENGTHSCALE, NOISE = 0.1, 0.1
HELD_OUT, FREQUENCIES, PERIOD = 50_000, 400, 1.5


def drawn(rows):
    """Places, the field there, and targets."""
    import jax
    import jax.numpy as jnp
    import jax_finufft

    generator = np.random.default_rng(0)
    places = generator.uniform(0, 1, (rows, 2))
    w = 2 * np.pi / PERIOD * np.arange(-FREQUENCIES, FREQUENCIES + 1)
    density = (3 + LENGTHSCALE**2 * (w[:, None] ** 2 + w**2)) ** -2.5
    white = generator.normal(size=(2, *density.shape))
    weights = np.sqrt(density / density.sum()) * (white[0] + 1j * white[1])
    with jax.enable_x64(True):
        angles = jnp.asarray((places - 0.5) * 2 * np.pi / PERIOD)
        field = jax_finufft.nufft2(jnp.asarray(weights), *angles.T, eps=1e-9, iflag=1).real
    field = np.asarray(field)
    return places, field, field + np.sqrt(NOISE) * generator.normal(size=rows)


def run(rows, results):
    """Fit and predict; figures into a queue."""
    import jax

    import latentgp as lgp

    places, field, y = drawn(rows + HELD_OUT)
    data = lgp.Data(places[:rows], y[:rows])
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian())
    begun = time.perf_counter()
    fit = lgp.fit(model, data, key=jax.random.key(0), method=lgp.fields.FourierGP())
    fitted = time.perf_counter()
    found = fit.posterior.predict_f(places[rows:])
    predicted = time.perf_counter()
    off = np.ravel(found.mean) - field[rows:]
    results.put(
        {
            "rows": rows,
            "fit_seconds": round(fitted - begun, 1),
            "predict_seconds": round(predicted - fitted, 2),
            "functions": int(fit.diagnostics.notes[0].split()[0]),
            "lengthscale": round(float(fit.model.kernel.lengthscale), 4),
            "variance": round(float(fit.model.kernel.variance), 3),
            "noise": round(float(fit.model.likelihood.noise_variance), 4),
            "rmse": round(float(np.sqrt(np.mean(off**2))), 4),
            "squared_z": round(float(np.mean(off**2 / np.ravel(found.variance))), 2),
            "converged": bool(fit.diagnostics.converged),
            "GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1),
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--json", type=Path, help="file to which figures are added, a line a size")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for rows in arguments.rows:
        results = context.Queue()
        process = context.Process(target=run, args=(rows, results))
        process.start()
        figures = results.get()
        process.join()
        print(figures, flush=True)
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
