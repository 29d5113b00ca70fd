"""Components of a posterior: each a model and a Gaussian of coefficients, with a weight.

One for Gaussian sites, one a draw for Markov chains and particles (without a covariance), a few for
mixtures. Rows come first in what they give: means of shape (N, K, Q) for K components.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from latentgp.errors import InputError
from latentgp.kernels.parts import telling_parts
from latentgp.likelihoods import Likelihood
from latentgp.means import ZeroMean, constant_first
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.numerics.cholesky import jittered_cholesky, jittered_lower
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.base import LatentPosterior
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.variables import (
    Centres,
    covariance_of,
    cross_covariance,
    numbers_a_row,
    prior_covariance,
    prior_variances,
    wholes_at,
)
from latentgp.rows.data import padded_size
from latentgp.typing import Array, Inputs, RandomKey, RowLatents

_FEW = 16  # components, of which each has its own quadrature
_FEW_STACKED = 64  # the same, where one program is run for all
_KEPT_NUMBERS = 1 << 25  # of inverse factors, one for each draw's kernel

Spread = Float[Array, "N #K Q"] | Float[Array, "N #K Q Q"]
# Draws of f at rows together, and of which component each is, shape (S,).
JointDraws: TypeAlias = tuple[Float[np.ndarray, "S N Q"], np.ndarray]


def covariances_of(spread: Spread) -> Float[Array, "N #K Q Q"]:
    """Covariances of the latents of a row; of variances alone diagonal ones."""
    if spread.ndim == 4:
        return spread
    return spread[..., None] * jnp.eye(spread.shape[-1], dtype=spread.dtype)


def variances_of(spread: Spread) -> Float[Array, "N #K Q"]:
    """Variances of each latent."""
    return spread if spread.ndim == 3 else jnp.diagonal(spread, axis1=2, axis2=3)


class Law(eqx.Module):
    """Predictive distribution of a target given marginals under each component."""

    likelihood: Likelihood  # shared, or with a leading axis of components in every leaf
    log_weights: Float[Array, "K"]  # of the components; their exponentials sum to one
    own: bool = eqx.field(static=True)  # whether each component has a likelihood of its own
    # whether expectations are found under each component; else at a few points of each
    by_quadrature: bool = eqx.field(static=True)


class Components(eqx.Module):
    """Weighted Gaussian posteriors of the latent functions."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of components K."""

    @property
    @abstractmethod
    def model(self) -> LatentGP:
        """Representative model: the only one, or that of the mean or heaviest component."""

    @property
    @abstractmethod
    def law(self) -> Law:
        """Likelihoods and weights."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number of input columns D."""

    @property
    def units(self) -> Float[Array, "#D"]:
        """Inputs' units of the length-scales of the kernel that sees them, one unless scaled."""
        return np.ones(1)

    @property
    @abstractmethod
    def columns(self) -> int:
        """Numbers needed a row to find `marginals`."""

    @abstractmethod
    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        """Means and variances of f under every component.

        Covariances of the latents of a row, shape (N, K, Q, Q), where sites couple these.
        """

    def means(self, X: Inputs) -> Float[Array, "N K Q"]:
        """Means alone."""
        return self.marginals(X)[0]

    @abstractmethod
    def joint(self, X: Inputs, key: RandomKey, number: int) -> JointDraws:
        """Joint draws of f at X, and of which component each is, shape (S,)."""

    @abstractmethod
    def shifted(self, centre: float) -> "Components":
        """With a zero prior mean moved by a constant, and the first latent function with it."""

    def telling_parts(self, number: int) -> "Components":
        """Components for rows with coefficients of the kernel's parts; without the prior mean.

        Refused by an InputError unless overridden.
        """
        advice = "fit a model of one layer with Dense() or Inducing(...)"
        raise InputError(f"This posterior has no parts of f; {advice}.")

    def check_inputs(self, X: Inputs) -> None:
        """Raise InputError where the posterior no longer knows f; nowhere unless overridden."""

    @property
    def heaviest(self) -> "Components":
        """The Gaussian of the greatest weight; all components unless overridden."""
        return self

    def prepared(self) -> "Components":
        """With whatever predictions can keep, such as factors of the prior."""
        return self

    def pick(self, key: RandomKey, number: int) -> np.ndarray:
        """Components drawn by their weights, shape (S,)."""
        log_weights = jnp.asarray(self.law.log_weights)
        return np.asarray(jax.random.categorical(key, log_weights, shape=(number,)))


