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
_EXTERNAL = "ExternalLikelihood ExternalProgram"
EXTENSION = Extension(
    __name__,
    names={"external": _EXTERNAL, "method": "BlackBoxVI"},
    methods=_METHODS,
    offers={"values": f"{__name__}.method:BlackBoxVI"},
    apart=_EXTERNAL,
    rooms={"latentgp.likelihoods": _EXTERNAL},
)
__getattr__ = EXTENSION.attribute
