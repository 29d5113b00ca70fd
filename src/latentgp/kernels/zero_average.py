"""Kernels of functions whose average over some points is zero."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels.base import Kernel
from latentgp.typing import Array, in_double_precision


class ZeroAverage(Kernel):
    """A kernel given that the average over some points is zero, k(x, z) - m(x) m(z) / c.

    m(x) is the mean of k(x, p) over the points p, and c that of m(p) (Durrande, Ginsbourger,
    Roustant & Carraro 2013, 3.2). A product of such kernels of one column each is of interactions
    alone: the average of f over one column is zero at every value of the others.

    Args:
        kernel: of the functions without that condition.
        points: as many as the average needs, shape (P, D), such as quantiles of the rows.

    Raises:
        InputError: points that are no finite table.

    Example:
        >>> import jax.numpy as jnp, latentgp as lgp, numpy as np
        >>> points = np.array([[0.0], [1.0], [2.0]])
        >>> kernel = lgp.kernels.ZeroAverage(lgp.RBF(), points)
        >>> bool(jnp.all(jnp.abs(jnp.mean(kernel.gram(points, points), axis=0)) < 1e-6))
        True
    """

    kernel: Kernel
    points: Float[Array, "P D"]

    def __init__(self, kernel: Kernel, points: Any):
        self.kernel, self.points = kernel, in_double_precision(points)

    def __check_init__(self) -> None:
        known = isinstance(self.points, np.ndarray)
        if known and not (self.points.ndim == 2 and np.all(np.isfinite(self.points))):
            raise InputError(
                "ZeroAverage needs finite points of shape (points, columns), got shape "
                f"{self.points.shape}."
            )

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.kernel.gram(X, Z) - self._scaled(X)[:, None] * self._scaled(Z)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.maximum(self.kernel.diagonal(X) - self._scaled(X) ** 2, 0.0)

    def __repr__(self) -> str:
        return f"ZeroAverage({self.kernel!r}, {len(self.points)} points)"

    def _scaled(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        """m(x) / sqrt(c)."""
        points = jnp.asarray(self.points, X.dtype)
        variance = jnp.mean(self.kernel.gram(points, points))
        return jnp.mean(self.kernel.gram(X, points), axis=1) / jnp.sqrt(variance)