class OneComponent(Components):
    """A single component."""

    own_model: LatentGP

    @property
    def size(self) -> int:
        return 1

    @property
    def model(self) -> LatentGP:
        return self.own_model

    @property
    def law(self) -> Law:
        return Law(self.own_model.likelihood, np.zeros(1), own=False, by_quadrature=True)


@stored
class OneGaussian(OneComponent):
    """The posterior that Gaussian sites imply."""

    latent: LatentPosterior  # of g = f - prior mean

    @property
    def inputs(self) -> int:
        return self.latent.centres.shape[1]

    @property
    def columns(self) -> int:
        return numbers_a_row(self.latent.centres)

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        mean, spread = self.latent.marginals(X)
        return (mean + self.own_model.mean(X))[:, None], spread[:, None]

    def means(self, X: Inputs) -> Float[Array, "N K Q"]:
        return (self.latent.mean(X) + self.own_model.mean(X))[:, None]

    def joint(self, X: Inputs, key: RandomKey, number: int) -> JointDraws:
        more = padded_size(len(X)) - len(X) if self.latent.draws_copies else 0
        filled = np.pad(X, ((0, more), (0, 0)), mode="edge")
        draws = _joint_of_gaussian(self.own_model, self.latent, filled, key, number)
        return np.asarray(draws)[:, : len(X)], np.zeros(number, int)

    def shifted(self, centre: float) -> "OneGaussian":
        mean = constant_first(centre, self.own_model.likelihood.latent_size)
        model = LatentGP(self.own_model.kernel, self.own_model.likelihood, mean)
        return OneGaussian(model, self.latent.with_targets_shifted(centre))

    def check_inputs(self, X: Inputs) -> None:
        self.latent.check_inputs(X)

    def telling_parts(self, number: int) -> "OneGaussian":
        model = _telling_parts(self.own_model, number)
        return OneGaussian(model, self.latent.telling_parts(number))


@stored
class Mixture(Components):
    """A few weighted posteriors side by side.

    Args:
        parts: any components, of likelihoods of one class.
        weights: shape (K,), not negative; they are divided by their sum.

    Raises:
        InputError: no parts, weights that are none, parts of different likelihoods.
    """

    parts: tuple[Components, ...]
    log_weights: Float[Array, "K"]

    def __init__(self, parts: Sequence[Components], weights: Any):
        weights = np.asarray(weights, np.float64)
        if not parts or weights.shape != (len(parts),) or not (weights >= 0).all():
            raise InputError(
                f"A mixture needs a weight, not negative, for each of its {len(parts)} parts, got "
                f"{weights.tolist()}."
            )
        if not 0 < weights.sum() < np.inf:
            raise InputError(f"The weights must have a positive sum, got {weights.tolist()}.")
        structures = {jax.tree.structure(part.law.likelihood) for part in parts}
        if len(structures) > 1:
            raise InputError("The parts of a mixture must have likelihoods of one class.")
        self.parts = tuple(parts)
        with np.errstate(divide="ignore"):
            self.log_weights = np.log(weights / weights.sum())

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def model(self) -> LatentGP:
        return self.parts[int(np.argmax(self.log_weights))].model

    @property
    def law(self) -> Law:
        laws = [part.law for part in self.parts]
        likelihoods = [
            law.likelihood
            if law.own
            else jax.tree.map(lambda a, n=part.size: jnp.stack([a] * n), law.likelihood)
            for law, part in zip(laws, self.parts, strict=True)
        ]
        stacked = jax.tree.map(lambda *parts: jnp.concatenate(parts), *likelihoods)
        own = [law.log_weights for law in laws]
        log_weights = [jnp.asarray(a + b) for a, b in zip(self.log_weights, own, strict=True)]
        few = self.size <= _FEW and all(law.by_quadrature for law in laws)
        return Law(stacked, jnp.concatenate(log_weights), own=True, by_quadrature=few)

    @property
    def inputs(self) -> int:
        return self.parts[0].inputs

    @property
    def columns(self) -> int:
        return max(part.columns for part in self.parts)

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        found = [part.marginals(X) for part in self.parts]
        means = [mean for mean, _ in found]
        spreads = [jnp.broadcast_to(s, (*mean.shape, *s.shape[3:])) for mean, s in found]
        if len({spread.ndim for spread in spreads}) > 1:
            spreads = [covariances_of(spread) for spread in spreads]
        return jnp.concatenate(means, axis=1), jnp.concatenate(spreads, axis=1)

    def means(self, X: Inputs) -> Float[Array, "N K Q"]:
        return jnp.concatenate([part.means(X) for part in self.parts], axis=1)

    def check_inputs(self, X: Inputs) -> None:
        for part in self.parts:
            part.check_inputs(X)

    def joint(self, X: Inputs, key: RandomKey, number: int) -> JointDraws:
        key_pick, key_parts = jax.random.split(key)
        log_weights = jnp.asarray(self.log_weights)
        chosen = np.asarray(jax.random.categorical(key_pick, log_weights, shape=(number,)))
        firsts = np.cumsum([0, *(part.size for part in self.parts)])
        draws = np.zeros((number, len(X), self.model.likelihood.latent_size))
        picked = np.zeros(number, int)
        for index, part in enumerate(self.parts):
            own = np.flatnonzero(chosen == index)
            if own.size:
                key = jax.random.fold_in(key_parts, index)
                draws[own], inside = part.joint(X, key, own.size)
                picked[own] = firsts[index] + inside
        return draws, picked

    def shifted(self, centre: float) -> "Mixture":
        return self._of(part.shifted(centre) for part in self.parts)

    def telling_parts(self, number: int) -> "Mixture":
        return self._of(part.telling_parts(number) for part in self.parts)

    def prepared(self) -> "Mixture":
        return self._of(part.prepared() for part in self.parts)

    def _of(self, parts: Iterable[Components]) -> "Mixture":
        return Mixture(list(parts), np.exp(self.log_weights))


