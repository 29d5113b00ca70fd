"""Deep models by random features and stochastic variational inference."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.diagnostics import Diagnostics, at_bounds
from latentgp.errors import InputError, check_choices, check_ranges, check_whole, refuse
from latentgp.extensions.batches.method import (
    check_processes,
    directions_by_heart,
    learned_directions,
    learns_by_heart,
    mean_log_density,
)
from latentgp.extensions.batches.step_sizes import RobbinsMonro, Schedule
from latentgp.extensions.deep.inference.family import Architecture, Frequencies, Hidden
from latentgp.extensions.deep.inference.programs import (
    begun,
    bound_at_the_end,
    components_of,
)
from latentgp.extensions.deep.methods.start import best_start, from_shallow, last_layer_at_modes
from latentgp.extensions.deep.models import DeepGP
from latentgp.extensions.deep.random_features import RandomFeatures
from latentgp.hyperparameters.base import parameters
from latentgp.kernels.directions import DirectionKind
from latentgp.likelihoods.row_modes import is_concave
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.runtime.processes import broadcast_from_first
from latentgp.setup.priors import search_bounds, typical_start
from latentgp.site_inference.rules.variational import VariationalRule
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.typing import Array, RandomKey

if TYPE_CHECKING:
    from latentgp.extensions.deep.inference.steps import DeepInference, DeepState

LastLayer = Literal["natural", "factorised"]
Values = Literal["learned", "variational"]
Start = Literal["shallow", "given"]
_SAMPLED_ROWS = 4_096
_EPOCHS, _STEPS = 200, 4_000  # the more of both unless epochs are given
_STEPS_A_LOOK = 100
_FAR = 1.5  # from typical length-scales, either way, beyond which these are a start too
_FLAT = (
    "Hyper-parameters without a prior have a flat one, under which there is no evidence to bound: "
    "the log evidence is known up to a constant."
)


class RandomFeatureVI(Method):
    """Deep Gaussian processes by random features (Cutajar et al. 2017).

    Every layer is a weighted sum of random features of its kernel, whose weights, and directions,
    have independent Gaussian posteriors. Adam climbs the bound by batches, the functions of each
    layer drawn row by row (Kingma, Salimans & Welling 2015). Given a draw of the hidden layers the
    last one is a Gaussian process in weights: by default its posterior is full, by natural
    gradients from the library's sites, and not factorised, as published. Works for any likelihood
    with a variational bound, on a `LatentGP` too, of which it is the variational sparse spectrum
    (Gal & Turner 2015).

    Args:
        features: R of each layer, an even number.
        kind: of their directions, as of `RandomFeatures`. Structured ones, the usual from 256 input
            columns, have few numbers to learn: "orthogonal" can fit better, and overfit.
        frequencies: "variational" with the noise of one draw (published as the best), "fixed" at a
            draw of their prior, or "resampled" at every step. None is "variational" where
            there are 15 rows for each feature of all layers, as it fits fewer by heart, or "fixed".
        last: posterior of the last layer's weights: "natural", full and by natural gradients, or
            "factorised" and by Adam, as published.
        hidden: posterior of the weights of hidden layers: "factorised", or "matrix-normal" with
            covariances between features and between functions, at the cost of R^2 a row.
        hyperparameters: "learned", one value each, or "variational", independent Gaussians on
            their unconstrained scale under their priors (future work of the source).
        importance: joint draws of all weights in the bound (Burda et al. 2016), one for the usual
            bound; more need all rows in a batch and last="factorised".
        start: "shallow" begins at hyper-parameters that a short search of the last layer alone
            has found on some rows, hidden functions at their prior means, at length-scales typical
            of the inputs, or at the model's own, whichever has the higher bound after 400 steps;
            "given" at the model's.
        batch_size: rows of a batch.
        epochs: at most so many passes over the rows; None is 200, or 4,000 steps if that is more.
        learning_rate: of Adam, at the start. Directions that move fast fit rows by heart: at 0.01
            the bound ends higher and held-out density lower.
        decay: steps after which it has halved.
        draws: of the hidden layers in a step, or two numbers: at first, and in the second half.
        warmup: share of the steps in which hyper-parameters of kernels are held.
        schedule: step sizes of natural gradients; None is `RobbinsMonro()`.
        components: draws of the hidden layers that the posterior has.
        held_out: share of the rows whose mean log density must rise for the search to go on.
        tolerance: as of `Stochastic`.
        patience: how many times 100 steps, such a part has at least; hidden layers move slowly.
        workers: processes that compute gradients of batches at their own pace, by Ray (`pip install
            latentgp[ray]`), at parameters that may be some steps old when this process steps along
            them (Cutajar et al. 2017, appendix F). 0 makes the steps here, one after another.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(-2, 2, 500)
        >>> layers = [lgp.deep.Layer(lgp.RBF(), 1)]
        >>> model = lgp.deep.DeepGP(lgp.RBF(), lgp.Gaussian(0.1), layers=layers)
        >>> settings = {"batch_size": 100, "learning_rate": 0.02, "epochs": 20}
        >>> method = lgp.deep.RandomFeatureVI(features=20, **settings)
        >>> fit = lgp.fit(model, lgp.Data(X, np.sign(X)), key=jax.random.key(0), method=method)
        >>> bool(fit.posterior.mean_f([[1.0]])[0] > 0.5)
        True
    """

    reads_batches: ClassVar[bool] = True
    takes_layers: ClassVar[bool] = True

    features: int = eqx.field(static=True, default=200)
    kind: DirectionKind | None = eqx.field(static=True, default=None)
    frequencies: Frequencies | None = eqx.field(static=True, default=None)
    last: LastLayer = eqx.field(static=True, default="natural")
    hidden: Hidden = eqx.field(static=True, default="factorised")
    hyperparameters: Values = eqx.field(static=True, default="learned")
    importance: int = eqx.field(static=True, default=1)
    start: Start = eqx.field(static=True, default="shallow")
    batch_size: int = eqx.field(static=True, default=1000)
    epochs: int | None = eqx.field(static=True, default=None)
    learning_rate: float = eqx.field(static=True, default=0.006)
    decay: float = eqx.field(static=True, default=3000.0)
    draws: int | tuple[int, int] = eqx.field(static=True, default=1)
    warmup: float = eqx.field(static=True, default=0.02)
    schedule: Schedule | None = None
    components: int = eqx.field(static=True, default=16)
    held_out: float = eqx.field(static=True, default=0.0)
    tolerance: float = eqx.field(static=True, default=1e-4)
    patience: int = eqx.field(static=True, default=10)
    workers: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_whole(self, workers=0)
        check_choices(self, start=Start, last=LastLayer, frequencies=(*get_args(Frequencies), None))
        check_choices(self, hidden=Hidden, hyperparameters=Values)
        RandomFeatures(self.features, kind=self.kind)
        whole = all(isinstance(own, Integral) and own >= 1 for own in self.draws_by_half)
        numbers = "batch_size", "patience", "components", "importance", "epochs"
        rates = {"learning_rate": "above 0", "decay": "above 0", "tolerance": "at least 0"}
        check_ranges(self, **dict.fromkeys(numbers, "at least 1"), **rates)
        check_ranges(self, warmup="[0, 1]", held_out="[0, 1)")
        sentences = {
            f"RandomFeatureVI.draws is a number, or one for each half, got {self.draws}.": (
                len(self.draws_by_half) != 2
            ),
            f"RandomFeatureVI.draws must be whole numbers of at least 1, got {self.draws}.": (
                not whole
            ),
            f"RandomFeatureVI(importance={self.importance}) draws all weights; give "
            'last="factorised" with it.': self.importance > 1 and self.last != "factorised",
        }
        refuse(sentences)

    @property
    def spreads_rows(self) -> bool:
        return True

    @property
    def draws_by_half(self) -> tuple[int, int]:
        """Draws of the hidden layers in a step, in the first half of the epochs and after."""
        return self.draws if isinstance(self.draws, tuple) else (self.draws, self.draws)

    def continued(self, batch_size: int | None, epochs: int | None) -> Any:
        return dataclasses.replace(super().continued(batch_size, epochs), start="given")

    def run(self, problem: Problem) -> Fit:
        """Gradients by batches, and draws of the hidden layers."""
        # Optax takes long to import.
        from latentgp.extensions.batches.loop import BatchSearch, Plan
        from latentgp.extensions.deep.inference.importance import ImportanceWeighted
        from latentgp.extensions.deep.inference.steps import DeepInference

        model = problem.model
        if not isinstance(model, DeepGP):
            model = DeepGP(model.kernel, model.likelihood, model.mean)
        source, held_out = problem.all_rows, None
        check_processes(source)
        if self.held_out:
            source, held_out = source.split(self.held_out)
        sample = source.sample(_SAMPLED_ROWS)
        key_features, key_start, key_run, key_end = jax.random.split(problem.key, 4)
        drawn = self.features, self.kind, self.frequencies or "fixed", key_features
        own = Architecture.of(model, sample.X, *drawn), problem.scales_of(sample)
        architecture, scale = broadcast_from_first(own)
        number, features = source.size, model.depth * self.features
        few = learns_by_heart(number, features)
        if self.frequencies is None and not few:
            architecture = dataclasses.replace(architecture, frequencies="variational")
        learned = architecture.frequencies == "variational"
        source = source.part(jax.process_index(), jax.process_count())
        rule = VariationalRule(coupled=False)
        algorithm = SiteInference.of(model, RandomFeatures(self.features), rule)
        space = eqx.tree_at(lambda s: s.model, problem.space_at(scale), model)
        starts, typical = [model], typical_start(space, scale, _FAR) if space.size else None
        if self.start == "shallow":
            first = model
            if typical is not None:
                first = jax.tree.map(np.asarray, space.to_model(typical))
                starts.append(first)
            starts += from_shallow(problem, first, sample, architecture)
        batches = math.ceil(source.size / self.batch_size)
        plan = Plan.of(
            source.size,
            self.batch_size,
            self.epochs or max(_EPOCHS, math.ceil(_STEPS / batches)),
            self.tolerance,
            self.patience * math.ceil(_STEPS_A_LOOK / min(batches, _STEPS_A_LOOK)),
            columns=max(sample.X.shape[1], self.features * max(self.draws_by_half)),
        )
        steps = plan.batches * plan.epochs
        numbers = self.learning_rate, self.decay, source.total_weight, float(plan.batches)
        rate, decay, total, batches = map(jnp.asarray, numbers)
        late, held = (jnp.asarray(at, jnp.int32) for at in (steps // 2, int(self.warmup * steps)))
        kind = DeepInference
        if self.importance > 1:
            if plan.batches > 1:
                raise InputError(
                    f"RandomFeatureVI(importance={self.importance}) needs all {source.size} rows "
                    "in a batch, as its bound is no sum over rows, got "
                    f"batch_size={self.batch_size}."
                )
            kind = partial(ImportanceWeighted, number=self.importance)
        inference = kind(
            *(architecture, algorithm, space, self.schedule or RobbinsMonro()),
            *(rate, decay, total, batches),
            *(self.draws_by_half, late, held, _of_kernels(space), key_run),
            search_bounds(space, scale),
        )
        control = problem.control_with(
            self,
            (architecture, algorithm),
            space,
            hidden=self.hidden,
            last=self.last,
            hyperparameters=self.hyperparameters,
            importance=self.importance,
            batches=f"{plan.batches} of {plan.batch_size}",
        )
        view = partial(self._posterior, inference, key_end)
        search = BatchSearch(
            inference,
            source,
            plan,
            key=key_run,
            control=control,
            view=view,
            held_out=None if held_out is None else partial(mean_log_density, held_out),
            workers=self.workers,
        )
        spread = self.hyperparameters == "variational" and space.size > 0
        settings = self.last == "natural", self.hidden == "factorised", spread

        def begun_at(model: DeepGP, last: WhiteSites | None = None) -> DeepState:
            return begun(inference, space.to_vector(model), key_start, last, *settings)

        states = list(map(begun_at, starts))
        if not is_concave(model.likelihood):  # the prior mean may be where nothing leads away from
            for own in starts:
                last = last_layer_at_modes(own, sample, architecture, source.total_weight)
                states += [] if last is None else [begun_at(own, last)]
        if len(states) > 1:
            states = [best_start(inference, states, source, plan, key_start, problem.control)]
        searched = search.run(states[0])
        state = searched.state
        bound, error, rows = bound_at_the_end(inference, state, source, plan, key_end)
        proper = self.hyperparameters == "learned" or set(space.paths) == set(space.prior_paths)
        kind = "approximation" if learned or not proper else "lower bound"
        posterior = view(state, Evidence(bound, kind))
        warnings = []
        of_a_sample = (
            f"The bound is estimated from {rows} of {source.size} rows; evidence_error holds what "
            "that adds."
        )
        if not searched.converged:
            warnings.append(
                f"The search ended because {searched.reason}; raise epochs, or continue from the "
                'fitted model with start="given".'
            )
        if learned and few:
            instead = 'use frequencies="fixed"'
            warnings.append(directions_by_heart(number, features, instead))
        passed_over = sum(r.passed_over for r in searched.rounds)
        if passed_over:
            warnings.append(
                f"{passed_over} of {int(state.steps)} steps changed nothing, as they were not "
                "finite; lower learning_rate."
            )
        sound, names = not warnings, problem.options.input_names
        vector = np.asarray(state.vector)
        warnings += at_bounds(space, vector, search_bounds(space, scale), names, problem.data)
        diagnostics = Diagnostics(
            converged=searched.converged and sound,
            method=self,
            reason=problem.reason,
            ending=searched.reason,
            evaluations=len(searched.rounds),
            site_updates=int(state.steps),
            site_change=0.0,
            jitter=0.0,
            trace_term=0.0,
            seconds=problem.seconds,
            warnings=tuple(warnings),
            evidence_error=error,
            notes=(
                f"{model.depth} layers of {self.features} random features; predictions are a "
                f"mixture of {posterior.components.size} draws of the hidden ones.",
                *([] if proper else [_FLAT]),
                *([learned_directions(" with the noise of one draw held")] if learned else []),
                *([of_a_sample] if rows < source.size else []),
            ),
        )
        if searched.asynchrony is not None:
            diagnostics = diagnostics.with_finding(searched.asynchrony)
        return Fit(posterior.model, posterior, History.of(searched.rounds), diagnostics)

    def _posterior(
        self,
        inference: DeepInference,
        key: RandomKey,
        state: DeepState,
        evidence: Evidence | None = None,
    ) -> Posterior:
        resampled = inference.architecture.frequencies == "resampled"
        drawn = resampled or inference.space.model.layers or state.learned.spread is not None
        number = self.components if drawn else 1
        parts = components_of(inference, state, key, number)
        return Posterior(jax.tree.map(np.asarray, parts), evidence)


def _of_kernels(space: Any) -> Array:
    """Mask of the vector's entries that belong to kernels."""
    known = parameters(space.model)
    pairs = ((known[path].value, not path.startswith("likelihood")) for path in space.paths)
    flags = [np.full(np.size(value), of_kernel) for value, of_kernel in pairs]
    return jnp.asarray(np.concatenate([np.zeros(0, bool), *flags]))
