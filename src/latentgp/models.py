"""The model: kernel, likelihood and prior mean."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, check_kinds
from latentgp.hyperparameters.base import OwnParts
from latentgp.kernels import Kernel, LatentKernel, OwnKernels
from latentgp.likelihoods import Likelihood
from latentgp.means import ConstantMean, Mean, ZeroMean
from latentgp.modules import Module


class LatentGP(Module):
    """Latent functions f_q ~ GP(mean, kernel), independent, and p(y_n | f_1(x_n), ..., f_Q(x_n)).

    Args:
        kernel: shared by the latent functions, or a `PerLatent` with one for each.
        likelihood: sets the number of latent functions.
        mean: prior mean, zero unless given; `PerLatentMean` has one for each latent function.

    Raises:
        InputError: no kernel, likelihood or mean, or not as many kernels or means as latents.

    Example:
        >>> from latentgp import RBF, Gaussian
        >>> model = LatentGP(RBF(lengthscale=0.3), Gaussian(noise_variance=0.1))
    """

    kernel: LatentKernel
    likelihood: Likelihood
    mean: Mean = ZeroMean()

    def __check_init__(self) -> None:
        kernels = "a latentgp kernel such as RBF(), or PerLatent(...) with one a latent function"
        check_kinds(
            self,
            kernel=(Kernel | OwnKernels, kernels),
            likelihood=(Likelihood, "a latentgp likelihood such as Gaussian()"),
            mean=(Mean, "a prior mean such as ConstantMean()"),
        )
        latents = self.likelihood.latent_size
        for own in (self.kernel, self.mean):
            parts = own.parts if isinstance(own, OwnParts) else None
            parts = own.each if isinstance(own, OwnKernels) else parts
            if parts is not None and len(parts) != latents:
                raise InputError(
                    f"{type(self.likelihood).__name__} has {latents} latent function(s), but "
                    f"{type(own).__name__} was given {len(parts)} part(s); give one for each."
                )

    @property
    def depth(self) -> int:
        """Number of layers of latent functions."""
        return 1

    def layout(self, X: Float[np.ndarray, "N D"]) -> Any:
        """What is fixed between the layers at inputs; None of a single layer."""
        return None

    @property
    def of_inputs(self) -> LatentKernel:
        """The kernel whose points are the inputs."""
        return self.kernel

    def spreads_at(
        self, path: str, inputs: Float[np.ndarray, "D"], latent: Float[np.ndarray, "Q"]
    ) -> tuple[Float[np.ndarray, "E"], Float[np.ndarray, "H"]]:
        """Spreads of what a hyper-parameter's kernel sees, and of the functions that it is of.

        Args:
            path: of the hyper-parameter.
            inputs: standard deviations of the inputs.
            latent: scales of the latent functions.
        """
        return inputs, latent


def without_constant(model: LatentGP) -> tuple[LatentGP, float]:
    """The model without its constant prior mean, and what it is, where y can be less that."""
    if model.likelihood.is_location and isinstance(model.mean, ConstantMean):
        return dataclasses.replace(model, mean=ZeroMean()), float(model.mean.value)
    return model, 0.0
