"""The posterior: an immutable result; every question is a view of it.

Naming: `_f` is about the latent functions, `predict` about y; a `variance`
is not a standard deviation. Everything handed out is a NumPy array in the units of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.extension import at, verb
from latentgp.hyperparameters.base import parameters
from latentgp.kernels.parts import names_of_parts
from latentgp.likelihoods import Likelihood, Marginals, SideInformation
from latentgp.model_checks import check_points
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.components import Components, JointDraws, Mixture, OneGaussian
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.inference_data import inference_data, log_likelihoods, replicates
from latentgp.posteriors.parts import Part, Parts, rows_of_parts
from latentgp.posteriors.predictive import Predictive, marginals_of
from latentgp.posteriors.pure import PurePaths, PurePosterior
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.summary import DataSummary
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.rows.subsets import watched_rows
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.mesh import gather, on_host
from latentgp.runtime.x64 import double_precision, fresh
from latentgp.typing import Array, Inputs, Latents, RandomKey, RowLatents
from latentgp.validation import as_key, check_data, checked_inputs, checked_side, key_of_draws

if TYPE_CHECKING:
    from latentgp.methods.base import Method, StandsForMethod
    from latentgp.surfaces.coefficients import Coefficients, GroupEffects
    from latentgp.surfaces.evaluation.effects import Effects
    from latentgp.surfaces.export import Exported

_PATH_COLUMNS = 2048
_DRAWN_ROWS = 2_000  # at which f is drawn jointly


@stored
class Posterior(eqx.Module):
    """Posterior of the latent functions: weighted components.

    Attributes:
        components: one Gaussian, a mixture, or draws, each with a model.
        evidence: the log evidence, and whether it is exact, a lower bound or an approximation;
            None of a method that does not give it.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> fit.posterior.predict_f([0.5, 1.5]).mean.round(2)
        array([0.39, 0.91])
    """

    components: Components
    evidence: Evidence | None

    def __init__(self, components: Components, evidence: Evidence | None = None):
        # NumPy: JAX arrays in double precision would be narrowed when copied or unpickled.
        self.components = jax.tree.map(on_host, components)
        self.evidence = evidence

    def __getstate__(self) -> dict[str, Any]:
        """State of copies and pickles, in NumPy."""
        return {**vars(self), "components": gather(self.components)}

    @classmethod
    def gaussian(cls, model: LatentGP, latent: LatentPosterior, evidence: Evidence) -> "Posterior":
        """Posterior of a single Gaussian component."""
        return cls(OneGaussian(model, latent), evidence)

    @classmethod
    def mixture(
        cls, posteriors: "Sequence[Posterior]", weights: Any, evidence: Evidence | None = None
    ) -> "Posterior":
        """Mixture of posteriors of one likelihood, by weights that need not sum to one.

        Raises:
            InputError: weights that are not as many, negative or all zero; other likelihoods.

        Example:
            >>> import jax, latentgp as lgp
            >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
            >>> models = [lgp.LatentGP(lgp.RBF(scale), lgp.Gaussian(0.1)) for scale in (0.5, 1.0)]
            >>> settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
            >>> fits = [lgp.fit(model, data, **settings).posterior for model in models]
            >>> mixture = lgp.Posterior.mixture(fits, [0.3, 0.7])
            >>> mixture.predict([0.5]).cdf([0.4]).round(2)
            array([0.52])
        """
        return cls(Mixture([posterior.components for posterior in posteriors], weights), evidence)

    @property
    def model(self) -> LatentGP:
        """The model; of several components a representative one."""
        return self.components.model

    @property
    def is_gaussian(self) -> bool:
        """Whether it is one Gaussian, so that `latent`, paths and updates can be had."""
        return isinstance(self.components, OneGaussian)

    @property
    def latent(self) -> LatentPosterior:
        """The Gaussian posterior of the latent functions' zero-mean part.

        Raises:
            InputError: the posterior is no single Gaussian.
        """
        return self._gaussian("has no single Gaussian").latent

    @property
    def log_evidence(self) -> Evidence:
        """The value and whether it is exact or a lower bound.

        Raises:
            InputError: the method does not give it.
        """
        if self.evidence is None:
            raise InputError(
                "The method gives no log evidence; fit with AugmentedVI or "
                "VariationalInference for a lower bound."
            )
        return self.evidence

    @double_precision
    def predict_f(self, X: Any) -> Marginals:
        """Means and variances of the latent functions at X, shape (N, D); O(N), in pieces."""
        return Marginals(*map(self._of_latents, marginals_of(self._prepared, self._inputs(X))))

    @double_precision
    def mean_f(self, X: Any) -> Float[np.ndarray, "N *Q"]:
        """Means of the latent functions alone: no variance is computed, no system solved."""
        return self._of_latents(self._means(self._inputs(X)))

    @double_precision
    def predict(self, X: Any, **side_information: Any) -> Predictive:
        """The predictive distribution of y at X, one a row.

        Args:
            X: inputs, shape (N, D).
            side_information: what the likelihood reads a row, as in `Data`.
        """
        X = self._inputs(X)
        return Predictive(self._prepared, X, self._side(side_information, len(X)))

    @double_precision
    def sample_f(self, X: Any, *, key: RandomKey, number: int = 1) -> Float[np.ndarray, "S N *Q"]:
        """Joint draws of the latent functions at X, exact, O(N^3).

        Returns:
            Shape (S, N), or (S, N, Q) for Q > 1.
        """
        key = key_of_draws(key, number)
        return self._of_latents(self._joint_draws(self._inputs(X), key, number)[0])

    @double_precision
    def sample_y(
        self, X: Any, *, key: RandomKey, number: int = 1, **side_information: Any
    ) -> Float[np.ndarray, "S N *P"]:
        """Draws of y at X, rows dependent through joint draws of the latents, shape (S, N)."""
        X = self._inputs(X)
        side = self._side(side_information, len(X))
        key_f, key_y = jax.random.split(key_of_draws(key, number))
        f, picked = self._joint_draws(X, key_f, number)
        own = self.components.law.own
        return np.asarray(_observe(self._likelihoods(picked), f, side, key_y, own))

    @double_precision
    def sample_expectation(
        self, X: Any, *, key: RandomKey, number: int = 1, **side_information: Any
    ) -> Float[np.ndarray, "S N *P"]:
        """Joint draws of the expectation of y given the latents: no noise, rows dependent.

        Of more than two classes these are the probabilities of each, of two that of the second.

        Args:
            X: inputs, shape (N, D).
            key: random key.
            number: of draws S.
            side_information: what the likelihood reads a row, as in `Data`.

        Returns:
            Shape (S, N), or (S, N, P) for P outputs or classes.

        Raises:
            InputError: the likelihood does not define the expectation.

        Example:
            >>> import jax, latentgp as lgp
            >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
            >>> data = lgp.Data([0.0, 1.0, 2.0], [3, 1, 0])
            >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
            >>> rates = fit.posterior.sample_expectation([0.5], key=jax.random.key(1), number=9)
            >>> rates.shape, bool((rates > 0).all())
            ((9, 1), True)
        """
        X = self._inputs(X)
        side = self._side(side_information, len(X))
        f, picked = self._joint_draws(X, key_of_draws(key, number), number)
        own = self.components.law.own
        return np.asarray(expectations(self._likelihoods(picked), f, side, own))

    def effects(self, X: Any, **settings: Any) -> "Effects":
        """Effects of the inputs on the expectation of y, over the rows X as background.

        Args:
            X: inputs, shape (N, D), or a data frame of such columns.
            settings: as `latentgp.surfaces.evaluation.effects.Effects` takes them.
        """
        return verb("effects")(self, X, **settings)

    @double_precision
    def parts(self, X: Any, names: Sequence[str] | None = None) -> Parts:
        """Posteriors of the parts of the latent functions, whose kernel is a sum: trend, season.

        The latent functions are sums of independent ones, one for each kernel of the sum, nested
        sums included. Each has its own mean and variance given the data; means and the prior mean
        add up to `mean_f(X)`, variances do not, as the parts are dependent given the data.

        Args:
            X: inputs, shape (N, D).
            names: of the parts, in the order of the kernel's; as their kernels print unless given.

        Raises:
            InputError: the representation has no posterior of them, such as neighbours; names that
                are not one for each.

        Example:
            >>> import jax, latentgp as lgp
            >>> kernel = lgp.RBF(5.0) + lgp.Periodic(period=2.0)
            >>> data = lgp.Data([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0])
            >>> model = lgp.LatentGP(kernel, lgp.Gaussian(noise_variance=0.1))
            >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
            >>> parts = fit.posterior.parts([4.0], names=["trend", "season"])
            >>> parts["trend"].mean.round(2), parts["season"].mean.round(2)
            (array([1.26]), array([0.04]))
        """
        X, names = self._inputs(X), names_of_parts(self.model.kernel, names)
        components = self.components.telling_parts(len(names)).prepared()
        moments = marginals_of(components, rows_of_parts(X, len(names)))
        mean, variance = (a.reshape(len(names), len(X), -1) for a in moments)
        parts = [Part(*map(self._of_latents, own)) for own in zip(mean, variance, strict=True)]
        prior_mean = self._of_latents(self._means(X) - mean.sum(axis=0))
        return Parts(dict(zip(names, parts, strict=True)), prior_mean)

    @double_precision
    def coefficients(self, names: Sequence[str] | None = None) -> "Coefficients":
        """Coefficients of the linear parts of a sum of kernels, with their joint covariance.

        Of `FixedEffects` they are the fixed effects of mixed models and their standard errors,
        given the hyper-parameters; of `Linear` they are shrunk by its prior.

        Args:
            names: of all columns of the inputs; their numbers unless given.

        Raises:
            InputError: the kernel has no linear part; names that are not one for each column; a
                representation without parts, such as neighbours without features.

        Example:
            >>> import jax, latentgp as lgp, numpy as np
            >>> X = np.column_stack([np.ones(20), np.arange(20.0)])
            >>> model = lgp.LatentGP(lgp.kernels.FixedEffects([1e4, 1e2]), lgp.Gaussian(0.01))
            >>> data = lgp.Data(X, 3.0 + 2.0 * X[:, 1])
            >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
            >>> found = fit.posterior.coefficients(["intercept", "slope"])
            >>> found.estimate.round(2), found.standard_error.round(3)
            (array([3., 2.]), array([0.043, 0.004]))
        """
        return verb("coefficients")(self, names)

    @double_precision
    def group_effects(
        self,
        column: int,
        groups: Sequence[float],
        *,
        names: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
    ) -> "dict[str, GroupEffects]":
        """Random intercepts and slopes of groups, by what they multiply.

        Args:
            column: that tells groups apart.
            groups: their values in it; those that the data had none of have the prior.
            names: of all columns of the inputs; their numbers unless given.
            labels: of the groups; their values unless given.

        Raises:
            InputError: the kernel has no such parts; no such column; names that are not one for
                each.
        """
        return verb("group_effects")(self, column, groups, names=names, labels=labels)

    @double_precision
    def marginals_of_parts(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances at rows whose last columns name the parts of the kernel."""
        number = rows.shape[1] - self.components.inputs
        moments = marginals_of(self.components.telling_parts(number).prepared(), rows)
        return self._of_latents(moments.mean), self._of_latents(moments.variance)

    @double_precision
    def weighted_sum_of_parts(self, rows: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a weighted sum of f at rows whose last columns name parts.

        By the joint covariance of the N rows, O(N^2) numbers; of a posterior that is no single
        Gaussian by 4,000 joint draws, which put the deviation off by about 1 %.
        """
        known = self.components.telling_parts(rows.shape[1] - self.components.inputs).prepared()
        if isinstance(known, OneGaussian):
            pure = PurePosterior(known.own_model, known.latent)
            variance = np.einsum("i,...ij,j->...", weights, pure.covariance(rows), weights)
            return np.asarray(weights @ pure.mean(rows)), np.asarray(np.maximum(variance, 0.0))
        draws, _ = known.joint(rows, jax.random.key(0), 4_000)
        sums = np.einsum("n,sn...->s...", weights, self._of_latents(draws))
        return np.asarray(sums.mean(axis=0)), np.asarray(sums.var(axis=0, ddof=1))

    @double_precision
    def sample_parts(
        self, X: Any, *, key: RandomKey, number: int = 1, names: Sequence[str] | None = None
    ) -> dict[str, Float[np.ndarray, "S N *Q"]]:
        """Joint draws of the parts at X by name, shape (S, N) each, that add up to draws of f.

        The prior mean belongs to no part. Costs and errors are those of `sample_f` at as many
        copies of X as there are parts, and of `parts`.
        """
        X, names = self._inputs(X), names_of_parts(self.model.kernel, names)
        components = self.components.telling_parts(len(names)).prepared()
        key = key_of_draws(key, number)
        draws, _ = components.joint(rows_of_parts(X, len(names)), key, number)
        draws = draws.reshape(number, len(names), len(X), -1)
        return {name: self._of_latents(draws[:, j]) for j, name in enumerate(names)}

    @double_precision
    def sample_paths(self, *, key: RandomKey, number: int = 1, features: int = 1024) -> "Paths":
        """Draws of the latent functions as functions, by Matheron's rule (Wilson et al. 2020).

        The prior's part is made of random Fourier features, an approximation whose error falls
        with one over the root of their number; the update by the data is exact. Sixteen sets of
        paths have features of their own. By neighbours the update rests on all rows where
        `predict` rests on the nearest ones, so that the two differ by what these leave out.

        Args:
            key: random key.
            number: of paths.
            features: how many for each latent function.

        Raises:
            InputError: the kernel has no spectral features; the posterior is no single Gaussian.
        """
        key = key_of_draws(key, number)
        return Paths(_draw_paths(self.as_jax(), key, number, features), self._inputs)

    def as_jax(self) -> PurePosterior:
        """The posterior as pure functions, for `jax.grad`, `jax.jit` and `jax.vmap`.

        Means, variances, covariances, moments of y, and paths, of JAX arrays. A gradient of the
        log evidence is that of `latentgp.log_evidence`.

        Raises:
            InputError: the posterior is no single Gaussian.
        """
        one = self._gaussian("has no pure functions")
        return PurePosterior(fresh(one.own_model), fresh(one.latent))

    def export(self, folder: str | Path, **settings: Any) -> "Exported":
        """Write the predictions as files that need no latentgp: a Python file, StableHLO.

        Args:
            folder: where to; it is made if need be.
            settings: as `latentgp.export_predictor` takes them.

        Raises:
            InputError: as `latentgp.export_predictor` does.
        """
        return verb("export")(self, folder, **settings)

    def update(
        self,
        X: Any,
        y: Any,
        *,
        key: RandomKey,
        weights: Any = None,
        n_inducing: int | None = None,
        selection: Selection = "greedy-variance",
        lag: float | None = None,
        method: "Method | StandsForMethod | Literal['auto'] | None" = None,
        **side_information: Any,
    ) -> "Posterior":
        """The posterior after further rows, at the same hyper-parameters, without the earlier rows.

        The streaming sparse posterior (Bui, Nguyen & Turner 2017): exact sites for Gaussian noise,
        quadrature for other likelihoods. For other methods, and to learn hyper-parameters on the
        way, call `latentgp.fit` with `Inducing(..., remembered=posterior.remembered())`. A
        posterior in state-space form goes on exactly, from rows with their sites.

        Args:
            X: inputs of the new rows, shape (N, D).
            y: their targets.
            key: random key, for inducing points.
            weights: of the new rows, shape (N,).
            n_inducing: at most so many inducing points afterwards; None takes as many as there are,
                or what "auto" does if that is more.
            selection: how they are chosen among the new rows and the points so far, as in
                `Inducing`; "oips" keeps these and adds rows that resemble none.
            lag: of a posterior through `Markov()`: only rows within that time of the newest one
                are kept, and their sites made anew; of those before the filtered state is, so that
                time and memory do not grow. Exact from there on with Gaussian noise. Predictions
                for earlier times are then refused. None keeps all rows.
            method: by sites, whose rule the rows are taken in by, such as `AugmentedVI()`; None or
                "auto" takes the usual one of the likelihood.
            side_information: what the likelihood reads a row, as in `Data`.

        Raises:
            InputError: rows that do not fit the model; a lag of another representation, or rows
                from before what an earlier lag has left.

        Example:
            >>> import jax, latentgp as lgp
            >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
            >>> rows = lgp.Data([0.0, 1.0], [0.0, 0.8])
            >>> fit = lgp.fit(model, rows, key=jax.random.key(0), learn_hyperparameters=False)
            >>> after = fit.posterior.update([2.0], [0.9], key=jax.random.key(1))
            >>> after.predict_f([0.5, 1.5]).mean.round(2)
            array([0.39, 0.91])
        """
        data = Data(X, y, weights=weights, **side_information)
        return at("latentgp.streams:updated")(
            self, data, key=key, n_inducing=n_inducing, selection=selection, lag=lag, method=method
        )

    @double_precision
    def to_arviz(
        self, data: Data | None = None, *, key: RandomKey | None = None, draws: int = 1000
    ) -> Any:
        """Draws of the posterior as ArviZ's InferenceData, in one chain of independent draws.

        From version 1 of ArviZ it is a DataTree of the same groups.

        Groups: `posterior` (`f` at the rows, hyper-parameters where there are several sets of
        them), `posterior_predictive`, `log_likelihood` (times the row's weight), `observed_data`
        and `constant_data` (inputs `X`). The coordinate `row` is the place of a row in the data. Of
        many rows there are evenly spaced ones; rows of weight zero or without a target are not.
        `az.loo` takes the posterior for exact; `latentgp.leave_one_out` knows that it is not.

        Args:
            data: the rows.
            key: random key; None is `jax.random.key(0)`.
            draws: how many.

        Raises:
            InputError: no rows; fewer than one draw.

        Example:
            >>> import jax, latentgp as lgp, numpy as np
            >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
            >>> rows = lgp.Data(np.arange(8.0), [3, 1, 0, 2, 5, 4, 1, 0])
            >>> fit = lgp.fit(model, rows, key=jax.random.key(0), method=lgp.Laplace())
            >>> fit.posterior.to_arviz(rows).posterior["f"].shape
            (1, 1000, 8, 1)
        """
        if data is None or draws < 1:
            raise InputError(
                f"to_arviz needs the rows and at least one draw, got data={data} and "
                f"draws={draws}; write posterior.to_arviz(data)."
            )
        check_data(self.model.likelihood, data)
        latents = self.model.likelihood.latent_size
        counted = np.flatnonzero(data.merged_rows().origin >= 0)
        watched = watched_rows(len(counted), draws * latents)
        places = counted[watched[evenly(len(watched), _DRAWN_ROWS)]]
        rows = data.select(places)
        key_f, key_y = jax.random.split(jax.random.key(0) if key is None else as_key(key))
        f, picked = self._joint_draws(self._inputs(rows.X), key_f, draws)
        law, known = self.components.law, {}
        if law.own:
            known = {f"likelihood.{p}": i.value for p, i in parameters(law.likelihood).items()}
        drawn = {path: np.asarray(values)[picked][None] for path, values in known.items()}
        return inference_data(
            rows,
            places,
            hyperparameters=self._hyperparameters_of(picked),
            f=f[None],
            y=replicates(self.model, drawn, f[None], rows, key_y),
            log_likelihood=log_likelihoods(self.model, drawn, f[None], rows),
        )

    def _hyperparameters_of(self, picked: np.ndarray) -> dict[str, Float[np.ndarray, "1 S ..."]]:
        """Hyper-parameters of the components that draws are of, where these differ."""
        models, size = getattr(self.components, "models", None), self.components.size
        if models is None or not self.components.law.own:
            return {}
        known = {path: np.asarray(info.value) for path, info in parameters(models).items()}
        return {
            path: values[picked][None]
            for path, values in known.items()
            if len(values) == size and np.any(values != values[:1])
        }

    @double_precision
    def remembered(self) -> DataSummary:
        """Summary of the data for streaming updates, as `Inducing(remembered=...)` takes it.

        Raises:
            InputError: the posterior is no single Gaussian.
        """
        latent = self._gaussian("has no streaming updates").latent
        seen = latent.without_fillers().remembered(float(self.log_evidence))
        return jax.tree.map(np.asarray, seen)

    def latent_inputs(self) -> int:
        """Number of input columns D."""
        return self.components.inputs

    def shifted(self, centre: float) -> "Posterior":
        """With a zero prior mean moved by a constant, and the first latent function with it."""
        return Posterior(self.components.shifted(centre), self.evidence)

    def with_likelihood(self, likelihood: Likelihood) -> "Posterior":
        """Posterior with another likelihood for predictions.

        Raises:
            InputError: the posterior is no single Gaussian.
        """
        one = self._gaussian("has no single likelihood")
        model = LatentGP(one.own_model.kernel, likelihood, one.own_model.mean)
        return Posterior(OneGaussian(model, one.latent), self.evidence)

    def _likelihoods(self, picked: np.ndarray) -> Likelihood:
        """The likelihood, or those of the components that are picked, one a draw."""
        law = self.components.law
        return jax.tree.map(lambda a: a[picked], law.likelihood) if law.own else law.likelihood

    def _of_latents(self, values: Float[np.ndarray, "*S Q"]) -> Any:
        return values[..., 0] if self.model.likelihood.latent_size == 1 else values

    def _means(self, X: Inputs) -> Float[np.ndarray, "N Q"]:
        known = self._prepared
        return apply_in_buckets(_mean, known, rows=X, columns=known.columns)

    @cached_property
    def _prepared(self) -> Components:
        with jax.enable_x64(True):
            return self.components.prepared()

    def _gaussian(self, what: str) -> OneGaussian:
        if not isinstance(self.components, OneGaussian):
            raise InputError(
                f"A posterior of draws or of several components {what}; use sample_f at the inputs "
                "that are wanted, or fit with ExactGP, AugmentedVI or VariationalInference."
            )
        return self.components

    def _joint_draws(self, X: np.ndarray, key: RandomKey, number: int) -> JointDraws:
        if len(X) == 0:
            shape = (number, 0, self.model.likelihood.latent_size)
            return np.zeros(shape), self.components.pick(key, number)
        return self._prepared.joint(X, key, number)

    def _inputs(self, X: Any) -> np.ndarray:
        X = checked_inputs(X, self.latent_inputs())
        check_points(self.model.of_inputs, X)
        self.components.check_inputs(X)
        return X

    def _side(self, given: dict[str, Any], size: int) -> dict[str, np.ndarray]:
        return checked_side(self.model.likelihood, given, size)


class Paths:
    """Draws from the posterior that can be evaluated anywhere, consistently from call to call."""

    def __init__(self, paths: PurePaths, checked: Callable[[Any], np.ndarray]):
        self._paths, self._checked = jax.tree.map(np.asarray, paths), checked

    @double_precision
    def __call__(self, X: Any) -> Float[np.ndarray, "S N *Q"]:
        """Values at X, shape (S, N), or (S, N, Q) for Q > 1."""
        paths, X = self._paths, self._checked(X)
        updates = paths.draws.updates
        wide = max(updates.shape[-1], updates.size // updates.shape[-1], _PATH_COLUMNS)
        return np.moveaxis(apply_in_buckets(_path_values, paths, rows=X, columns=wide), 0, 1)


def _mean(components: Components, X: Array) -> RowLatents:
    weights = jnp.exp(jnp.asarray(components.law.log_weights))
    return jnp.sum(weights[:, None] * components.means(X), axis=1)


@partial(jax.jit, static_argnames="own")
def _observe(
    likelihoods: Likelihood,
    f: Float[Array, "S N Q"],
    side: SideInformation,
    key: RandomKey,
    own: bool,
) -> Float[Array, "S N *P"]:
    """A draw of every target given its latents."""
    keys = jax.random.split(key, f.shape[:2])
    over_rows = jax.vmap(lambda likelihood, *row: likelihood.sample(*row), (None, 0, 0, 0))
    axes = (0 if own else None, 0, 0, None)
    return jax.vmap(over_rows, axes)(likelihoods, keys, f, dict(side))


def expected(likelihood: Likelihood, f: Latents, side: SideInformation) -> Float[Array, "*P"]:
    """The expectation of a target given its latents, or the probabilities of its classes.

    Of two classes that of the second.
    """
    if likelihood.targets != "class":
        return likelihood.conditional_moments(f, side)[0]
    probabilities = likelihood.class_probabilities(f, side)
    return probabilities[1] if len(probabilities) == 2 else probabilities


@partial(jax.jit, static_argnames="own")
def expectations(
    likelihoods: Likelihood, f: Float[Array, "S N Q"], side: SideInformation, own: bool
) -> Float[Array, "S N *P"]:
    """The same of every target, at draws of its latents."""
    over_rows = jax.vmap(expected, (None, 0, 0))
    return jax.vmap(over_rows, (0 if own else None, 0, None))(likelihoods, f, dict(side))


@partial(jax.jit, static_argnames=("number", "features"))
def _draw_paths(posterior: PurePosterior, key: RandomKey, number: int, features: int) -> PurePaths:
    return posterior.paths(key, number, features)


@jax.jit
def _path_values(paths: PurePaths, X: Inputs) -> Float[Array, "N S *Q"]:
    return jnp.moveaxis(paths(X), 0, 1)
