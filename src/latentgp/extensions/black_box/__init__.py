"""Values of log p(y given f) alone: functions outside of JAX, programs, mixtures of Gaussians."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.black_box.external import ExternalLikelihood as ExternalLikelihood
    from latentgp.extensions.black_box.external import ExternalProgram as ExternalProgram
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
    names={"external": "ExternalLikelihood ExternalProgram", "method": "BlackBoxVI"},
    methods=_METHODS,
    offers={"values": f"{__name__}.method:BlackBoxVI"},
    rooms={"latentgp.likelihoods": "external"},
)
__getattr__ = EXTENSION.attribute
