"""A model to start from when the user gave none: scales of the data, nothing tuned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from latentgp.kernels import RBF, Kernel, LatentKernel, Matern52, OwnKernels, PerLatent, White
from latentgp.likelihoods import Likelihood
from latentgp.means import Mean
from latentgp.models import LatentGP
from latentgp.rows.data import Data
from latentgp.rows.spread import median_distance, varying
from latentgp.setup.priors import Scales, scales
from latentgp.surfaces.estimators.additive import SMOOTH, AdditiveTerms

NAMED = {name: SMOOTH[name] for name in SMOOTH if name not in ("periodic", "globe")}
_NUGGET = 0.1  # in latent variances, as typical noise


def starting_model(
    data: Data,
    likelihood: Likelihood,
    mean: Mean,
    kernel: LatentKernel | AdditiveTerms | str | None = None,
) -> LatentGP:
    """The model with a kernel of typical size.

    A kernel by name (an RBF unless given) has one length-scale an input, each the median distance
    between rows measured in that input's standard deviations; inputs that are constant are ignored.
    Latent functions that are alike share it. Where they differ in scale (a signal and the
    logarithm of a noise, say), or the likelihood is about their differences, each has one of its
    own, the user's kernel too; terms become a kernel of typical sizes.
    """
    scale = scales(LatentGP(RBF(), likelihood, mean), data)
    if isinstance(kernel, AdditiveTerms) and not kernel.has_level:
        level = likelihood.latent_centre(data.y, data.weights, data.side_information)
        if level is None and likelihood.is_location:
            level = np.average(kernel.less_offsets(data).y, weights=data.weights)
        first = np.hypot(scale.latent[0], 0.0 if level is None else np.ravel(level)[0])
        scale = scale._replace(latent=np.append(first, scale.latent[1:]))
    alike = not likelihood.has_own_kernels and bool(np.all(scale.latent == scale.latent[0]))
    if kernel is None or isinstance(kernel, AdditiveTerms | str):
        named = partial(_typical, NAMED[kernel] if isinstance(kernel, str) else RBF)
        made = kernel.started if isinstance(kernel, AdditiveTerms) else named
        kernels = [made(data, scale, float(latent)) for latent in scale.latent]
        if isinstance(kernel, AdditiveTerms) and not (alike or likelihood.has_own_kernels):
            # A parameter of the likelihood has their levels too, and links are flat far off.
            kernels[1:] = [kernel.started(data, scale, own, 1.0) for own in scale.latent[1:]]
        kernel = kernels[0] if alike else PerLatent(*kernels)
    elif isinstance(kernel, Kernel) and not alike:
        kernel = PerLatent(*[kernel] * len(scale.latent))
    return LatentGP(kernel, likelihood, mean)


def _typical(family: Callable[..., Kernel], data: Data, scale: Scales, latent: float) -> Kernel:
    columns = np.flatnonzero(varying(data.X))
    columns = columns if columns.size else np.arange(data.X.shape[1])
    lengthscale = scale.inputs[columns] * median_distance(
        data.X[:, columns] / scale.inputs[columns], data.weights
    )
    kernel = family(lengthscale=lengthscale, variance=latent**2)
    return kernel.on(*columns.tolist()) if columns.size < data.X.shape[1] else kernel


def with_nuggets(model: LatentGP) -> LatentGP:
    """The same with white noise in each latent function: what outputs of one place share alone."""
    if not isinstance(model.kernel, OwnKernels):
        return model
    kernels = [kernel + White(variance=_NUGGET) for kernel in model.kernel.each]
    return LatentGP(PerLatent(*kernels), model.likelihood, model.mean)


def as_series(model: LatentGP) -> LatentGP:
    """The same with a Matérn 5/2 kernel in place of an RBF of one column, in state-space form."""
    kernel = model.kernel
    if not isinstance(kernel, RBF):
        return model
    matern = Matern52(lengthscale=kernel.lengthscale, variance=kernel.variance)
    return LatentGP(matern, model.likelihood, model.mean)
