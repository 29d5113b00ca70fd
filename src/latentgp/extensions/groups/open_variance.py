"""The prior variance of f that effects leave open, and sites of what they have of it."""

from __future__ import annotations

import jax.numpy as jnp

from latentgp.extensions.groups.design import EffectDesign
from latentgp.kernels import Kernel
from latentgp.typing import Array, Inputs, PerRow


def open_variance(
    design: EffectDesign, kernel: Kernel, X: Inputs, values: tuple[Array, ...]
) -> PerRow:
    """The prior variance at rows that no effect has."""
    if design.is_whole:
        return jnp.zeros(len(X), X.dtype)
    return jnp.maximum(kernel.diagonal(X) - sum(jnp.sum(u**2, axis=1) for u in values), 0.0)


def given_effects(
    linear: PerRow, precision: PerRow, left: PerRow, power: float
) -> tuple[PerRow, PerRow, PerRow]:
    """Sites of what effects have of f, the rest integrated over, and their log constants.

    [E_e site(g + e)^power]^(1 / power) with e of the variance that is left open; of power 0 the
    exponential of the mean log (Bui, Yan & Turner 2017).
    """
    if not power:
        return linear, precision, -0.5 * precision * left
    share = 1 + power * left * precision
    constant = 0.5 * power * left * linear**2 / share - 0.5 * jnp.log(share) / power
    return linear / share, precision / share, constant
