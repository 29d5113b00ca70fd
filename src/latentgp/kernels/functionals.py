"""Covariances between linear functionals of f: values, derivatives, averages, sums over regions.

Derivatives are by automatic differentiation of the inner kernel (Solak et al. 2003, eq. 4 to 6),
averages over an interval by Gauss-Legendre quadrature in the difference of two places.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, refuse
from latentgp.hyperparameters.base import SeesColumns
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum
from latentgp.kernels.dot_product import ArcCosine, Categorical, White
from latentgp.kernels.effects import MultipleMembership, SameGroup
from latentgp.kernels.index import IndexKernel
from latentgp.kernels.metric import MetricKernel
from latentgp.kernels.sphere import OnSphere
from latentgp.kernels.stationary import Cosine, Matern, Matern12, MaternHalfInteger, Stationary
from latentgp.kernels.warping import InputWarping
from latentgp.kernels.weighted import WeightedSum
from latentgp.rows.functionals import (
    EncodedColumns,
    Regions,
    decoded,
    spread_over_regions,
    width_of,
)
from latentgp.typing import Array

_ROUGH = (
    Matern,
    Matern12,
    White,
    Categorical,
    SameGroup,
    MultipleMembership,
    ArcCosine,
    IndexKernel,
)


class Functionals(SeesColumns, Kernel):
    """Kernel between functionals of a function whose values have the inner kernel.

    Its inputs are rows of `latentgp.functionals`: values, derivatives, averages, and those of
    `Regions`. What was seen by one kind predicts every other. A prior mean other than zero is a
    `FunctionalMean`. The relative error of the variance of an average is below 1e-6 up to a width
    of four length-scales with 8 nodes, and below 1e-8 up to ten with 16.

    Args:
        kernel: of the values of f. Derivatives need one that is differentiable: RBF, Matérn 3/2,
            Matérn 5/2, rational quadratic, periodic, linear, polynomial, or a kernel of your own.
        columns: number of inputs D of the function.
        average_along: the column of the intervals of averages; None where there are none. The
            kernel has to be a function of differences along it.
        regions: those that rows are about.
        nodes: of the quadrature, on each of six pieces between kinks.
        derivatives: whether there are rows of derivatives; false makes regions faster.

    Raises:
        InputError: a kernel not of differences along `average_along`; regions of other columns.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> from latentgp import functionals
        >>> at = np.linspace(0.0, 6.0, 13)[:, None]
        >>> rows = np.concatenate([functionals.values([[0.0]]), functionals.derivatives(at)])
        >>> y = np.concatenate([[0.0], np.cos(at[:, 0])])
        >>> model = lgp.LatentGP(lgp.kernels.Functionals(lgp.RBF(1.5)), lgp.Gaussian(1e-4))
        >>> fit = lgp.fit(model, lgp.Data(rows, y), key=jax.random.key(0))
        >>> fit.posterior.predict_f(functionals.values([[np.pi / 2]])).mean.round(2)
        array([1.])
    """

    kernel: Kernel
    columns: int = eqx.field(static=True, default=1)
    average_along: int | None = eqx.field(static=True, default=None)
    regions: Regions | None = None
    nodes: int = eqx.field(static=True, default=8)
    derivatives: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        along = self.average_along
        inside = along is None or 0 <= along < self.columns
        points = self.columns if self.regions is None else self.regions.points.shape[-1]
        sentences = {
            f"Functionals.average_along must be one of {self.columns} column(s), got {along}.": (
                not inside
            ),
            f"Averages need a kernel of the differences along column {along}, got "
            f"{type(self.kernel).__name__}; give Regions of points instead.": (
                inside and along is not None and not _of_differences(self.kernel, along)
            ),
            f"The regions have points of {points} column(s), the function has {self.columns}; give "
            "Functionals(columns=) that number.": points != self.columns,
        }
        refuse(sentences)

    @property
    def dimensions(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The columns that the inner kernel sees."""
        return tuple(range(self.columns))

    def check_inputs(self, columns: int) -> None:
        if columns != width_of(self.columns):
            raise InputError(
                f"Functionals of {self.columns} input(s) reads {width_of(self.columns)} columns, "
                f"got {columns}; make rows by latentgp.functionals, such as values(X)."
            )
        self.kernel.check_inputs(self.columns)

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        rows = decoded(X, self.columns)
        moved = np.flatnonzero(np.any(rows.direction != 0, axis=0))
        if moved.size and not self.derivatives:
            raise InputError("Rows have derivatives: leave Functionals(derivatives=False) out.")
        found = rough_along(self.kernel, set(moved.tolist()))
        if found is not None:
            raise InputError(
                f"Functions of {type(found).__name__} have no derivative that the kernel gives; "
                "take RBF, Matern32 or Matern52 for rows of derivatives."
            )
        if np.any(rows.width != 0) and self.average_along is None:
            raise InputError("Rows have averages: give Functionals(average_along=) their column.")
        number = 0 if self.regions is None else len(self.regions.weights)
        if not np.all(np.isin(rows.region, np.arange(number + 1))):
            raise InputError(
                f"Rows name region {int(rows.region.max())}, counted from 1, of {number}; give "
                "Functionals(regions=) what the rows were made by."
            )
        inner = rows.x if self.regions is None else self.regions.points.reshape(-1, self.columns)
        self.kernel.check_points(np.concatenate([rows.x, inner]))

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        if self.regions is None:
            return self._average(self._decoded(x), self._decoded(z))
        (own, weights), (others, other_weights) = self._spread(x[None]), self._spread(z[None])
        pairs = jax.vmap(lambda a: jax.vmap(lambda b: self._average(a, b))(others))(own)
        return weights[:, 0] @ pairs @ other_weights[:, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        if self.regions is None:
            return self._gram(self._decoded(X), self._decoded(Z))
        (own, weights), (others, other_weights) = self._spread(X), self._spread(Z)

        def add(total: Any, point: Any) -> tuple[Any, None]:
            rows, weight = point
            block = self._gram(rows, others).reshape(len(X), *other_weights.shape)
            return total + weight[:, None] * jnp.sum(block * other_weights, axis=1), None

        # A point of each of X's regions after another: memory is that of N x (P M).
        per_point = jax.tree.map(lambda a: a.reshape(*weights.shape, *a.shape[1:]), own)
        zero = jnp.zeros((len(X), len(Z)), jnp.result_type(X, Z))
        return jax.lax.scan(jax.checkpoint(add), zero, (per_point, weights))[0]

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        # Rounding must not make a variance negative.
        return jnp.maximum(jax.vmap(lambda x: self(x, x))(X), 0)

    def _decoded(self, X: Float[Array, "*N columns"]) -> EncodedColumns:
        if X.shape[-1] != width_of(self.columns):
            self.check_inputs(X.shape[-1])
        return decoded(jnp.asarray(X), self.columns)

    def _spread(self, X: Float[Array, "N columns"]) -> tuple[EncodedColumns, Float[Array, "S N"]]:
        """Rows at each point of their regions and weights; a row itself else."""
        assert self.regions is not None
        points, weights = spread_over_regions(self.regions, self._decoded(X))
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), points), weights

    def _gram(self, rows: EncodedColumns, others: EncodedColumns) -> Float[Array, "N M"]:
        if self.average_along is not None:
            one = jax.vmap(self._average, (None, 0))
            return jax.vmap(one, (0, None))(rows, others)
        own, other = rows.value[:, None], others.value[None]
        return self._between(self.kernel.gram, rows, others, own, other)

    def _pair(self, x: EncodedColumns, z: EncodedColumns) -> Float[Array, ""]:
        return self._between(self.kernel.__call__, x, z, x.value, z.value)

    def _between(
        self, covariance: Any, x: EncodedColumns, z: EncodedColumns, own: Array, other: Array
    ) -> Array:
        if not self.derivatives:
            return own * other * covariance(x.x, z.x)
        values, in_z, in_x, in_both = _slopes(covariance, x, z)
        return own * other * values + own * in_z + other * in_x + in_both

    def _average(self, x: EncodedColumns, z: EncodedColumns) -> Float[Array, ""]:
        """Expectation over the difference of two uniform places, a trapezoidal law."""
        if self.average_along is None:
            return self._pair(x, z)
        column = self.average_along
        shifts, masses = _trapezoidal_law(x.width, z.width, z.x[column] - x.x[column], self.nodes)
        unit = jnp.asarray(np.eye(self.columns)[column], x.x.dtype)

        def add(total: Any, node: Any) -> tuple[Any, None]:
            shift, mass = node
            moved = x._replace(x=x.x + shift * unit)
            return total + mass * self._pair(moved, z), None

        zero = jnp.zeros((), jnp.result_type(x.x, z.x))
        return jax.lax.scan(jax.checkpoint(add), zero, (shifts, masses))[0]


