"""Fields: kernels of places, functions on a grid of frequencies, totals and variograms."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.fields.fourier.method import FourierGP as FourierGP
    from latentgp.extensions.fields.fourier.method import summarise as summarise
    from latentgp.extensions.fields.fourier.representation import (
        EquispacedFourier as EquispacedFourier,
    )
    from latentgp.extensions.fields.fourier.sums import PlaceSums as PlaceSums
    from latentgp.extensions.fields.kernels import AR1 as AR1
    from latentgp.extensions.fields.kernels import Anisotropic as Anisotropic
    from latentgp.extensions.fields.kernels import Gneiting as Gneiting
    from latentgp.extensions.fields.kernels import PoweredExponential as PoweredExponential
    from latentgp.extensions.fields.kernels import RandomWalk as RandomWalk
    from latentgp.extensions.fields.kernels import TemporalDecay as TemporalDecay
    from latentgp.extensions.fields.thresholds import Exceedance as Exceedance
    from latentgp.extensions.fields.thresholds import exceedance as exceedance
    from latentgp.extensions.fields.totals import Totals as Totals
    from latentgp.extensions.fields.totals import total as total

EXTENSION = Extension(
    __name__,
    names={
        "fourier.method": "FourierGP summarise",
        "fourier.representation": "EquispacedFourier",
        "fourier.sums": "PlaceSums",
        "kernels": "AR1 Anisotropic Gneiting PoweredExponential RandomWalk TemporalDecay",
        "thresholds": "Exceedance exceedance",
        "totals": "Totals total",
    },
    verbs={
        "exceedance": f"{__name__}.thresholds:exceedance",
        "total": f"{__name__}.totals:total",
    },
    requires=("inter_domain", "iterative", "neighbours", "state_space"),
    rooms={"latentgp.kernels": "kernels"},
    apart=("FourierGP summarise EquispacedFourier PlaceSums Exceedance exceedance Totals total"),
)
__getattr__ = EXTENSION.attribute
