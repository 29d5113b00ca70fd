"""Spherical harmonics as inducing features (Dutordoir, Durrande & Hensman 2020)."""

from __future__ import annotations

from functools import cache, partial
from math import comb
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag
from scipy.special import gammaln, roots_legendre

from latentgp.errors import check_whole
from latentgp.extensions.inter_domain.base import Demands, FixedFeatures, refuse_part
from latentgp.extensions.inter_domain.functions import Basis
from latentgp.kernels import ArcCosine, Kernel
from latentgp.kernels.terms import Part
from latentgp.modules import stored
from latentgp.typing import Array, Inputs

_MOST_COLUMNS = 8
_HIGHEST = 1_000  # degree; eigenvalues of higher ones are lost in rounding
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
        >>> model = lgp.LatentGP(lgp.kernels.ArcCosine(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.inter_domain.SphericalHarmonics(40)))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[1.5]])[0] - np.sin(1.5)) < 0.3)
        True
    """

    words = "spherical harmonics"
    number: int = eqx.field(static=True, default=500)

    def __check_init__(self) -> None:
        check_whole(self, number=1)

    def basis(self, part: Part, columns: Inputs, demands: Demands) -> "Harmonics":
        dimension = columns.shape[1] + 1
        if type(part.kernel) is not ArcCosine or dimension - 1 > _MOST_COLUMNS or demands.share > 1:
            kinds = f"ArcCosine of up to {_MOST_COLUMNS} columns, not multiplied with others"
            refuse_part(type(self).__name__, kinds, part)
        kernel: Any = part.kernel
        degrees, total = [], 0
        for degree in range(_HIGHEST + 1):
            if _eigenvalue(kernel.order, degree, dimension) > _SMALLEST:
                total += number_of_harmonics(degree, dimension)
                if total > self.number and degree > 1:
                    break
                degrees.append(degree)
        return Harmonics(kernel.order, tuple(degrees), dimension)


@stored
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

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        own: Any = kernel
        weighted = x * jnp.sqrt(own.weight_variance)
        bias = jnp.broadcast_to(jnp.sqrt(own.bias_variance), (len(x), 1))
        along = jnp.concatenate([weighted, bias], axis=1)
        length = jnp.sqrt(jnp.sum(along**2, axis=1))
        direction = along / length[:, None]
        places, whitening = zip(*(_system(n, self.dimension) for n in self.degrees), strict=True)
        each = np.repeat(self.degrees, [len(own) for own in places])
        cosines = np.concatenate(places) @ direction.T
        zonal = _zonal(tuple(each.tolist()), self.dimension, cosines)
        return block_diag(*whitening) @ zonal * length**self.order

    def scales(self, kernel: Kernel) -> Float[Array, "M"]:
        own: Any = kernel
        sizes = [number_of_harmonics(degree, self.dimension) for degree in self.degrees]
        values = [_eigenvalue(self.order, degree, self.dimension) for degree in self.degrees]
        return jnp.sqrt(own.variance * np.repeat(values, sizes))


def number_of_harmonics(degree: int, dimension: int) -> int:
    """Number of harmonics of a degree on the sphere in so many dimensions."""
    lower = comb(degree + dimension - 3, degree - 2) if degree > 1 else 0
    return comb(degree + dimension - 1, degree) - lower


def _following(n: Any, dimension: int, t: Any, previous: Any, current: Any) -> Any:
    """(n + d - 2) P_(n+1) = (2 n + d - 2) t P_n - n P_(n-1), d the dimension, one at one."""
    return ((2 * n + dimension - 2) * t * current - n * previous) / (n + dimension - 2)


def _gegenbauer(degree: int, dimension: int, t: Any) -> Any:
    """Gegenbauer polynomials that are one at one, of the order of the sphere (Legendre's in 3)."""
    previous, current = 1.0 + 0 * t, t
    for n in range(1, degree):
        previous, current = current, _following(n, dimension, t, previous, current)
    return current if degree else previous


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _zonal(degrees: tuple[int, ...], dimension: int, t: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """The polynomial of each row's own degree, by one loop for all of them."""
    of_row = jnp.asarray(degrees)[:, None]

    def step(n: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        previous, current, found = state
        following = _following(n, dimension, t, previous, current)
        return current, following, jnp.where(of_row == n + 1, following, found)

    start = jnp.ones_like(t), t, jnp.where(of_row == 0, 1.0, t)
    return jax.lax.fori_loop(1, max(1, *degrees), step, start)[2]


@_zonal.defjvp
def _(degrees: tuple[int, ...], dimension: int, primals: Any, tangents: Any) -> Any:
    """P_n' = n (n + d - 2) / (d - 1) times P_(n-1) of the sphere in d + 2 dimensions."""
    (t,), (slope,) = primals, tangents
    n = np.asarray(degrees)
    lower = _zonal(tuple(np.maximum(n - 1, 0).tolist()), dimension + 2, t)
    factor = n * (n + dimension - 2) / (dimension - 1)
    return _zonal(degrees, dimension, t), factor[:, None] * lower * slope


def _eigenvalue(order: int, degree: int, dimension: int) -> float:
    """Eigenvalue of the arc-cosine kernel between unit directions."""
    return float(_eigenvalues(order, dimension)[degree])


@cache
def _eigenvalues(order: int, dimension: int) -> Float[np.ndarray, "degrees"]:
    """Those of all degrees, by Funk & Hecke's formula.

    Harmonics are orthonormal under the uniform law on the sphere: the mean of the kernel times the
    polynomial, at an angle whose density is in proportion to sin^(d-2).
    """
    half = dimension / 2
    nodes, weights = roots_legendre(2 * _HIGHEST)
    angle = 0.5 * np.pi * (nodes + 1)
    log_constant = gammaln(half) - gammaln(half - 0.5) - 0.5 * np.log(np.pi)
    law = 0.5 * np.pi * weights * np.sin(angle) ** (dimension - 2) * np.exp(log_constant)
    first = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi
    shape = first if order else 1 - angle / np.pi
    previous, current, law = np.ones_like(angle), np.cos(angle), law * shape
    t, values = current, [np.sum(law)]
    for n in range(1, _HIGHEST + 1):
        values.append(law @ current)
        previous, current = current, _following(n, dimension, t, previous, current)
    return np.array(values)


@cache
def _system(degree: int, dimension: int) -> tuple[Float[np.ndarray, "M D"], np.ndarray]:
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


def _pivots(K: Float[np.ndarray, "candidates candidates"], number: int) -> list[int]:
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