@stored
class Gaussians(Components):
    """Weighted Gaussian posteriors of one kind, stacked: each has hyper-parameters of its own.

    Unlike a `Mixture` of as many it is one program, whatever their number.
    """

    models: LatentGP  # the model of every component, its leaves with K first
    latents: LatentPosterior  # the Gaussian posteriors of g = f - prior mean, stacked too
    log_weights: Float[Array, "K"]  # their exponentials sum to one

    @classmethod
    def of(
        cls, models: Sequence[LatentGP], latents: Sequence[LatentPosterior], weights: Any
    ) -> "Gaussians":
        """Stack posteriors; weights, shape (K,), are divided by their sum."""
        weights = np.asarray(weights, np.float64)

        def stacked(parts: Sequence[Any]) -> Any:
            return jax.tree.map(lambda *leaves: np.stack([np.asarray(a) for a in leaves]), *parts)

        with np.errstate(divide="ignore"):
            log_weights = np.log(weights / weights.sum())
        return cls(stacked(models), stacked(latents), log_weights)

    @property
    def size(self) -> int:
        return len(self.log_weights)

    @property
    def model(self) -> LatentGP:
        return self.heaviest.own_model

    @property
    def heaviest(self) -> OneGaussian:
        own = int(np.argmax(self.log_weights))
        return OneGaussian(*jax.tree.map(lambda a: np.asarray(a[own]), (self.models, self.latents)))

    @property
    def law(self) -> Law:
        few = self.size <= _FEW_STACKED
        return Law(self.models.likelihood, self.log_weights, own=True, by_quadrature=few)

    @property
    def inputs(self) -> int:
        return self._first.centres.shape[1]

    @property
    def columns(self) -> int:
        beside = numbers_a_row(self._first.centres)
        return max(self.size * self.model.likelihood.latent_size, beside)

    @property
    def _first(self) -> LatentPosterior:
        return jax.tree.map(lambda a: a[0], self.latents)

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        parts = OneGaussian(self.models, self.latents)
        mean, spread = jax.lax.map(lambda part: part.marginals(X), parts)
        return jnp.moveaxis(mean[:, :, 0], 0, 1), jnp.moveaxis(spread[:, :, 0], 0, 1)

    def means(self, X: Inputs) -> Float[Array, "N K Q"]:
        means = jax.lax.map(lambda part: part.means(X), OneGaussian(self.models, self.latents))
        return jnp.moveaxis(means[:, :, 0], 0, 1)

    def check_inputs(self, X: Inputs) -> None:
        self._first.check_inputs(X)

    def joint(self, X: Inputs, key: RandomKey, number: int) -> JointDraws:
        key_pick, key_f = jax.random.split(key)
        picked = self.pick(key_pick, number)
        draws = np.zeros((number, len(X), self.model.likelihood.latent_size))
        places, counts = np.unique(picked, return_counts=True)
        most = 1 << int(counts.max() - 1).bit_length()  # one program for all
        for place in places:
            model, latent = jax.tree.map(lambda a, k=place: a[k], (self.models, self.latents))
            own = np.flatnonzero(picked == place)
            key = jax.random.fold_in(key_f, place)
            draws[own] = _joint_of_gaussian(model, latent, X, key, most)[: own.size]
        return draws, picked

    def thinned(self, number: int) -> "Gaussians":
        """So many of the components, evenly spaced, with weights of their own."""
        kept = np.linspace(0, self.size - 1, number).astype(int)
        models, latents = jax.tree.map(lambda a: a[kept], (self.models, self.latents))
        log_weights = np.asarray(self.log_weights)[kept]
        return Gaussians(models, latents, log_weights - np.log(np.sum(np.exp(log_weights))))

    def shifted(self, centre: float) -> "Gaussians":
        mean = constant_first(np.full(self.size, centre), self.model.likelihood.latent_size)
        models = LatentGP(self.models.kernel, self.models.likelihood, mean)
        return Gaussians(models, self.latents, self.log_weights)

    def telling_parts(self, number: int) -> "Gaussians":
        models = _telling_parts(self.models, number)
        return Gaussians(models, self.latents.telling_parts(number), self.log_weights)


