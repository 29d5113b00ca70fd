"""Start-up, first models beside scikit-learn's, kept programs, memory at a million rows.

Each is measured in a fresh process, those of a few seconds in several, of which the median and the
range are printed. The data are synthetic and made here. Programs are kept in a
folder of their own: of two processes that do the same, the second takes them from there.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import datetime

import numpy as np

IMPORT = """
import time; started = time.perf_counter()
import {modules}
print(time.perf_counter() - started)
"""
BUILT_ON = "jax, equinox, numpyro.distributions, scipy.optimize, scipy.stats"
FIRST_MODEL = """
import time; started = time.perf_counter()
import numpy as np
import latentgp as lgp
if {folder!r}:
    lgp.keep_programs({folder!r})
generator = np.random.default_rng(0)
X = generator.normal(size=(500, 5))
f = np.sin(2 * X[:, 0]) + X[:, 1]
if {classify}:
    lgp.GPClassifier(random_state=0).fit(X, f > 0).predict_proba(X)
else:
    lgp.GPRegressor(random_state=0).fit(X, f + 0.1 * generator.normal(size=500)).predict(X)
print(time.perf_counter() - started)
"""
OF_SCIKIT_LEARN = """
import time; started = time.perf_counter()
import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
generator = np.random.default_rng(0)
X = generator.normal(size=(500, 5))
f = np.sin(2 * X[:, 0]) + X[:, 1]
kernel = ConstantKernel() * RBF(np.ones(5))
if {classify}:
    GaussianProcessClassifier(kernel).fit(X, f > 0).predict_proba(X)
else:
    y = f + 0.1 * generator.normal(size=500)
    GaussianProcessRegressor(kernel + WhiteKernel()).fit(X, y).predict(X)
print(time.perf_counter() - started)
"""
BATCHES = """
import time; started = time.perf_counter()
import jax
import numpy as np
import latentgp as lgp
if {folder!r}:
    lgp.keep_programs({folder!r})
generator = np.random.default_rng(0)
X = generator.normal(size=(40_000, 8))
f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
model = lgp.LatentGP(lgp.RBF(lengthscale=np.full(8, 8**0.5)), lgp.Bernoulli())
data = lgp.Data(X, generator.random(len(f)) < 1 / (1 + np.exp(-3 * f)))
method = lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(500)), epochs=1)
seconds = []
for _ in range(2):
    fitted = lgp.fit(model, data, method=method, key=jax.random.key(0))
    fitted.posterior.predict(X[:10_000])
    seconds.append(f"{{time.perf_counter() - started:.1f}} s")
    started = time.perf_counter()
print(", the same again ".join(seconds))
"""
MILLION = """
import resource, time
import jax
import numpy as np
import latentgp as lgp
generator = np.random.default_rng(0)
X = generator.normal(size=(1_000_000, 8))
f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
y = f + 0.3 * generator.normal(size=len(f))
model = lgp.LatentGP(lgp.RBF(lengthscale=np.full(8, 8**0.5)), lgp.Gaussian(noise_variance=0.1))
started = time.perf_counter()
fitted = lgp.fit(
    model,
    lgp.Data(X, y),
    method=lgp.CollapsedVI(lgp.Inducing(200)),
    key=jax.random.key(0),
    max_evaluations=30,
)
seconds = time.perf_counter() - started
mean = fitted.posterior.mean_f(X[:10_000])
rmse = np.sqrt(np.mean((mean - f[:10_000]) ** 2))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(
    f"{seconds:.0f} s, {fitted.diagnostics.evaluations} evaluations, RMSE of f {rmse:.3f}, "
    f"peak memory {peak:.2f} GiB"
)
"""


CHAINS = """
import time; started = time.perf_counter()
import jax
import numpy as np
import latentgp as lgp
counts = lgp.bin_points(lgp.datasets.coal_mine_disasters(), 11, (1851.0, 1963.0))
model = lgp.LatentGP(lgp.RBF(lengthscale=30.0), lgp.Poisson())
fitted = lgp.fit(
    model, lgp.Data(counts.X, counts.y), key=jax.random.key(0), method=lgp.MCMC(draws=1250)
)
found = fitted.posterior.summary
print(
    f"{time.perf_counter() - started:.1f} s, R-hat {found.r_hat:.3f}, effective draws "
    f"{found.ess_bulk:.0f} of the bulk, {found.ess_tail:.0f} of the tails"
)
"""


def median_of(code: str, runs: int) -> str:
    seconds = [float(fresh(code)) for _ in range(runs)]
    return f"{np.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def fresh(code: str) -> str:
    """What a process prints that keeps no programs unless it says where."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"LATENTGP_CACHE": "0"},
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="processes a median is over")
    parser.add_argument("--first", action="store_true", help="start-up and first models alone")
    parser.add_argument("--chains", action="store_true", help="chains of eleven counts alone")
    arguments = parser.parse_args()
    print(f"{datetime.now():%Y-%m-%d %H:%M}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if arguments.chains:
        for _ in range(arguments.runs):
            print("11 counts, 2 hyper-parameters, process start to draws:", fresh(CHAINS))
        return
    for modules in ("jax", BUILT_ON, "latentgp"):
        print(f"import {modules}:", median_of(IMPORT.format(modules=modules), arguments.runs))
    for name, classify in (("regression", False), ("classification", True)):
        with tempfile.TemporaryDirectory() as folder:
            about = f"500 rows, process start to prediction, {name}"
            first = FIRST_MODEL.format(classify=classify, folder="")
            print(f"{about}:", median_of(first, arguments.runs))
            kept = FIRST_MODEL.format(classify=classify, folder=folder)
            fresh(kept)
            print(f"{about}, kept programs:", median_of(kept, arguments.runs))
            peer = OF_SCIKIT_LEARN.format(classify=classify)
            print(f"{about}, scikit-learn:", median_of(peer, arguments.runs))
    if arguments.first:
        return
    print(
        "40,000 rows, M = 500, one epoch, process start to prediction:",
        fresh(BATCHES.format(folder="")),
    )
    with tempfile.TemporaryDirectory() as folder:
        for what in ("keeping programs", "kept programs"):
            print(f"  {what}:", fresh(BATCHES.format(folder=folder)))
    print("1,000,000 rows, M = 200, collapsed:", fresh(MILLION))


if __name__ == "__main__":
    main()
