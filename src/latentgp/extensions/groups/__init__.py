"""Effects of groups: mixed models of any number of levels, by a sparse design."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.groups.boosted.boosting import Boosting as Boosting
    from latentgp.extensions.groups.boosted.cross_fit import CrossFit as CrossFit
    from latentgp.extensions.groups.boosted.cross_fit import RegressorMean as RegressorMean
    from latentgp.extensions.groups.boosted.trees import Trees as Trees
    from latentgp.extensions.groups.representation import SparseEffects as SparseEffects

EXTENSION = Extension(
    __name__,
    names={
        "boosted.boosting": "Boosting",
        "boosted.cross_fit": "CrossFit RegressorMean",
        "boosted.trees": "Trees",
        "representation": "SparseEffects",
    },
    requires=("inter_domain",),
    apart="Boosting CrossFit RegressorMean SparseEffects Trees",
)
__getattr__ = EXTENSION.attribute
