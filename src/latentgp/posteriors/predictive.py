"""The predictive distribution of y: one class for every kind of posterior.

Each row has K weighted components, under which its latent functions are Gaussian. For a few of
them expectations are those of the likelihood, in closed form or by quadrature. For many, such as
draws of chains, so are moments that have a closed form, of which the tails of an exponential link
are a large part; for the rest a few quasi-random points of each Gaussian are spread evenly over all
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.likelihoods.base import (
    AnyMarginals,
    JointMarginals,
    Likelihood,
    Marginals,
    quantiles_at_atoms,
)
from latentgp.likelihoods.joint import jointly
from latentgp.likelihoods.of_base import OfBase
from latentgp.likelihoods.warped import WarpedGaussian
from latentgp.numerics.quadrature import sobol_nodes
from latentgp.posteriors.components import Components, Law, Spread, variances_of
from latentgp.rows.arrays import as_targets
from latentgp.runtime.buckets import Buckets
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, Inputs, PerClass, PerRow, RandomKey
from latentgp.validation import checked_levels, checked_targets, interval_levels, key_of_draws

_POINTS = 4096  # of all components together, at least, where they are many
_HALVINGS = 64  # of an interval, to rounding
_NODES_A_ROW = 1024  # of quadrature, for several latent functions


class Predictive:
    """Predictive distribution of y, one a row: a mixture over the posterior's components.

    Attributes:
        likelihood: of the model that stands for all components.
        side_information: what the rows carry.
    """

    def __init__(self, components: Components, X: Inputs, side_information: dict[str, PerRow]):
        self.likelihood, self.side_information = components.model.likelihood, side_information
        self._components, self._law = components, components.law
        self._size, self._latents = len(X), self.likelihood.latent_size
        few = self._law.by_quadrature
        columns = components.columns if few else max(components.columns, _POINTS)
        rows = Buckets.of((X, side_information), columns)
        if few:  # what every question asks for; of many it would be too large to keep
            rows = rows.map(_believed, components)
        self._few, self._rows = few, rows

    @property
    def latent_mean(self) -> Float[np.ndarray, "N Q"]:
        """Means of the latent functions."""
        return self._latent[0]

    @property
    def latent_variance(self) -> Float[np.ndarray, "N Q"]:
        """Variances of the latent functions."""
        return self._latent[1]

    @property
    def mean(self) -> Float[np.ndarray, "N *P"]:
        """Mean of y; for a binary target the probability of 1."""
        return self._moments[0]

    @property
    def variance(self) -> Float[np.ndarray, "N *P"]:
        """Variance of y (of each output), noise included."""
        return self._moments[1]

    @property
    @double_precision
    def probabilities(self) -> Float[np.ndarray, "N K"]:
        """Probabilities of the classes; rows sum to one."""
        return self._ask(_probabilities)

    @double_precision
    def log_prob(self, y: Any) -> PerRow:
        """Log p(y) of one target a row, in nats; of all outputs that are there together."""
        return self._ask(_log_prob, checked_targets(self.likelihood, y, self._size))

    @double_precision
    def cdf(self, y: Any) -> Float[np.ndarray, "N *P"]:
        """Probability of a target (of each output) of at most y, one y a row.

        Raises:
            InputError: the likelihood does not define its cdf.
        """
        return self._ask(_cdf, as_targets(y, self._size))

    @double_precision
    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "N *P levels"]:
        """Quantiles of y (of each output) at probabilities in (0, 1)."""
        return self._ask(_quantiles, settings=checked_levels(probabilities))

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "N *P"], Float[np.ndarray, "N *P"]]:
        """Lower and upper ends of the central interval that holds y with the given probability."""
        ends = self.quantiles(interval_levels(level))
        return ends[..., 0], ends[..., 1]

    @double_precision
    def sample(self, *, key: RandomKey, number: int = 1) -> Float[np.ndarray, "S N *P"]:
        """Draws of y, rows independent of each other, shape (S, N)."""
        keys = jax.random.split(key_of_draws(key, number), number)
        draws = self._ask(_samples, np.arange(self._size), settings=keys)
        return np.moveaxis(draws, 1, 0)

    @cached_property
    @double_precision
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._ask(_moments)

    @cached_property
    @double_precision
    def _latent(self) -> tuple[np.ndarray, np.ndarray]:
        return self._ask(_latent_moments)

    def _ask(self, question: "Question", *rows: Any, settings: Any = ()) -> Any:
        """A question about every row, in pieces; nothing leaves the device on the way."""
        beside = self._rows.beside(rows)
        if self._few:
            wide = _NODES_A_ROW * self._latents * self._components.size
            return beside.map(_asked(question), self._law, settings, columns=wide).to_numpy()
        return beside.map(_asked_anew(question), self._components, settings).to_numpy()


def marginals_of(components: Components, X: Inputs) -> Marginals:
    """Marginals of the latent functions under the mixture of all components."""
    predictive = Predictive(components, X, {})
    return Marginals(predictive.latent_mean, predictive.latent_variance)


Question = Callable[..., Any]  # of law, settings, mean, variance, side information, rows


def _believed(components: Components, rows: Any) -> Any:
    X, side = rows
    return (*components.marginals(X), side)


WeightedValues = tuple[Any, Float[Array, "points"]]  # and logarithms of their weights


def _over(law: Law, method: str, mean: Any, spread: Any, side: Any, *first: Any) -> WeightedValues:
    """likelihood.method(*first, marginals, side) under each of a few components, K first."""
    kind = JointMarginals if spread.ndim == 4 else Marginals

    def of_one(likelihood: Likelihood, marginals: AnyMarginals, side: Any, *first: Any) -> Any:
        likelihood, marginals, side = jointly(likelihood, marginals, side)
        return getattr(likelihood, method)(*first, marginals, side)

    if law.log_weights.shape[0] == 1:
        likelihood = jax.tree.map(lambda a: a[0], law.likelihood) if law.own else law.likelihood
        found = of_one(likelihood, kind(mean[:, 0], spread[:, 0]), side, *first)
        return jax.tree.map(lambda a: a[None], found), law.log_weights
    marginals = kind(mean, jnp.broadcast_to(spread, (*mean.shape, *spread.shape[3:])))
    axes = (0 if law.own else None, 1, None, *(None for _ in first))
    return jax.vmap(of_one, axes)(law.likelihood, marginals, side, *first), law.log_weights


@lru_cache
def _points(components: int, latents: int) -> Float[np.ndarray, "K S Q"]:
    """Standard normal points, S for each component, spread evenly over all of them together."""
    each = max(1, -(-_POINTS // components))
    points, _ = sobol_nodes(latents, 1 << (components * each - 1).bit_length())
    # Draws come in the order of the chains: points are dealt out without any.
    order = np.random.default_rng(0).permutation(components * each)
    return points[: components * each][order].reshape(components, each, latents)


def _at_points(
    law: Law, method: str, mean: Any, variance: Any, side: Any, *first: Any
) -> WeightedValues:
    """likelihood.method(*first, f, side) of rows at points of many components, points first."""
    f = _f_points(mean, variance)
    each = f.shape[1]

    def of_one(likelihood: Likelihood, f: Array, side: Any, *first: Any) -> Any:
        return getattr(likelihood, method)(*first, f, side)

    along_rows = jax.vmap(of_one, (None, 0, 0, *(0 for _ in first)))
    along_points = jax.vmap(along_rows, (None, 0, None, *(None for _ in first)))
    axes = (0 if law.own else None, 0, None, *(None for _ in first))
    found = jax.vmap(along_points, axes)(law.likelihood, f, side, *first)
    values = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)
    return values, jnp.repeat(law.log_weights, each) - jnp.log(each)


def _f_points(mean: Float[Array, "N K Q"], spread: Spread) -> Array:
    """Values of f, shape (K, S, N, Q)."""
    points = jnp.asarray(_points(mean.shape[1], mean.shape[-1]), mean.dtype)
    mean = jnp.moveaxis(mean, 0, 1)[:, None]
    if spread.ndim == 4:
        return mean + jnp.einsum("nkqr,kpr->kpnq", _roots(spread), points)
    return mean + jnp.sqrt(jnp.moveaxis(spread, 0, 1))[:, None] * points[:, :, None]


def _roots(covariance: Float[Array, "N K Q Q"]) -> Float[Array, "N K Q Q"]:
    flat = covariance.reshape(-1, *covariance.shape[2:])
    law = JointMarginals(jnp.zeros(flat.shape[:2], flat.dtype), flat)
    return law.root().reshape(covariance.shape)


def _mean_of(values: Float[Array, "points N *S"], log_weights: Float[Array, "points"]) -> Array:
    if len(log_weights) == 1:
        return values[0]
    weights = jnp.exp(log_weights)
    counted = weights.reshape(-1, *(1 for _ in values.shape[1:])) > 0
    return jnp.tensordot(weights, jnp.where(counted, values, 0.0), 1)  # others may be infinite


def _latent_moments(law: Law, _: Any, mean: Any, variance: Any, side: Any) -> tuple[Array, Array]:
    weights = jnp.exp(law.log_weights)[:, None]
    centre = jnp.sum(weights * mean, axis=1)
    within = jnp.sum(weights * jnp.broadcast_to(variances_of(variance), mean.shape), axis=1)
    return centre, within + jnp.sum(weights * (mean - centre[:, None]) ** 2, axis=1)


def _moments(law: Law, _: Any, mean: Any, variance: Any, side: Any) -> tuple[Array, Array]:
    if law.by_quadrature or (variance.ndim == 3 and _has_own_moments(law.likelihood)):
        values, log_weights = _over(law, "predictive_moments", mean, variance, side)
    else:
        values, log_weights = _at_points(law, "conditional_moments", mean, variance, side)
    centre = _mean_of(values[0], log_weights)
    apart = jnp.where(values[0] == centre, 0.0, values[0] - centre)  # both may be infinite
    return centre, _mean_of(values[1] + apart**2, log_weights)


def _has_own_moments(likelihood: Likelihood) -> bool:
    """Whether moments of y under a Gaussian need no nodes, so that many Gaussians are cheap."""
    if isinstance(likelihood, OfBase):
        return _has_own_moments(likelihood.base)
    own = type(likelihood).predictive_moments is not Likelihood.predictive_moments
    return own and not isinstance(likelihood, WarpedGaussian)


def _log_prob(law: Law, _: Any, mean: Any, variance: Any, side: Any, y: Any) -> PerRow:
    if law.by_quadrature:
        values, log_weights = _over(law, "predictive_log_prob", mean, variance, side, y)
    elif law.likelihood.targets == "class":
        probabilities = _probabilities(law, (), mean, variance, side)
        chosen = jnp.take_along_axis(probabilities, y.astype(int)[:, None], axis=1)
        return jnp.log(chosen[:, 0])
    else:
        values, log_weights = _at_points(law, "log_prob", mean, variance, side, y)
    if len(log_weights) == 1:
        return values[0]
    return logsumexp(values + log_weights[:, None], axis=0)


def _cdf(law: Law, _: Any, mean: Any, variance: Any, side: Any, y: Any) -> Float[Array, "N *P"]:
    if law.by_quadrature:
        return _mean_of(*_over(law, "predictive_cdf", mean, variance, side, y))
    return _mean_of(*_at_points(law, "cdf", mean, variance, side, y))


def _probabilities(law: Law, _: Any, mean: Any, variance: Any, side: Any) -> PerClass:
    if law.by_quadrature:
        found = _over(law, "predictive_probabilities", mean, variance, side)
    else:
        found = _at_points(law, "class_probabilities", mean, variance, side)
    values = _mean_of(*found)
    return values / jnp.sum(values, axis=1, keepdims=True)


def _quantiles(
    law: Law, levels: Float[Array, "levels"], mean: Any, variance: Any, side: Any
) -> Float[Array, "N *P levels"]:
    """By the likelihood for one component, by bisection for a few, else of draws of y."""
    if law.log_weights.shape[0] == 1:
        return _over(law, "predictive_quantiles", mean, variance, side, levels)[0][0]
    if law.likelihood.targets == "class":
        below = jnp.cumsum(_probabilities(law, (), mean, variance, side), axis=1)
        return jnp.sum(below[:, None, :] < levels[:, None], axis=2).astype(below.dtype)
    if law.by_quadrature:
        try:
            return _quantiles_of_few(law, levels, mean, variance, side)
        except InputError:  # without a distribution function there may be draws
            pass
    f = _f_points(mean, variance)
    keys = jax.random.split(jax.random.key(0), f.shape[:2])  # of all rows, whatever their number
    along_rows = jax.vmap(lambda own, *row: own.sample(*row), (None, None, 0, 0))
    along_points = jax.vmap(along_rows, (None, 0, 0, None))
    axes = (0 if law.own else None, 0, 0, None)
    y = jax.vmap(along_points, axes)(law.likelihood, keys, f, side)
    y = y.reshape(-1, *y.shape[2:])
    log_weights = jnp.repeat(law.log_weights, f.shape[1])
    return _weighted_quantiles(y, log_weights, levels, law.likelihood.targets == "count")


def _quantiles_of_few(
    law: Law, levels: Float[Array, "levels"], mean: Any, variance: Any, side: Any
) -> Float[Array, "N *P levels"]:
    """By halving what is between the components' own quantiles, which hold that of the mixture."""
    own, _ = _over(law, "predictive_quantiles", mean, variance, side, levels)
    counts = law.likelihood.targets == "count"

    def cdf(y: Float[Array, "N *P"]) -> Float[Array, "N *P"]:
        return _cdf(law, (), mean, variance, side, y)

    at_atoms = quantiles_at_atoms(law.likelihood.atoms, cdf, own[0, ..., 0])

    def of_level(part: tuple[Array, Array, Array]) -> Float[Array, "N *P"]:
        level, low, high = part

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            middle = jnp.floor(middle) if counts else middle
            reached = cdf(middle) >= level
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        found = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))[1]
        at, atom = at_atoms(level)
        return jnp.where(at, atom, found)

    low, high = (jnp.moveaxis(ends, -1, 0) for ends in (jnp.min(own, 0), jnp.max(own, 0)))
    found = jax.lax.map(of_level, (levels, low - 1.0 if counts else low, high))
    return jnp.moveaxis(found, 0, -1)


