"""Parts of a sum of kernels, told apart by further columns of the inputs.

f = sum_j f_j with independent f_j of the kernels k_j. A row [x, a_1, ..., a_J] is sum_j a_j f_j(x),
so that ones are f itself and a unit vector is one part.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels.base import ActiveDimensions, Kernel, Scaled, Sum
from latentgp.kernels.functionals import Functionals
from latentgp.kernels.per_latent import LatentKernel, OwnKernels
from latentgp.kernels.warping import InputWarping
from latentgp.kernels.weighted import WeightedSum
from latentgp.typing import Array


def parts_of(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels that a kernel is a sum of, nested sums and multiples of sums included.

    A product is one part, whatever its factors.

    Example:
        >>> from latentgp import RBF, Linear
        >>> [type(part).__name__ for part in parts_of(2.0 * (RBF() + Linear()) + RBF())]
        ['Scaled', 'Scaled', 'RBF']
    """
    if isinstance(kernel, Sum):
        return tuple(part for summand in kernel.parts for part in parts_of(summand))
    if isinstance(kernel, WeightedSum):
        summands = zip(kernel.parts, kernel.weights, strict=True)
        return tuple(Scaled(part, w) for summand, w in summands for part in parts_of(summand))
    if isinstance(kernel, Scaled | ActiveDimensions | InputWarping | Functionals):
        inner = parts_of(kernel.kernel)
        return tuple(eqx.tree_at(lambda k: k.kernel, kernel, part) for part in inner)
    return (kernel,)


def names_of_parts(kernel: LatentKernel, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """A name for each part: as given, or as its kernel is printed.

    InputError of names that are not as many as the parts, or not distinct, and of latent functions
    with kernels of different numbers of parts.
    """
    kernels = kernel.each if isinstance(kernel, OwnKernels) else (kernel,)
    each = [parts_of(own) for own in kernels]
    numbers = {len(parts) for parts in each}
    if len(numbers) > 1:
        raise InputError(
            f"The kernels of the latent functions have {[len(parts) for parts in each]} parts; "
            "their parts have common names where they are as many."
        )
    if names is None:
        printed = [*map(repr, each[0])]
        numbered = ((name, printed[:place].count(name)) for place, name in enumerate(printed))
        return tuple(f"{name} ({before + 1})" if before else name for name, before in numbered)
    if len(names) != len(each[0]) or len(set(names)) != len(names):
        raise InputError(
            f"names must be distinct, one for each of the {len(each[0])} parts, got {names!r}."
        )
    return tuple(names)


class PartsOfKernel(Kernel):
    """Covariances between sums of a kernel's parts, whose coefficients are further columns."""

    kernel: Kernel  # a sum
    number: int = eqx.field(static=True, default=1)  # of its parts J, which are the last columns

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        values = [part(x[: -self.number], z[: -self.number]) for part in parts_of(self.kernel)]
        return jnp.sum(x[-self.number :] * z[-self.number :] * jnp.stack(values))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        J = self.number
        total = jnp.zeros((len(X), len(Z)), jnp.result_type(X, Z))
        for j, part in enumerate(parts_of(self.kernel)):
            block = part.gram(X[:, :-J], Z[:, :-J])
            total = total + X[:, j - J, None] * Z[None, :, j - J] * block
        return total

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        J = self.number
        each = [part.diagonal(X[:, :-J]) for part in parts_of(self.kernel)]
        return jnp.sum(X[:, -J:] ** 2 * jnp.stack(each, axis=1), axis=1)


class PartsOfEach(OwnKernels):
    """The same of kernels of the latent functions' own."""

    kernel: OwnKernels  # of each latent function, sums of equally many parts
    number: int = eqx.field(static=True, default=1)  # of these

    @property
    def each(self) -> tuple[Kernel, ...]:
        return tuple(PartsOfKernel(own, self.number) for own in self.kernel.each)


def telling_parts(kernel: LatentKernel, number: int) -> LatentKernel:
    """The kernel of sums of parts, whose J coefficients are the last columns of the inputs."""
    if isinstance(kernel, OwnKernels):
        return PartsOfEach(kernel, number)
    return PartsOfKernel(kernel, number)


def as_wholes(X: Float[Array, "*N D"], number: int) -> Float[Array, "*N columns"]:
    """Rows of f itself: the coefficient of each of so many parts is one."""
    return jnp.concatenate([X, jnp.ones((*X.shape[:-1], number), X.dtype)], axis=-1)
