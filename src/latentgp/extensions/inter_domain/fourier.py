"""Variational Fourier features (Hensman, Durrande & Solin 2018)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import check_whole
from latentgp.extensions.inter_domain.base import (
    MOST_FUNCTIONS,
    Demands,
    FixedFeatures,
    as_needed,
    range_of,
)
from latentgp.extensions.inter_domain.functions import Basis
from latentgp.extensions.inter_domain.matern import (
    beyond,
    noise_density,
    rate_of,
    smoothness_of,
    state_covariance,
)
from latentgp.extensions.inter_domain.operators import DiagonalPlusLowRank
from latentgp.kernels import Kernel
from latentgp.kernels.terms import Part
from latentgp.modules import stored
from latentgp.numerics.waves import cosine_and_sine
from latentgp.typing import Array, Inputs

# Margins that are tried: in length-scales, and at least in ranges of the column.
_MARGINS, _LEAST = np.geomspace(0.25, 8.0, 11), 0.02
_FREQUENCIES = 50  # that a search starts with


class FourierFeatures(FixedFeatures):
    """Projections on cosines and sines, for Matérn kernels of single columns.

    Their inducing variables are inner products in the kernel's RKHS on an interval, the column's
    range with the margin, up to eight length-scales, that leaves least of f open; it follows the
    length-scale that is learned. K_uu is diagonal plus 1 to 3 outer products. Sums of
    kernels have blocks, products of up to four columns Kronecker products. With equal numbers
    `BSplines` leave less open.

    Args:
        number: of functions a column: a constant, and cosines and sines of number // 2 frequencies.
            None starts a search with 101, and takes as many as the bound needs where it has ended,
            at most 1,000 functions of a term.

    Raises:
        InputError: fewer than three functions.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.Matern52(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.inter_domain.FourierFeatures(31)))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.1)
        True
    """

    words = "Fourier features"
    number: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_whole(self, number=3)

    def basis(self, part: Part, columns: Inputs, demands: Demands) -> Basis:
        p = smoothness_of(part, type(self).__name__)
        lower, upper = range_of(columns[:, 0])
        kernel: Any = part.kernel
        least = np.maximum(_MARGINS * np.ravel(kernel.lengthscale)[0], _LEAST * (upper - lower))
        margins = np.unique(least).tolist()
        most = (int(MOST_FUNCTIONS ** (1 / demands.share)) - 1) // 2

        def of_times(times: int) -> list[Waves]:
            count = min(times * _FREQUENCIES, most) if self.number is None else self.number // 2
            return [Waves(lower - m, upper + m, count, p) for m in margins]

        return as_needed(of_times, part, columns, demands)


@stored
class Waves(Basis):
    """A constant, cosines and sines of whole numbers of periods in an interval."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)
    frequencies: int = eqx.field(static=True)
    smoothness: int = eqx.field(static=True)

    @property
    def number(self) -> int:
        return 2 * self.frequencies + 1

    @property
    def domain(self) -> tuple[float, float]:
        return self.lower, self.upper

    def fixed(self, x: Inputs) -> Float[Array, "M N"]:
        angles = self._omegas[:, None] * (x[:, 0] - self.lower)
        return jnp.concatenate([jnp.ones((1, len(x))), *cosine_and_sine(angles)])

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        inside, end = self.fixed(jnp.clip(x, *self.domain)), self._end
        return beyond(inside, (end, end), kernel, x[:, 0], self.domain)

    def operator(self, kernel: Kernel) -> DiagonalPlusLowRank:
        p = self.smoothness
        omegas = np.concatenate([np.zeros(1), self._omegas, self._omegas])
        lengths = np.full(self.number, 0.5 * (self.upper - self.lower))
        lengths[0] *= 2
        # |(s + i w)^(p+1)|^2 times the mean square of each function.
        squares = (rate_of(kernel, p) ** 2 + omegas**2) ** (p + 1)
        diagonal = squares * lengths / noise_density(kernel, p)
        return DiagonalPlusLowRank(diagonal, jnp.asarray(self._end), state_covariance(kernel, p))

    @property
    def _omegas(self) -> Float[np.ndarray, "frequencies"]:
        return 2 * np.pi * np.arange(1, self.frequencies + 1) / (self.upper - self.lower)

    @property
    def _end(self) -> Float[np.ndarray, "M states"]:
        """Derivatives at an end, which is a whole number of periods from the other one."""
        w, one, none = self._omegas, np.ones(1), np.zeros(1)
        orders = [
            np.concatenate([one, np.ones_like(w), 0 * w]),
            np.concatenate([none, 0 * w, w]),
            np.concatenate([none, -(w**2), 0 * w]),
        ]
        return np.stack(orders[: self.smoothness + 1], axis=1)
