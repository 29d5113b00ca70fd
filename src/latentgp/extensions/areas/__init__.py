"""Areas with neighbours: conditional autoregressions by the graph of which borders on which."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.areas.kernels import BYM2 as BYM2
    from latentgp.extensions.areas.kernels import CAR as CAR
    from latentgp.extensions.areas.kernels import ICAR as ICAR
    from latentgp.extensions.areas.kernels import Areal as Areal

EXTENSION = Extension(
    __name__,
    names={"kernels": "Areal BYM2 CAR ICAR"},
    offers={"points": f"{__name__}.kernels:areas_alone"},
    rooms={"latentgp.kernels": "kernels"},
)
__getattr__ = EXTENSION.attribute
