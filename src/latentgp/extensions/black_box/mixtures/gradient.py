"""Plain gradients in all parameters, as published: groups in turn by L-BFGS, or Adadelta.

Natural-gradient steps are faster; these are here for what the source did.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int, Key

from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.family import (
    Basis,
    Covariance,
    FactorisedMixture,
    GaussianMixture,
)
from latentgp.extensions.black_box.mixtures.search import (
    MixtureStep,
    SearchState,
    SlopeSearch,
    StepSearch,
    search_along_slopes,
)
from latentgp.modules import Module
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.finite import all_finite
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.runtime.loop import Steps
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import Run, RunControl
from latentgp.site_inference.search.hyperparameters import LITTLE_GAIN, NO_STEP
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_ITERATIONS, _ROUNDS = 20, 200
_NO_STEP = 2  # SciPy's code of a line search that fails
_ADADELTA: Any = optax.adadelta(learning_rate=1.0, rho=0.95, eps=1e-6)  # Hensman et al. 2013


class Free(Module):
    """All that is learned, without constraints."""

    logits: Float[Array, "K"]  # of the weights
    mean: Float[Array, "K Q M"]
    # of full covariances C C' the factor C with the logarithm of its diagonal; the logarithms of
    # diagonal ones; of "linear" ones a number a row and latent
    spread: Float[Array, "K Q *M"]
    vector: HyperVector
    points: Float[Array, "*Q M D"] | None  # inducing ones, (M, D) or (Q, M, D); None if held
    covariance: Covariance = eqx.field(static=True)  # how spread is to be read

    def at(self, part: dict[str, Any]) -> Free:
        """The same with a part of the fields."""
        return replace(self, **part)


class Ascent(NamedTuple):
    """Where an ascent is."""

    free: Free
    # of the optimiser; of groups in turn the nats that gradients promise which no step could follow
    memory: Any


GROUPS = ("logits", "mean", "spread"), ("vector",), ("points",)


def freed(
    bound: MixtureBound,
    found: SearchState,
    covariance: Covariance,
    points: Float[Array, "*Q M D"] | None,
) -> Free:
    """The present mixture, hyper-parameters and points without constraints."""
    mixture = found.mixture
    if covariance == "linear":
        shape = *mixture.mean.shape[:2], len(bound.data.X)
        spread = jnp.zeros(shape, mixture.mean.dtype)
    elif covariance == "diagonal":
        spread = -jnp.log(mixture.precision)
    else:
        spread = jax.vmap(jax.vmap(_free_factor))(mixture.factorised().covariance)
    vector = jnp.asarray(found.vector)
    return Free(mixture.log_weights, mixture.mean, spread, vector, points, covariance)


def _free_factor(covariance: Float[Array, "M M"]) -> Float[Array, "M M"]:
    lower = lower_cholesky(covariance)
    return jnp.tril(lower, -1) + jnp.diag(jnp.log(jnp.diagonal(lower)))


def factorised(free: Free, basis: Basis) -> FactorisedMixture:
    """The mixture, differentiable; its precisions are left out."""
    logs, mean = jax.nn.log_softmax(free.logits), free.mean
    if free.covariance == "full":
        lower = jnp.tril(free.spread, -1)
        diagonal = jnp.diagonal(free.spread, axis1=2, axis2=3)
        lower = lower + jnp.exp(diagonal)[..., None] * jnp.eye(mean.shape[2], dtype=mean.dtype)
        root, half = jnp.swapaxes(lower, 2, 3), jnp.sum(diagonal, axis=2)
    elif free.covariance == "linear":
        root, half = jax.vmap(lambda sites: _of_sites(sites, basis))(free.spread)
    else:
        covariance = jnp.exp(free.spread)
        mixture = GaussianMixture(logs, mean, covariance)
        return FactorisedMixture(mixture, covariance, None, 0.5 * jnp.sum(free.spread, axis=2))
    covariance = jnp.einsum("kqji,kqjl->kqil", root, root)
    return FactorisedMixture(GaussianMixture(logs, mean, covariance), covariance, root, half)


def _of_sites(sites: Float[Array, "Q N"], basis: Basis) -> tuple[Array, Array]:
    """Roots of (P + A diag(sites) A')^-1, Theorem 2, and half their log-determinants."""

    def one(A: Array, P: Array, sites: Array) -> tuple[Array, Array]:
        lower = lower_cholesky(P + (A * sites) @ A.T)
        root = solve_lower(lower, jnp.eye(len(P), dtype=P.dtype))
        return root, -jnp.sum(jnp.log(jnp.diagonal(lower)))

    return vmap_latents(one, basis.features, basis.precision, sites)


def objective(bound: MixtureBound, free: Free, key: RandomKey) -> tuple[Scalar, Scalar]:
    """Bound plus log prior, whose derivatives need values of log p(y | f) alone.

    With it the number of these that were not finite.
    """
    bound, held = bound.with_points(free.points), jax.lax.stop_gradient
    model = bound.space.to_model(free.vector)
    basis = bound.basis(model)
    known = factorised(free, basis)
    expected = bound.expected(model.likelihood, held(known.marginals(basis)), key)
    rest = bound.without_entropy(model, basis, known, expected, key)
    value = known.entropy + rest + bound.space.log_prior(free.vector)
    return value, jnp.sum(expected.failed)


@Program
def _value_and_gradient(
    bound: MixtureBound, free: Free, part: dict[str, Array], key: RandomKey
) -> tuple[tuple[Scalar, Scalar], dict[str, Array]]:
    """With its derivatives in a part of what is free alone, which takes a part of the time."""

    def of_part(part: dict[str, Array]) -> tuple[Scalar, Scalar]:
        return objective(bound, free.at(part), key)

    return jax.value_and_grad(of_part, has_aux=True)(part)


@Program
def _adadelta(
    bound: MixtureBound, state: Ascent, places: Int[Array, "T B"] | None, keys: Key[Array, "T"]
) -> tuple[Ascent, MixtureStep]:
    """Steps of Adadelta (Zeiler 2012)."""
    both = jax.value_and_grad(objective, argnums=1, has_aux=True)

    def step(state: Ascent, part: tuple[Any, Any]) -> tuple[Ascent, MixtureStep]:
        free, (rows, key) = state.free, part
        (value, failed), slope = both(bound.of_rows(rows), free, key)
        sound = all_finite(slope)
        downhill = jax.tree.map(lambda a: jnp.where(sound, -a, 0.0), slope)
        move, memory = _ADADELTA.update(downhill, state.memory, free)
        told = MixtureStep(value - bound.space.log_prior(free.vector), value, failed, ~sound)
        return Ascent(jax.tree.map(jnp.add, free, move), memory), told

    return jax.lax.scan(step, state, (places, keys))


@Program
def mixture_of(bound: MixtureBound, free: Free) -> GaussianMixture:
    """The mixture with its precisions."""
    basis = bound.basis(bound.space.to_model(free.vector))
    known = factorised(free, basis)
    if known.root is None:
        return known.mixture._replace(precision=1 / known.covariance)

    def inverse(covariance: Float[Array, "M M"]) -> Float[Array, "M M"]:
        half = solve_lower(lower_cholesky(covariance), jnp.eye(len(covariance)))
        return half.T @ half

    return known.mixture._replace(precision=jax.vmap(jax.vmap(inverse))(known.covariance))


def ascend(
    method: Any,
    bound: MixtureBound,
    found: SearchState,
    free: Free,
    tolerance: float,
    control: RunControl,
    key: RandomKey,
) -> MixtureBound:
    """Gradient ascent of all parameters; gives the bound through the points at the end.

    Alternating mixture, hyper-parameters and points go in turn by L-BFGS, each with the others held
    and draws that stay the same, until a round over all groups gains less than the tolerance, in
    nats; else all at once by as many steps of Adadelta, of a batch of rows or of all. What was
    found is brought up to date.
    """
    steps, by_groups = method.steps, method.optimiser == "alternating"
    if by_groups:
        search = _AscentByGroups(found, Ascent(free, jnp.zeros(())), bound, tolerance, key)
    else:
        first = Ascent(free, _ADADELTA.init(free))
        taken, rows = partial(_adadelta, bound), len(bound.data.X)
        search = StepSearch(found, first, taken, rows, steps, method.batch_size, key)
    found.converged = False
    state = search_along_slopes(search, None if by_groups else steps, control)
    bound = bound.with_points(state.free.points)
    found.vector, found.mixture = np.asarray(state.free.vector), mixture_of(bound, state.free)
    return bound


class _AscentByGroups(SlopeSearch):
    """Rounds over the groups."""

    def steps(self, state: Ascent, run: Run) -> Steps[Ascent]:
        from scipy.optimize import minimize  # takes long to import

        found, (free, promised), (bound, tolerance, key) = self.found, state, self.settings
        groups = [names for names in GROUPS if ravel_pytree(_part(free, names))[0].size]
        while len(values := [record.value for record in found.records]) < _ROUNDS:
            if len(values) > 1 and values[-1] - values[-2] < tolerance:
                found.converged = promised <= LITTLE_GAIN * tolerance
                found.reason = f"a round gained less than {tolerance:.1e} nats"
                if not found.converged:
                    found.reason += f", but {NO_STEP}"
                return
            value, promised = -np.inf, 0.0
            for names in groups:
                start, whole = ravel_pytree(_part(free, names))

                def slope(
                    vector: np.ndarray, free: Free = free, whole: Any = whole
                ) -> tuple[float, np.ndarray]:
                    part = whole(jnp.asarray(vector))
                    (value, failed), gradient = _value_and_gradient(bound, free, part, key)
                    found.steps += 1
                    found.failed += int(failed)
                    if not np.isfinite(value):
                        return 1e300, np.zeros_like(vector)
                    return -float(value), -np.asarray(ravel_pytree(gradient)[0])

                known: Any = {"method": "L-BFGS-B", "options": {"maxiter": _ITERATIONS}}
                end = minimize(slope, np.asarray(start), jac=True, **known)
                free, value = free.at(whole(jnp.asarray(end.x))), -float(end.fun)
                if end.status == _NO_STEP:
                    # Curvature in hyper-parameters grows with the rows, in white ones it may not.
                    growth = bound.data.total_weight if "vector" in names else 1.0
                    promised += float(np.sum(end.jac**2)) / growth
            alone = value - float(bound.space.log_prior(free.vector))
            told = self.reported(alone, value, "round", len(values) + 1, _ROUNDS, run)
            yield Ascent(free, jnp.asarray(promised)), told
        found.reason = f"{_ROUNDS} rounds were made"


def _part(free: Free, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(free, name) for name in names}
