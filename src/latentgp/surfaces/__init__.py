"""User interfaces beside `fit`: estimators, tables, evaluation, reports, command line, export."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.surfaces.estimators import GPClassifier as GPClassifier
    from latentgp.surfaces.estimators import GPCountRegressor as GPCountRegressor
    from latentgp.surfaces.estimators import GPOrdinalClassifier as GPOrdinalClassifier
    from latentgp.surfaces.estimators import GPRegressor as GPRegressor
    from latentgp.surfaces.evaluation.augmentation_gap import AugmentationGap as AugmentationGap
    from latentgp.surfaces.evaluation.augmentation_gap import augmentation_gap as augmentation_gap
    from latentgp.surfaces.evaluation.certificate import Certificate as Certificate
    from latentgp.surfaces.evaluation.certificate import certify as certify
    from latentgp.surfaces.evaluation.conformal import conformal_interval as conformal_interval
    from latentgp.surfaces.evaluation.cross_validation import CrossValidation as CrossValidation
    from latentgp.surfaces.evaluation.cross_validation import cross_validate as cross_validate
    from latentgp.surfaces.evaluation.leave_one_out import LeaveOneOut as LeaveOneOut
    from latentgp.surfaces.evaluation.leave_one_out import leave_one_out as leave_one_out
    from latentgp.surfaces.evaluation.model_weights import ModelComparison as ModelComparison
    from latentgp.surfaces.evaluation.model_weights import compare_models as compare_models
    from latentgp.surfaces.evaluation.model_weights import stacking_weights as stacking_weights
    from latentgp.surfaces.evaluation.predictive_checks import PredictiveCheck as PredictiveCheck
    from latentgp.surfaces.evaluation.predictive_checks import predictive_check as predictive_check
    from latentgp.surfaces.evaluation.weights import KernelWeights as KernelWeights
    from latentgp.surfaces.evaluation.weights import kernel_weights as kernel_weights
    from latentgp.surfaces.export import Exported as Exported
    from latentgp.surfaces.export import export_predictor as export_predictor
    from latentgp.surfaces.files.rows import FileRows as FileRows
    from latentgp.surfaces.point_process import bin_points as bin_points
    from latentgp.surfaces.priors.hierarchical_dirichlet import (
        HierarchicalDirichlet as HierarchicalDirichlet,
    )
    from latentgp.surfaces.priors.statements import prior_from as prior_from
    from latentgp.surfaces.tables.model import TableModel as TableModel

EXTENSION = Extension(
    __name__,
    names={
        "estimators": "GPClassifier GPCountRegressor GPOrdinalClassifier GPRegressor",
        "evaluation.augmentation_gap": "AugmentationGap augmentation_gap",
        "evaluation.certificate": "Certificate certify",
        "evaluation.conformal": "conformal_interval",
        "evaluation.cross_validation": "CrossValidation cross_validate",
        "evaluation.leave_one_out": "LeaveOneOut leave_one_out",
        "evaluation.model_weights": "ModelComparison compare_models stacking_weights",
        "evaluation.predictive_checks": "PredictiveCheck predictive_check",
        "evaluation.weights": "KernelWeights kernel_weights",
        "export": "Exported export_predictor",
        "files.rows": "FileRows",
        "point_process": "bin_points",
        "priors.hierarchical_dirichlet": "HierarchicalDirichlet",
        "priors.statements": "prior_from",
        "tables.model": "TableModel",
    },
    verbs={
        "coefficients": f"{__name__}.coefficients:coefficients",
        "group_effects": f"{__name__}.coefficients:group_effects",
        "certify": f"{__name__}.evaluation.certificate:certify",
        "effects": f"{__name__}.evaluation.effects:effects_of_posterior",
        "export": f"{__name__}.export:export_predictor",
        "export_table": f"{__name__}.export.tables:export_table_model",
        "report": f"{__name__}.report:report_of_estimator",
        "leave_one_out": f"{__name__}.evaluation.leave_one_out:leave_one_out",
    },
    apart=(
        "Certificate CrossValidation LeaveOneOut ModelComparison PredictiveCheck "
        "KernelWeights Exported"
    ),
)
__getattr__ = EXTENSION.attribute
