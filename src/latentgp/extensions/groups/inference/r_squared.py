"""Shares of variance that fixed effects, and all effects, explain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import polygamma

from latentgp.errors import refuse
from latentgp.extensions.groups.boosted.cross_fit import RegressorMean
from latentgp.extensions.groups.boosted.trees import Trees
from latentgp.extensions.groups.inference.design import FixedDesign
from latentgp.kernels.parts import parts_of
from latentgp.likelihoods import Bernoulli, BernoulliProbit, Binomial, Gaussian, Ordinal, Poisson
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision

_KNOWN = Gaussian | Bernoulli | BernoulliProbit | Binomial | Ordinal | Poisson


class RSquared(NamedTuple):
    """Shares of the variance of the targets, on the scale of the latent function.

    Attributes:
        marginal: that of the fixed effects.
        conditional: that of fixed effects, effects of groups and smooth parts.
        residual: variance of the rest, on the same scale.
    """

    marginal: float
    conditional: float
    residual: float

    def __str__(self) -> str:
        return f"R2: {self.marginal:.3f} of fixed effects, {self.conditional:.3f} with groups"


@double_precision
def r_squared(posterior: Posterior, data: Data) -> RSquared:
    """R^2 of mixed models (Nakagawa & Schielzeth 2013, 29 and 30).

    Fixed effects explain the variance of X b over the rows; effects of groups their mean variance
    there, slopes included (Johnson 2014). The rest is the noise variance; of a logit link
    pi^2 / 3, of a probit one, as of ordered classes; of Poisson's counts trigamma(l) at their mean
    l (Nakagawa, Johnson & Schielzeth 2017).

    Args:
        posterior: of one latent function.
        data: rows that were fitted.

    Raises:
        InputError: another likelihood, a mean of trees or of a regressor.

    Example:
        >>> import jax, latentgp as lgp
        >>> group = np.arange(40) // 4
        >>> kernel = lgp.Constant(3.0) * lgp.kernels.SameGroup().on(0)
        >>> data, model = Data(group, np.sin(group)), lgp.LatentGP(kernel, Gaussian(1.0))
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> lgp.groups.r_squared(fit.posterior, data).conditional
        0.75
    """
    model, rest = posterior.model, 0.0
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    kernel: Any = model.kernel
    refuse(
        {
            "R2 takes Gaussian noise, classes with a logit or probit link and Poisson's counts, "
            f"got {type(model.likelihood).__name__}; compare the variances of groups.": not (
                isinstance(model.likelihood, _KNOWN)
            ),
            "R2 has no share of a mean that was fitted to the same rows by other means; compare "
            "errors in rows that it was not fitted to.": isinstance(
                model.mean, Trees | RegressorMean
            ),
        }
    )
    design = FixedDesign.of(kernel, data.X.shape[1])
    line = np.zeros(data.size)
    if design.inputs:
        line = design.columns(data.X) @ design.effects(posterior, None).estimate
    kernels = parts_of(kernel)
    variances = (np.asarray(kernels[j].diagonal(data.X)) for j in design.others)
    each = sum(variances, start=np.zeros(data.size))
    centred = line - np.average(line, weights=weights)
    fixed, random = weights @ centred**2 / (weights.sum() - 1), np.average(each, weights=weights)
    match model.likelihood:
        case Gaussian():
            noise = model.likelihood.total_noise_variance(data.side_information)
            rest = np.average(np.broadcast_to(noise, data.size), weights=weights)
        case Bernoulli() | Binomial():
            rest = np.pi**2 / 3
        case BernoulliProbit() | Ordinal():
            rest = 1.0
        case Poisson():
            exposure = data.side_information.get("exposure", 1.0)
            level = np.asarray(model.mean(data.X))[:, 0] + line
            mean = np.average(exposure * np.exp(level + 0.5 * each), weights=weights)
            rest = polygamma(1, mean)
    total = fixed + random + rest
    return RSquared(float(fixed / total), float((fixed + random) / total), float(rest))