class DrawnComponents(Components):
    """Draws of equal weight: nothing is fitted to them.

    Given a draw the latent functions elsewhere are Gaussian: its conditional at other inputs.
    """

    mean_model: LatentGP  # with the mean of the drawn hyper-parameters on their unconstrained scale
    # the model of every draw, its leaves with S first, or 1 where all share them; or one model for
    # all draws
    models: LatentGP
    own: bool = eqx.field(static=True)  # whether every draw has a model of its own

    @property
    def model(self) -> LatentGP:
        return self.mean_model

    @property
    def law(self) -> Law:
        log_weights = np.full(self.size, -np.log(self.size))
        return Law(self.models.likelihood, log_weights, self.own, by_quadrature=False)

    def joint(self, X: Inputs, key: RandomKey, number: int) -> JointDraws:
        key_pick, key_f = jax.random.split(key)
        picked = self.pick(key_pick, number)
        chosen = self.of_draws(picked, taken(self.models, picked) if self.own else self.models)
        return np.asarray(_joint(chosen, X, jax.random.split(key_f, number))), picked

    @abstractmethod
    def drawn(self, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw of f at X given each of the draws."""

    def thinned(self, number: int) -> "DrawnComponents":
        """So many of the draws, evenly spaced."""
        kept = np.linspace(0, self.size - 1, number).astype(int)
        return self.of_draws(kept, taken(self.models, kept) if self.own else self.models)

    @abstractmethod
    def of_draws(self, kept: Int[np.ndarray, "kept"], models: LatentGP) -> "DrawnComponents":
        """Some of the draws, whose models are given."""

    def shifted(self, centre: float) -> "DrawnComponents":
        latents = self.mean_model.likelihood.latent_size
        value = np.full(self.size, centre) if self.own else centre
        means = constant_first(centre, latents), constant_first(value, latents)
        return eqx.tree_at(lambda d: (d.mean_model.mean, d.models.mean), self, means)


@stored
class Draws(DrawnComponents):
    """Draws of white coefficients."""

    centres: Centres  # of the coefficients, such as points of shape (M, D)
    white: Float[Array, "S Q M"]
    # of the prior's factor at the centres; None until `prepared`, or where they are too many
    inverse: Float[Array, "#S #Q M M"] | None

    @property
    def size(self) -> int:
        return len(self.white)

    @property
    def inputs(self) -> int:
        return self.centres.shape[1]

    @property
    def columns(self) -> int:
        return max(self.size * self.white.shape[1], len(self.centres))

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        latents = self.white.shape[1]

        def given(model: LatentGP, inverse: Array | None) -> tuple[Array, Array, Array]:
            half = _half(model, inverse, self.centres, X)
            prior = prior_variances(model.kernel, self.centres, X)
            variance = prior - vmap_latents(sum_over_first, half**2)
            variance = jnp.broadcast_to(jnp.maximum(variance, 0.0), (latents, X.shape[0])).T
            return half, variance, jnp.broadcast_to(model.mean(X), (X.shape[0], latents))

        def mean(half: Array, offset: Array, white: Array) -> Array:
            return vmap_latents(lambda half, v: v @ half, half, white).T + offset

        if not self.own:
            inverse = None if self.inverse is None else self.inverse[0]
            half, variance, offset = given(self.models, inverse)
            means = jax.vmap(lambda white: mean(half, offset, white))(self.white)
            return jnp.moveaxis(means, 0, 1), variance[:, None]

        def one(draw: tuple[LatentGP, Array | None, Array]) -> tuple[Array, Array]:
            half, variance, offset = given(*draw[:2])
            return mean(half, offset, draw[2]), variance

        means, variances = over_draws(one, (self.models, self.inverse, self.white))
        return jnp.moveaxis(means, 0, 1), jnp.moveaxis(variances, 0, 1)

    def drawn(self, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        shared = None if self.inverse is None or self.own else self.inverse[0]

        def one(draw: tuple[Any, Any, Array, Any]) -> RowLatents:
            own_model, own_inverse, white, key = draw
            model = own_model if self.own else self.models
            half = _half(model, own_inverse if self.own else shared, self.centres, X)
            mean = vmap_latents(lambda half, v: v @ half, half, white).T + model.mean(X)

            def factor(prior: Array, half: Array) -> Array:
                return jittered_lower(prior - half.T @ half, jnp.mean(jnp.diagonal(prior)))

            root = vmap_latents(factor, prior_covariance(model.kernel, self.centres, X), half)
            noise = jax.random.normal(key, mean.T.shape, mean.dtype)
            return mean + vmap_latents(lambda root, noise: root @ noise, root, noise).T

        own_parts = (self.models, self.inverse) if self.own else (None, None)
        return over_draws(one, (*own_parts, self.white, keys))

    def of_draws(self, kept: Int[np.ndarray, "kept"], models: LatentGP) -> "Draws":
        inverse, white = taken(self.inverse, kept), self.white[kept]
        return Draws(self.mean_model, models, self.own, self.centres, white, inverse)

    def telling_parts(self, number: int) -> "Draws":
        models = (_telling_parts(model, number) for model in (self.mean_model, self.models))
        parts = *models, wholes_at(self.centres, number)
        return eqx.tree_at(lambda d: (d.mean_model, d.models, d.centres), self, parts)

    def prepared(self) -> "Draws":
        inverse = partial(_inverses, self.own)
        wanted = jax.eval_shape(inverse, self.models, self.centres)
        if self.inverse is not None or wanted.size > _KEPT_NUMBERS:
            return self
        found = np.asarray(inverse(self.models, self.centres))
        return eqx.tree_at(lambda d: d.inverse, self, found, is_leaf=lambda leaf: leaf is None)


def _telling_parts(model: LatentGP, number: int) -> LatentGP:
    kernel = telling_parts(model.kernel, number)
    return eqx.tree_at(lambda m: (m.kernel, m.mean), model, (kernel, ZeroMean()))


def over_draws(function: Callable[[Any], Any], parts: Any) -> Any:
    """Map a function over the leading axis S, one after another; leaves of size 1 are shared."""
    leaves, structure = jax.tree.flatten(parts)
    each = [len(leaf) > 1 for leaf in leaves]
    if not any(each):
        return jax.lax.map(function, parts)

    def one(own: list[Any]) -> Any:
        rest = iter(own)
        given = [next(rest) if e else leaf[0] for e, leaf in zip(each, leaves, strict=True)]
        return function(jax.tree.unflatten(structure, given))

    return jax.lax.map(one, [leaf for e, leaf in zip(each, leaves, strict=True) if e])


def taken(models: Any, places: Any) -> Any:
    """The models of some draws, or others of their parts; leaves that all share stay."""
    return jax.tree.map(lambda a: a[places] if len(a) > 1 else a, models)


def _inverse_at(model: LatentGP, centres: Centres) -> Float[Array, "#Q M M"]:
    """L^-1 for the factor L of the prior covariance at the centres."""
    grams = covariance_of(model.kernel, centres)
    return vmap_latents(lambda gram: jittered_cholesky(gram).factor.inverse, grams)


@partial(jax.jit, static_argnums=0)
def _inverses(own: bool, models: LatentGP, centres: Centres) -> Float[Array, "#S #Q M M"]:
    if not own:
        return _inverse_at(models, centres)[None]
    return over_draws(lambda model: _inverse_at(model, centres), models)


def _half(
    model: LatentGP, inverse: Float[Array, "#Q M M"] | None, centres: Centres, X: Inputs
) -> Float[Array, "#Q M N"]:
    """L^-1 k(C, X)."""
    inverse = _inverse_at(model, centres) if inverse is None else inverse
    return vmap_latents(jnp.matmul, inverse, cross_covariance(model.kernel, centres, X))


@partial(jax.jit, static_argnames="number")
def _joint_of_gaussian(
    model: LatentGP, latent: LatentPosterior, X: Array, key: RandomKey, number: int
) -> Float[Array, "S N Q"]:
    return model.mean(X) + latent.draws(key, X, number)


@jax.jit
def _joint(draws: Any, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
    return draws.drawn(X, keys)
