"""Fields: processes of places."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.fields.method import FourierGP as FourierGP
    from latentgp.extensions.fields.method import summarise as summarise
    from latentgp.extensions.fields.representation import EquispacedFourier as EquispacedFourier
    from latentgp.extensions.fields.sums import PlaceSums as PlaceSums

EXTENSION = Extension(
    __name__,
    names={
        "method": "FourierGP summarise",
        "representation": "EquispacedFourier",
        "sums": "PlaceSums",
    },
    requires=("inter_domain", "iterative"),
    apart="FourierGP summarise EquispacedFourier PlaceSums",
)
__getattr__ = EXTENSION.attribute
