"""Black-box variational inference with mixtures of Gaussians."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.diagnostics import Diagnostics, about_jitter, at_bounds, mean_prior_variances
from latentgp.errors import check_choices, check_finite, check_ranges, refuse
from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.expectations import Estimator, Expectations
from latentgp.extensions.black_box.mixtures.family import Coordinates, Covariance, GaussianMixture
from latentgp.extensions.black_box.mixtures.own_points import OwnPoints
from latentgp.extensions.black_box.mixtures.search import ProfiledSearch, SearchState
from latentgp.extensions.black_box.mixtures.starts import best_of, combined, several, started
from latentgp.extensions.black_box.mixtures.summary import MixtureTerms, posteriors_of, terms_of
from latentgp.likelihoods import Likelihood
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.models import LatentGP
from latentgp.posteriors.components import Gaussians
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.posterior import Posterior
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.rows.arrays import evenly
from latentgp.runtime.progress import RunControl
from latentgp.typing import RandomKey

_FEW_FAILED = 0.05
_OPENING_STEPS = 50  # from each start
_OF_ONE = -1  # the run with one component, before that with several

Optimiser = Literal["natural", "alternating", "adadelta"]


class BlackBoxVI(Method):
    """Variational inference from values of log p(y | f) alone (Bonilla, Krauth & Dezfouli).

    The posterior of the coefficients is a Gaussian, or a mixture of a few; what is asked of the
    likelihood is its value, never a gradient in f, and of rows, components and draws each once a
    step. Components move by natural gradients. Without noise in the expectations
    (estimator="quadrature") hyper-parameters are searched with the mixture at its best; by draws,
    on batches, or where points are learned, all move together along estimated slopes.

    For differentiable likelihoods and one component `VariationalInference` finds the same faster; a
    mixture pays where the posterior has several modes. Weights and terms of the bound are in
    `diagnostics.finding("terms")`.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        components: K, the number of Gaussians.
        covariance: of a component "full", "diagonal", or "linear", which is full with one number a
            row and latent, for all rows. One component loses nothing by it (Theorem 2), several
            next to nothing; a step of theirs solves a system of the size of the rows, N x N numbers
            for each latent, where N is less than M (M + 1) / 2.
        estimator: "quadrature", by fixed nodes; "score", by draws and the score function;
            "reparameterised", by draws and gradients of log p(y | f).
        samples: draws a row and component and step, an even number.
        control_variates: whether the score function is one.
        coordinates: in which covariances are diagonal: "white", or "values" of f at the centres, as
            published.
        batch_size: rows of a step; None for all.
        steps: along estimated slopes.
        delay: of their lengths (t + delay)^-power.
        power: of these, in (0.5, 1].
        rate: of Adam's steps in the hyper-parameters, times the root of that length.
        optimiser: "natural"; or, with plain gradients as published, "alternating", which moves
            mixture, hyper-parameters and points in turn by L-BFGS, or "adadelta", all at once.
        learn_points: whether inducing points are learned too, by natural gradients with Adam at the
            rate of hyper-parameters, in units of the inputs' standard deviations.
        own_points: inducing points of each latent function, shape (Q, M, D), in place of those that
            all share.
        start_variance: of a component at the start, in prior variances.
        start_means: f where components start, shape (K, M, Q), at the M rows as they are given, or
            at the inducing points that are; the prior mean, and draws of the prior, if None.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])
        >>> method = lgp.BlackBoxVI(components=2)
        >>> fit = lgp.fit(model, data, method=method, key=jax.random.key(0))
        >>> fit.posterior.predict([0.5]).probabilities.shape
        (1, 2)
    """

    representation: Representation = Dense()
    components: int = eqx.field(static=True, default=1)
    covariance: Covariance = eqx.field(static=True, default="full")
    estimator: Estimator = eqx.field(static=True, default="quadrature")
    samples: int = eqx.field(static=True, default=100)
    control_variates: bool = eqx.field(static=True, default=True)
    coordinates: Coordinates = eqx.field(static=True, default="white")
    batch_size: int | None = eqx.field(static=True, default=None)
    steps: int = eqx.field(static=True, default=500)
    delay: float = eqx.field(static=True, default=10.0)
    power: float = eqx.field(static=True, default=0.7)
    rate: float = eqx.field(static=True, default=0.1)
    optimiser: Optimiser = eqx.field(static=True, default="natural")
    learn_points: bool = eqx.field(static=True, default=False)
    start_variance: float = eqx.field(static=True, default=1.0)
    start_means: Float[Any, "K M Q"] | None = None
    own_points: Float[Any, "Q M D"] | None = None

    def __check_init__(self) -> None:
        check_choices(self, covariance=Covariance, estimator=Estimator)
        check_choices(self, coordinates=Coordinates, optimiser=Optimiser)
        least = dict.fromkeys(("components", "steps", "delay", "batch_size"), "at least 1")
        check_ranges(self, **least, power="(0.5, 1]", rate="above 0", start_variance="above 0")
        batches, walks = self.batch_size is not None, self._walks
        sentences = {
            "BlackBoxVI.samples must be an even number of at least 4, as every draw comes with its "
            f"opposite, got {self.samples}.": self.samples < 4 or self.samples % 2,
            'BlackBoxVI(covariance="linear") is for all rows at once, and with several components '
            'for natural steps by quadrature; use covariance="full".': self.covariance == "linear"
            and (batches or (self.components > 1 and (walks or self.optimiser != "natural"))),
            'BlackBoxVI(optimiser="alternating") looks at all rows; use "adadelta" for batches.': (
                self.optimiser == "alternating" and batches
            ),
        }
        by_rows = self.representation.traits.one_coefficient_a_row
        points = getattr(self.representation, "points", None)
        chosen = not by_rows and points is None and self.own_points is None
        sentences[
            "BlackBoxVI.start_means are f at rows, or at inducing points that are known; give "
            "Inducing(points=...) or Dense()."
        ] = self.start_means is not None and chosen
        refuse(sentences)
        of_points = Needs(inducing_variables=True)
        for name in ("batch_size", "learn_points", "own_points"):
            if getattr(self, name) is not None and getattr(self, name) is not False:
                of_points.check(f"BlackBoxVI.{name}", representation=self.representation)
        needs = Needs(dense_factors=True, one_gaussian=True, all_rows=True, held_points=True)
        needs.check("BlackBoxVI", representation=self.representation)

    @property
    def expectations(self) -> Expectations:
        """Estimator of expected log likelihoods."""
        return Expectations(self.estimator, self.samples, self.control_variates)

    @property
    def _walks(self) -> bool:
        return self.expectations.is_random or self.batch_size is not None or self.learn_points

    def run(self, problem: Problem) -> Fit:
        """Hyper-parameters at their most probable values, and a mixture."""
        model, data = problem.model, problem.data
        space = problem.space
        key_start, key_run, key_end, key_points = jax.random.split(problem.key, 4)
        if self.own_points is None:
            ready = self.representation.initialise(data.X, data.weights, model.kernel, key_points)
        else:
            latents, columns = model.likelihood.latent_size, data.X.shape[1]
            ready = OwnPoints.checked(self.own_points, columns, latents)
        learns_likelihood = any(path.startswith("likelihood.") for path in space.paths)
        own = self.expectations, self.coordinates, learns_likelihood
        by_rows = self.covariance == "linear" and self.components > 1
        bound = MixtureBound(space, ready, data.to_device(), *own, by_rows)
        first = started(self, bound, model, problem.rows.origin, key_start)
        found = SearchState(np.asarray(space.to_vector()), first[0])
        control = problem.control_with(self, self, space, tolerance=problem.options.tolerance)
        tolerance = problem.options.tolerance * data.total_weight
        if self.optimiser != "natural" or self._walks:
            self._begin(bound, found, first, key_start)
            bound = self._along_slopes(bound, found, tolerance, control, key_run)
        else:
            search = ProfiledSearch(
                bound,
                found,
                problem.bounds(),
                tolerance=tolerance,
                at_most=problem.options.max_evaluations,
                control=control,
                key=key_run,
            )
            alone = self.components == 1
            if len(first) > self.components and not search.has_reached(_OF_ONE):
                best_of(bound, found, first, key_run)
            if search.run(0 if alone else _OF_ONE) and not alone:
                if not search.has_reached(0):
                    several(bound, found, first[1:], self.components, key_start)
                search.run(0)
        return self._result(problem, bound, found, key_end)

    def _begin(
        self, bound: MixtureBound, found: SearchState, starts: list[GaussianMixture], key: RandomKey
    ) -> None:
        """Start steps along slopes: where log p is not concave, at the best ends of a few steps.

        These look at the rows of a batch, if there are batches.
        """
        number = self.components
        found.mixture = combined(starts[:number])
        if len(starts) == number:
            return
        rows = len(bound.data.X)
        if self.batch_size is not None and self.batch_size < rows:
            bound = bound.of_rows(jnp.asarray(evenly(rows, self.batch_size)))
        most = min(_OPENING_STEPS, self.steps)
        best_of(bound, found, starts, key, most)
        if number > 1:
            several(bound, found, starts[1:], number, key, most)
        found.steps = 0

    def _along_slopes(
        self,
        bound: MixtureBound,
        found: SearchState,
        tolerance: float,
        control: RunControl,
        key: RandomKey,
    ) -> MixtureBound:
        """Gives the bound through the points at the end."""
        # Optax takes long to import.
        from latentgp.extensions.black_box.mixtures.gradient import ascend, freed
        from latentgp.extensions.black_box.mixtures.walk import StepLengths, walk

        representation: Any = bound.representation
        points = jnp.asarray(representation.points) if self.learn_points else None
        if self.optimiser != "natural":
            free = freed(bound, found, self.covariance, points)
            return ascend(self, bound, found, free, tolerance, control, key)
        numbers = self.delay, self.power, self.rate, jnp.std(bound.data.X, axis=0)
        lengths = StepLengths(*(jnp.asarray(a, float) for a in numbers))
        return walk(self, bound, found, lengths, points, control, key)

    @property
    def needs(self) -> Needs:
        return Needs(positive=True, gradient=self.estimator == "reparameterised")

    def _result(
        self, problem: Problem, bound: MixtureBound, found: SearchState, key: RandomKey
    ) -> Fit:
        model = jax.tree.map(np.asarray, bound.space.to_model(jnp.asarray(found.vector)))
        terms = terms_of(bound, jnp.asarray(found.vector), found.mixture, key)
        calls = model.likelihood.calls
        nothing = calls is not None and calls.failed == calls.values
        known = [record.bound for record in found.records if np.isfinite(record.bound)]
        sound = not nothing and (known or np.isfinite(terms.bound))
        check_finite(sound, "bound", "these hyper-parameters")
        latents = posteriors_of(bound, model, found.mixture)
        kind = "lower bound" if self._is_sure(model.likelihood) else "approximation"
        if not np.isfinite(terms.bound):  # the function failed at the end: what there is is kept
            terms = dataclasses.replace(terms, expected=known[-1] - terms.entropy - terms.cross)
            kind, found.converged = "approximation", False
            found.reason = "values of log p(y | f) failed, so that the bound is the last estimate"
        evidence = Evidence(terms.bound, kind)
        if len(latents) == 1:  # also of several, if the search was ended before they were there
            posterior = Posterior.gaussian(model, latents[0], evidence)
        else:
            weights = np.exp(np.asarray(found.mixture.log_weights))
            parts = Gaussians.of([model] * len(weights), latents, weights)
            posterior = Posterior(parts, evidence)
        diagnostics = self._diagnosed(problem, model, found, terms, latents)
        return Fit(model, posterior, History.of(found.records), diagnostics)

    def _is_sure(self, likelihood: Likelihood) -> bool:
        own = type(likelihood).expected_log_prob is not Likelihood.expected_log_prob
        return not self._walks and (likelihood.latent_size <= 2 or own)

    def _diagnosed(
        self,
        problem: Problem,
        model: LatentGP,
        found: SearchState,
        terms: MixtureTerms,
        latents: Any,
    ) -> Diagnostics:
        warnings = []
        if not found.converged:
            warnings.append(
                f"The search ended early because {found.reason}; mend that, or continue from the "
                "fitted model."
            )
        if found.passed_over > _FEW_FAILED * max(found.steps, 1):
            warnings.append(
                f"{found.passed_over} of {found.steps} steps changed nothing, as they were not "
                "finite; start from other hyper-parameters, or raise samples."
            )
        if found.failed and model.likelihood.calls is None:  # `fit` tells of these
            warnings.append(
                f"{found.failed} values of log p(y | f) were not finite and counted as the lowest "
                "of their row; make it finite for all latents."
            )
        jitter = max(float(latent.jitter) for latent in latents)
        variance = float(np.max(mean_prior_variances(model.kernel, problem.data)))
        warnings += about_jitter(jitter, variance)
        sound, names = not warnings, problem.options.input_names
        if self.optimiser == "natural" and not self._walks:
            warnings += at_bounds(
                problem.space, found.vector, problem.bounds(), names, problem.data
            )
        return Diagnostics(
            converged=found.converged and sound,
            method=self,
            reason=problem.reason,
            ending=found.reason,
            evaluations=len(found.records),
            site_updates=found.steps,
            site_change=found.rise,
            jitter=jitter,
            trace_term=0.0,
            seconds=problem.seconds,
            warnings=tuple(warnings),
            evidence_error=terms.expected_error,
        ).with_finding(terms)
