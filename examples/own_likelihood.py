"""A likelihood of your own: counts with exposure, from `log_prob` alone.

Counts y ~ Poisson(exposure * exp(f(x))). VariationalInference takes the expectations it needs
by quadrature, so a density that JAX can differentiate in f is enough to fit the model.

Run it with `python examples/own_likelihood.py`.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import latentgp as lgp


class Poisson(lgp.Likelihood):
    """y in {0, 1, 2, ...} with mean exposure * exp(f); exposure is one where not given."""

    side_information: ClassVar[tuple[str, ...]] = ("exposure",)

    def log_prob(self, y, f, side):
        log_rate = f[0] + jnp.log(side.get("exposure", 1.0))
        return y * log_rate - jnp.exp(log_rate) - gammaln(y + 1)


def rate(x):
    """The truth that the counts are drawn from."""
    return np.exp(1 + np.sin(x))


generator = np.random.default_rng(0)
x = generator.uniform(0, 8, 150)
exposure = generator.uniform(0.5, 2, 150)
counts = generator.poisson(exposure * rate(x))

model = lgp.LatentGP(lgp.RBF(lengthscale=1.0), Poisson(), lgp.ConstantMean(0.0))
result = lgp.fit(
    model,
    lgp.Data(x, counts, exposure=exposure),
    method=lgp.VariationalInference(lgp.Dense()),
    key=jax.random.key(0),
)
print(result.diagnostics.verdict)
print(lgp.summary(result.model))

new = np.array([0.5, 2.0, 4.0, 6.0])
latent = result.posterior.predict_f(new)
print("    x    rate  90 % interval   truth")
for point, mean, std in zip(new, latent.mean, np.sqrt(latent.variance), strict=True):
    low, mid, high = np.exp([mean - 1.645 * std, mean, mean + 1.645 * std])
    print(f"{point:5.1f}  {mid:6.2f}  {low:6.2f} {high:6.2f}  {rate(point):6.2f}")

# Predictions of counts need `log_prob` only where they ask for a density.
held_out = generator.poisson(rate(new))
print("log p(y) a row:", result.posterior.predict(new).log_prob(held_out).round(2))
