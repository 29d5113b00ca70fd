"""Nearest-neighbour processes, of targets and of latents."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.neighbours.latent import LatentNeighbours as LatentNeighbours
    from latentgp.extensions.neighbours.representation import Neighbours as Neighbours

_METHODS = {
    "neighbours": Entry(
        "latentgp.site_inference.methods.exact:ExactGP",
        "closed form, each row given its nearest neighbours",
        "Gaussian; classes by least squares",
        f"{__name__}.offers:of_targets",
    ),
    "laplace-neighbours": Entry(
        "latentgp.site_inference.methods.laplace:Laplace",
        "curvature at the mode, each latent given its nearest neighbours",
        "all without kinks and steps",
        f"{__name__}.offers:of_latents",
    ),
}
EXTENSION = Extension(
    __name__,
    names={"latent": "LatentNeighbours", "representation": "Neighbours"},
    methods=_METHODS,
    offers={
        "rows": f"{__name__}.offers:nearest_rows",
        "what a fit leaves": f"{__name__}.left:near_rows_instead",
        "pilot": f"{__name__}.offers:candidates",
    },
    requires=("iterative",),
    apart="LatentNeighbours",
)
__getattr__ = EXTENSION.attribute
