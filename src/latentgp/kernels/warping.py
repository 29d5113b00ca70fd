"""Kernels of inputs whose columns are bent first, so that long tails and crowds are even."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels.base import Kernel
from latentgp.rows.spread import robust_spread
from latentgp.typing import Array, in_double_precision

_KNOTS = 33


class InputWarping(Kernel):
    """A kernel of increasing functions of the columns, k(w(x), w(z)) (Snoek et al. 2014, 3).

    A stationary kernel takes a function to vary as fast everywhere. Where a column has a long tail,
    or values of many sizes, it does not, and ranks or logarithms of it are what matters. w is a
    monotone cubic through knots (Fritsch & Butland 1984), straight beyond; it is not learned.

    Args:
        kernel: of w(x); its length-scales are in the units of `values`.
        knots: of each column, increasing, shape (knots, D), at least two.
        values: of w at the knots, increasing, the same shape.

    Raises:
        InputError: knots or values that do not increase, or of different shapes.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> doses = np.array([[1.0], [10.0], [100.0]])
        >>> kernel = lgp.kernels.InputWarping(lgp.RBF(), doses, np.log10(doses))
        >>> float(kernel(doses[0], doses[1])) == float(lgp.RBF()(np.zeros(1), np.ones(1)))
        True
    """

    kernel: Kernel
    knots: Float[Array, "knots D"] = eqx.field(converter=in_double_precision)
    values: Float[Array, "knots D"] = eqx.field(converter=in_double_precision)

    def __check_init__(self) -> None:
        knots, values = self.knots, self.values
        if not (isinstance(knots, np.ndarray) and isinstance(values, np.ndarray)):
            return
        if knots.ndim != 2 or knots.shape != values.shape or len(knots) < 2:
            raise InputError(
                "InputWarping needs knots and values of one shape (knots, D), two knots or more, "
                f"got shapes {knots.shape} and {values.shape}."
            )
        for name, array in (("knots", knots), ("values", values)):
            if not np.all(np.diff(array, axis=0) > 0):
                raise InputError(
                    f"InputWarping.{name} must increase down each column; sort them, and leave out "
                    "what is there twice."
                )

    @classmethod
    def by_scores(
        cls, kernel: Kernel, X: Any, columns: Sequence[int], weights: Any = None
    ) -> InputWarping:
        """Columns as normal scores: the normal law's quantiles at their ranks (Blom 1958).

        They keep their typical size, so that length-scales stay what they are. The others are left
        as they are.

        Args:
            kernel: of the warped columns.
            X: inputs, shape (N, D).
            columns: which to warp.
            weights: of the rows, shape (N,); ones unless given. Rows of weight zero do not count.

        Raises:
            InputError: a column to warp has one value.

        Example:
            >>> import latentgp as lgp, numpy as np
            >>> X = np.exp(np.random.default_rng(0).normal(size=(500, 1)))
            >>> kernel = lgp.kernels.InputWarping.by_scores(lgp.RBF(), X, [0])
            >>> bool(abs(np.corrcoef(kernel.warp(X)[:, 0], np.log(X[:, 0]))[0, 1]) > 0.99)
            True
        """
        X = np.asarray(X, np.float64)
        weights = np.ones(len(X)) if weights is None else np.asarray(weights)
        X, weights = X[weights > 0], weights[weights > 0]
        for column in columns:
            if not np.ptp(X[:, column]) > 0:
                raise InputError(
                    f"Column {column} has one value, which has no normal scores; leave it out of "
                    "columns."
                )
        sizes = robust_spread(X, weights)[0]
        knots, values = [], []
        for column, size in enumerate(sizes):
            own = X[:, column]
            if column in columns:
                at, scores = _normal_scores(own, weights)
                scores = np.average(own, weights=weights) + size * scores
            else:
                at = scores = np.array([0.0, size]) + own.mean()
            knots.append(_lengthened(at))
            values.append(_lengthened(scores))
        return cls(kernel, np.stack(knots, axis=1), np.stack(values, axis=1))

    def warp(self, X: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
        """The columns of w(x)."""
        if X.shape[-1] != self.knots.shape[1]:
            raise InputError(
                f"InputWarping has knots of {self.knots.shape[1]} columns but the inputs have "
                f"{X.shape[-1]}; use InputWarping(...).on(...) with the numbers of these."
            )
        flat = jnp.reshape(X, (-1, X.shape[-1]))
        warped = jax.vmap(_interpolated, in_axes=1, out_axes=1)(flat, self.knots, self.values)
        return jnp.reshape(warped, X.shape)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.kernel(self.warp(x), self.warp(z))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.kernel.gram(self.warp(X), self.warp(Z))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.kernel.diagonal(self.warp(X))


def _interpolated(
    x: Float[Array, "N"], knots: Float[Array, "knots"], values: Float[Array, "knots"]
) -> Float[Array, "N"]:
    """The monotone cubic through values at knots, and the straight lines beyond."""
    width = jnp.diff(knots)
    secant = jnp.diff(values) / width
    # Harmonic means of the secants, weighted as they are in PCHIP: never steep enough to overshoot.
    left, right = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    inside = (left + right) / (left / secant[:-1] + right / secant[1:])
    slope = jnp.concatenate([secant[:1], inside, secant[-1:]])
    place = jnp.sum(x[:, None] > knots[1:-1], axis=1)
    within = jnp.clip(x, knots[0], knots[-1])
    t = (within - knots[place]) / width[place]
    bend = (1 - t) * (slope[place] - secant[place]) + t * (secant[place] - slope[place + 1])
    between = values[place] + width[place] * t * (secant[place] + (1 - t) * bend)
    beyond = jnp.where(x < within, slope[0], slope[-1]) * (x - within)
    return between + beyond


def _normal_scores(
    x: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "knots"], Float[np.ndarray, "knots"]]:
    """Values of a column, evenly spread in their normal scores, and these with deviation one."""
    from scipy.special import ndtri  # takes long to import

    found, place = np.unique(x, return_inverse=True)
    counts = np.bincount(place, weights)
    below = np.cumsum(counts) - counts / 2
    scores = ndtri(below / counts.sum())
    deviation = np.sqrt(np.average(scores**2, weights=counts))
    even = np.linspace(scores[0], scores[-1], _KNOTS)
    chosen = np.unique(np.searchsorted(scores, even - 1e-9))
    return _with_ends(found[chosen], scores[chosen] / deviation)


def _with_ends(
    at: Float[np.ndarray, "knots"], values: Float[np.ndarray, "knots"]
) -> tuple[Float[np.ndarray, "more_knots"], Float[np.ndarray, "more_knots"]]:
    """A knot more at either end, lest w is steep where there are no rows."""
    reach = at[-1] - at[0]
    secants = np.diff(values) / np.diff(at)
    low, high = reach * np.minimum(secants[[0, -1]], (values[-1] - values[0]) / reach)
    at = np.concatenate([[at[0] - reach], at, [at[-1] + reach]])
    return at, np.concatenate([[values[0] - low], values, [values[-1] + high]])


def _lengthened(at: Float[np.ndarray, "knots"]) -> Float[np.ndarray, "all_knots"]:
    """With further knots on the last straight line, so that columns have as many."""
    missing = _KNOTS + 2 - len(at)
    return np.append(at, at[-1] + (at[-1] - at[-2]) * np.arange(1, missing + 1))
