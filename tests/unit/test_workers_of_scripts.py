"""Classes of a script or notebook in the processes that work for it."""

import subprocess
import sys

SCRIPT = """
import sys, warnings
from typing import ClassVar
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, latentgp as lgp
from jaxtyping import Array, Float
from numpyro.distributions import constraints
from sklearn.model_selection import cross_val_score, cross_validate

warnings.simplefilter("ignore")

class Growing(lgp.Kernel):
    rate: Float[Array, ""] = lgp.parameter(default=0.1)
    base: lgp.Kernel = lgp.RBF()

    def __call__(self, x, z):
        return jnp.exp(self.rate * (x[0] + z[0])) * self.base(x, z)

class Twice(lgp.Kernel):
    inner: Growing
    times: int = eqx.field(static=True)

    def __init__(self, times=2):
        super().__init__()
        self.inner, self.times = Growing(0.2), times

    def __call__(self, x, z):
        return self.times * self.inner(x, z)

class Laplacian(lgp.Likelihood):
    scale: Float[Array, ""] = lgp.parameter(constraints.positive, default=0.3)
    is_location: ClassVar[bool] = True

    def log_prob(self, y, f, side):
        return -jnp.sqrt(1e-4 + (y - f[0]) ** 2) / self.scale - jnp.log(2 * self.scale)

    def conditional_moments(self, f, side):
        return f[0], 2 * self.scale**2

class Slope(lgp.Mean):
    slope: Float[Array, ""] = lgp.parameter(constraints.real, default=0.5)

    def __call__(self, X):
        return self.slope * X[:, :1]

def answer(model, rows):
    fit = lgp.fit(model, rows, key=jax.random.key(0), max_evaluations=3)
    return fit.posterior.mean_f(rows.X[:3])

if __name__ == "__main__":
    from joblib import Parallel, delayed
    from latentgp.runtime.apart import apart

    X = np.linspace(0, 5, 24)[:, None]
    y = np.sin(X[:, 0])
    short = {"random_state": 0, "max_evaluations": 3}
    for estimator in (
        lgp.GPRegressor(Growing(), **short),
        lgp.GPRegressor(Twice(3) + lgp.RBF(), likelihood=Laplacian(), **short),
    ):
        right, got = (
            cross_val_score(estimator, X, y, cv=2, n_jobs=n, error_score="raise") for n in (1, 2)
        )
        print(np.array_equal(right, got), flush=True)
    back = cross_validate(
        lgp.GPRegressor(Growing(), **short), X, y, cv=2, n_jobs=2, return_estimator=True
    )["estimator"][0]
    print(type(back.model_.kernel) is Growing and bool(np.all(np.isfinite(back.predict(X)))))
    model = lgp.LatentGP(Growing(), lgp.Gaussian(0.1), Slope())
    rows = lgp.Data(X, y)
    here = answer(model, rows)
    (there,) = Parallel(n_jobs=2)([delayed(answer)(model, rows)])
    print(np.array_equal(here, there))
    print(np.array_equal(here, apart(answer, model, rows, seconds=200).value))
"""


def test_classes_of_a_script_work_as_in_it():
    """A kernel of one's own was "not a leaf of the pytree" in a worker."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=400
    )
    assert done.stdout.split() == ["True"] * 5, done.stdout + done.stderr
