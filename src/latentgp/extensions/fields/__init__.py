"""Fields: processes of places."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.fields.places import MapGrid as MapGrid
    from latentgp.extensions.fields.places import Places as Places
    from latentgp.extensions.fields.places import grid_over as grid_over
    from latentgp.extensions.fields.places import places_of as places_of
    from latentgp.extensions.fields.variograms import ModelVariogram as ModelVariogram
    from latentgp.extensions.fields.variograms import Variogram as Variogram
    from latentgp.extensions.fields.variograms import model_variogram as model_variogram
    from latentgp.extensions.fields.variograms import variogram as variogram

EXTENSION = Extension(
    __name__,
    names={
        "places": "MapGrid Places grid_over places_of",
        "variograms": "ModelVariogram Variogram model_variogram variogram",
    },
    apart="MapGrid Places grid_over places_of ModelVariogram Variogram model_variogram variogram",
)
__getattr__ = EXTENSION.attribute
