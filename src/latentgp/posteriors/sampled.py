"""The posterior as draws: the same questions as a Gaussian one, answered by averages over draws.

Given a draw of the coefficients, the latent functions elsewhere are Gaussian. A predictive law of
y is the average over draws, each with a few quasi-random points of that Gaussian; nothing is
fitted to the draws.
"""

import warnings
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key, Shaped

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, SideInformation
from latentgp.means import constant_first
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.numerics.quadrature import sobol_nodes
from latentgp.numerics.sums import sum_over_first
from latentgp.parameters.base import parameters, replace_unchecked
from latentgp.parameters.space import ParameterSpace
from latentgp.posteriors.chains import Chains, ChainSummary, import_arviz, summarise
from latentgp.posteriors.evidence import Marginals
from latentgp.representations.latent_axis import latent_diagonals, latent_grams, over_latents
from latentgp.rows.arrays import as_targets
from latentgp.rows.data import Data
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.x64 import double_precision
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array
from latentgp.validation import (
    checked_inputs,
    checked_levels,
    checked_side,
    checked_targets,
    interval_levels,
)

_POINTS = 4096  # of the predictive average, at least
_MODELS = 500  # draws that predictions average over, at most, if each has its own model


class Sampled(NamedTuple):
    """What predictions need of the draws.

    Attributes:
        models: the model of every draw, its leaves with S first; or one model for all draws.
        centres: where the coefficients belong, shape (M, D).
        white: white coefficients, shape (S, Q, M).
    """

    models: LatentGP
    centres: Float[Array, "M D"]
    white: Float[Array, "S Q M"]


