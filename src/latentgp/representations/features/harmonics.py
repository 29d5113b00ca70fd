"""Spherical harmonics as inducing features (Dutordoir, Durrande & Hensman 2020)."""

from __future__ import annotations

from functools import cache
from math import comb
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from latentgp.errors import InputError
from latentgp.kernels import ArcCosine, Kernel
from latentgp.kernels.terms import Part
from latentgp.representations.features.base import Basis, FixedFeatures, check_number, refused
from latentgp.typing import Array

_MOST_COLUMNS = 8
_NODES = 400
_CANDIDATES = 3  # directions a harmonic, from which those are chosen that tell most
_SMALLEST = 1e-14


class SphericalHarmonics(FixedFeatures):
    """Harmonics on the sphere of inputs with a bias, for `ArcCosine` of up to eight columns.

    An input x becomes a = (sqrt(w) x, sqrt(bias)), a direction on a sphere and a length. Such a
    kernel is the lengths times a function of the angle, which harmonics diagonalise: variables
    are independent, and their variances follow from the angle's function alone (Funk-Hecke). The
    number of harmonics of a degree grows fast with the columns. Kernels of distances, such as
    RBF, are no functions of that angle: use the other kinds.

    Args:
        number: at most so many harmonics, in whole degrees; at least those of degree one.

    Raises:
        InputError: no harmonic.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(-3, 3, 40)
        >>> model = lgp.LatentGP(lgp.ArcCosine(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.SphericalHarmonics(40)))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[1.5]])[0] - np.sin(1.5)) < 0.3)
        True
    """

    words = "spherical harmonics"
    number: int = eqx.field(static=True, default=500)

    def __check_init__(self) -> None:
        check_number(self, 1)

    def basis(
        self,
        part: Part,
        columns: Float[np.ndarray, "N C"],
        share: int,
        weights: Float[np.ndarray, "N"] | None,
    ) -> "Harmonics":
        dimension = columns.shape[1] + 1
        if type(part.kernel) is not ArcCosine or dimension - 1 > _MOST_COLUMNS or share > 1:
            kinds = f"ArcCosine of up to {_MOST_COLUMNS} columns, not multiplied with others"
            raise refused(type(self).__name__, kinds, part)
        kernel: Any = part.kernel
        degrees, total, degree = [], 0, 0
        while True:
            if _eigenvalue(kernel.order, degree, dimension) > _SMALLEST:
                total += number_of_harmonics(degree, dimension)
                if total > self.number and degree > 1:
                    break
                degrees.append(degree)
            degree += 1
        return Harmonics(kernel.order, tuple(degrees), dimension)


class Harmonics(Basis):
    """Orthonormal harmonics of some degrees times a power of the length, the kernel's order."""

    is_white = True
    has_fixed_functions = False
    order: int = eqx.field(static=True)
    degrees: tuple[int, ...] = eqx.field(static=True)
    dimension: int = eqx.field(static=True)

    @property
    def number(self) -> int:
        return sum(number_of_harmonics(degree, self.dimension) for degree in self.degrees)

    def fixed(self, x: Float[Array, "N C"]) -> Float[Array, "M N"]:
        raise InputError(
            "Harmonics depend on the weights and the bias of ArcCosine, so that rows have no sums "
            "for all hyper-parameters; fit the rows themselves."
        )

    def values(self, kernel: Kernel, x: Float[Array, "N C"]) -> Float[Array, "M N"]:
        own: Any = kernel
        weighted = x * jnp.sqrt(own.weight_variance)
        bias = jnp.broadcast_to(jnp.sqrt(own.bias_variance), (len(x), 1))
        along = jnp.concatenate([weighted, bias], axis=1)
        length = jnp.sqrt(jnp.sum(along**2, axis=1))
        direction = along / length[:, None]
        parts = []
        for degree in self.degrees:
            places, whitening = _system(degree, self.dimension)
            parts.append(whitening @ _gegenbauer(degree, self.dimension, places @ direction.T))
        return jnp.concatenate(parts) * length**self.order

    def scales(self, kernel: Kernel) -> Float[Array, "M"]:
        own: Any = kernel
        values = [
            np.full(
                number_of_harmonics(degree, self.dimension),
                _eigenvalue(self.order, degree, self.dimension),
            )
            for degree in self.degrees
        ]
        return jnp.sqrt(own.variance * np.concatenate(values))


def number_of_harmonics(degree: int, dimension: int) -> int:
    """Of a degree, on the sphere in so many dimensions."""
    if degree == 0:
        return 1
    return comb(degree + dimension - 1, degree) - (
        comb(degree + dimension - 3, degree - 2) if degree > 1 else 0
    )


def _gegenbauer(degree: int, dimension: int, t: Any) -> Any:
    """Gegenbauer polynomials that are one at one, of the order of the sphere (Legendre's in 3)."""
    previous, current = 1.0 + 0 * t, t
    if degree == 0:
        return previous
    for n in range(1, degree):
        # (n + d - 2) P_(n+1) = (2 n + d - 2) t P_n - n P_(n-1), d the dimension.
        following = ((2 * n + dimension - 2) * t * current - n * previous) / (n + dimension - 2)
        previous, current = current, following
    return current


@cache
def _eigenvalue(order: int, degree: int, dimension: int) -> float:
    """Of the arc-cosine kernel between unit directions, by Funk & Hecke's formula.

    Harmonics are orthonormal under the uniform law on the sphere: the mean of the kernel times the
    polynomial, at an angle whose density is in proportion to sin^(d-2).
    """
    half = dimension / 2
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    angle = 0.5 * np.pi * (nodes + 1)
    log_constant = gammaln(half) - gammaln(half - 0.5) - 0.5 * np.log(np.pi)
    law = 0.5 * np.pi * weights * np.sin(angle) ** (dimension - 2) * np.exp(log_constant)
    if order == 0:
        shape = 1 - angle / np.pi
    else:
        shape = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi
    return float(np.sum(law * shape * _gegenbauer(degree, dimension, np.cos(angle))))


@cache
def _system(degree: int, dimension: int) -> tuple[Float[np.ndarray, "H d"], np.ndarray]:
    """Directions whose zonal functions span the harmonics of a degree, and what whitens them.

    A fundamental system, chosen among random directions by pivoted Cholesky. By the addition
    theorem zonal functions have covariance N P(v'w), N their number (Dutordoir et al. 2020, 3).
    """
    number = number_of_harmonics(degree, dimension)
    generator = np.random.default_rng(degree)
    candidates = generator.normal(size=(_CANDIDATES * number, dimension))
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    chosen = _pivots(_gegenbauer(degree, dimension, candidates @ candidates.T), number)
    places = candidates[chosen]
    lower = np.linalg.cholesky(_gegenbauer(degree, dimension, places @ places.T))
    return places, np.linalg.solve(lower, np.eye(number)) * np.sqrt(number)


def _pivots(K: Float[np.ndarray, "P P"], number: int) -> list[int]:
    """Pivots of a pivoted Cholesky factorisation: rows that tell most, one after another."""
    left, rows, chosen = np.diagonal(K).copy(), np.zeros((number, len(K))), []
    for step in range(number):
        pivot = int(np.argmax(left))
        row = K[pivot] - rows[:step, pivot] @ rows[:step]
        rows[step] = row / np.sqrt(left[pivot])
        left = np.maximum(left - rows[step] ** 2, 0.0)
        left[pivot] = -np.inf
        chosen.append(pivot)
    return chosen
