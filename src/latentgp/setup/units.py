"""Starts in the units of the rows, where a model's own values are far from any that fit them.

A model that is written down with values such as one, for targets in the ten thousands, leaves
chains, stochastic gradients and random features in places from which they do not come back.
"""

from __future__ import annotations

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.hyperparameters.base import parameters, replace_unchecked
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.models import LatentGP
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.setup.periods import CLEARLY, EvidenceOfSomeRows, in_words
from latentgp.setup.priors import FAR_OFF, Scales, typical_start, without_offsets
from latentgp.typing import Array, Inputs

_ROWS = 64  # of the mean prior variance, in all data as many
_NOISE = 0.1  # in variances of the targets
_NOISES = {"noise_variance": 1.0, "noise_scale": 0.5, "noise_precision": -1.0}  # their powers


def in_units_of_rows(
    space: ParameterSpace, scale: Scales, data: Data, own: Collection[str]
) -> tuple[LatentGP, tuple[str, ...]]:
    """The model with far-off hyper-parameters at typical values, and a sentence for each.

    Where f has the units of y: all variances of a latent function, by the factor that makes its
    prior variance, less that of fixed effects, that of the targets, if that is above 900 or below
    1 / 900, and with them what the noise has if that is as far from a tenth of the targets'
    variance; levels at the targets' mean, if they are 30 of their deviations off. Length-scales 30
    times too short or long, of any layer, take typical ones if some rows are far likelier under
    these. Paths of the user's `own` priors stay.
    """
    moved = replace_unchecked(space.model, _of_targets(space, scale, data, own))
    other = typical_start(space, scale)
    if other is not None:
        known = parameters(space.to_model(jnp.asarray(other))).values()
        own_lengths = (i for i in known if i.role == "lengthscale" and i.path not in own)
        lengths = {info.path: info.value for info in own_lengths}
        typical, evidence = replace_unchecked(moved, lengths), EvidenceOfSomeRows(space, data)
        if evidence.value(typical, 0) > evidence.value(moved, 0) + CLEARLY:
            moved = typical
    after = space.known if moved is space.model else parameters(moved)
    said = tuple(
        f"{path}: the search started at {in_words(after[path].value)} in place of "
        f"{in_words(info.value)}, which is far from the units of the rows."
        for path, info in space.known.items()
        if not np.allclose(after[path].value, info.value, rtol=1e-6, atol=0)
    )
    return moved, said


def _of_targets(
    space: ParameterSpace, scale: Scales, data: Data, own: Collection[str]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Values in the units of the targets, of hyper-parameters that are far from these."""
    model = space.model
    if not model.likelihood.is_location or data.y.ndim > 1:
        return {}
    y = without_offsets(model, data).y
    spread, mean = float(scale.latent[0]), float(np.average(y, weights=data.weights))
    some = np.linspace(0, data.size - 1, _ROWS).astype(int)
    learned = (p for p in space.paths if space.known[p].role == "variance")
    variances = {path: space.known[path].value for path in learned}
    own_part = float(np.mean(_learned_part(model, variances, jnp.asarray(data.X[some]))[0]))
    factor = spread**2 / own_part if own_part > 0 else 1.0
    values = {}
    for path in space.paths:
        info = space.known[path]
        if path in space.narrowed or path in own or (info.latent or 0) > 0:
            continue
        value = np.asarray(info.value)
        if info.role == "level" and np.any(abs(value - mean) > FAR_OFF * spread):
            values[path] = np.full_like(value, mean)
        elif info.role == "variance" and _is_far(factor):
            values[path] = np.asarray(value * factor)
        elif (power := _NOISES.get(info.role)) is not None and _is_far(factor):
            short = _NOISE * spread**2 / float(np.mean(value)) ** (1 / power)
            if _is_far(short) and (short > 1) == (factor > 1):
                values[path] = np.asarray(value * factor**power)
    return values


def _is_far(factor: float) -> bool:
    """Whether a variance is that far from another."""
    return not 1 / FAR_OFF**2 < factor < FAR_OFF**2


@Program
def _learned_part(model: LatentGP, variances: dict[str, Array], X: Inputs) -> Float[Array, "#Q N"]:
    """Prior variances less those of fixed effects, from which nothing is taken away.

    By Euler's theorem: a sum over kernels is homogeneous in their variances, of degree one.
    """

    def prior(values: dict[str, Array]) -> Float[Array, "#Q N"]:
        return latent_diagonals(replace_unchecked(model, values).kernel, X)

    return jax.jvp(prior, (variances,), (variances,))[1]
