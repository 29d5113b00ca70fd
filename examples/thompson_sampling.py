"""Bayesian optimisation in batches by Thompson sampling.

The function of Hartmann (1973) in six inputs is maximised; its maximum is 3.32237. Every round
fits a Gaussian process to all evaluations, draws functions from its posterior, and evaluates where
each of them is highest among 10,000 candidates. Draws are functions (`sample_paths`), so that this
costs no more than 10,000 predictions. Half of the candidates are spread over the box, half are
around the best place so far, closer from round to round of no success.

Run it with `python examples/thompson_sampling.py`.
"""

import jax
import numpy as np
from scipy.stats import qmc

import latentgp as lgp

BATCH, START, INPUTS = 8, 16, 6

WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
SCALES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
PLACES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hidden(X):
    """What is to be maximised over the unit box, shape (N,)."""
    squares = SCALES * (X[:, None] - PLACES) ** 2
    return np.exp(-squares.sum(axis=2)) @ WEIGHTS


def candidates(number, best, width, generator):
    """Places to choose among: anywhere, and around the best one so far."""
    spread = generator.uniform(size=(number // 2, INPUTS))
    moved = generator.normal(size=(number - len(spread), INPUTS)) * width
    some = generator.uniform(size=moved.shape) < 0.5  # of the inputs
    return np.concatenate([spread, np.clip(best + np.where(some, moved, 0.0), 0.0, 1.0)])


def optimised(generator, rounds=15, number=10_000):
    """The evaluations of all rounds."""
    X = qmc.Sobol(INPUTS, rng=generator).random(START)
    y = hidden(X)
    kernel = lgp.Matern52(lengthscale=np.full(INPUTS, 0.5), variance=float(np.var(y)))
    model = lgp.LatentGP(kernel, lgp.Gaussian(1e-4 * float(np.var(y))), lgp.ConstantMean(0.0))
    width = 0.2
    for done in range(rounds):
        key_fit, key_paths = jax.random.split(jax.random.key(done))
        fit = lgp.fit(model, lgp.Data(X, y), key=key_fit, max_evaluations=40)
        model = fit.posterior.model  # the next search starts there
        among = candidates(number, X[np.argmax(y)], width, generator)
        draws = fit.posterior.sample_paths(key=key_paths, number=BATCH)(among)  # (BATCH, N)
        new = among[np.unique(np.argmax(draws, axis=1))]
        found = hidden(new)
        width = width * (0.7 if found.max() <= y.max() else 1.2)
        X, y = np.concatenate([X, new]), np.concatenate([y, found])
        print(f"round {done + 1:2}: {len(y):3} evaluations, best {y.max():.4f}")
    return X, y


if __name__ == "__main__":
    X, y = optimised(np.random.default_rng(0))
    at_random = hidden(np.random.default_rng(1).uniform(size=(len(y), INPUTS)))
    print(f"Thompson sampling: {y.max():.4f} of 3.3224; random search: {at_random.max():.4f}")
