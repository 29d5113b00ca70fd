"""The posterior: an immutable result; every question is a view of it.

Names say what is answered: `_f` is about the latent functions, `predict` about y; a `variance`
is not a standard deviation. Everything handed out is a NumPy array in the units of the data.
"""

from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood, SideInformation
from latentgp.means import constant_first
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.posteriors.evidence import Evidence, Marginals
from latentgp.posteriors.pure import PurePaths, PurePosterior
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.inducing.stream import Remembered
from latentgp.representations.latent_axis import latent_diagonals, over_latents
from latentgp.rows.arrays import as_targets
from latentgp.rows.data import Data
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.x64 import double_precision, fresh
from latentgp.typing import Array
from latentgp.validation import (
    checked_inputs,
    checked_levels,
    checked_side,
    checked_targets,
    interval_levels,
)

_NODES_A_ROW = 1024  # of quadrature, for several latents
_PATH_COLUMNS = 2048  # of features and what is made of them


class Posterior(eqx.Module):
    """What is known about the latent functions after the data.

    Attributes:
        model: with the hyper-parameters it was conditioned with.
        latent: the Gaussian posterior of the latent functions' zero-mean part.
        log_evidence: the value and whether it is exact or a lower bound.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> fit.posterior.predict_f([0.5, 1.5]).mean.round(2)
        array([0.39, 0.91])
    """

    model: LatentGP
    latent: LatentPosterior
    log_evidence: Evidence

    def __init__(self, model: LatentGP, latent: LatentPosterior, log_evidence: Evidence):
        # NumPy: JAX arrays in double precision would be narrowed when copied or unpickled.
        self.model = jax.tree.map(np.asarray, model)
        self.latent = jax.tree.map(np.asarray, latent)
        self.log_evidence = log_evidence

    @double_precision
    def predict_f(self, X: Any) -> Marginals:
        """Means and variances of the latent functions at X, shape (N, D); O(N), in pieces."""
        mean, variance = self._marginals(self._inputs(X))
        if self.model.likelihood.latent_size == 1:
            return Marginals(mean[:, 0], variance[:, 0])
        return Marginals(mean, variance)

    @double_precision
    def mean_f(self, X: Any) -> Float[np.ndarray, "N *Q"]:
        """Means of the latent functions alone: no variance is computed, no system solved."""
        mean = apply_in_buckets(_mean, self.model, self.latent, rows=self._inputs(X))
        return mean[:, 0] if self.model.likelihood.latent_size == 1 else mean

    @double_precision
    def predict(self, X: Any, **side_information: Any) -> "Predictive":
        """The predictive distribution of y at X, one a row.

        Args:
            X: inputs, shape (N, D).
            side_information: what the likelihood reads a row, as in `Data`.
        """
        X = self._inputs(X)
        side = self._side(side_information, len(X))
        return Predictive(self.model.likelihood, *self._marginals(X), side)

    @double_precision
    def sample_f(
        self, X: Any, *, key: Key[Array, ""], number: int = 1
    ) -> Float[np.ndarray, "S N *Q"]:
        """Joint draws of the latent functions at X, exact, O(N^3).

        Returns:
            Shape (S, N), or (S, N, Q) for Q > 1.
        """
        draws = self._joint_draws(self._inputs(X), key, number)
        return draws[..., 0] if self.model.likelihood.latent_size == 1 else draws

    @double_precision
    def sample_y(
        self, X: Any, *, key: Key[Array, ""], number: int = 1, **side_information: Any
    ) -> Float[np.ndarray, "S N *P"]:
        """Draws of y at X, rows dependent through joint draws of the latents, shape (S, N)."""
        X = self._inputs(X)
        side = self._side(side_information, len(X))
        key_f, key_y = jax.random.split(key)
        f = self._joint_draws(X, key_f, number)
        return np.asarray(_observe(self.model.likelihood, f, side, key_y))

    @double_precision
    def sample_paths(
        self, *, key: Key[Array, ""], number: int = 1, features: int = 1024
    ) -> "Paths":
        """Draws of the latent functions as functions, by Matheron's rule (Wilson et al. 2020).

        The prior's part is made of random Fourier features, an approximation whose error falls
        with one over the root of their number; the update by the data is exact. Sixteen sets of
        paths have features of their own.

        Args:
            key: random key.
            number: of paths.
            features: how many for each latent function.

        Raises:
            InputError: the kernel has no spectral features.
        """
        if number < 1:
            raise InputError(f"number must be at least 1, got {number}.")
        return Paths(_draw_paths(self.as_jax(), key, number, features))

    def as_jax(self) -> PurePosterior:
        """The posterior as pure functions, for `jax.grad`, `jax.jit` and `jax.vmap`.

        Means, variances, covariances, moments of y, and paths, of JAX arrays. A gradient of the
        log evidence is that of `latentgp.log_evidence`.
        """
        return PurePosterior(fresh(self.model), fresh(self.latent))

    def update(
        self,
        X: Any,
        y: Any,
        *,
        key: Key[Array, ""],
        weights: Any = None,
        n_inducing: int | None = None,
        selection: Selection = "greedy-variance",
        **side_information: Any,
    ) -> "Posterior":
        """The posterior after further rows, at the same hyper-parameters, without the earlier rows.

        The streaming sparse posterior (Bui, Nguyen & Turner 2017): exact sites for Gaussian noise,
        quadrature for other likelihoods. For other methods, and to learn hyper-parameters on the
        way, call `latentgp.fit` with `Inducing(..., remembered=posterior.remembered())`.

        Args:
            X: inputs of the new rows, shape (N, D).
            y: their targets.
            key: random key, for inducing points.
            weights: of the new rows, shape (N,).
            n_inducing: at most so many inducing points afterwards; None takes as many as there are,
                or what "auto" does if that is more.
            selection: how they are chosen among the new rows and the points so far, as in
                `Inducing`; "oips" keeps these and adds rows that resemble none.
            side_information: what the likelihood reads a row, as in `Data`.

        Raises:
            InputError: rows that do not fit the model.

        Example:
            >>> import jax, latentgp as lgp
            >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
            >>> rows = lgp.Data([0.0, 1.0], [0.0, 0.8])
            >>> fit = lgp.fit(model, rows, key=jax.random.key(0), learn_hyperparameters=False)
            >>> after = fit.posterior.update([2.0], [0.9], key=jax.random.key(1))
            >>> after.predict_f([0.5, 1.5]).mean.round(2)
            array([0.39, 0.91])
        """
        from latentgp.streams import updated  # it fits, and so makes posteriors

        data = Data(X, y, weights=weights, **side_information)
        return updated(self, data, key=key, n_inducing=n_inducing, selection=selection)

    @double_precision
    def remembered(self) -> Remembered:
        """What the rows said, for `Inducing(remembered=...)` on rows to come."""
        return jax.tree.map(
            np.asarray, self.latent.without_fillers().remembered(float(self.log_evidence))
        )

    def _joint_draws(
        self, X: np.ndarray, key: Key[Array, ""], number: int
    ) -> Float[np.ndarray, "S N Q"]:
        if len(X) == 0:
            return np.zeros((number, 0, self.model.likelihood.latent_size))
        return np.asarray(_joint_samples(self.model, self.latent, X, key, number))

    def latent_inputs(self) -> int:
        """Number of input columns D."""
        return self.latent.centres.shape[1]

    def shifted(self, centre: float) -> "Posterior":
        """With a zero prior mean moved by a constant, and the first latent function with it."""
        mean = constant_first(centre, self.model.likelihood.latent_size)
        model = LatentGP(self.model.kernel, self.model.likelihood, mean)
        return Posterior(model, self.latent, self.log_evidence)

    def _inputs(self, X: Any) -> np.ndarray:
        return checked_inputs(X, self.latent_inputs())

    def _side(self, given: dict[str, Any], size: int) -> dict[str, np.ndarray]:
        return checked_side(self.model.likelihood, given, size)

    def _marginals(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        columns = len(self.latent.centres)
        return apply_in_buckets(_marginals, self.model, self.latent, rows=X, columns=columns)


class Predictive:
    """Predictive distribution of y, one a row, given marginals of the latent functions.

    Attributes:
        latent_mean: shape (N, Q).
        latent_variance: shape (N, Q).
    """

    def __init__(
        self,
        likelihood: Likelihood,
        latent_mean: Float[np.ndarray, "N Q"],
        latent_variance: Float[np.ndarray, "N Q"],
        side_information: dict[str, Float[np.ndarray, "N"]],
    ):
        self.likelihood = likelihood
        self.latent_mean = latent_mean
        self.latent_variance = latent_variance
        self.side_information = side_information

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
        columns = _NODES_A_ROW * self.latent_mean.shape[1]
        return apply_in_buckets(
            _predictive_probabilities, self.likelihood, rows=self._rows(), columns=columns
        )

    @double_precision
    def log_prob(self, y: Any) -> Float[np.ndarray, "N"]:
        """Log p(y) of one target a row, in nats; of all outputs that are there together."""
        y = checked_targets(self.likelihood, y, len(self.latent_mean))
        return apply_in_buckets(
            _predictive_log_prob,
            self.likelihood,
            rows=(y, *self._rows()),
            columns=_NODES_A_ROW * self.latent_mean.shape[1],
        )

    @double_precision
    def cdf(self, y: Any) -> Float[np.ndarray, "N *P"]:
        """Probability of a target (of each output) of at most y, one y a row.

        Raises:
            InputError: the likelihood does not say its cdf.
        """
        y = as_targets(y, len(self.latent_mean))
        return apply_in_buckets(_predictive_cdf, self.likelihood, rows=(y, *self._rows()))

    @double_precision
    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "N *P K"]:
        """Quantiles of y (of each output) at K probabilities in (0, 1)."""
        levels = checked_levels(probabilities)
        return apply_in_buckets(_predictive_quantiles, self.likelihood, levels, rows=self._rows())

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "N *P"], Float[np.ndarray, "N *P"]]:
        """Lower and upper ends of the central interval that holds y with the given probability."""
        ends = self.quantiles(interval_levels(level))
        return ends[..., 0], ends[..., 1]

    @double_precision
    def sample(self, *, key: Key[Array, ""], number: int = 1) -> Float[np.ndarray, "S N *P"]:
        """Draws of y, rows independent of each other, shape (S, N)."""
        draws = _predictive_samples(self.likelihood, self._rows(), key, number)
        return np.asarray(draws)

    @cached_property
    @double_precision
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return apply_in_buckets(_predictive_moments, self.likelihood, rows=self._rows())

    def _rows(self) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        return self.latent_mean, self.latent_variance, self.side_information