class SampledPosterior(eqx.Module):
    """Draws of the latent functions (and of the hyper-parameters, if these were sampled).

    Attributes:
        model: with the hyper-parameters' posterior mean (on their unconstrained scale), or the
            ones that were fixed.
        sampled: the draws that predictions average over, all chains after each other: all there
            are, or 500 evenly spaced ones where each has hyper-parameters of its own.
        hyperparameters: draws by path, shape (C, S, ...); empty if they were fixed.
        f: draws of the latent functions at the rows in `watched`, shape (C, S, W, Q).
        watched: which of the rows that were given these are, counted from 0, in their order,
            shape (W,): all that count (rows of weight zero and rows without a target do not)
            where that takes little memory, evenly spaced ones otherwise.
        rows: the data of these rows, W of them.
        statistics: of the sampler at every draw, by ArviZ's names, shape (C, S).
        summary: R-hat and effective sample sizes, the worst of all that was watched.
        has_sampled_models: whether every draw has a model of its own.
    """

    model: LatentGP
    sampled: Sampled
    hyperparameters: dict[str, Float[np.ndarray, "C S *P"]]
    f: Float[np.ndarray, "C S W Q"]
    watched: Int[np.ndarray, "W"]
    rows: Data
    statistics: dict[str, Shaped[np.ndarray, "C S"]]
    summary: ChainSummary
    has_sampled_models: bool = eqx.field(static=True)

    @property
    def acceptance(self) -> Float[np.ndarray, "C"]:
        """Mean acceptance rate of each chain."""
        return self.statistics["acceptance_rate"].mean(axis=1)

    @property
    def log_evidence(self) -> Any:
        """Not known: a sampler does not give it.

        Raises:
            InputError: always.
        """
        raise InputError(
            "A sampler gives no log evidence; fit with AugmentedVI or VariationalInference for a "
            "lower bound."
        )

    @double_precision
    def predict_f(self, X: Any) -> Marginals:
        """Means and variances of the latent functions at X, over draws; shape (N,) or (N, Q)."""
        mean, variance = self._apply(_moments_of_f, self._inputs(X))
        if self.model.likelihood.latent_size == 1:
            return Marginals(mean[:, 0], variance[:, 0])
        return Marginals(mean, variance)

    def mean_f(self, X: Any) -> Float[np.ndarray, "N *Q"]:
        """Means of the latent functions over draws."""
        return self.predict_f(X).mean

    def predict(self, X: Any, **side_information: Any) -> "SampledPredictive":
        """The predictive distribution of y at X, one a row, averaged over the draws.

        Args:
            X: inputs, shape (N, D).
            side_information: what the likelihood reads a row, as in `Data`.
        """
        X = self._inputs(X)
        return SampledPredictive(self, X, self._side(side_information, len(X)))

    @double_precision
    def sample_f(
        self, X: Any, *, key: Key[Array, ""], number: int = 1
    ) -> Float[np.ndarray, "S N *Q"]:
        """Joint draws of the latent functions at X, each from a draw picked at random."""
        f, _ = self._joint_draws(self._inputs(X), key, number)
        f = np.asarray(f)
        return f[..., 0] if self.model.likelihood.latent_size == 1 else f

    @double_precision
    def sample_y(
        self, X: Any, *, key: Key[Array, ""], number: int = 1, **side_information: Any
    ) -> Float[np.ndarray, "S N *P"]:
        """Draws of y at X, rows dependent through joint draws of the latents, shape (S, N)."""
        X = self._inputs(X)
        side = self._side(side_information, len(X))
        key_f, key_y = jax.random.split(key)
        f, picked = self._joint_draws(X, key_f, number)
        return np.asarray(_observe(self._models(picked), f, side, key_y, self._axis))

    def sample_paths(self, *, key: Key[Array, ""], number: int = 1) -> Any:
        """Not to be had: draws as functions need a Gaussian posterior.

        Raises:
            InputError: always.
        """
        raise InputError(
            "Draws as functions are not to be had from a sampler's posterior; use sample_f at the "
            "inputs that are wanted, or fit with AugmentedVI or VariationalInference."
        )

    def as_jax(self) -> Any:
        """Not to be had, as paths are not.

        Raises:
            InputError: always.
        """
        raise InputError(
            "A sampler's posterior has no pure functions; fit with ExactGP, AugmentedVI or "
            "VariationalInference at the hyper-parameters that are wanted, and use as_jax() there."
        )

    def shifted(self, centre: float) -> "SampledPosterior":
        """With a zero prior mean moved by a constant, and the first latent function with it."""
        latents = self.f.shape[-1]
        value = np.full(len(self.sampled.white), centre) if self.has_sampled_models else centre
        return eqx.tree_at(
            lambda p: (p.model.mean, p.sampled.models.mean, p.f, p.rows.y),
            self,
            (
                constant_first(centre, latents),
                constant_first(value, latents),
                self.f + centre * (np.arange(latents) == 0),
                self.rows.y + centre,
            ),
        )

    @double_precision
    def log_likelihood(self) -> Float[np.ndarray, "C S W"]:
        """Log p(y | f) of every watched row at every draw, times the row's weight, in nats."""
        values = _log_likelihoods(self.model, self._drawn_likelihood(), self.f, self._watched())
        weights = self.rows.weights
        return np.asarray(values) if weights is None else np.asarray(values) * weights

    @double_precision
    def sample_watched(self, *, key: Key[Array, ""]) -> Shaped[np.ndarray, "C S W *P"]:
        """A draw of y at every watched row from every draw of f: replicates of the data."""
        parts = self.model, self._drawn_likelihood(), self.f, self._watched()
        return np.asarray(_replicates(*parts, jax.random.split(key, self.f.shape[:3])))

    def to_arviz(self, *, key: Key[Array, ""] | None = None) -> Any:
        """The chains as ArviZ's InferenceData, for `az.summary`, `az.loo`, `az.plot_ppc`.

        Groups: `posterior` (hyper-parameters by path, `f` at the watched rows),
        `posterior_predictive` (`y` drawn anew at these rows), `log_likelihood` (of `y`),
        `sample_stats`, `observed_data` and `constant_data` (inputs `X`). The coordinate `row` is
        the place of a row in the data as they were given; so is its input `X`, or each of its
        inputs `X0`, `X1`, ..., of `f` and `y`.

        Args:
            key: random key of the posterior predictive draws; None is `jax.random.key(0)`.

        Example:
            >>> import arviz as az, jax, latentgp as lgp, numpy as np
            >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
            >>> rows = lgp.Data(np.arange(8.0), [3, 1, 0, 2, 5, 4, 1, 0])
            >>> method = lgp.NUTS(chains=2, warmup=100, draws=100)
            >>> fit = lgp.fit(model, rows, key=jax.random.key(0), method=method)
            >>> int(az.loo(fit.posterior.to_arviz()).n_data_points)
            8
        """
        arviz = import_arviz()
        rows, latents = self.rows, self.f.shape[-1]
        key = jax.random.key(0) if key is None else key
        dims = {"f": ["row", "latent"], "y": ["row"], "X": ["row", "input"]}
        if rows.y.ndim == 2:
            dims["y"] = ["row", "output"]
        coords = {"row": self.watched, "latent": np.arange(latents)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of chains that are longer than there are draws
            data = arviz.from_dict(
                posterior={**self.hyperparameters, "f": self.f},
                posterior_predictive={"y": self.sample_watched(key=key)},
                log_likelihood={"y": self.log_likelihood()},
                sample_stats=self.statistics,
                observed_data={"y": rows.y},
                constant_data={"X": rows.X},
                coords=coords,
                dims=dims,
            )
            names = ["X"] if rows.X.shape[1] == 1 else [f"X{d}" for d in range(rows.X.shape[1])]
            places = {name: ("row", x) for name, x in zip(names, rows.X.T, strict=True)}
            of_rows = ["posterior", "posterior_predictive", "log_likelihood", "observed_data"]
            return data.assign_coords(places, groups=of_rows)

    def latent_inputs(self) -> int:
        """Number of input columns D."""
        return self.sampled.centres.shape[1]

    def _drawn_likelihood(self) -> dict[str, Float[np.ndarray, "C S *P"]]:
        """Draws of the likelihood's own parameters, by path."""
        return {p: v for p, v in self.hyperparameters.items() if p.startswith("likelihood")}

    def _watched(self) -> Rows:
        return Rows(self.rows.y, None, self.rows.side_information)

    @property
    def _axis(self) -> int | None:
        return 0 if self.has_sampled_models else None

    def _models(self, picked: Any) -> LatentGP:
        models = self.sampled.models
        return jax.tree.map(lambda a: a[picked], models) if self.has_sampled_models else models

    def _joint_draws(self, X: np.ndarray, key: Key[Array, ""], number: int) -> tuple[Any, Any]:
        key_pick, key_f = jax.random.split(key)
        picked = np.asarray(jax.random.randint(key_pick, (number,), 0, len(self.sampled.white)))
        if len(X) == 0:
            return np.zeros((number, 0, self.model.likelihood.latent_size)), picked
        chosen = Sampled(self._models(picked), self.sampled.centres, self.sampled.white[picked])
        return _joint(chosen, X, jax.random.split(key_f, number), self._axis), picked

    def _apply(self, function: Any, *rows: Any, settings: Any = ()) -> Any:
        """A function of the draws and of rows, in pieces."""
        wide = self.sampled.white.shape[0] * self.model.likelihood.latent_size
        wide = max(wide, _POINTS, len(self.sampled.centres))
        return apply_in_buckets(
            partial(function, self._axis), self.sampled, settings, rows=rows, columns=wide
        )

    def _inputs(self, X: Any) -> np.ndarray:
        return checked_inputs(X, self.latent_inputs())

    def _side(self, given: dict[str, Any], size: int) -> dict[str, np.ndarray]:
        return checked_side(self.model.likelihood, given, size)


def sampled_posterior(
    space: ParameterSpace, chains: Chains, watched: Int[np.ndarray, "W"], rows: Data
) -> SampledPosterior:
    """The posterior that chains make, everything in NumPy.

    Args:
        space: the hyper-parameters.
        chains: the draws.
        watched: the places, in the data as they were given, of the rows whose f was kept.
        rows: the data of these rows.
    """
    count = chains.vector.shape[0] * chains.vector.shape[1]
    flat = chains.vector.reshape(count, -1)
    model, models, named = space.model, space.model, {}
    if space.size:
        model = space.to_model(jnp.asarray(flat.mean(axis=0)))
        models = _stacked_models(space, flat)
        known = parameters(models)
        named = {path: np.asarray(known[path].value) for path in space.paths}
        named = {
            path: v.reshape(*chains.vector.shape[:2], *v.shape[1:]) for path, v in named.items()
        }
    white = chains.white.reshape(count, *chains.white.shape[2:])
    if space.size and count > _MODELS:
        # Each draw has a prior covariance of its own to factorise in every prediction.
        kept = np.linspace(0, count - 1, _MODELS).astype(int)
        models, white = jax.tree.map(lambda a: a[kept], models), white[kept]
    return SampledPosterior(
        model=jax.tree.map(np.asarray, model),
        sampled=jax.tree.map(np.asarray, Sampled(models, chains.centres, white)),
        hyperparameters=named,
        f=chains.f,
        watched=watched,
        rows=rows,
        statistics=chains.statistics,
        summary=summarise(chains),
        has_sampled_models=bool(space.size),
    )


@jax.jit
def _stacked_models(space: ParameterSpace, vectors: Float[Array, "S P"]) -> LatentGP:
    """The model of every draw, S first in every leaf."""
    return jax.vmap(space.to_model)(vectors)


def _at_every_draw(
    function: Any, model: LatentGP, drawn: dict[str, Array], f: Any, *rows: Any
) -> Any:
    """function(likelihood, f, *row) at all draws and rows; rows have no axes of chains, draws."""
    along_rows = jax.vmap(function, (None, 0, *(0 for _ in rows)))

    def at_draw(drawn: dict[str, Array], f: Any, *rows: Any) -> Any:
        return along_rows(replace_unchecked(model, drawn).likelihood, f, *rows)

    over_draws = jax.vmap(at_draw, (0, 0, *(None for _ in rows)))
    return jax.vmap(over_draws, (0, 0, *(None for _ in rows)))(drawn, f, *rows)


@jax.jit
def _log_likelihoods(
    model: LatentGP, drawn: dict[str, Array], f: Float[Array, "C S W Q"], rows: Rows
) -> Float[Array, "C S W"]:
    def log_prob(likelihood: Likelihood, f: Array, y: Array, side: Any) -> Float[Array, ""]:
        return likelihood.log_prob(y, f, side)

    return _at_every_draw(log_prob, model, drawn, f, rows.y, dict(rows.side))


@jax.jit
def _replicates(
    model: LatentGP,
    drawn: dict[str, Array],
    f: Float[Array, "C S W Q"],
    rows: Rows,
    keys: Key[Array, "C S W"],
) -> Shaped[Array, "C S W *P"]:
    def draw(likelihood: Likelihood, f: Any, side: Any) -> Array:
        f, key = f
        return likelihood.sample(key, f, side)

    return _at_every_draw(draw, model, drawn, (f, keys), dict(rows.side))


class SampledPredictive:
    """Predictive distribution of y, one a row, averaged over draws."""

    def __init__(self, posterior: SampledPosterior, X: np.ndarray, side: dict[str, np.ndarray]):
        self.likelihood = posterior.model.likelihood
        self._posterior = posterior
        self._rows = (X, side)

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
        return self._posterior._apply(_probabilities, *self._rows)

    @double_precision
    def log_prob(self, y: Any) -> Float[np.ndarray, "N"]:
        """Log p(y) of one target a row, in nats; of all outputs that are there together."""
        y = checked_targets(self.likelihood, y, len(self._rows[0]))
        return self._posterior._apply(_log_prob, *self._rows, y)

    @double_precision
    def cdf(self, y: Any) -> Float[np.ndarray, "N *P"]:
        """Probability of a target (of each output) of at most y, one y a row.

        Raises:
            InputError: the likelihood does not say its cdf.
        """
        return self._posterior._apply(_cdf, *self._rows, as_targets(y, len(self._rows[0])))

    @double_precision
    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "N *P K"]:
        """Quantiles of y (of each output) at K probabilities in (0, 1)."""
        levels = checked_levels(probabilities)
        return self._posterior._apply(_quantiles, *self._rows, settings=levels)

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "N *P"], Float[np.ndarray, "N *P"]]:
        """Lower and upper ends of the central interval that holds y with the given probability."""
        ends = self.quantiles(interval_levels(level))
        return ends[..., 0], ends[..., 1]

    @double_precision
    def sample(self, *, key: Key[Array, ""], number: int = 1) -> Float[np.ndarray, "S N *P"]:
        """Draws of y, rows independent of each other, shape (S, N)."""
        settings = jax.random.split(key, number)
        numbers = np.arange(len(self._rows[0]))
        draws = self._posterior._apply(_samples, *self._rows, numbers, settings=settings)
        return np.moveaxis(draws, 1, 0)

    @cached_property
    @double_precision
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._posterior._apply(_moments_of_y, *self._rows)


