"""Batches of rows: inducing points of your own, an early stop by a callback, and a resumed run.

Run it with `python examples/batches.py`.
"""

import tempfile
from pathlib import Path

import jax
import numpy as np

import latentgp as lgp

generator = np.random.default_rng(0)
X = generator.uniform(-3, 3, (4000, 1))
counts = generator.poisson(np.exp(1 + np.sin(2 * X[:, 0])))
points = np.linspace(-3, 3, 20)[:, None]

model = lgp.LatentGP(lgp.RBF(lengthscale=1.0), lgp.Poisson(), lgp.ConstantMean(0.0))
sparse = lgp.VariationalInference(lgp.Inducing(points=points))
method = lgp.Stochastic(sparse, batch_size=200, epochs=4)
settings = {"method": method, "key": jax.random.key(0)}
data = lgp.Data(X, counts)

with tempfile.TemporaryDirectory() as folder:
    state = Path(folder) / "state"
    rounds = []

    def stop_after_two(progress):
        """A round is some batches in one compiled call; true ends the search."""
        rounds.append(progress)
        return len(rounds) == 2

    first = lgp.fit(model, data, **settings, callback=stop_after_two, checkpoint=state)
    print(first.diagnostics.ending)
    # The same call goes on from the file, and ends with the bits of a run that was never stopped.
    second = lgp.fit(model, data, **settings, checkpoint=state)
    print(second.diagnostics.ending)

whole = lgp.fit(model, data, **settings)
grid = np.linspace(-3, 3, 50)
rate = second.posterior.predict(grid).mean
np.testing.assert_array_equal(rate, whole.posterior.predict(grid).mean)
truth = np.exp(1 + np.sin(2 * grid))
print(f"rates are off by {np.mean(np.abs(rate / truth - 1)):.1%} on average")
assert np.mean(np.abs(rate / truth - 1)) < 0.1
