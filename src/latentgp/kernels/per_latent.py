"""Own kernels, one for each latent function; a plain `Kernel` is shared by all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.hyperparameters.base import OwnParts, Parametrised
from latentgp.kernels.base import Kernel
from latentgp.modules import stored
from latentgp.typing import Array


class OwnKernels(Parametrised):
    """A kernel of each latent function's own; not itself a kernel of a pair of points.

    Kernels that differ only in the values of their parameters are computed together, so that
    compiling takes no longer with more of them; override `gram` and such where more is in common.
    """

    @property
    @abstractmethod
    def each(self) -> tuple[Kernel, ...]:
        """The kernels, one for each latent function, in their order."""

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "Q N M"]:
        """Covariances of each latent function between all rows of X and all rows of Z."""
        return of_kernel_groups(self, lambda kernel, _: kernel.gram(X, Z))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "Q N"]:
        """Prior variances of each latent function at every row of X."""
        return of_kernel_groups(self, lambda kernel, _: kernel.diagonal(X))

    def symmetric_gram(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        """`gram(X, X)`, its diagonals free of the rounding of matrix-product distances."""
        return of_kernel_groups(self, lambda kernel, _: kernel.symmetric_gram(X))

    def check_inputs(self, columns: int) -> None:
        """Raise InputError if one of the kernels does not fit inputs with so many columns."""
        for kernel in self.each:
            kernel.check_inputs(columns)


class PerLatent(OwnParts, OwnKernels):
    """Separate kernels of the latent functions; not itself a kernel of a pair of points.

    Args:
        parts: as many kernels as the likelihood has latent functions, in their order.

    Raises:
        InputError: none is given, or something that is not a kernel.

    Example:
        >>> import numpy as np
        >>> from latentgp import RBF, Matern32
        >>> PerLatent(RBF(), Matern32(variance=4.0)).diagonal(np.zeros((1, 2))).tolist()
        [[1.0], [4.0]]
    """

    part_type: ClassVar[type] = Kernel
    parts: tuple[Kernel, ...]

    def __init__(self, *parts: Kernel):
        self.parts = parts

    @property
    def each(self) -> tuple[Kernel, ...]:
        return self.parts


LatentKernel: TypeAlias = Kernel | OwnKernels  # shared by the latent functions, or one for each


@stored
class KernelGroup(NamedTuple):
    """Kernels of one structure, to be computed together."""

    # one kernel whose parameters have a leading axis, of the size of `latents`, or of size 1 where
    # these latent functions share it
    kernels: Kernel
    latents: tuple[int, ...]  # the latent functions that they belong to, counted from 0


def kernel_groups(kernel: LatentKernel, latents: int) -> list[KernelGroup]:
    """The kernels of so many latent functions, those of one structure stacked."""
    if isinstance(kernel, Kernel):
        return [KernelGroup(_stack([kernel]), tuple(range(latents)))]
    members: dict[object, list[int]] = {}
    for latent, part in enumerate(kernel.each):
        leaves, structure = jax.tree.flatten(part)
        shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        members.setdefault((structure, shapes), []).append(latent)
    return [
        KernelGroup(_stack([kernel.each[latent] for latent in same]), tuple(same))
        for same in members.values()
    ]


def of_kernel_groups(
    kernel: LatentKernel, function: Callable[[Kernel, int], Float[Array, "*S"]]
) -> Float[Array, "#Q *S"]:
    """Values of a function of a kernel and the number of its group, for each latent function."""
    if isinstance(kernel, Kernel):
        return function(kernel, 0)[None]
    groups = kernel_groups(kernel, len(kernel.each))

    def of_group(number: int, group: KernelGroup) -> Float[Array, "_ *S"]:
        mapped = jax.vmap(lambda own: function(own, number), axis_size=len(group.latents))
        return mapped(group.kernels)

    values = [of_group(number, group) for number, group in enumerate(groups)]
    return in_latent_order([group.latents for group in groups], values)


def in_latent_order(
    groups: Sequence[tuple[int, ...]], values: Sequence[Float[Array, "_ *S"]]
) -> Float[Array, "Q *S"]:
    """Values for each group of latent functions, put together in the order of the latents."""
    if len(groups) == 1:
        return values[0]
    by_latent = {
        latent: batch[index]
        for group, batch in zip(groups, values, strict=True)
        for index, latent in enumerate(group)
    }
    return jnp.stack([by_latent[latent] for latent in sorted(by_latent)])


def _stack(kernels: Sequence[Kernel]) -> Kernel:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *kernels)
