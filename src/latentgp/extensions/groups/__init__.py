"""Effects of groups: mixed models of any number of levels, by a sparse design."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.groups.boosted.boosting import Boosting as Boosting
    from latentgp.extensions.groups.boosted.cross_fit import CrossFit as CrossFit
    from latentgp.extensions.groups.boosted.cross_fit import RegressorMean as RegressorMean
    from latentgp.extensions.groups.boosted.trees import Trees as Trees
    from latentgp.extensions.groups.inference.contrasts import Contrasts as Contrasts
    from latentgp.extensions.groups.inference.kenward_roger import KenwardRoger as KenwardRoger
    from latentgp.extensions.groups.inference.kenward_roger import kenward_roger as kenward_roger
    from latentgp.extensions.groups.inference.marginal_means import MarginalMeans as MarginalMeans
    from latentgp.extensions.groups.inference.maximum_likelihood import (
        GreatestLikelihood as GreatestLikelihood,
    )
    from latentgp.extensions.groups.inference.maximum_likelihood import maximised as maximised
    from latentgp.extensions.groups.inference.r_squared import RSquared as RSquared
    from latentgp.extensions.groups.inference.r_squared import r_squared as r_squared
    from latentgp.extensions.groups.inference.satterthwaite import Satterthwaite as Satterthwaite
    from latentgp.extensions.groups.inference.satterthwaite import satterthwaite as satterthwaite
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
        "inference.contrasts": "Contrasts",
        "inference.kenward_roger": "KenwardRoger kenward_roger",
        "inference.maximum_likelihood": "GreatestLikelihood maximised",
        "inference.marginal_means": "MarginalMeans",
        "inference.r_squared": "RSquared r_squared",
        "inference.satterthwaite": "Satterthwaite satterthwaite",
        "representation": "SparseEffects",
        "summary": "MixedSummary VarianceComponent mixed_summary",
    },
    offers={
        "rows": f"{__name__}.offers:effects",
        "what rows leave open": f"{__name__}.groupings:untold_variances",
        "greatest likelihood": f"{__name__}.inference.maximum_likelihood:maximising",
        "mean learned apart": f"{__name__}.boosted.cross_fit:learner_of",
    },
    requires=("inter_domain", "iterative"),
    verbs={
        "joint_curvature": f"{__name__}.inference.joint_curvature:joint_curvature",
        "kenward_roger": f"{__name__}.inference.kenward_roger:kenward_roger",
        "marginal_means": f"{__name__}.inference.marginal_means:MarginalMeans",
        "mixed_summary": f"{__name__}.summary:mixed_summary",
        "normal_tests": f"{__name__}.inference.satterthwaite:normal_tests",
        "r_squared": f"{__name__}.inference.r_squared:r_squared",
        "satterthwaite": f"{__name__}.inference.satterthwaite:satterthwaite",
    },
    apart=(
        "Boosting CrossFit RegressorMean SparseEffects Trees "
        "MixedSummary VarianceComponent mixed_summary "
        "Contrasts GreatestLikelihood KenwardRoger MarginalMeans RSquared Satterthwaite "
        "kenward_roger maximised r_squared satterthwaite"
    ),
)
__getattr__ = EXTENSION.attribute
