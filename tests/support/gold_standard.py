"""Makes `gold_standard.json`: posteriors of f by long chains that share no inference with latentgp.

For every log-concave likelihood one data set drawn from the prior, and NumPyro's NUTS on white
latents, of which this file writes down the density itself: a kernel matrix by the formula, its
Cholesky factor, and the likelihood's `log_prob`. Run from the project's environment:

    .venv/bin/python tests/support/gold_standard.py
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

from latentgp.hyperparameters.base import parameters
from simulated import INPUTS, LENGTHSCALE, LIKELIHOODS, VARIANCE

FILE = Path(__file__).with_suffix(".json")
# In all latents together: those of several outputs are not, or have an exact posterior.
LOG_CONCAVE = {
    name: case
    for name, case in LIKELIHOODS.items()
    if case[0].is_log_concave and not case[0].output_shape
}
SEED, CHAINS, WARMUP, DRAWS = 0, 4, 1000, 5_000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
JITTER = 1e-9  # relative to the variance


def main():
    made = {
        "seed": SEED,
        "chains": CHAINS,
        "warmup": WARMUP,
        "draws": DRAWS,
        "quantiles": QUANTILES,
        "software": f"NumPyro {numpyro.__version__}, JAX {jax.__version__}, float64",
        "posteriors": {},
    }
    with jax.enable_x64(True):
        for name, (likelihood, side) in LOG_CONCAVE.items():
            made["posteriors"][name] = own = sampled(likelihood, side)
            print(f"{name}: R-hat {own['r_hat']:.4f}, ESS {own['ess']:.0f}", flush=True)
    FILE.write_text(json.dumps(made, separators=(",", ":")) + "\n")


def prior_factor():
    distance = (INPUTS - INPUTS.T) / LENGTHSCALE
    gram = VARIANCE * np.exp(-0.5 * distance**2)
    return np.linalg.cholesky(gram + JITTER * VARIANCE * np.eye(len(gram)))


def sampled(likelihood, side):
    """Data, and what long chains say about the latents at their rows."""
    lower, size, known = prior_factor(), likelihood.latent_size, parameters(likelihood)
    rows = {name: np.full(len(INPUTS), value) for name, value in side.items()}
    key_f, key_y, key_chains = jax.random.split(jax.random.key(SEED), 3)
    truth = lower @ jax.random.normal(key_f, (len(INPUTS), size))
    y = jax.vmap(likelihood.sample)(jax.random.split(key_y, len(INPUTS)), truth, rows)

    def density():
        white = numpyro.sample("white", distributions.Normal(0, 1).expand(truth.shape))
        f = numpyro.deterministic("f", lower @ white)
        numpyro.factor("rows", jnp.sum(jax.vmap(likelihood.log_prob)(y, f, rows)))

    chains = MCMC(
        NUTS(density),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(key_chains)
    f = np.asarray(chains.get_samples(group_by_chain=True)["f"])
    flat = f.reshape(-1, *truth.shape)
    # Of the squares too, because standard deviations are compared.
    series = np.concatenate([f, (f - flat.mean(axis=0)) ** 2], axis=-1)
    return {
        "parameters": {path: np.asarray(p.value).tolist() for path, p in known.items()},
        "side": side,
        "y": np.asarray(y).tolist(),
        "r_hat": float(split_gelman_rubin(series).max().round(5)),
        "ess": float(effective_sample_size(series).min().round()),
        "mean": flat.mean(axis=0).round(5).tolist(),
        "sd": flat.std(axis=0).round(5).tolist(),
        "values": np.quantile(flat, QUANTILES, axis=0).round(5).tolist(),
    }


if __name__ == "__main__":
    main()
