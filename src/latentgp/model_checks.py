"""Checks of user-defined kernels and likelihoods, before a fit traces them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.hyperparameters.base import declared
from latentgp.hyperparameters.networks import Network
from latentgp.kernels import (
    Functionals,
    InputWarping,
    Kernel,
    LatentKernel,
    OwnKernels,
    PerLatent,
    PerLatentSum,
    WeightedSum,
)
from latentgp.kernels.base import ActiveDimensions, Product, Scaled, Sum
from latentgp.likelihoods import CustomLikelihood, Likelihood
from latentgp.means import FunctionalMean, PerLatentMean, ZeroMean
from latentgp.models import LatentGP
from latentgp.modules import takes
from latentgp.rows.arrays import evenly
from latentgp.runtime.x64 import double_precision

_ROWS = 30  # at which a kernel is looked at
_ROUNDING = 1e-6  # of the largest eigenvalue
_OF_MARGINALS = {  # methods of likelihoods, and what they take
    "expected_log_prob": "y, marginals, side",
    "predictive_log_prob": "y, marginals, side",
    "predictive_cdf": "y, marginals, side",
    "predictive_moments": "marginals, side",
    "predictive_probabilities": "marginals, side",
    "predictive_quantiles": "probabilities, marginals, side",
}


@double_precision
def check_model(model: LatentGP, X: Float[np.ndarray, "N D"]) -> None:
    """Check the user-defined parts of a model before it is fitted.

    Kernels that are not the library's are evaluated at 30 of the rows; all else is shapes only.

    Raises:
        InputError: the kernel does not fit the inputs; `log_prob` or a kernel takes other
            arguments, or returns another shape, than it should; a kernel is not finite, symmetric
            and positive semi-definite; a field holds a number that is neither a parameter nor
            static, or a function.

    Example:
        >>> from latentgp import RBF, CustomLikelihood
        >>> slip = CustomLikelihood(lambda y, f: -abs(y - f))
        >>> check_model(LatentGP(RBF(), slip), np.zeros((3, 1)))
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: The function of CustomLikelihood returns shape (1,) for one \
row instead of one number, shape (); write f[0] for the first latent function, and sum what is left.
    """
    _check_fields(model)
    rows = X[evenly(len(X), _ROWS)]
    for kernel, seen in _kernels(model.of_inputs, rows):
        if not _is_known(kernel):
            _check_kernel(kernel, seen)
        kernel.check_inputs(seen.shape[1])
    model.of_inputs.check_inputs(X.shape[1])
    check_points(model.of_inputs, X)
    _check_mean(model)
    _check_likelihood(model.likelihood)


def _check_mean(model: LatentGP) -> None:
    """Raise where rows carry functionals and the prior mean does not know of them."""
    kernels = model.kernel.each if isinstance(model.kernel, OwnKernels) else (model.kernel,)
    means = model.mean.parts if isinstance(model.mean, PerLatentMean) else (model.mean,)
    knows = all(isinstance(mean, ZeroMean | FunctionalMean) for mean in means)
    if any(isinstance(kernel, Functionals) for kernel in kernels) and not knows:
        raise InputError(
            f"Rows carry functionals, whose prior mean is not that of values; give "
            f"FunctionalMean({model.mean!r})."
        )


def check_points(kernel: LatentKernel, X: Float[np.ndarray, "N D"]) -> None:
    """Raise InputError if a kernel, or one that it is made of, has no value at some rows."""
    for part, seen in _kernels(kernel, X):
        part.check_points(seen)


def _check_fields(node: Any) -> None:
    """Raise where a field is neither learned nor fixed, or stops JAX's transformations."""
    if isinstance(node, tuple | list):
        for part in node:
            _check_fields(part)
    if not isinstance(node, eqx.Module) or isinstance(node, Network):
        return
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.metadata.get("static", False) or declared(field):
            continue
        where = f"{type(node).__name__}.{field.name}"
        if isinstance(value, float):
            raise InputError(
                f"{where} is the number {value:g}, which would not be learned; declare it as "
                f"`{field.name}: Array = parameter(...)`, or as eqx.field(static=True) if it is to "
                "stay as it is."
            )
        if isinstance(value, str) or (callable(value) and not isinstance(value, eqx.Module)):
            raise InputError(
                f"{where} holds a {type(value).__name__}, which JAX cannot trace; declare the "
                "field as eqx.field(static=True)."
            )
        _check_fields(value)


