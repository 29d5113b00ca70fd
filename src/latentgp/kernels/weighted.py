"""Weighted sums of kernels, the weights shared by the latent functions or one set for each."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameter
from latentgp.kernels.base import Kernel
from latentgp.kernels.per_latent import OwnKernels
from latentgp.kernels.precomputed import Precomputed
from latentgp.typing import Array

SumT = TypeVar("SumT", "WeightedSum", "PerLatentSum")


class WeightedSum(Kernel):
    """Sum of kernels with a weight each, sum_m w_m k_m(x, z); the weights are one parameter.

    For multiple kernels learned together (Filippone et al. 2012, 3). Weights that are learned
    beside variances of the parts are not determined: freeze these, as in `frozen=["kernel.parts"]`.
    The weights are one vector, so that a Dirichlet law can be their prior.

    Args:
        parts: M kernels, each of which may see columns of its own, as by `.on(...)`.
        weights: positive, shape (M,), units of f squared over the parts'; ones unless given.

    Raises:
        InputError: no part, one that is no kernel, or weights that are not as many.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> kernel = WeightedSum((lgp.RBF().on(0), lgp.Linear().on(1)), [2.0, 0.5])
        >>> kernel.diagonal(np.array([[0.0, 2.0]])).tolist()
        [4.0]
    """

    parts: tuple[Kernel, ...]
    weights: Float[Array, "M"] = parameter(constraints.positive, role="factor")

    def __init__(self, parts: Any, weights: Any = None):
        self.parts = tuple(parts)
        self.weights = np.ones(len(self.parts)) if weights is None else weights

    def __check_init__(self) -> None:
        _check_parts(self, (len(self.parts),))

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.sum(self.weights * jnp.stack([part(x, z) for part in self.parts]))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return _total(self.weights, [part.gram(X, Z) for part in self.parts])

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return _total(self.weights, [part.diagonal(X) for part in self.parts])

    def stored(self, X: Any) -> "WeightedSum":
        """The same sum with the Gram matrix of every part at inputs X, shape (N, D), stored.

        Its inputs are the numbers of these rows. Chains at hyper-parameters of the parts that are
        held then compute no Gram matrix. Give all rows that will be asked about, new ones too.

        Example:
            >>> import latentgp as lgp, numpy as np
            >>> X = np.array([[0.0, 2.0], [1.0, 1.0]])
            >>> kernel = WeightedSum((lgp.RBF().on(0), lgp.Linear().on(1))).stored(X)
            >>> kernel.diagonal(np.array([[0.0], [1.0]])).tolist()
            [5.0, 2.0]
        """
        return _stored(self, X)


class PerLatentSum(OwnKernels):
    """Weighted sums of the same kernels, the weights of each latent function its own.

    Latent function q has the kernel sum_m w_qm k_m (Filippone et al. 2012, 3). The parts are
    shared, so that the Gram matrix of each is computed once for all latent functions; `PerLatent`
    is for kernels whose other parameters differ too.

    Args:
        parts: M kernels, as in `WeightedSum`.
        weights: positive, shape (Q, M), one row for each latent function.

    Raises:
        InputError: no part, one that is no kernel, or weights of another shape.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> kernel = PerLatentSum((lgp.RBF(), lgp.Linear()), [[1.0, 0.0], [0.5, 2.0]])
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: PerLatentSum.weights must satisfy positive, got \
[[1.0, 0.0], [0.5, 2.0]]; give a value inside that range.
        >>> kernel = PerLatentSum((lgp.RBF(), lgp.Linear()), [[1.0, 1.0], [0.5, 2.0]])
        >>> kernel.diagonal(np.array([[2.0]])).tolist()
        [[5.0], [8.5]]
    """

    parts: tuple[Kernel, ...]
    weights: Float[Array, "Q M"] = parameter(constraints.positive, role="factor")

    def __init__(self, parts: Any, weights: Any):
        self.parts = tuple(parts)
        self.weights = weights

    def __check_init__(self) -> None:
        _check_parts(self, (*np.shape(self.weights)[:1], len(self.parts)))

    @property
    def each(self) -> tuple[Kernel, ...]:
        return tuple(WeightedSum(self.parts, weights) for weights in self.weights)

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "Q N M"]:
        return self._sums([part.gram(X, Z) for part in self.parts])

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "Q N"]:
        return self._sums([part.diagonal(X) for part in self.parts])

    def symmetric_gram(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        return self._sums([part.symmetric_gram(X) for part in self.parts])

    def stored(self, X: Any) -> "PerLatentSum":
        """The same sums with the Gram matrix of every part stored, as `WeightedSum.stored`."""
        return _stored(self, X)

    def _sums(self, values: Sequence[Float[Array, "*S"]]) -> Float[Array, "Q *S"]:
        return jnp.tensordot(jnp.asarray(self.weights), jnp.stack(values), 1)


def _total(weights: Float[Array, "M"], values: Sequence[Float[Array, "*S"]]) -> Float[Array, "*S"]:
    return reduce(operator.add, map(operator.mul, weights, values))


def _stored(kernel: SumT, X: Any) -> SumT:
    parts = tuple(Precomputed.of(part, X) for part in kernel.parts)
    return dataclasses.replace(kernel, parts=parts)


def _check_parts(kernel: WeightedSum | PerLatentSum, shape: tuple[int, ...]) -> None:
    name, parts = type(kernel).__name__, kernel.parts
    if not parts or not all(isinstance(part, Kernel) for part in parts):
        raise InputError(f"{name} takes kernels in a tuple, at least one, got {parts!r}.")
    if np.shape(kernel.weights) != shape:
        rows = "(latent functions, " if len(shape) > 1 else "("
        raise InputError(
            f"{name}.weights must have a number for each of the {len(parts)} parts, shape "
            f"{rows}{len(parts)}), got shape {np.shape(kernel.weights)}."
        )
