"""Fields: processes of places."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.fields.kernels import AR1 as AR1
    from latentgp.extensions.fields.kernels import Anisotropic as Anisotropic
    from latentgp.extensions.fields.kernels import Gneiting as Gneiting
    from latentgp.extensions.fields.kernels import PoweredExponential as PoweredExponential
    from latentgp.extensions.fields.kernels import RandomWalk as RandomWalk
    from latentgp.extensions.fields.kernels import TemporalDecay as TemporalDecay

EXTENSION = Extension(
    __name__,
    names={"kernels": "AR1 Anisotropic Gneiting PoweredExponential RandomWalk TemporalDecay"},
    rooms={"latentgp.kernels": "kernels"},
    requires=("neighbours", "state_space"),
)
__getattr__ = EXTENSION.attribute
