"""Kernels of fields: of direction, of space and time together, of discrete times."""

from latentgp.extensions.fields.kernels.anisotropy import Anisotropic
from latentgp.extensions.fields.kernels.space_time import (
    Gneiting,
    PoweredExponential,
    TemporalDecay,
)
from latentgp.extensions.fields.kernels.times import AR1, RandomWalk

__all__ = ["AR1", "Anisotropic", "Gneiting", "PoweredExponential", "RandomWalk", "TemporalDecay"]
