"""Stochastic gradient Langevin dynamics of hyper-parameters, latent functions integrated out."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.diagnostics import mean_prior_variances
from latentgp.errors import InputError, check_ranges
from latentgp.extensions.chains.diagnostics import diagnose_chains
from latentgp.extensions.chains.draws import Chains
from latentgp.extensions.chains.loop import run_chains
from latentgp.extensions.chains.posterior import posterior_of_chains
from latentgp.extensions.iterative.gradients.gradient import SolvedEvidence
from latentgp.extensions.iterative.gradients.langevin import (
    LangevinPhase,
    LangevinSampler,
    Metric,
    metric_at,
)
from latentgp.extensions.iterative.gradients.settings import Solves
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.models import LatentGP
from latentgp.posteriors.components import Gaussians
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.representations.protocols import finished
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.site_inference.methods.base import SiteMethod, learned_model, start_of_search
from latentgp.site_inference.methods.exact import CollapsedVI, ExactGP
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.profiled_bound import (
    converge_at,
    evaluate,
    initial_sites,
    model_at,
)
from latentgp.typing import HyperVector


class SGLD(Method):
    """Langevin sampling of hyper-parameters by stochastic gradients, for Gaussian noise.

    Solves alone, no factorisation of N rows (Filippone & Engler 2015; Welling & Teh 2011):
    theta += (e / 2) M g + N(0, e M) with no refusals, g an estimate of the gradient of the log
    posterior by `Solves`, M the inverse of minus its Hessian at the mode given a part of the rows,
    what these rows say counted as of all.
    The step size e = scale (delay + t)^-power falls until the noise of the gradients is small
    beside that of the dynamics, which a monitor looks for, and then stays: the draws are those of
    the posterior up to a small bias, which `diagnostics.finding("langevin")` states. `MCMC` has
    none, and is the reference for few rows.

    Predictions average over the posteriors of f given some of the draws, each by a representation.

    Args:
        representation: of the posteriors of f by which predictions are made: `Dense()`,
            `Inducing(...)` or `Neighbours(...)`.
        solves: how gradients are made; `Solves(solver="ulisse", rank=0)` for those of the source.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: iterations of each chain that are thrown away.
        thin: keeps every `thin`-th iteration.
        subset: rows, evenly spaced, whose posterior has the mode that chains start around, and M.
        scale: of the step sizes, a.
        delay: of the step sizes, b, iterations.
        power: of the step sizes, gamma in (0.5, 1].
        redraw: iterations after which probes are drawn anew; solves start at the last ones' end.
        batch: iterations after which the monitor looks.
        monitor: threshold of (e / 4) lambda_max(M^1/2 V M^1/2), V the covariance of a gradient,
            below which the step size stays.
        predicted: draws that predictions average over.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 30)
        >>> data = lgp.Data(X, np.sin(X) + 0.1 * np.cos(9 * X))
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
        >>> method = lgp.iterative.SGLD(chains=2, draws=100, warmup=200, thin=2)
        >>> fit = lgp.fit(model, data, method=method, key=jax.random.key(0))
        >>> fit.posterior.hyperparameters["kernel.lengthscale"].shape
        (2, 100)
    """

    samples_hyperparameters: ClassVar[bool] = True

    representation: Representation = Dense()
    solves: Solves = Solves()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=2000)
    thin: int = eqx.field(static=True, default=10)
    subset: int = eqx.field(static=True, default=500)
    scale: float = eqx.field(static=True, default=2.0)
    delay: float = eqx.field(static=True, default=100.0)
    power: float = eqx.field(static=True, default=0.55)
    redraw: int = eqx.field(static=True, default=20)
    batch: int = eqx.field(static=True, default=100)
    monitor: float = eqx.field(static=True, default=0.002)
    predicted: int = eqx.field(static=True, default=16)

    def __check_init__(self) -> None:
        counts = "chains", "draws", "thin", "subset", "redraw", "batch", "predicted", "delay"
        check_ranges(self, **dict.fromkeys(counts, "at least 1"), warmup="at least 0")
        check_ranges(self, scale="above 0", monitor="above 0", power="(0.5, 1]")

    @property
    def needs(self) -> Needs:
        return Needs(gaussian_noise=True)

    def run(self, problem: Problem) -> Fit:
        """Draws of the hyper-parameters, and the posteriors of f given some of them."""
        model, data, space = problem.model, problem.data, problem.space
        if not (problem.options.learn_hyperparameters and space.size):
            raise InputError(
                "SGLD samples hyper-parameters, and none is learned; leave "
                "learn_hyperparameters=False out, or take another method."
            )
        learned, metric = self._start(problem, space)
        space = eqx.tree_at(lambda s: s.model, space, learned)
        solves = self.solves.settled(data.size)
        evidence = SolvedEvidence(_algorithm(model, Dense()), space, data.to_device(), solves)
        chains = self._sampled(problem, evidence, metric)
        components = self._components(space, data, chains.vector, problem)
        none = np.zeros(0, int)
        rows = problem.rows.given.select(none)
        posterior = posterior_of_chains(space, chains, components, none, rows)
        prior = float(np.max(mean_prior_variances(posterior.model.kernel, data)))
        diagnostics = diagnose_chains(self, problem, chains, posterior.summary, prior)
        phase = LangevinPhase.of(
            chains.statistics, thin=self.thin, threshold=self.monitor, redraw=self.redraw
        )
        return Fit(posterior.model, posterior, History.of(), diagnostics.with_finding(phase))

    def _start(self, problem: Problem, space: ParameterSpace) -> tuple[LatentGP, Metric]:
        """The model at the mode given a part of the rows, and the curvature there."""
        rows = problem.data.evenly(self.subset).padded().to_device()
        algorithm = _algorithm(problem.model, Dense())
        bounds = problem.bounds(allows_little_noise=False)
        learned = start_of_search(problem, algorithm, space, bounds, rows)
        sites = initial_sites(algorithm, problem.model, rows)
        times = problem.data.total_weight / rows.total_weight

        def gradient(vector: HyperVector) -> HyperVector:
            at = jnp.asarray(vector)
            of_part = evaluate(algorithm, space, at, rows, sites).gradient
            of_prior = jax.grad(space.log_prior)(at)
            return np.asarray(of_prior + times * (of_part - of_prior))

        mode = np.asarray(learned.vector)
        return learned_model(space, learned), metric_at(gradient, mode)

    def _sampled(self, problem: Problem, evidence: SolvedEvidence, metric: Metric) -> Chains:
        sampler = LangevinSampler(
            evidence,
            jnp.asarray(evidence.space.to_vector()),
            root=jnp.asarray(metric.root),
            scale=jnp.asarray(float(self.scale)),
            delay=jnp.asarray(float(self.delay)),
            power=jnp.asarray(float(self.power)),
            redraw=jnp.asarray(self.redraw),
            batch=jnp.asarray(self.batch),
            threshold=jnp.asarray(float(self.monitor)),
        )
        control = problem.control_with(self, self, evidence.space)
        return run_chains(sampler, self, np.zeros(0, int), problem.key, control)

    def _components(
        self,
        space: ParameterSpace,
        data: Data,
        vectors: Float[np.ndarray, "C S H"],
        problem: Problem,
    ) -> Gaussians:
        """The posteriors of f given evenly spaced draws, that nearest to the mean draw first."""
        flat = vectors.reshape(-1, vectors.shape[-1])
        places = evenly(len(flat), self.predicted)
        spread = np.maximum(flat.std(axis=0), 1e-12)
        apart = np.sum(((flat[places] - flat.mean(axis=0)) / spread) ** 2, axis=1)
        chosen = [jnp.asarray(flat[place]) for place in places[np.argsort(apart)]]
        model, rows = space.model, data.padded().to_device()
        ready = self.representation.initialise(data.X, data.weights, model.kernel, problem.key)
        algorithm = _algorithm(model, ready)
        sites = initial_sites(algorithm, model, rows)
        models, latents = [model_at(space, vector) for vector in chosen], []
        for vector, own in zip(chosen, models, strict=True):
            held = algorithm.representation.for_rows(rows.X, rows.weights, own.kernel)
            given = dataclasses.replace(algorithm, representation=held)
            at = converge_at(given, space, vector, rows, sites)
            latents.append(finished(held, at.posterior))
        return Gaussians.of(models, latents, np.ones(len(latents)))


def site_method(representation: Representation) -> SiteMethod:
    """The method by the likelihood's own sites."""
    dense = representation.traits.one_coefficient_a_row
    return ExactGP(representation) if dense else CollapsedVI(representation)


def _algorithm(model: LatentGP, representation: Representation) -> SiteInference:
    return site_method(representation).algorithm(model)