def _slopes(covariance: Any, x: EncodedColumns, z: EncodedColumns) -> tuple[Array, ...]:
    """k, and its derivatives along the direction of z, of x, and of both."""
    zero, one = jnp.zeros((), x.x.dtype), jnp.ones((), x.x.dtype)

    def along_z(s: Any) -> tuple[Array, Array]:
        def value(t: Any) -> Array:
            return covariance(x.x + s * x.direction, z.x + t * z.direction)

        return jax.jvp(value, (zero,), (one,))

    (values, in_z), (in_x, in_both) = jax.jvp(along_z, (zero,), (one,))
    return values, in_z, in_x, in_both


def _trapezoidal_law(
    width: Float[Array, ""], other: Float[Array, ""], kink: Float[Array, ""], nodes: int
) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """Nodes and masses of U - V, uniform of two widths about zero, split where the kernel kinks."""
    most, least = jnp.maximum(width, other), jnp.minimum(width, other)
    far, near = (most + least) / 2, (most - least) / 2
    ends = jnp.stack([-far, -near, near, far])
    low, high = ends[:3], ends[1:]
    split = jnp.clip(kink, low, high)
    low, high = jnp.stack([low, split]), jnp.stack([split, high])  # shape (2, 3)
    places, weights = (jnp.asarray(a, width.dtype) for a in np.polynomial.legendre.leggauss(nodes))
    shifts = low[..., None] + (high - low)[..., None] * (places + 1) / 2
    share = (high - low)[..., None] * weights / 2
    some = most > 0
    level = share / jnp.where(some, most, 1)
    slope = (far - jnp.abs(shifts)) / jnp.where(least > 0, least, 1)
    flat = jnp.array([False, True, False])[None, :, None]
    # Two places without a width: all mass is at a difference of zero.
    alone = jnp.where(flat, weights / 4, 0.0)
    masses = jnp.where(some, level * jnp.where(flat, 1.0, slope), alone)
    return shifts.ravel(), masses.ravel()


