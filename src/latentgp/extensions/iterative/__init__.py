"""All rows by products with the kernel matrix: solvers, preconditioners, noisy gradients."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.iterative.gradients.settings import Solves as Solves
    from latentgp.extensions.iterative.matrix_free.representation import MatrixFree as MatrixFree
    from latentgp.extensions.iterative.methods.sgld import SGLD as SGLD
    from latentgp.extensions.iterative.methods.solves import SolvesGP as SolvesGP

_METHODS = {
    "solves": Entry(
        f"{__name__}.methods.solves:SolvesGP",
        "closed form; hyper-parameters by stochastic gradients, from solves",
        "Gaussian",
    ),
    "sgld": Entry(
        f"{__name__}.methods.sgld:SGLD",
        "stochastic gradients of the log evidence, by solves",
        "Gaussian",
    ),
}
EXTENSION = Extension(
    __name__,
    names={
        "gradients.settings": "Solves",
        "matrix_free.representation": "MatrixFree",
        "methods.sgld": "SGLD",
        "methods.solves": "SolvesGP",
    },
    methods=_METHODS,
    requires=("chains",),
    apart="Solves SGLD SolvesGP",
)
__getattr__ = EXTENSION.attribute