class Paths:
    """Draws from the posterior that can be evaluated anywhere, consistently from call to call."""

    def __init__(self, paths: PurePaths):
        self._paths = jax.tree.map(np.asarray, paths)

    @double_precision
    def __call__(self, X: Any) -> Float[np.ndarray, "S N *Q"]:
        """Values at X, shape (S, N), or (S, N, Q) for Q > 1."""
        paths = self._paths
        X = checked_inputs(X, paths.centres.shape[1])
        updates = paths.draws.updates
        wide = max(len(paths.centres), updates.size // updates.shape[-1], _PATH_COLUMNS)
        return np.moveaxis(apply_in_buckets(_path_values, paths, rows=X, columns=wide), 0, 1)


@jax.jit
def _mean(model: LatentGP, latent: LatentPosterior, X: Array) -> Array:
    return latent.mean(X) + model.mean(X)


@jax.jit
def _marginals(model: LatentGP, latent: LatentPosterior, X: Array) -> tuple[Array, Array]:
    mean, variance = latent.marginals(X)
    return mean + model.mean(X), variance


@jax.jit
def _predictive_moments(likelihood: Likelihood, rows: Any) -> tuple[Array, Array]:
    return likelihood.predictive_moments(*rows)


@jax.jit
def _predictive_probabilities(likelihood: Likelihood, rows: Any) -> Array:
    return likelihood.predictive_probabilities(*rows)


@jax.jit
def _predictive_log_prob(likelihood: Likelihood, rows: Any) -> Array:
    return likelihood.predictive_log_prob(*rows)


@jax.jit
def _predictive_cdf(likelihood: Likelihood, rows: Any) -> Array:
    return likelihood.predictive_cdf(*rows)


@jax.jit
def _predictive_quantiles(likelihood: Likelihood, probabilities: Array, rows: Any) -> Array:
    mean, variance, side = rows
    return likelihood.predictive_quantiles(probabilities, mean, variance, side)


@partial(jax.jit, static_argnames="number")
def _predictive_samples(
    likelihood: Likelihood, rows: Any, key: Key[Array, ""], number: int
) -> Float[Array, "S N *P"]:
    mean, variance, side = rows
    key_f, key_y = jax.random.split(key)
    noise = jax.random.normal(key_f, (number, *mean.shape), mean.dtype)
    return _observe(likelihood, mean + jnp.sqrt(variance) * noise, side, key_y)


@jax.jit
def _observe(
    likelihood: Likelihood, f: Float[Array, "S N Q"], side: SideInformation, key: Key[Array, ""]
) -> Float[Array, "S N *P"]:
    """A draw of every target given its latents."""
    keys = jax.random.split(key, f.shape[:2])
    over_rows = jax.vmap(likelihood.sample, (0, 0, 0))
    return jax.vmap(over_rows, (0, 0, None))(keys, f, dict(side))


@partial(jax.jit, static_argnames="number")
def _joint_samples(
    model: LatentGP, latent: LatentPosterior, X: Array, key: Key[Array, ""], number: int
) -> Float[Array, "S N Q"]:
    mean = latent.mean(X) + model.mean(X)
    factors = over_latents(
        lambda covariance, prior: jittered_cholesky(covariance, jnp.mean(prior)).factor.lower,
        latent.covariance(X),
        latent_diagonals(model.kernel, X),
    )
    noise = jax.random.normal(key, (number, *mean.shape), mean.dtype)
    return mean + jnp.einsum("qij,sjq->siq", factors, noise)


@partial(jax.jit, static_argnames=("number", "features"))
def _draw_paths(
    posterior: PurePosterior, key: Key[Array, ""], number: int, features: int
) -> PurePaths:
    return posterior.paths(key, number, features)


@jax.jit
def _path_values(paths: PurePaths, X: Float[Array, "N D"]) -> Float[Array, "N S *Q"]:
    return jnp.moveaxis(paths(X), 0, 1)
