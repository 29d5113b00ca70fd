"""Fields: kernels of places, functions on a grid of frequencies, totals and variograms."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

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
    from latentgp.extensions.fields.places import MapGrid as MapGrid
    from latentgp.extensions.fields.places import Places as Places
    from latentgp.extensions.fields.places import grid_over as grid_over
    from latentgp.extensions.fields.places import places_of as places_of
    from latentgp.extensions.fields.thresholds import Exceedance as Exceedance
    from latentgp.extensions.fields.thresholds import exceedance as exceedance
    from latentgp.extensions.fields.totals import Totals as Totals
    from latentgp.extensions.fields.totals import total as total
    from latentgp.extensions.fields.variograms import ModelVariogram as ModelVariogram
    from latentgp.extensions.fields.variograms import Variogram as Variogram
    from latentgp.extensions.fields.variograms import model_variogram as model_variogram
    from latentgp.extensions.fields.variograms import variogram as variogram

EXTENSION = Extension(
    __name__,
    names={
        "fourier.method": "FourierGP summarise",
        "fourier.representation": "EquispacedFourier",
        "fourier.sums": "PlaceSums",
        "kernels": "AR1 Anisotropic Gneiting PoweredExponential RandomWalk TemporalDecay",
        "places": "MapGrid Places grid_over places_of",
        "thresholds": "Exceedance exceedance",
        "totals": "Totals total",
        "variograms": "ModelVariogram Variogram model_variogram variogram",
    },
    verbs={
        "exceedance": f"{__name__}.thresholds:exceedance",
        "total": f"{__name__}.totals:total",
    },
    methods={
        "fourier": Entry(
            f"{__name__}.fourier.method:FourierGP",
            "closed form by equispaced Fourier functions, rows summed once",
            "Gaussian",
            f"{__name__}.fourier.representation:of_places",
        ),
    },
    requires=("inter_domain", "iterative", "neighbours", "state_space"),
    rooms={"latentgp.kernels": "kernels"},
    apart=(
        "FourierGP summarise EquispacedFourier PlaceSums MapGrid Places grid_over "
        "places_of Exceedance exceedance Totals total ModelVariogram Variogram "
        "model_variogram variogram"
    ),
)
__getattr__ = EXTENSION.attribute
