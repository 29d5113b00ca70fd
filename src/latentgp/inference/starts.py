"""A model to start from when the user gave none: scales of the data, nothing tuned."""

import numpy as np
from jaxtyping import Float

from latentgp.data import Data
from latentgp.inference.priors import scales, varying
from latentgp.kernels import RBF, Kernel
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.means import Mean
from latentgp.models import LatentGP

_MEDIAN_ROWS = 1_000
_NOISE_SHARE = 0.1


def starting_model(
    data: Data, likelihood: Likelihood, mean: Mean, kernel: Kernel | None = None
) -> LatentGP:
    """The model with every value at a typical size.

    Without a kernel: an RBF with one length-scale an input, each the median distance between
    rows measured in that input's standard deviations; inputs that are constant are ignored.
    """
    model = LatentGP(RBF(), likelihood, mean)
    scale = scales(model, data)
    if isinstance(likelihood, Gaussian):
        likelihood = Gaussian(noise_variance=_NOISE_SHARE * scale.latent**2)
    if kernel is None:
        columns = np.flatnonzero(varying(data.X))
        columns = columns if columns.size else np.arange(data.X.shape[1])
        lengthscale = scale.inputs[columns] * median_distance(
            data.X[:, columns] / scale.inputs[columns], data.weights
        )
        kernel = RBF(lengthscale=lengthscale, variance=scale.latent**2)
        if columns.size < data.X.shape[1]:
            kernel = kernel.on(*columns.tolist())
    return LatentGP(kernel, likelihood, mean)


def median_distance(X: Float[np.ndarray, "N D"], weights: Float[np.ndarray, "N"] | None) -> float:
    """Weighted median distance over all ordered pairs of (at most 1,000) rows; 1 if it is zero.

    A row is paired with itself too, so that a weight of two is the same as a row twice.
    """
    step = -(-len(X) // _MEDIAN_ROWS)
    X = X[::step] - X.mean(axis=0)
    weights = np.ones(len(X)) if weights is None else weights[::step]
    squared = np.sum(X**2, axis=1)
    distances = np.sqrt(np.maximum(squared[:, None] + squared - 2 * X @ X.T, 0)).ravel()
    order = np.argsort(distances)
    cumulative = np.cumsum(np.outer(weights, weights).ravel()[order])
    median = distances[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])]
    return float(median) if median > 0 else 1.0
