# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Methods whose posterior is draws of Markov chains."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Int

from latentgp.diagnostics import mean_prior_variances
from latentgp.errors import RunAborted, check_ranges
from latentgp.extensions.chains.diagnostics import diagnose_chains
from latentgp.extensions.chains.draws import Chains
from latentgp.extensions.chains.loop import Sampler, Transition, run_chains
from latentgp.extensions.chains.posterior import sampled_posterior
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.models import LatentGP
from latentgp.representations import Representation
from latentgp.representations.needs import Needs, check_form
from latentgp.representations.protocols import coefficients_of
from latentgp.representations.site_form import SiteForm
from latentgp.rows.data import Data
from latentgp.rows.subsets import watched_rows
from latentgp.runtime.mesh import number_of_shards
from latentgp.runtime.progress import RunControl
from latentgp.site_inference.methods.base import SiteMethod, learned_model, start_of_search
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.typing import RandomKey


class SamplingMethod(Method):
    """A method whose posterior is draws of Markov chains.

    Attributes:
        chains: how many, side by side.
        samples_hyperparameters: chains draw hyper-parameters too; else these are held.
        draws: kept of each chain.
        warmup: sweeps of each chain that are thrown away.
        thin: keeps every `thin`-th state.
    """

    samples_hyperparameters: ClassVar[bool] = True

    representation: eqx.AbstractVar[Representation]
    chains: eqx.AbstractVar[int]
    draws: eqx.AbstractVar[int]
    warmup: eqx.AbstractVar[Any]  # an int, or None
    thin: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        check_chains(self)

    def _check_coordinates(self, coupling: str) -> None:
        """Raise InputError if trajectories cannot move in some coordinates."""
        if coupling != "whitened":
            Needs(dense_factors=True).check(
                f'{type(self).__name__}(coupling="{coupling}")',
                representation=self.representation,
                instead='coupling="whitened", or Dense()',
            )

    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        """Raise InputError for what `needs` cannot say of a model; nothing unless overridden."""

    def sampler(self, target: WhiteTarget) -> Sampler:
        """The transition for a target of white coefficients.

        A method whose chains have other states overrides `transition` or `sample` instead.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sampler, transition or sample.")

    def transition(
        self, representation: Representation, space: ParameterSpace, data: Data
    ) -> Transition:
        """The transition of the chains, with arguments as those of `sample`."""
        return self.sampler(WhiteTarget.of(space, representation, data))

    def sample(
        self,
        representation: Representation,
        space: ParameterSpace,
        data: Data,
        watched: Int[np.ndarray, "W"],
        key: RandomKey,
        control: RunControl,
    ) -> Chains:
        """Draw the chains, starting around the hyper-parameters of the space's model.

        Args:
            representation: made ready for the rows.
            space: the hyper-parameters; none are free if they are fixed.
            data: the rows, on the device.
            watched: rows whose latents are kept draw by draw.
            key: random key.
            control: callback, limit, progress line, checkpoint.
        """
        settled = self.settled(space)
        transition = settled.transition(representation, space, data)
        return run_chains(transition, settled, watched, key, control)

    def settled(self, space: ParameterSpace) -> "SamplingMethod":
        """With usual values for None, by what the chains draw; itself unless overridden."""
        return self

    def starting_method(self) -> SiteMethod:
        """The method that finds where chains start, by natural gradients unless overridden."""
        return VariationalInference(self.representation)

    def run(self, problem: Problem) -> Fit:
        """Draws of the posterior, of the hyper-parameters' too if these are learned.

        Chains that sample hyper-parameters start around the most probable ones; those that do not
        hold what `starting_method` learns.
        """
        needs = Needs(all_rows=True, held_points=True)
        needs.check(type(self).__name__, representation=self.representation)
        if problem.options.learn_hyperparameters and not self.samples_hyperparameters:
            return self._at_learned(problem)
        model, data, key, space = problem.model, problem.data, problem.key, problem.space
        self.check(model, space.size > 0)
        form = SiteForm(moved=True)
        check_form(self.representation, form, model.likelihood)
        representation = self.representation.for_sites(form)
        coefficients_of(representation)
        ready = representation.initialise(data.X, data.weights, model.kernel, key)
        control = problem.control_with(self, self, space)
        if space.size:
            start = dataclasses.replace(self.starting_method(), representation=ready)
            rows = data.padded(number_of_shards()).to_device()
            algorithm = start.algorithm(model)
            learned = start_of_search(problem, algorithm, space, problem.bounds(), rows)
            space = eqx.tree_at(lambda s: s.model, space, learned_model(space, learned))
        ready = ready.for_rows(data.X, data.weights, space.model.kernel)
        watched = watched_of(problem, self.chains * self.draws)
        places = problem.rows.origin[watched]
        chains = self.sample(ready, space, data.to_device(), places, key, control)
        seen = problem.rows.given.select(watched)
        posterior = sampled_posterior(space, chains, watched, seen, ready)
        summary, notes = posterior.summary, ready.traits.notes
        prior = float(np.max(mean_prior_variances(posterior.model.kernel, data)))
        diagnostics = diagnose_chains(self, problem, chains, summary, prior, *notes)
        return Fit(posterior.model, posterior, History.of(), diagnostics)

    def _at_learned(self, problem: Problem) -> Fit:
        """Draws at the hyper-parameters that another method has learned.

        The fit of that method, with a warning, if the run ends before the first draws.
        """
        self.check(problem.model, False)
        start = self.starting_method()
        learned = start.run(problem.with_options(checkpoint=None))
        why = f"hyper-parameters learned by {type(start).__name__}, then held"
        reason = f"{problem.reason}; {why}"
        held = dataclasses.replace(problem, model=learned.model, reason=reason)
        held = held.with_options(learn_hyperparameters=False)
        try:
            result = dataclasses.replace(self.run(held), history=learned.history)
        except RunAborted:
            name = type(start).__name__
            said = f"The run ended before the first draws: this is the posterior of {name}."
            return learned.not_converged().warned_before((said,))
        result = result.warned_before(learned.diagnostics.warnings)
        return result if learned.diagnostics.converged else result.not_converged()


def check_chains(method: Any) -> None:
    """Raise InputError unless a method makes chains that have draws."""
    least = dict.fromkeys(("chains", "draws", "thin"), "at least 1")
    check_ranges(method, **least, warmup="at least 0")


def watched_of(problem: Problem, draws: int) -> Int[np.ndarray, "W"]:
    """Places, in the data as given, of the rows whose latents are kept in so many draws."""
    counting = np.flatnonzero(problem.rows.origin >= 0)
    latents = problem.model.likelihood.latent_size
    return counting[watched_rows(len(counting), draws * latents)]
