"""Kernels: the base class, and the algebra that combines them."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import MultipliesParts, Parametrised, SeesColumns, parameter
from latentgp.modules import as_code
from latentgp.typing import Array


class Kernel(Parametrised):
    """A covariance function. An author writes `__call__` for one pair of points.

    `gram` and `diagonal` have defaults made from `__call__`; a kernel that can do better
    (most can, through one matrix product) overrides them.

    Example:
        >>> from latentgp import RBF, Linear
        >>> kernel = 2.0 * RBF(lengthscale=0.5) + Linear().on(0, 2)
    """

    @abstractmethod
    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        """Covariance of the latent function between two points."""

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """Covariances between all rows of X and all rows of Z."""
        return jax.vmap(lambda x: jax.vmap(lambda z: self(x, z))(Z))(X)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        """Prior variance at every row of X."""
        return jax.vmap(lambda x: self(x, x))(X)

    def symmetric_gram(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        """`gram(X, X)`, its diagonal free of the rounding of matrix-product distances."""
        K = jnp.asarray(self.gram(X, X))
        index = jnp.arange(X.shape[0])
        return K.at[index, index].set(self.diagonal(X))

    def check_inputs(self, columns: int) -> None:
        """Raise InputError if the kernel does not fit inputs with so many columns."""
        point = jax.ShapeDtypeStruct((1, columns), float)
        jax.eval_shape(self.gram, point, point)

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        """Raise InputError if the kernel has no value at some rows; it has at all by default."""

    def per_column(self, name: str, points: Float[Array, "*N D"]) -> Float[Array, "*columns"]:
        """A parameter that is one number or one a column, checked against the inputs' columns.

        Raises:
            InputError: it has another number of entries.
        """
        value, columns = getattr(self, name), points.shape[-1]
        if value.shape not in ((), (1,), (columns,)):
            raise InputError(
                f"{type(self).__name__}.{name} has shape {value.shape} but the inputs have "
                f"{columns} columns; give one number, or one a column."
            )
        return value

    def on(self, *dimensions: Any) -> "ActiveDimensions":
        """This kernel on the given input dimensions only (columns, counted from 0).

        Args:
            dimensions: whole numbers, one by one or in a sequence.

        Raises:
            InputError: what is not a distinct whole number from 0, such as the name of a column.

        Example:
            >>> from latentgp import RBF
            >>> RBF().on(0, 2).dimensions, RBF().on([0, 2]).dimensions
            ((0, 2), (0, 2))
        """
        if len(dimensions) == 1 and isinstance(dimensions[0], Iterable):
            (dimensions,) = dimensions
        return ActiveDimensions(kernel=self, dimensions=dimensions)  # pyright: ignore

    def __add__(self, other: "Kernel | float") -> "Sum":
        return Sum((*_parts(self, Sum), *_parts(_as_kernel(other), Sum)))

    def __radd__(self, other: float) -> "Kernel":
        if isinstance(other, int | float) and other == 0:
            return self  # so that sum() works
        return Sum((*_parts(_as_kernel(other), Sum), *_parts(self, Sum)))

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        if isinstance(other, Kernel):
            return Product((*_parts(self, Product), *_parts(other, Product)))
        _check_number(other)
        return Scaled(self, other)

    def __rmul__(self, other: float) -> "Kernel":
        return self * other

    def __pow__(self, exponent: object) -> "Kernel":
        raise InputError(
            f"A kernel has no power, got {type(self).__name__} ** {exponent!r}; multiply kernels "
            "(the factors are learned one by one), or take Polynomial(degree=...) of the inputs."
        )


class Sum(Kernel):
    """Sum of kernels: the latent function is a sum of independent functions."""

    parts: tuple[Kernel, ...]

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.sum(jnp.stack([part(x, z) for part in self.parts]))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return reduce(operator.add, (part.gram(X, Z) for part in self.parts))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return reduce(operator.add, (part.diagonal(X) for part in self.parts))

    def __repr__(self) -> str:
        return " + ".join(_written(part, Sum) for part in self.parts)


class Product(MultipliesParts, Kernel):
    """Product of kernels: points are similar if they are so under every factor."""

    parts: tuple[Kernel, ...]

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.prod(jnp.stack([part(x, z) for part in self.parts]))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return reduce(operator.mul, (part.gram(X, Z) for part in self.parts))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return reduce(operator.mul, (part.diagonal(X) for part in self.parts))

    def __repr__(self) -> str:
        first, *others = self.parts
        written = (_written(other, Sum, Product, Scaled) for other in others)
        return " * ".join([_written(first, Sum, Product), *written])


class Scaled(Kernel):
    """A kernel times a positive number, without units."""

    kernel: Kernel
    scale: Float[Array, ""] = parameter(constraints.positive, role="factor", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.scale * self.kernel(x, z)

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.scale * self.kernel.gram(X, Z)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.scale * self.kernel.diagonal(X)

    def __repr__(self) -> str:
        return f"{as_code(self.scale)} * {_written(self.kernel, Sum, Product, Scaled)}"


def as_columns(dimensions: Any) -> tuple[int, ...]:
    """Numbers of columns; InputError of what is none, of no column, and of one named twice."""
    try:
        found = tuple(map(operator.index, dimensions))
    except TypeError:
        named = dimensions if isinstance(dimensions, str) else tuple(dimensions)
        raise InputError(
            f"A kernel knows the input columns by their numbers from 0, got {named!r}; give whole "
            'numbers, such as list(table.columns).index("age") for the column of that name.'
        ) from None
    if not found or min(found) < 0 or len(set(found)) != len(found):
        raise InputError(
            f"Active dimensions must be distinct columns counted from 0, got {found}; "
            "name each column once."
        )
    return found


def at_columns(
    points: Float[Array, "*N D"], dimensions: tuple[int, ...]
) -> Float[Array, "*N columns"]:
    """Some columns of the inputs; InputError of one that they do not have."""
    if max(dimensions) >= points.shape[-1]:
        raise InputError(
            f"The kernel looks at column {max(dimensions)} but the inputs have "
            f"{points.shape[-1]} columns, counted from 0; name columns that exist."
        )
    return points[..., np.array(dimensions)]


class ActiveDimensions(SeesColumns, Kernel):
    """Kernel on some of the input dimensions.

    Raises:
        InputError: no dimension, one that is no whole number from 0, or one named twice.
    """

    kernel: Kernel
    dimensions: tuple[int, ...] = eqx.field(static=True, converter=as_columns)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.kernel(self.select(x), self.select(z))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.kernel.gram(self.select(X), self.select(Z))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.kernel.diagonal(self.select(X))

    def __repr__(self) -> str:
        columns = ", ".join(map(str, self.dimensions))
        return f"{_written(self.kernel, Sum, Product, Scaled)}.on({columns})"

    def select(self, points: Float[Array, "*N D"]) -> Float[Array, "*N columns"]:
        """Columns of the inputs that the kernel uses."""
        return at_columns(points, self.dimensions)


def _written(kernel: Kernel, *bracketed: type[Kernel]) -> str:
    """As code, in brackets where it is one of the given kinds."""
    return f"({kernel!r})" if isinstance(kernel, bracketed) else repr(kernel)


def _parts(kernel: Kernel, kind: type[Sum] | type[Product]) -> tuple[Kernel, ...]:
    return kernel.parts if isinstance(kernel, kind) else (kernel,)


def _as_kernel(value: object) -> Kernel:
    if isinstance(value, Kernel):
        return value
    _check_number(value)
    return Constant(value)


def _check_number(value: object) -> None:
    if isinstance(value, eqx.Module):
        raise InputError(
            f"A kernel is combined with kernels and numbers, got {type(value).__name__}; combine "
            "the kernels inside it."
        )


def same_variance(self: Any, X: Float[Array, "N D"]) -> Float[Array, "N"]:
    """`diagonal` of a kernel whose prior variance is its `variance` at every row."""
    return jnp.broadcast_to(self.variance.astype(X.dtype), X.shape[:1])


class Constant(Kernel):
    """A constant function of unknown height."""

    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.variance.astype(x.dtype)

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return jnp.broadcast_to(self.variance.astype(X.dtype), (X.shape[0], Z.shape[0]))

    diagonal = same_variance


def contains(kernel: Any, kinds: type | tuple[type, ...]) -> bool:
    """Whether a kernel, or a part of it, is of one of some kinds."""
    nodes = jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, kinds))
    return any(isinstance(node, kinds) for node in nodes)