def _conditional(
    axis: int | None, sampled: Sampled, X: Float[Array, "N D"]
) -> tuple[Float[Array, "S N Q"], Float[Array, "#S N Q"]]:
    """Means and variances of the latent functions given each draw's coefficients."""

    def weights(model: LatentGP) -> tuple[Array, Array, Array]:
        half = _half(model, sampled.centres, X)
        variance = latent_diagonals(model.kernel, X) - over_latents(sum_over_first, half**2)
        offset = jnp.broadcast_to(model.mean(X), (len(X), model.likelihood.latent_size))
        return half, jnp.maximum(variance, 0.0), offset

    def mean(half: Array, offset: Array, white: Array) -> Array:
        return over_latents(lambda half, v: v @ half, half, white).T + offset

    if axis is None:
        half, variance, offset = weights(sampled.models)
        means = jax.vmap(lambda white: mean(half, offset, white))(sampled.white)
        return means, _all_latents(variance, means.shape[-1])[None]

    def one(draw: tuple[LatentGP, Array]) -> tuple[Array, Array]:
        half, variance, offset = weights(draw[0])
        value = mean(half, offset, draw[1])
        return value, _all_latents(variance, value.shape[-1])

    return jax.lax.map(one, (sampled.models, sampled.white))


def _half(
    model: LatentGP, centres: Float[Array, "M D"], X: Float[Array, "N D"]
) -> Float[Array, "#Q M N"]:
    """L^-1 k(C, X) for the factor L of the prior covariance at the centres."""
    return over_latents(
        lambda gram, cross: jittered_cholesky(gram).factor.inverse @ cross,
        latent_grams(model.kernel, centres),
        latent_grams(model.kernel, centres, X),
    )


