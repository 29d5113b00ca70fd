"""Gaussian projections with widths of their own (Lázaro-Gredilla & Figueiras-Vidal 2009)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import check_whole
from latentgp.extensions.inter_domain.base import InterDomain, refuse_kernel
from latentgp.extensions.inter_domain.functions import InterDomainVariables
from latentgp.kernels import RBF, Kernel, LatentKernel
from latentgp.modules import stored
from latentgp.representations.inducing.selection import select_points
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.typing import Array, Inputs, PerRow, Points, RandomKey

_SCALED = 0.25  # widths at the start, in length-scales


class MultiScale(InterDomain):
    """Averages of the latent function under Gaussian windows, for the RBF kernel.

    u_m is the integral of f(x) N(x; z_m, diag(c_m^2)) dx: a point whose neighbourhood counts.
    Windows start narrow around points chosen as inducing points are; `Stochastic(...,
    learn_points=True)` learns centres and widths.

    Args:
        number: of windows.

    Raises:
        InputError: no window.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.inter_domain.MultiScale(15)))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.1)
        True
    """

    number: int = eqx.field(static=True, default=100)

    def __check_init__(self) -> None:
        check_whole(self, number=1)

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "Windows":
        for own in distinct_kernels(kernel):
            if type(own) is not RBF:
                refuse_kernel("MultiScale", "RBF kernels", type(own).__name__)
        points = np.asarray(select_points(X, weights, kernel, self.number, "k-means++", key))
        each: list[Any] = list(distinct_kernels(kernel))
        shortest = np.min([np.asarray(own.lengthscale) for own in each], axis=0)
        widths = np.broadcast_to(_SCALED * shortest, points.shape)
        return Windows(sample=points, log_widths=np.log(widths).astype(points.dtype))


@stored
class Windows(InterDomainVariables):
    """Averages under Gaussian windows; centres and widths can be learned."""

    sample: Points  # the windows' centres
    log_widths: Points  # logarithms of their standard deviations
    words: str = eqx.field(static=True, default="Gaussian windows")

    @property
    def shape(self) -> tuple[int, int]:
        return self.sample.shape[0], self.sample.shape[1]

    def covariance(self, kernel: LatentKernel) -> Float[Array, "#Q M M"]:
        return self.between(kernel, self)

    def between(self, kernel: LatentKernel, others: "Windows") -> Float[Array, "#Q M N"]:
        spreads = jnp.exp(2 * self.log_widths), jnp.exp(2 * others.log_widths)
        return self._covariances(kernel, others.sample, spreads[0][:, None] + spreads[1][None])

    def cross_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q M N"]:
        return self._covariances(kernel, X, jnp.exp(2 * self.log_widths)[:, None])

    def _covariances(
        self, kernel: LatentKernel, places: Inputs, spread: Float[Array, "M #N D"]
    ) -> Float[Array, "#Q M N"]:
        """The RBF between Gaussian windows: prod_d l (l^2 + c^2)^-1/2 exp(-d^2 / 2 (l^2 + c^2))."""
        difference = self.sample[:, None] - places[None]

        def of(own: Kernel) -> Float[Array, "M N"]:
            rbf: Any = own
            squares = jnp.broadcast_to(rbf.lengthscale, places.shape[1:]) ** 2
            total = squares + spread
            shrunk = jnp.sum(jnp.log(total / squares) + difference**2 / total, axis=-1)
            return rbf.variance * jnp.exp(-0.5 * shrunk)

        return jnp.stack([of(own) for own in distinct_kernels(kernel)])
