"""Mixtures of Gaussians from values of log p(y given f) alone."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.black_box.method import BlackBoxVI as BlackBoxVI

_METHODS = {
    "black-box": Entry(
        f"{__name__}.method:BlackBoxVI",
        "values of log p(y given f) alone, a mixture of Gaussians",
        "all that are positive, external functions and programs among them",
    )
}
EXTENSION = Extension(
    __name__,
    names={"method": "BlackBoxVI"},
    methods=_METHODS,
    offers={"values": f"{__name__}.method:BlackBoxVI"},
)
__getattr__ = EXTENSION.attribute
