"""Integration over hyper-parameters."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.integrated.method import Integrated as Integrated
    from latentgp.extensions.integrated.method import IntegratedPosterior as IntegratedPosterior

EXTENSION = Extension(
    __name__,
    names={"method": "Integrated IntegratedPosterior"},
    offers={
        "integrate": f"{__name__}.method:integrating",
        "few rows": f"{__name__}.method:rows_are_few",
    },
    verbs={"hyperparameter_marginals": f"{__name__}.at_optimum:marginals_at_optimum"},
    apart="IntegratedPosterior",
)
__getattr__ = EXTENSION.attribute