def _inside(kernel: Kernel) -> tuple[Kernel, ...]:
    if isinstance(kernel, Sum | Product | WeightedSum):
        return kernel.parts
    return (kernel.kernel,) if isinstance(kernel, Scaled | InputWarping) else ()


@singledispatch
def rough_along(kernel: Kernel, columns: set[int]) -> Kernel | None:
    """A part of a kernel without derivatives along some of its columns; None if there is none."""
    parts = jax.tree.leaves(kernel, is_leaf=lambda k: isinstance(k, Kernel) and k is not kernel)
    rough = (rough_along(part, columns) for part in parts if isinstance(part, Kernel))
    return next((part for part in rough if part is not None), None)


@rough_along.register
def _(kernel: ActiveDimensions, columns: set[int]) -> Kernel | None:
    seen = {i for i, column in enumerate(kernel.dimensions) if column in columns}
    return rough_along(kernel.kernel, seen)


@rough_along.register
def _(kernel: MetricKernel, columns: set[int]) -> Kernel | None:
    return rough_along(kernel.kernel, {0} if columns & {*kernel.dimensions} else set())


@rough_along.register
def _(kernel: OnSphere, columns: set[int]) -> Kernel | None:
    return rough_along(kernel.kernel, {0} if columns else set())


@rough_along.register
def _(kernel: MaternHalfInteger, columns: set[int]) -> Kernel | None:
    return None if kernel.degree or not columns else kernel


def rough(kernel: Kernel, columns: set[int]) -> Kernel | None:
    """The kernel itself, whose functions have no derivatives."""
    return kernel if columns else None


for _kind in _ROUGH:
    rough_along.register(_kind, rough)


def _of_differences(kernel: Kernel, column: int) -> bool:
    """Whether the kernel depends on a column through differences alone."""
    if isinstance(kernel, ActiveDimensions):
        seen = column in kernel.dimensions
        return not seen or _of_differences(kernel.kernel, kernel.dimensions.index(column))
    if isinstance(kernel, MetricKernel):
        return column not in kernel.space.dimensions
    if isinstance(kernel, InputWarping):
        return False
    if isinstance(kernel, Stationary | Constant | Cosine):
        return True
    parts = _inside(kernel)
    return bool(parts) and all(_of_differences(part, column) for part in parts)
