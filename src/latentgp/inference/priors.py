"""Weak default priors, search bounds and starting values, in the units of the data."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution, LogNormal
from numpyro.distributions.transforms import biject_to

from latentgp.data import Data
from latentgp.likelihoods import Gaussian
from latentgp.models import LatentGP
from latentgp.parameters import ParameterSpace, parameters

_BOUND_FACTOR = 1e5


class Scales(NamedTuple):
    """Typical sizes in the data: of each input, and of the latent function."""

    inputs: Float[np.ndarray, "D"]
    latent: float


def scales(model: LatentGP, data: Data) -> Scales:
    """Weighted standard deviations of the inputs (one if constant) and of the latent function.

    The latter is that of y under Gaussian noise, where f has the units of y, and 2 otherwise
    (on a logit scale, probabilities from 0.02 to 0.98 within two standard deviations).
    """
    spread = np.sqrt(_weighted_variance(data.X, data.weights))
    inputs = np.where(spread > 0, spread, 1.0)
    if not isinstance(model.likelihood, Gaussian):
        return Scales(inputs, 2.0)
    latent = float(np.sqrt(_weighted_variance(data.y[:, None], data.weights)[0]))
    return Scales(inputs, latent if latent > 0 else 1.0)


def weak_priors(model: LatentGP, scale: Scales) -> dict[str, Distribution]:
    """Log-normal priors that are wide (a factor of 6 or 7 a standard deviation).

    Length-scales are around sqrt(D) standard deviations of the inputs, so that the prior over
    functions does not get rougher with more inputs (Hvarfner et al. 2024, 4); variances are
    around the latent scale squared, noise variances around a tenth of it.
    """
    priors: dict[str, Distribution] = {}
    dimensions = len(scale.inputs)
    for path, info in parameters(model).items():
        shape = np.shape(info.value)
        if info.role == "lengthscale":
            typical = _typical_inputs(scale, shape) * np.sqrt(dimensions)
            priors[path] = LogNormal(jnp.log(typical), jnp.sqrt(3.0))
        elif info.role == "variance":
            priors[path] = LogNormal(jnp.full(shape, 2 * np.log(scale.latent)), 2.0)
        elif info.role == "noise_variance":
            typical = 2 * np.log(scale.latent) + np.log(0.1)
            priors[path] = LogNormal(jnp.full(shape, typical), 2.0)
    return priors


def search_bounds(
    space: ParameterSpace, scale: Scales
) -> tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]]:
    """Bounds of the unconstrained vector: five orders of magnitude around what is typical."""
    lower, upper = [], []
    known = parameters(space.model)
    for path in space.paths:
        info = known[path]
        raw = np.asarray(biject_to(info.support).inv(jnp.asarray(info.value)))
        if info.role == "other":
            low, high = np.full(raw.shape, -np.inf), np.full(raw.shape, np.inf)
        else:
            typical = (
                _typical_inputs(scale, raw.shape)
                if info.role == "lengthscale"
                else np.full(raw.shape, scale.latent**2)
            )
            low, high = np.log(typical / _BOUND_FACTOR), np.log(typical * _BOUND_FACTOR)
        # A start outside the usual range is the user's wish, and widens it.
        lower.append(np.minimum(low, raw).ravel())
        upper.append(np.maximum(high, raw).ravel())
    return np.concatenate([np.zeros(0), *lower]), np.concatenate([np.zeros(0), *upper])


def _typical_inputs(scale: Scales, shape: tuple[int, ...]) -> np.ndarray:
    if shape == scale.inputs.shape:
        return scale.inputs
    return np.full(shape, np.exp(np.mean(np.log(scale.inputs))))


def _weighted_variance(columns: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    mean = np.average(columns, axis=0, weights=weights)
    return np.average((columns - mean) ** 2, axis=0, weights=weights)
