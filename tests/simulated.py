"""Every likelihood on one small problem: data from the prior, hyper-parameters as they are."""

import numpy as np

import latentgp as lgp
from test_conformance_likelihoods import COMPLETE

INPUTS = np.linspace(0, 18, 30)[:, None]
LENGTHSCALE, VARIANCE = 1.0, 3.0

# By name, with what the rows carry; of several settings of one likelihood the first.
LIKELIHOODS = {}
for likelihood, _, _, side in [*COMPLETE, (lgp.HeavisideMulticlass(3), None, None, None)]:
    LIKELIHOODS.setdefault(type(likelihood).__name__, (likelihood, side or {}))


def model_of(likelihood):
    """The likelihood's latents with a fixed prior."""
    return lgp.LatentGP(lgp.RBF(LENGTHSCALE, VARIANCE), likelihood)