def _all_latents(variance: Float[Array, "#Q N"], latents: int) -> Float[Array, "N Q"]:
    return jnp.broadcast_to(variance, (latents, variance.shape[1])).T


@lru_cache
def _points(draws: int, latents: int) -> Float[np.ndarray, "S R Q"]:
    """Standard normal points, R for each draw, spread evenly over all of them together."""
    each = max(1, -(-_POINTS // draws))
    points, _ = sobol_nodes(latents, 1 << (draws * each - 1).bit_length())
    # Draws come in the order of the chains: points are dealt out without any.
    order = np.random.default_rng(0).permutation(draws * each)
    return points[: draws * each][order].reshape(draws, each, latents)


def _f_points(
    axis: int | None, sampled: Sampled, X: Float[Array, "N D"]
) -> Float[Array, "S R N Q"]:
    mean, variance = _conditional(axis, sampled, X)
    points = jnp.asarray(_points(len(sampled.white), mean.shape[-1]), mean.dtype)
    return mean[:, None] + jnp.sqrt(variance)[:, None] * points[:, :, None]


def _over_points(
    axis: int | None, sampled: Sampled, function: Any, f: Float[Array, "S R N Q"], *rows: Any
) -> Any:
    """function(likelihood, f, *row) at all draws, points and rows."""
    along_rows = jax.vmap(function, (None, 0, *(0 for _ in rows)))
    along_points = jax.vmap(along_rows, (None, 0, *(None for _ in rows)))
    along_draws = jax.vmap(along_points, (axis, 0, *(None for _ in rows)))
    return along_draws(sampled.models.likelihood, f, *rows)


@partial(jax.jit, static_argnums=0)
def _moments_of_f(axis: int | None, sampled: Sampled, _: Any, rows: Any) -> tuple[Array, Array]:
    mean, variance = _conditional(axis, sampled, rows[0])
    centre = jnp.mean(mean, axis=0)
    return centre, jnp.mean(variance, axis=0) + jnp.mean((mean - centre) ** 2, axis=0)


@partial(jax.jit, static_argnums=0)
def _moments_of_y(axis: int | None, sampled: Sampled, _: Any, rows: Any) -> tuple[Array, Array]:
    X, side = rows
    f = _f_points(axis, sampled, X)
    moments = _over_points(axis, sampled, _conditional_moments, f, side)
    first, second = (jnp.mean(m, axis=(0, 1)) for m in (moments[0], moments[1]))
    return first, second + jnp.mean((moments[0] - first) ** 2, axis=(0, 1))


@partial(jax.jit, static_argnums=0)
def _log_prob(axis: int | None, sampled: Sampled, _: Any, rows: Any) -> Float[Array, "N"]:
    X, side, y = rows
    if sampled.models.likelihood.targets == "class":
        probabilities = _probabilities(axis, sampled, (), (X, side))
        chosen = jnp.take_along_axis(probabilities, y.astype(int)[:, None], axis=1)
        return jnp.log(chosen[:, 0])
    values = _over_points(
        axis,
        sampled,
        lambda likelihood, f, y, side: likelihood.log_prob(y, f, side),
        _f_points(axis, sampled, X),
        y,
        side,
    )
    count = values.shape[0] * values.shape[1]
    return jax.scipy.special.logsumexp(values, axis=(0, 1)) - jnp.log(count)


@partial(jax.jit, static_argnums=0)
def _cdf(axis: int | None, sampled: Sampled, _: Any, rows: Any) -> Float[Array, "N *P"]:
    X, side, y = rows
    values = _over_points(
        axis,
        sampled,
        lambda likelihood, f, y, side: likelihood.cdf(y, f, side),
        _f_points(axis, sampled, X),
        y,
        side,
    )
    return jnp.mean(values, axis=(0, 1))


@partial(jax.jit, static_argnums=0)
def _probabilities(axis: int | None, sampled: Sampled, _: Any, rows: Any) -> Float[Array, "N K"]:
    X, side = rows
    values = _over_points(
        axis,
        sampled,
        lambda likelihood, f, side: likelihood.class_probabilities(f, side),
        _f_points(axis, sampled, X),
        side,
    )
    values = jnp.mean(values, axis=(0, 1))
    return values / jnp.sum(values, axis=1, keepdims=True)


@partial(jax.jit, static_argnums=0)
def _quantiles(
    axis: int | None, sampled: Sampled, levels: Float[Array, "K"], rows: Any
) -> Float[Array, "N *P K"]:
    """Of one draw of y at every point, so exact to the Monte Carlo error of the chains."""
    X, side = rows
    if sampled.models.likelihood.targets == "class":
        below = jnp.cumsum(_probabilities(axis, sampled, (), rows), axis=1)
        return jnp.sum(below[:, None, :] < levels[:, None], axis=2).astype(below.dtype)
    f = _f_points(axis, sampled, X)
    keys = jax.random.split(jax.random.key(0), f.shape[:3])
    y = _draws_of_y(axis, sampled, f, keys, side)
    y = y.reshape(-1, *y.shape[2:])
    method = "inverted_cdf" if sampled.models.likelihood.targets == "count" else "linear"
    return jnp.moveaxis(jnp.quantile(y, levels, axis=0, method=method), 0, -1)


def _draws_of_y(
    axis: int | None,
    sampled: Sampled,
    f: Float[Array, "S R N Q"],
    keys: Key[Array, "S R N"],
    side: Any,
) -> Float[Array, "S R N *P"]:
    def draw(likelihood: Likelihood, key: Any, f: Array, side: Any) -> Float[Array, "*P"]:
        return likelihood.sample(key, f, side)

    along_rows = jax.vmap(draw, (None, 0, 0, 0))
    along_points = jax.vmap(along_rows, (None, 0, 0, None))
    return jax.vmap(along_points, (axis, 0, 0, None))(sampled.models.likelihood, keys, f, side)


@partial(jax.jit, static_argnums=0)
def _samples(
    axis: int | None, sampled: Sampled, keys: Key[Array, "T"], rows: Any
) -> Float[Array, "N T *P"]:
    X, side, numbers = rows
    f = _f_points(axis, sampled, X)
    draws, each = f.shape[:2]

    def one(key: Key[Array, ""], number: Any, f: Float[Array, "S R Q"], side: Any) -> Array:
        # Rows come in pieces: a key of a row's own is its number's among all of them.
        key_pick, key_y = jax.random.split(jax.random.fold_in(key, number))
        draw, point = jax.random.randint(key_pick, (2,), 0, jnp.array([draws, each]))
        likelihood = sampled.models.likelihood
        own = jax.tree.map(lambda a: a[draw], likelihood) if axis == 0 else likelihood
        return own.sample(key_y, f[draw, point], side)

    along_rows = jax.vmap(one, (None, 0, 2, 0))
    along_draws = jax.vmap(along_rows, (0, None, None, None), out_axes=1)
    return along_draws(keys, numbers, f, side)


@partial(jax.jit, static_argnums=3)
def _joint(
    sampled: Sampled, X: Float[Array, "N D"], keys: Key[Array, "T"], axis: int | None
) -> Float[Array, "T N Q"]:
    """One joint draw at X for each draw of the coefficients."""

    def one(draw: tuple[Any, Array, Any]) -> Float[Array, "N Q"]:
        model, white, key = (sampled.models if axis is None else draw[0]), draw[1], draw[2]
        half = _half(model, sampled.centres, X)
        mean = over_latents(lambda half, v: v @ half, half, white).T + model.mean(X)

        def factor(prior: Array, half: Array) -> Array:
            scale = jnp.mean(jnp.diagonal(prior))
            return jittered_cholesky(prior - half.T @ half, scale).factor.lower

        root = over_latents(factor, latent_grams(model.kernel, X), half)
        noise = jax.random.normal(key, mean.T.shape, mean.dtype)
        return mean + over_latents(lambda root, noise: root @ noise, root, noise).T

    return jax.lax.map(one, (None if axis is None else sampled.models, sampled.white, keys))


@partial(jax.jit, static_argnums=4)
def _observe(
    models: LatentGP, f: Float[Array, "T N Q"], side: Any, key: Key[Array, ""], axis: int | None
) -> Float[Array, "T N *P"]:
    keys = jax.random.split(key, f.shape[:2])
    over_rows = jax.vmap(lambda likelihood, *row: likelihood.sample(*row), (None, 0, 0, 0))
    return jax.vmap(over_rows, (axis, 0, 0, None))(models.likelihood, keys, f, side)


def _conditional_moments(
    likelihood: Likelihood, f: Float[Array, "Q"], side: SideInformation
) -> tuple[Float[Array, "*P"], Float[Array, "*P"]]:
    return likelihood.conditional_moments(f, side)
