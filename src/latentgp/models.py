"""The model: what is learned, and nothing about how."""

import equinox as eqx

from latentgp.kernels import Kernel
from latentgp.likelihoods import Likelihood
from latentgp.means import Mean, ZeroMean


class LatentGP(eqx.Module):
    """Latent functions f_q ~ GP(mean, kernel), independent, and p(y_n | f_1(x_n), ..., f_Q(x_n)).

    Args:
        kernel: shared by the latent functions.
        likelihood: says how many latent functions there are.
        mean: prior mean, zero unless given.

    Example:
        >>> from latentgp import RBF, Gaussian
        >>> model = LatentGP(RBF(lengthscale=0.3), Gaussian(noise_variance=0.1))
    """

    kernel: Kernel
    likelihood: Likelihood
    mean: Mean = ZeroMean()
