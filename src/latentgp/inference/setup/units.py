"""Starts in the units of the rows, where a model's own values are far from any that fit them.

A model that is written down with values such as one, for targets in the ten thousands, leaves
chains, stochastic gradients and random features in places from which they do not come back.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.inference.setup.periods import CLEARLY, EvidenceOfSomeRows
from latentgp.inference.setup.priors import FAR_OFF, Scales, typical_start
from latentgp.kernels import LatentKernel
from latentgp.models import LatentGP
from latentgp.parameters.base import parameters, replace_unchecked
from latentgp.parameters.space import ParameterSpace
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.typing import Array

_ROWS = 64  # of the mean prior variance, in all data as many
_POWERS = {"variance": 1.0, "noise_variance": 1.0, "noise_scale": 0.5, "noise_precision": -1.0}


def in_units_of_rows(
    space: ParameterSpace, scale: Scales, data: Data
) -> tuple[LatentGP, tuple[str, ...]]:
    """The model with far-off hyper-parameters at typical values, and a sentence for each.

    Where f has the units of y: all variances of a latent function, and with them those of the
    noise, by the factor that makes its prior variance that of the targets, if that is above 900
    or below 1 / 900; levels at the targets' mean, if they are 30 of their deviations off. Length-
    scales 30 times too short or long take typical ones if some rows are far likelier under these.
    Values with priors of the user's own stay.
    """
    moved = replace_unchecked(space.model, _of_targets(space, scale, data))
    if (other := typical_start(space, scale)) is not None and moved.depth == 1:
        known, evidence = (
            parameters(space.to_model(jnp.asarray(other))),
            EvidenceOfSomeRows(space, data),
        )
        lengths = {p: v.value for p, v in known.items() if v.role == "lengthscale"}
        typical = replace_unchecked(moved, lengths)
        if evidence.value(typical, 0) > evidence.value(moved, 0) + CLEARLY:
            moved = typical
    before, after = parameters(space.model), parameters(moved)
    said = tuple(
        f"{path}: the search started at {_in_words(after[path].value)} in place of "
        f"{_in_words(info.value)}, which is far from the units of the rows."
        for path, info in before.items()
        if not np.allclose(after[path].value, info.value, rtol=1e-6, atol=0)
    )
    return moved, said


def _of_targets(
    space: ParameterSpace, scale: Scales, data: Data
) -> dict[str, Float[np.ndarray, "..."]]:
    """Values in the units of the targets, of hyper-parameters that are far from these."""
    model = space.model
    if not model.likelihood.is_location or data.y.ndim > 1:
        return {}
    spread, mean = float(scale.latent[0]), float(np.average(data.y, weights=data.weights))
    some = np.linspace(0, data.size - 1, _ROWS).astype(int)
    own = float(np.mean(_diagonals(model.kernel, jnp.asarray(data.X[some]))[0]))
    factor = spread**2 / own if own > 0 else 1.0
    values = {}
    for path in space.paths:
        info = parameters(model)[path]
        if path in space.narrowed or (info.latent or 0) > 0:
            continue
        value = np.asarray(info.value)
        if info.role == "level" and np.any(abs(value - mean) > FAR_OFF * spread):
            values[path] = np.full_like(value, mean)
        elif info.role in _POWERS and not 1 / FAR_OFF**2 < factor < FAR_OFF**2:
            values[path] = np.asarray(value * factor ** _POWERS[info.role])
    return values


@Program
def _diagonals(kernel: LatentKernel, X: Float[Array, "N D"]) -> Float[Array, "#Q N"]:
    return latent_diagonals(kernel, X)


def _in_words(values: Float[np.ndarray, "*S"]) -> str:
    return ", ".join(f"{value:.4g}" for value in np.ravel(values))