def _kernels(
    kernel: LatentKernel, X: Float[np.ndarray, "N D"]
) -> Iterator[tuple[Kernel, Float[np.ndarray, "N columns"]]]:
    """The kernels that an expression is made of, each with the inputs that it sees."""
    if isinstance(kernel, Sum | Product | WeightedSum | PerLatent | PerLatentSum):
        for part in kernel.parts:
            yield from _kernels(part, X)
    elif isinstance(kernel, Scaled):
        yield from _kernels(kernel.kernel, X)
    elif isinstance(kernel, ActiveDimensions):
        yield from _kernels(kernel.kernel, kernel.select(X))
    elif isinstance(kernel, InputWarping):
        yield from _kernels(kernel.kernel, np.asarray(kernel.warp(X)))
    elif isinstance(kernel, Kernel):
        yield kernel, X


def _check_kernel(kernel: Kernel, X: Float[np.ndarray, "N D"]) -> None:
    name = type(kernel).__name__
    call = f"{name}.__call__"
    if not takes(kernel, 2):
        raise InputError(f"{call} must take the arguments (self, x, z), one point each.")
    point, two, three = (jax.ShapeDtypeStruct((*n, X.shape[1]), float) for n in ((), (2,), (3,)))
    _check_indices(kernel, (np.zeros(X.shape[1]),) * 2, call, f"{X.shape[1]} input column(s)")
    advice = "sum over the columns of the inputs, say."
    _check_shape(kernel, (point, point), (), call, "two points", advice)
    advice = "leave it out, and it is made of __call__."
    _check_shape(kernel.gram, (two, three), (2, 3), f"{name}.gram", "two rows and three", advice)
    _check_shape(kernel.diagonal, (two,), (2,), f"{name}.diagonal", "two rows", advice)
    K = np.asarray(jax.jit(type(kernel).symmetric_gram)(kernel, X))
    if not np.all(np.isfinite(K)):
        raise InputError(
            f"{name} is NaN or infinite at some of the rows; look at it where two points are equal "
            "or far from each other."
        )
    scale = np.max(np.abs(K))
    if np.max(np.abs(K - K.T)) > _ROUNDING * scale:
        raise InputError(
            f"{name} is not symmetric: k(x, z) differs from k(z, x) by up to "
            f"{np.max(np.abs(K - K.T)):.3g}; a covariance is the same both ways."
        )
    smallest = np.linalg.eigvalsh(K)[0]
    if smallest < -_ROUNDING * scale * len(K):
        raise InputError(
            f"{name} is no covariance: its matrix at {len(K)} of the rows has the eigenvalue "
            f"{smallest:.3g}, and must have none below zero; build it of products of features, or "
            "of sums and products of kernels."
        )


def _check_likelihood(likelihood: Likelihood) -> None:
    y, f = jnp.zeros(likelihood.output_shape), jnp.zeros(likelihood.latent_size)
    side = {known: jnp.ones(()) for known in likelihood.side_information}
    if isinstance(likelihood, CustomLikelihood):
        name, function = "The function of CustomLikelihood", likelihood.function
        arguments = y, f
    elif _is_known(likelihood):
        return
    else:
        name, function = f"{type(likelihood).__name__}.log_prob", likelihood.log_prob
        arguments = y, f, side
        if not takes(function, 3):
            raise InputError(
                f"{name} must take the arguments (self, y, f, side), the last of them even if it "
                "reads nothing of a row beside y."
            )
        for method, taken in _OF_MARGINALS.items():
            if not takes(getattr(likelihood, method), taken.count(",") + 1):
                raise InputError(
                    f"{type(likelihood).__name__}.{method} must take the arguments "
                    f"(self, {taken}); mean, variance = marginals gives those of f."
                )
    known = jax.tree.map(np.asarray, arguments)
    _check_indices(function, known, name, f"{likelihood.latent_size} latent function(s)")
    advice = "write f[0] for the first latent function, and sum what is left."
    _check_shape(function, arguments, (), name, "one row", advice)


def _check_indices(function: Callable, arguments: tuple[Any, ...], name: str, given: str) -> None:
    """Raise where an index leaves its array: JAX would take the last entry, NumPy says so."""
    try:
        with np.errstate(all="ignore"):
            function(*arguments)
    except IndexError as error:
        raise InputError(
            f"{name} reads an entry that is not there ({error}), of {given}; read others, or give "
            "as many (latent_size, of a likelihood)."
        ) from error
    except Exception:  # said elsewhere, or no error under JAX
        return


def _is_known(part: Kernel | Likelihood) -> bool:
    """Whether a class is the library's, whose tests say all this."""
    return type(part).__module__.startswith("latentgp.")


def _check_shape(
    call: Callable, arguments: tuple, wanted: tuple[int, ...], name: str, given: str, advice: str
) -> None:
    found = jax.eval_shape(lambda *points: call(*points), *arguments)
    shape = getattr(found, "shape", None)
    if shape != wanted:
        got = f"a {type(found).__name__}" if shape is None else f"shape {shape}"
        expected = "one number, shape ()" if wanted == () else f"shape {wanted}"
        raise InputError(f"{name} returns {got} for {given} instead of {expected}; {advice}")
