"""Markov chains for deep models."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.diagnostics import mean_prior_variances
from latentgp.errors import InputError, check_choices, check_ranges, refuse
from latentgp.extensions.chains.diagnostics import diagnose_chains
from latentgp.extensions.chains.draws import Chains
from latentgp.extensions.chains.loop import run_chains
from latentgp.extensions.chains.methods.sampling import check_chains, watched_of
from latentgp.extensions.chains.posterior import models_of, posterior_of_chains
from latentgp.extensions.deep.inference.family import Architecture
from latentgp.extensions.deep.inference.samplers import HiddenSlices, ScaledSGHMC, WeightNUTS
from latentgp.extensions.deep.inference.targets import ProcessTarget, WeightTarget
from latentgp.extensions.deep.models import DeepGP, LastLayer, LayerDraw, Layout
from latentgp.extensions.deep.posterior import (
    PATH_FEATURES,
    DeepComponents,
    LayeredComponents,
    ProcessComponents,
)
from latentgp.extensions.deep.random_features import RandomFeatures
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels.directions import DirectionKind
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.representations.needs import Needs, sites_are_known
from latentgp.representations.prior_paths import prior_paths
from latentgp.rows.data import Data
from latentgp.typing import RandomKey

DeepSampler = Literal["nuts", "sghmc", "elliptical-slice"]
_USUAL = {"nuts": (500, 1), "sghmc": (5000, 20), "elliptical-slice": (1000, 5)}  # warmup, thin
_MOST_ROWS = 500


class DeepMCMC(Method):
    """Deep Gaussian processes by Markov chains, without a variational family.

    "nuts" and "sghmc" draw the weights of random features of every layer, whose directions are
    drawn once, and hyper-parameters. NUTS sees all rows; under Gaussian noise the last layer's
    weights are integrated out, so that hidden ones alone move. Stochastic gradient Hamiltonian
    Monte Carlo (Havasi et al. 2018) sees a batch a step, its scales adapted in the warm-up
    (Springenberg et al. 2016); no step is refused, so its draws have a bias that falls with the
    step size. "elliptical-slice" draws the hidden functions of two layers at the rows under the
    covariances themselves (Cutajar et al. 2017, appendix B; Murray, Adams & MacKay 2010), noise
    being Gaussian and hyper-parameters held: what other methods are measured by.

    Hyper-parameters start around those of the model; take them from a fit by `RandomFeatureVI`.

    Args:
        sampler: "nuts", "sghmc" or "elliptical-slice".
        features: R of each layer, an even number.
        kind: of their directions, as of `RandomFeatures`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: steps of each chain that adapt or are thrown away; None is 500, 5000 or 1000.
        thin: keeps every `thin`-th state; None is 1, 20 or 5.
        components: draws that predictions average over.
        target_acceptance: that the step size of NUTS is adapted to, in (0, 1).
        batch_size: rows of a stochastic gradient; all of them where there are no more.
        step_size: epsilon of SGHMC.
        friction: share of the momentum that a step of SGHMC loses, in (0, 1).

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(-2, 2, 40)
        >>> layers = [lgp.deep.Layer(lgp.RBF(), 1)]
        >>> model = lgp.deep.DeepGP(lgp.RBF(), lgp.Gaussian(0.1), layers=layers)
        >>> method = lgp.deep.DeepMCMC("elliptical-slice", chains=2, draws=100, warmup=100, thin=2)
        >>> rows = lgp.Data(X, np.sign(X))
        >>> held = {"method": method, "learn_hyperparameters": False}
        >>> fit = lgp.fit(model, rows, key=jax.random.key(0), **held)
        >>> bool(fit.posterior.mean_f([[1.0]])[0] > 0.5)
        True
    """

    samples_hyperparameters: ClassVar[bool] = True
    takes_layers: ClassVar[bool] = True

    sampler: DeepSampler = eqx.field(static=True, default="nuts")
    features: int = eqx.field(static=True, default=100)
    kind: DirectionKind | None = eqx.field(static=True, default=None)
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=500)
    warmup: int | None = eqx.field(static=True, default=None)
    thin: int | None = eqx.field(static=True, default=None)
    components: int = eqx.field(static=True, default=200)
    target_acceptance: float = eqx.field(static=True, default=0.8)
    batch_size: int = eqx.field(static=True, default=500)
    step_size: float = eqx.field(static=True, default=0.01)
    friction: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        check_choices(self, sampler=DeepSampler)
        RandomFeatures(self.features, kind=self.kind)
        check_chains(self._settled)
        if self.sampler != "elliptical-slice":  # steps are scaled there
            check_ranges(self, warmup="at least 1")
        least = dict.fromkeys(("components", "batch_size"), "at least 1")
        shares = dict.fromkeys(("target_acceptance", "friction"), "(0, 1)")
        check_ranges(self, **least, **shares, step_size="above 0")

    @property
    def _settled(self) -> Any:
        """With the warm-up and the thinning that are usual for the sampler."""
        usual = dict(zip(("warmup", "thin"), _USUAL[self.sampler], strict=True))
        missing = {name: own for name, own in usual.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing) if missing else self

    @property
    def needs(self) -> Needs:
        if self.sampler == "elliptical-slice":
            return Needs(gaussian_noise=True)
        return Needs(continuous=True, positive=True)

    def run(self, problem: Problem) -> Fit:
        """Draws of the layers, and of the hyper-parameters if these are learned."""
        key_features, key_run, key_parts = jax.random.split(problem.key, 3)
        space = problem.space
        model = self._checked(problem, space)
        settled = self._settled
        watched = watched_of(problem, self.chains * self.draws)
        control = problem.control_with(self, settled, space)
        sampler = settled._chain(model, problem.data, space, key_features)
        chains = run_chains(sampler, settled, problem.rows.origin[watched], key_run, control)
        if not np.isfinite(chains.white).all():
            raise InputError(
                f"Chains of DeepMCMC left all bounds at step_size={self.step_size}; give a smaller "
                "one, or a larger batch_size."
            )
        target = sampler.target
        number = min(self.components, chains.white.shape[0] * chains.white.shape[1])
        if isinstance(target, ProcessTarget):
            components = _of_functions(target, chains, key_parts)
        else:
            components = _of_weights(target, chains)
        posterior = posterior_of_chains(
            space, chains, components.thinned(number), watched, problem.rows.given.select(watched)
        )
        what = "processes" if self.sampler == "elliptical-slice" else f"{self.features} features"
        note = f"{model.depth} layers of {what}; predictions average over {number} draws"
        if self.sampler == "elliptical-slice":
            note += f", each a draw of {PATH_FEATURES} prior features where it is not at a row"
        prior = float(np.max(mean_prior_variances(model.of_inputs, problem.data)))
        diagnostics = diagnose_chains(self, problem, chains, posterior.summary, prior, f"{note}.")
        return Fit(posterior.model, posterior, History.of(), diagnostics)

    def _checked(self, problem: Problem, space: ParameterSpace) -> DeepGP:
        """The model, or InputError if the chains cannot draw from its posterior."""
        model = problem.model
        if not isinstance(model, DeepGP):
            raise InputError("DeepMCMC draws the layers of a DeepGP; of a LatentGP use NUTS().")
        if self.sampler != "elliptical-slice":
            return model
        sentences = {
            f'draws one hidden layer, but the model has {model.depth - 1}; use DeepMCMC("nuts").': (
                model.depth != 2
            ),
            "holds hyper-parameters; give those of a fit by RandomFeatureVI, and "
            "learn_hyperparameters=False.": space.size,
            f"factorises a matrix of all rows in every step, and takes at most {_MOST_ROWS}, got "
            f'{problem.data.size}; use DeepMCMC("nuts").': problem.data.size > _MOST_ROWS,
        }
        refuse({f'DeepMCMC("elliptical-slice") {what}': holds for what, holds in sentences.items()})
        kernel, columns = model.layers[0].kernel, problem.data.X.shape[1]
        prior_paths(kernel, problem.key, inputs=columns, latents=1, features=2, number=1)
        return model

    def _chain(self, model: DeepGP, data: Data, space: ParameterSpace, key: RandomKey) -> Any:
        """The transition."""
        rows = data.to_device()
        if self.sampler == "elliptical-slice":
            layout = Layout.of(model, data.X)
            return HiddenSlices(_process_target(space, layout, rows))
        architecture = Architecture.of(model, data.X, self.features, self.kind, "fixed", key)
        integrates = self.sampler == "nuts" and sites_are_known(model.likelihood)
        target = WeightTarget.of(space, rows, architecture, integrates=integrates)
        warmup = int(self.warmup or 0)
        if self.sampler == "nuts":
            return WeightNUTS(target, warmup, self.target_acceptance)
        numbers = (jnp.asarray(float(number)) for number in (self.step_size, self.friction))
        return ScaledSGHMC(target, self.batch_size, warmup, *numbers)


_process_target = eqx.filter_jit(ProcessTarget.of)


def _of_weights(target: WeightTarget, chains: Chains) -> LayeredComponents:
    """Draws of the weights of all layers as components."""
    every = dataclasses.replace(target, integrates=False)
    mean, models, _ = models_of(target.space, chains)
    flat = chains.white.reshape(-1, 1, chains.white.shape[-1])
    *hidden, last = jax.vmap(every.layers)(flat)
    *below, features = (
        jax.tree.map(lambda leaf: leaf[None], own) for own in target.architecture.features
    )
    draws = tuple(LayerDraw(*own) for own in zip(below, hidden, strict=True))
    weights = LastLayer(last, np.zeros((1, *last.shape[1:])))  # which are known
    own, layout = bool(target.space.size), target.architecture.layout
    return DeepComponents(mean, models, own, layout, draws, features, weights, len(flat))


def _of_functions(target: ProcessTarget, chains: Chains, key: RandomKey) -> LayeredComponents:
    """Draws of the hidden functions at the rows as components."""
    flat = chains.white.reshape(-1, *chains.white.shape[2:])
    hidden = np.asarray(jax.vmap(target.hidden)(flat))
    keys = jax.random.key_data(jax.random.split(key, len(hidden)))
    model, layers = target.space.model, target.layers
    known = layers.layout, np.asarray(layers.X), layers.sites
    return ProcessComponents(model, model, False, *known, hidden, np.asarray(keys))
