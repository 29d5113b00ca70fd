"""Natural-gradient steps of the components of a mixture (Lin, Khan & Schmidt 2019)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.black_box.mixtures.bound import MixtureBound, MixtureEvaluation
from latentgp.extensions.black_box.mixtures.family import Basis, GaussianMixture
from latentgp.likelihoods.base import Likelihood
from latentgp.representations.latent_axis import vmap_latents
from latentgp.runtime.programs import Program
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_SHORTEST, _LONGER = 1e-6, 1.5
_RIDGE = 1e-10  # of rows that are alike


class Climb(NamedTuple):
    """An ascent."""

    at: MixtureEvaluation  # the mixture with its bound
    share: Scalar  # the length of the next step, in (0, 1]
    rise: Scalar  # nats gained by the last step taken, over its length; at first infinite
    steps: Int[Array, ""]  # how many were tried


def stepped(
    at: MixtureEvaluation,
    share: Scalar,
    *,
    safely: bool,
    curvature: Float[Array, "K Q M M"] | None = None,
    by_rows: Basis | None = None,
) -> GaussianMixture:
    """The mixture after a natural-gradient step of some length.

    Precisions move by -2 / pi times the derivative in the covariance, means by S / pi times that in
    the mean, log weights by that in the weight. With Gaussian noise one component's full step
    ends at the posterior.

    Safely, for slopes that are estimates, precisions move on a curve that stays among positive
    definite ones (Lin, Schmidt & Khan 2020). Means move by a curvature instead of S^-1 if one is
    given: along a diagonal one they would creep where coefficients are correlated. Precisions are
    P + A diag(a number a row) A' if a basis is given.
    """
    mixture, slopes = at.mixture, at.slopes

    def scaled(slope: Array) -> Array:
        return slope / mixture.weights.reshape(-1, *[1] * (slope.ndim - 1))

    change = -2 * share * scaled(slopes.covariance)
    if by_rows is not None:
        change = nearest_by_rows(mixture, by_rows, change)
    precision = mixture.precision + change
    if safely:
        inverse, full = mixture.factorised().covariance, "kqij,kqjl,kqlm->kqim"
        terms = "kqi,kqi,kqi->kqi" if mixture.is_diagonal else full
        precision = precision + 0.5 * jnp.einsum(terms, change, inverse, change)
    if not mixture.is_diagonal:
        precision = 0.5 * (precision + jnp.swapaxes(precision, 2, 3))
    by = mixture._replace(precision=precision if curvature is None else curvature)
    covariance = by.factorised().covariance
    slope = share * scaled(slopes.mean)
    along = covariance * slope if by.is_diagonal else jnp.einsum("kqij,kqj->kqi", covariance, slope)
    logs = mixture.log_weights + share * (slopes.weights - mixture.weights @ slopes.weights)
    return GaussianMixture(jax.nn.log_softmax(logs), mixture.mean + along, precision)


def nearest_by_rows(
    mixture: GaussianMixture, basis: Basis, change: Float[Array, "K Q M M"]
) -> Float[Array, "K Q M M"]:
    """Changes of precisions by a number a row, A diag(d) A', nearest to others.

    In the metric of natural gradients, tr(S change S change) / 2, as the change of a family with
    fewer parameters than the full one.
    """

    def one(A: Array, covariance: Array, change: Array) -> Array:
        spread = covariance @ A
        squares = (A.T @ spread) ** 2
        unit = _RIDGE * jnp.trace(squares) / len(squares) * jnp.eye(len(squares), dtype=A.dtype)
        wanted = jnp.sum(spread * (change @ spread), axis=0)
        numbers = jax.scipy.linalg.solve(squares + unit, wanted, assume_a="pos")
        return (A * numbers) @ A.T

    def of_component(covariance: Array, change: Array) -> Float[Array, "Q M M"]:
        return vmap_latents(one, basis.features, covariance, change)

    return jax.vmap(of_component)(mixture.factorised().covariance, change)


def climb(
    bound: MixtureBound,
    likelihood: Likelihood,
    basis: Basis,
    start: GaussianMixture,
    enough: Scalar,
    at_most: Int[Array, ""],
    key: RandomKey,
) -> Climb:
    """Steps, without noise, until one gains next to nothing; one that does not gain is halved."""

    def goes_on(state: Climb) -> Bool[Array, ""]:
        return (state.rise > enough) & (state.share > _SHORTEST) & (state.steps < at_most)

    def one(state: Climb) -> Climb:
        curvature = bound.curvatures(basis, state.at.expected) if start.is_diagonal else None
        moved = stepped(state.at, state.share, safely=False, curvature=curvature, by_rows=by_rows)
        there = bound.evaluated(likelihood, basis, moved, key)
        rise = there.terms.bound - state.at.terms.bound
        taken = jnp.isfinite(there.terms.bound) & (rise >= -1e-9 * jnp.abs(state.at.terms.bound))
        at = jax.tree.map(lambda new, old: jnp.where(taken, new, old), there, state.at)
        share = jnp.where(taken, jnp.minimum(1.0, _LONGER * state.share), 0.5 * state.share)
        gained = jnp.where(taken, jnp.maximum(rise, 0.0) / state.share, state.rise)
        return Climb(at, share, gained, state.steps + 1)

    size, rows = basis.features.shape[1:]
    # With more rows full covariances have fewer numbers.
    by_rows = basis if bound.by_rows and 2 * rows < size * (size + 1) else None
    if by_rows is not None:  # the basis is that of the present hyper-parameters
        prior = jnp.broadcast_to(basis.precision, start.precision.shape)
        own = nearest_by_rows(start, by_rows, start.precision - prior)
        start = start._replace(precision=prior + own)
    first = bound.evaluated(likelihood, basis, start, key)
    unit = jnp.ones((), start.mean.dtype)
    return jax.lax.while_loop(goes_on, one, Climb(first, unit, jnp.inf * unit, jnp.zeros((), int)))


class ProfiledMixture(NamedTuple):
    """The best mixture at some hyper-parameters, and the bound's derivative in these."""

    climb: Climb  # the end of the ascent
    value: Scalar  # bound plus log prior, in nats
    gradient: HyperVector  # of it


@Program
def profiled(
    bound: MixtureBound,
    vector: HyperVector,
    start: GaussianMixture,
    enough: Scalar,
    at_most: Int[Array, ""],
    key: RandomKey,
) -> ProfiledMixture:
    """Climb at some hyper-parameters; the mixture's own change has no part in the derivative."""
    model = bound.space.to_model(vector)
    basis = bound.basis(model)
    end = climb(bound, model.likelihood, basis, start, enough, at_most, key)
    known = end.at.mixture.factorised()

    def worth(vector: HyperVector) -> Scalar:
        own = bound.worth(vector, known, end.at.expected, key)
        return own + bound.space.log_prior(vector)

    gradient = jax.grad(worth)(vector) if bound.space.size else jnp.zeros_like(vector)
    value = end.at.terms.bound + bound.space.log_prior(vector)
    return ProfiledMixture(end, value, gradient)