def _weighted_quantiles(
    y: Float[Array, "points N *S"], log_weights: Float[Array, "points"], levels: Array, counts: bool
) -> Float[Array, "N *S levels"]:
    """Quantiles of weighted values; between two of them by interpolation unless they are counts."""
    order = jnp.argsort(y, axis=0)
    values = jnp.take_along_axis(y, order, axis=0)
    weights = jnp.exp(log_weights - logsumexp(log_weights))[order]
    upto = jnp.cumsum(weights, axis=0)
    places = upto if counts else (upto - weights) / (1 - weights[-1])

    def of_one(values: Float[Array, "S"], places: Float[Array, "S"]) -> Float[Array, "levels"]:
        if not counts:
            return jnp.interp(levels, places, values)
        return values[jnp.minimum(jnp.searchsorted(places, levels - 1e-12), len(values) - 1)]

    flat = (a.reshape(len(a), -1) for a in (values, places))
    found = jax.vmap(of_one, 1)(*flat)
    return found.reshape(*y.shape[1:], len(levels))


def _samples(
    law: Law, keys: Key[Array, "S"], mean: Any, variance: Any, side: Any, numbers: Any
) -> Float[Array, "N S *P"]:
    spread = jnp.sqrt(variance) if variance.ndim == 3 else _roots(variance)
    spread = jnp.broadcast_to(spread, (*mean.shape, *spread.shape[3:]))

    def one(key: RandomKey, number: Any, mean: Array, spread: Array, side: Any) -> Array:
        # Rows come in pieces: a key of a row's own is its number's among all of them.
        key_pick, key_f, key_y = jax.random.split(jax.random.fold_in(key, number), 3)
        picked = jax.random.categorical(key_pick, law.log_weights)
        noise = jax.random.normal(key_f, mean.shape[1:], mean.dtype)
        own_spread = spread[picked]
        f = mean[picked] + (own_spread * noise if spread.ndim == 2 else own_spread @ noise)
        own = jax.tree.map(lambda a: a[picked], law.likelihood) if law.own else law.likelihood
        return own.sample(key_y, f, side)

    along_rows = jax.vmap(one, (None, 0, 0, 0, 0))
    along_draws = jax.vmap(along_rows, (0, None, None, None, None), out_axes=1)
    return along_draws(keys, numbers, mean, spread, side)


@lru_cache  # one object a question, so that its program is compiled once
def _asked(question: Question) -> Callable[..., Any]:
    """About marginals that are known."""

    def ask(law: Law, settings: Any, rows: Any) -> Any:
        (mean, variance, side), more = rows
        return question(law, settings, mean, variance, side, *more)

    return ask


@lru_cache
def _asked_anew(question: Question) -> Callable[..., Any]:
    """About marginals that are found on the way."""

    def ask(components: Components, settings: Any, rows: Any) -> Any:
        (X, side), more = rows
        return question(components.law, settings, *components.marginals(X), side, *more)

    return ask


QUESTIONS: dict[str, Question] = {
    "latent": _latent_moments,
    "moments": _moments,
    "probabilities": _probabilities,
    "quantiles": _quantiles,
}
