"""Conformance suite of kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import Kernel
from latentgp.rows.arrays import as_inputs
from latentgp.runtime.x64 import double_precision
from latentgp.testing.numerics import (
    as_single,
    require,
    require_equal,
    require_finite,
    require_gradient,
    require_single,
)

# A squared distance from a matrix product is off by some eps, so a distance near 0 by its root.
_TOUCHING = 1e-6
_APART = 1e-9


@double_precision
def check_kernel(kernel: Kernel, inputs: np.ndarray) -> None:
    """Check a kernel at the rows of some inputs.

    Args:
        kernel: with values of its parameters away from the ends of their supports.
        inputs: shape (N, D), at least four distinct rows where the kernel is smooth in its
            parameters.

    Raises:
        AssertionError: `gram` or `diagonal` is not what `__call__` says; the Gram matrix is not
            symmetric and positive semi-definite, duplicate rows included; a gradient is not
            finite at zero distance, or wrong; jit, vmap, float32 or flattening changes results.
    """
    X = as_inputs(inputs)
    require(len(X) >= 4, f"Give at least four rows to check a kernel, got {len(X)}.")
    require(len(np.unique(X, axis=0)) == len(X), "Give distinct rows to check a kernel.")
    kernel.check_inputs(X.shape[1])
    name = type(kernel).__name__
    _check_values(kernel, X, name)
    _check_semi_definite(kernel, X, name)
    _check_gradients(kernel, X, name)
    _check_transformations(kernel, X, name)


def _check_values(kernel: Kernel, X: np.ndarray, name: str) -> None:
    Z = X[::-1][:-1] + 0.0
    pairs = jax.jit(jax.vmap(jax.vmap(type(kernel).__call__, (None, None, 0)), (None, 0, None)))
    expected = np.asarray(pairs(kernel, X, Z))
    gram = np.asarray(jax.jit(type(kernel).gram)(kernel, X, Z))
    scale = np.max(np.abs(expected))
    apart = np.any(X[:, None] != Z[None], axis=-1)
    what = f"{name}.gram differs from its __call__"
    require_equal(gram[apart], expected[apart], what, rtol=_APART, atol=_APART * scale)
    require_equal(gram, expected, f"{what} at equal points", atol=_TOUCHING * scale)
    diagonal = jax.jit(type(kernel).diagonal)(kernel, X)
    own = np.diagonal(np.asarray(pairs(kernel, X, X)))
    what = f"{name}.diagonal differs from __call__(x, x)"
    require_equal(diagonal, own, what, atol=_TOUCHING * scale)
    require(np.all(diagonal >= 0), f"{name}.diagonal is negative: {diagonal}.")


def _check_semi_definite(kernel: Kernel, X: np.ndarray, name: str) -> None:
    duplicated = np.concatenate([X, X[:2], X[:1]])
    K = np.asarray(jax.jit(type(kernel).symmetric_gram)(kernel, duplicated))
    scale = np.max(np.diagonal(K))
    require_equal(K, K.T, f"{name}'s Gram matrix is not symmetric", atol=_TOUCHING * scale)
    smallest = np.linalg.eigvalsh(0.5 * (K + K.T)).min()
    require(
        smallest >= -_TOUCHING * scale,
        f"{name}'s Gram matrix at points with duplicates has an eigenvalue of {smallest:.3e}.",
    )


def _check_gradients(kernel: Kernel, X: np.ndarray, name: str) -> None:
    def total(kernel, x, z):
        return kernel(x, z)

    at_zero = jax.jit(jax.grad(total, (0, 1, 2)))(kernel, X[0], X[0])
    require_finite(at_zero, f"The gradient of {name} at zero distance")

    def duplicates(kernel, X):
        return jnp.sum(kernel.gram(X, X)) + jnp.sum(kernel.symmetric_gram(X))

    repeated = np.concatenate([X, X[:2]])
    in_both = jax.jit(jax.grad(duplicates, (0, 1)))(kernel, repeated)
    require_finite(in_both, f"The gradient of {name}.gram at points with duplicates")

    space = ParameterSpace(kernel)
    if not space.size:
        return
    Z = X[::-1][:-1]
    generator = np.random.default_rng(0)
    # Equal points are left to symmetric_gram: their distance from a product is rounding.
    weights = generator.normal(size=(len(X), len(Z))) * np.any(X[:, None] != Z[None], axis=-1)
    own_weights = generator.normal(size=(len(X), len(X)))

    def weighted(vector):
        own = space.to_model(vector)
        return jnp.sum(weights * own.gram(X, Z)) + jnp.sum(own_weights * own.symmetric_gram(X))

    vector = space.to_vector()
    gradient = jax.jit(jax.grad(weighted))(vector)
    require_gradient(jax.jit(weighted), vector, gradient, f"{name}'s gradient in its parameters")


def _check_transformations(kernel: Kernel, X: np.ndarray, name: str) -> None:
    gram = jax.jit(type(kernel).gram)
    K = np.asarray(gram(kernel, X, X))
    scale = np.max(np.abs(K))
    tolerance = _TOUCHING * scale
    require_equal(kernel.gram(X, X), K, f"{name}.gram changes under jit", atol=tolerance)
    batched = jax.vmap(kernel.gram)(np.stack([X, X[::-1]]), np.stack([X, X]))
    require_equal(batched[0], K, f"{name}.gram changes under vmap", atol=tolerance)
    require_equal(batched[1], K[::-1], f"{name}.gram changes under vmap", atol=tolerance)

    single, narrow = as_single(kernel), X.astype(np.float32)
    for method in (type(kernel).gram, type(kernel).symmetric_gram, type(kernel).diagonal):
        points = (narrow, narrow) if method is type(kernel).gram else (narrow,)
        require_single(jax.eval_shape(method, single, *points), f"{name}.{method.__name__}")
    point = jax.eval_shape(type(kernel).__call__, single, narrow[0], narrow[0])
    require_single(point, f"{name}.__call__")

    leaves, structure = jax.tree.flatten(kernel)
    hash(structure)
    again = jax.tree.unflatten(structure, leaves)
    require_equal(gram(again, X, X), K, f"{name} is changed by flattening")
    space = ParameterSpace(kernel)
    returned = space.to_model(jnp.asarray(space.to_vector()))
    require_equal(
        gram(returned, X, X), K, f"{name} is changed by ParameterSpace", rtol=1e-10, atol=tolerance
    )
