"""The model: kernel, likelihood and prior mean."""

from __future__ import annotations

from latentgp.errors import InputError
from latentgp.kernels import Kernel, LatentKernel, OwnKernels
from latentgp.likelihoods import Likelihood
from latentgp.means import Mean, ZeroMean
from latentgp.modules import Module
from latentgp.parameters.base import OwnParts


class LatentGP(Module):
    """Latent functions f_q ~ GP(mean, kernel), independent, and p(y_n | f_1(x_n), ..., f_Q(x_n)).

    Args:
        kernel: shared by the latent functions, or a `PerLatent` with one for each.
        likelihood: sets the number of latent functions.
        mean: prior mean, zero unless given; `PerLatentMean` has one for each latent function.

    Raises:
        InputError: the kernel is none, or the kernels or prior means are not as many as the
            latent functions.

    Example:
        >>> from latentgp import RBF, Gaussian
        >>> model = LatentGP(RBF(lengthscale=0.3), Gaussian(noise_variance=0.1))
    """

    kernel: LatentKernel
    likelihood: Likelihood
    mean: Mean = ZeroMean()

    def __check_init__(self) -> None:
        if not isinstance(self.kernel, Kernel | OwnKernels):
            raise InputError(
                "kernel must be a latentgp kernel such as RBF(), or PerLatent(...) with one for "
                f"each latent function, got {self.kernel!r}."
            )
        latents = self.likelihood.latent_size
        parts = [
            (own, len(own.each if isinstance(own, OwnKernels) else own.parts))
            for own in (self.kernel, self.mean)
            if isinstance(own, OwnKernels | OwnParts)
        ]
        for own, number in parts:
            if number != latents:
                raise InputError(
                    f"{type(self.likelihood).__name__} has {latents} latent function(s), but "
                    f"{type(own).__name__} was given {number} part(s); give one for each."
                )
