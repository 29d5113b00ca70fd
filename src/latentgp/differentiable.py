"""Log evidence as a pure function of a model, for the user's `grad`, `jit` and `vmap`."""

from __future__ import annotations

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.likelihoods import Gaussian
from latentgp.methods.base import Method
from latentgp.models import LatentGP
from latentgp.representations.needs import Needs
from latentgp.rows.data import Data
from latentgp.runtime.x64 import fresh, public
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.methods.exact import ExactGP
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.profiled_bound import exact_log_evidence, slope_at
from latentgp.site_inference.search.starts import ascended_from_best
from latentgp.typing import Array


@public
def log_evidence(
    model: LatentGP, data: Data, method: Method | None = None, *, key: Key[Array, ""] | None = None
) -> Float[Array, ""]:
    """Log evidence of a model, or a method's bound or approximation, in nats.

    Constants and the prior mean are in: it is the `log_evidence` of the posterior that `fit` gives
    without learning, as a function that can be differentiated in every parameter of the model,
    compiled, and mapped over models or data sets of one shape. Sites are profiled out: for methods
    that update them these updates go on until they stand still, and the derivative is that at
    their fixed point, so that there is no second one. The precision is that of JAX where it is
    called: single precision loses much; use `jax.enable_x64(True)`.

    Args:
        model: the model.
        data: the rows, as they are: equal ones are not merged.
        method: `ExactGP()`, `CollapsedVI(...)`, `VariationalInference(...)`, `AugmentedVI(...)`,
            `Laplace(...)` or `ExpectationPropagation(...)`; None is the first for Gaussian noise,
            `VariationalInference()` otherwise.
        key: random key, for the choice of inducing points where none are given.

    Raises:
        InputError: a method without sites, or one that does not fit the model; a derivative in the
            inputs; inducing points that would have to be chosen by a kernel that is traced.

    Example:
        >>> import jax, latentgp as lgp
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> with jax.enable_x64(True):
        ...     value, slope = jax.value_and_grad(lgp.log_evidence)(model, data)
        >>> round(float(value), 4), round(float(slope.kernel.lengthscale), 4)
        (-3.0033, 0.8794)
    """
    if method is None:
        exact = isinstance(model.likelihood, Gaussian)
        method = ExactGP() if exact else VariationalInference()
    Needs(log_evidence=True).check("log_evidence", method=method)
    algorithm = cast(SiteMethod, method).settled(model, data.size).algorithm(model)
    algorithm = _ready(algorithm, model, data, key)
    model, data = jax.tree.map(jnp.asarray, fresh((model, data)))
    data = eqx.tree_at(lambda d: d.X, data, _held(data.X))
    if algorithm.rule.sites_are_fixed(model.likelihood):
        return exact_log_evidence(algorithm, model, data)
    return _profiled(model, algorithm.until_converged(), data)


def _ready(
    algorithm: SiteInference, model: LatentGP, data: Data, key: Key[Array, ""] | None
) -> SiteInference:
    """With the representation made ready for the rows."""
    own = algorithm.representation
    leaves = jax.tree.leaves((model.kernel, data.X))
    if own.traits.needs_rows and any(isinstance(leaf, Tracer) for leaf in leaves):
        raise InputError(
            "Inducing points cannot be chosen inside grad, jit or vmap; give them as "
            "Inducing(points=Z)."
        )
    key = jax.random.key(0) if key is None else key
    ready = own.initialise(data.X, data.weights, model.kernel, key)
    ready = ready.for_rows(data.X, data.weights, model.kernel)
    return eqx.tree_at(lambda a: a.representation, algorithm, ready)


@jax.custom_jvp
def _held(X: Float[Array, "N D"]) -> Float[Array, "N D"]:
    """The inputs, which have no derivative here."""
    return X


@_held.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise InputError(
        "The log evidence has no derivative in the inputs here; write their transform as a kernel "
        "with parameters, or use posterior.as_jax() for derivatives of predictions."
    )


@eqx.filter_custom_vjp
def _profiled(model: LatentGP, algorithm: SiteInference, data: Data) -> Float[Array, ""]:
    return _value_and_slope(None, model, algorithm, data)[0]


@_profiled.def_bwd
def _backward(
    slope: LatentGP,
    cotangent: Float[Array, ""],
    perturbed: Any,
    model: LatentGP,
    algorithm: SiteInference,
    data: Data,
) -> LatentGP:
    return jax.tree.map(lambda leaf: cotangent * leaf, slope)


def _value_and_slope(
    perturbed: Any, model: LatentGP, algorithm: SiteInference, data: Data
) -> tuple[Float[Array, ""], LatentGP]:
    return slope_at(algorithm, model, data, ascended_from_best(algorithm, model, data))


_profiled.def_fwd(_value_and_slope)
