"""Where deep models start: the last layer learned alone, hidden functions at their prior means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.deep.inference.family import Architecture
from latentgp.extensions.deep.models import DeepGP, Layout
from latentgp.extensions.deep.random_features import RandomFeatures
from latentgp.hyperparameters.base import _is_under, parameters, replace_unchecked
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.means import ConstantMean, ZeroMean
from latentgp.methods.problem import Problem
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import Factor
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data
from latentgp.rows.source import counting_as
from latentgp.runtime.interrupts import current_interrupts
from latentgp.runtime.mesh import number_of_shards
from latentgp.runtime.progress import RunControl
from latentgp.setup.priors import search_bounds
from latentgp.site_inference.methods.base import learned_model
from latentgp.site_inference.rules.variational import VariationalRule
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.hyperparameters import Search, learn
from latentgp.site_inference.search.profiled_bound import converge, initial_sites
from latentgp.site_inference.search.starts import raised
from latentgp.typing import RandomKey

if TYPE_CHECKING:
    from latentgp.extensions.batches.loop import Plan
    from latentgp.extensions.deep.inference.steps import DeepInference, DeepState

_ROWS, _EVALUATIONS, _TOLERANCE = 600, 40, 1e-4
_SHORTER = 10.0
_TRIAL = 400  # steps
_HIDDEN = "layers["


def from_shallow(
    problem: Problem, model: DeepGP, sample: Data, architecture: Architecture
) -> list[DeepGP]:
    """The model with what a short search of the last layer alone, on a few rows, has learned.

    A last layer that starts smooth may explain short-range variation as noise, and hidden functions
    then have nothing to say: the search ends below the shallow model. One that starts rough may
    leave them nothing to say either, so that both are starts. There is none where nothing is free,
    hidden functions have no prior mean of use (`skip=False`), or the prior mean is a function of
    the inputs. The search is through the features of the last layer: what they cannot represent,
    such as short length-scales of many inputs, it does not prefer.
    """
    plain = isinstance(model.mean, ZeroMean | ConstantMean)
    if not (problem.options.learn_hyperparameters and model.skip and plain):
        return []
    shallow, rows, algorithm = _last_alone(model, sample, architecture)
    own = dataclasses.replace(problem, model=shallow).with_options(
        priors=_of_last(problem.options.priors),
        frozen=[path for path in problem.options.frozen if _names_any(path, shallow)],
    )
    scale = own.scales_of(rows)
    space = own.space_at(scale)
    if not space.size:
        return []
    quiet = problem.control._replace(callback=None)
    learned = learn(
        algorithm,
        space,
        rows.padded(number_of_shards()).to_device(),
        bounds=search_bounds(space, scale),
        second=_shorter(space),
        restarts=0,
        tolerance=_TOLERANCE,
        search=Search(max_evaluations=_EVALUATIONS, control=quiet),
        key=problem.key,
    )
    if current_interrupts().happened:
        raise KeyboardInterrupt  # nothing is learned yet
    last = learned_model(space, learned)
    parts = last.kernel, last.likelihood, last.mean
    return [eqx.tree_at(lambda m: (m.kernel, m.likelihood, m.mean), model, parts)]


def last_layer_at_modes(
    model: DeepGP, sample: Data, architecture: Architecture, total: float
) -> WhiteSites | None:
    """Natural parameters of the last layer, where log p(y | f) has modes off the prior mean.

    Of the sample 600 rows count as all rows. None if site updates from the prior mean end no lower,
    or there is no such start, as `from_shallow` has none.
    """
    if not (model.skip and isinstance(model.mean, ZeroMean | ConstantMean)):
        return None
    shallow, rows, algorithm = _last_alone(model, sample, architecture)
    rows = counting_as(rows, total).padded(number_of_shards()).to_device()
    usual = converge(algorithm, shallow, rows, initial_sites(algorithm, shallow, rows))
    higher = raised(algorithm, shallow, rows, usual)
    if higher is usual:
        return None
    features, sites = architecture.features[-1], higher.sites
    blocks = features.cross_covariance(model.kernel, rows.X)
    identity = features.covariance(model.kernel)
    prior = Factor(identity, identity)
    return WhiteSites.of_rows(blocks, sites.linear.T, sites.precision.T, prior)


def _last_alone(
    model: DeepGP, sample: Data, architecture: Architecture
) -> tuple[LatentGP, Data, SiteInference]:
    """The last layer as a model, 600 rows, and the algorithm for it.

    Inputs are what it sees there where hidden functions are their prior means.
    """
    seen, features = np.asarray(_seen(architecture.layout, sample.X)), architecture.features[-1]
    rows = Data(seen, sample.y, weights=sample.weights, **sample.side_information).evenly(_ROWS)
    shallow = LatentGP(model.kernel, model.likelihood, model.mean)
    through = RandomFeatures(len(features), weights=features)
    return shallow, rows, SiteInference.of(shallow, through, VariationalRule(coupled=False)).rough()


_seen = eqx.filter_jit(Layout.at_prior_mean)


def best_start(
    inference: DeepInference,
    starts: Sequence[DeepState],
    source: RowSource,
    plan: Plan,
    key: RandomKey,
    control: RunControl,
) -> DeepState:
    """State after 400 steps on a sample, as large as a round is, from the best of some starts."""
    from latentgp.extensions.batches.loop import BatchSearch  # Optax takes long to import

    rows, size = RowsInMemory(source.sample(plan.rows_a_round)), plan.round_size
    trial = plan._replace(epochs=math.ceil(_TRIAL / size), batches=size)
    own = eqx.tree_at(lambda i: i.batches, inference, jnp.asarray(float(size)))

    def tried(state: DeepState) -> tuple[float, DeepState]:
        quiet = control._replace(callback=None)
        searched = BatchSearch(own, rows, trial, key=key, control=quiet).run(state)
        if current_interrupts().happened:
            raise KeyboardInterrupt  # nothing is learned yet
        bounds = [r.bound for r in searched.rounds]
        return float(np.mean(bounds[len(bounds) // 2 :])), searched.state

    return max(map(tried, starts), key=lambda found: found[0])[1]


def _shorter(space: ParameterSpace) -> Float[np.ndarray, "H"] | None:
    """A tenth of the length-scales, around which another mode may be; None without free ones."""
    known, free = parameters(space.model), set(space.paths) - set(space.narrowed)
    values = {path: known[path].value / _SHORTER for path in free if path.endswith("lengthscale")}
    return space.to_vector(replace_unchecked(space.model, values)) if values else None


def _names_any(path: str, model: LatentGP) -> bool:
    return any(_is_under(name, path) for name in parameters(model))


def _of_last(priors: Any) -> Any:
    if not isinstance(priors, Mapping):
        return priors
    return {path: prior for path, prior in priors.items() if not path.startswith(_HIDDEN)}
