"""Where deep models start: the last layer learned alone, hidden functions at their prior means."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.inference.setup.priors import scales, search_bounds
from latentgp.inference.sites.algorithm import SiteInference
from latentgp.inference.sites.hyperparameters import Search, learn
from latentgp.means import ConstantMean, ZeroMean
from latentgp.methods.problem import Problem
from latentgp.methods.sites import learned_model
from latentgp.models import DeepGP, LatentGP
from latentgp.parameters.base import parameters, replace_unchecked
from latentgp.representations.random_features import FeatureWeights, RandomFeatures
from latentgp.rows.data import Data
from latentgp.rules.variational import VariationalRule
from latentgp.runtime.mesh import number_of_shards

_ROWS, _EVALUATIONS, _TOLERANCE = 600, 40, 1e-4
_SHORTER = 10.0
_HIDDEN = "layers["


def from_shallow(
    problem: Problem,
    model: DeepGP,
    sample: Data,
    seen: Float[np.ndarray, "N E"],
    features: FeatureWeights,
) -> DeepGP:
    """The model with what a short search of the last layer alone, on a few rows, has learned.

    A last layer that starts smooth explains short-range variation as noise, and hidden functions
    then have nothing to say: the search ends below the shallow model.

    Args:
        problem: what is free, and its priors.
        model: where it begins.
        sample: rows, of which 600 are looked at.
        seen: what the last layer sees there where hidden functions are their prior means.
        features: of the last layer, which the search is through: what they cannot represent,
            such as short length-scales of many inputs, it does not prefer.
    """
    plain = isinstance(model.mean, ZeroMean | ConstantMean)
    if not (problem.learn_hyperparameters and model.skip and plain):
        return model
    rows = Data(seen, sample.y, weights=sample.weights, **sample.side_information).evenly(_ROWS)
    shallow = LatentGP(model.kernel, model.likelihood, model.mean)
    own = dataclasses.replace(
        problem,
        model=shallow,
        priors=_of_last(problem.priors),
        frozen=tuple(path for path in problem.frozen if not path.startswith(_HIDDEN)),
    )
    scale = scales(shallow, rows)
    space = own.space(scale)
    if not space.size:
        return model
    through = RandomFeatures(len(features), weights=features)
    algorithm = SiteInference.of(shallow, through, VariationalRule(coupled=False)).rough()
    learned = learn(
        algorithm,
        space,
        rows.padded(number_of_shards()).to_device(),
        bounds=search_bounds(space, scale),
        second=space.to_vector(_shorter(shallow)),
        restarts=0,
        tolerance=_TOLERANCE,
        search=Search(
            max_evaluations=_EVALUATIONS, control=problem.control._replace(callback=None)
        ),
        key=problem.key,
    )
    last = learned_model(space, learned)
    return eqx.tree_at(
        lambda m: (m.kernel, m.likelihood, m.mean), model, (last.kernel, last.likelihood, last.mean)
    )


def _shorter(model: LatentGP) -> LatentGP:
    """The model with a tenth of its length-scales, around which another mode may be."""
    known = parameters(model).items()
    values = {path: p.value / _SHORTER for path, p in known if path.endswith("lengthscale")}
    return replace_unchecked(model, values)


def _of_last(priors: Any) -> Any:
    if not isinstance(priors, Mapping):
        return priors
    return {path: prior for path, prior in priors.items() if not path.startswith(_HIDDEN)}
