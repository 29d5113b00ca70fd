"""Every likelihood on one small problem: data from the prior, hyper-parameters as they are."""

import numpy as np

import latentgp as lgp
from likelihood_cases import COMPLETE, OF_OUTPUTS

INPUTS = np.linspace(0, 18, 30)[:, None]
LENGTHSCALE, VARIANCE = 1.0, 3.0

# By name, with what the rows carry; of several settings of one likelihood the first.
# Least squares have no law of labels whose posterior theirs could be (test_least_squares.py).
LIKELIHOODS = {}
for likelihood, *_, side in [*COMPLETE, *OF_OUTPUTS, (lgp.HeavisideMulticlass(3), None)]:
    if not isinstance(likelihood, lgp.LeastSquares):
        LIKELIHOODS.setdefault(type(likelihood).__name__, (likelihood, side or {}))


def model_of(likelihood):
    """The likelihood's latents with a fixed prior."""
    return lgp.LatentGP(lgp.RBF(LENGTHSCALE, VARIANCE), likelihood)
