"""Effects of groups: mixed models of any number of levels, by a sparse design."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.groups.boosted.boosting import Boosting as Boosting
    from latentgp.extensions.groups.boosted.cross_fit import CrossFit as CrossFit
    from latentgp.extensions.groups.boosted.cross_fit import RegressorMean as RegressorMean
    from latentgp.extensions.groups.boosted.trees import Trees as Trees
    from latentgp.extensions.groups.representation import SparseEffects as SparseEffects
    from latentgp.extensions.groups.summary import MixedSummary as MixedSummary
    from latentgp.extensions.groups.summary import VarianceComponent as VarianceComponent
    from latentgp.extensions.groups.summary import mixed_summary as mixed_summary

EXTENSION = Extension(
    __name__,
    names={
        "boosted.boosting": "Boosting",
        "boosted.cross_fit": "CrossFit RegressorMean",
        "boosted.trees": "Trees",
        "representation": "SparseEffects",
        "summary": "MixedSummary VarianceComponent mixed_summary",
    },
    offers={
        "rows": f"{__name__}.offers:effects",
        "trees": f"{__name__}.boosted.boosting:boosted",
    },
    requires=("inter_domain", "iterative"),
    verbs={"mixed_summary": f"{__name__}.summary:mixed_summary"},
    apart=(
        "Boosting CrossFit RegressorMean SparseEffects Trees "
        "MixedSummary VarianceComponent mixed_summary"
    ),
)
__getattr__ = EXTENSION.attribute
