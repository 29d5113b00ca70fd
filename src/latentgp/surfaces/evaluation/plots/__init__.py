"""Pictures of predictions, calibration, training and relevance.

Each function takes arrays and the Matplotlib axes to draw on (None makes a new figure), and
returns the axes; nothing is shown or written until `save_figure`. Figures are made without pyplot,
so there is no global state, and no display is needed. Colours are those of Okabe & Ito (2008),
which people with colour-vision deficiency can tell apart.
"""

from latentgp.surfaces.evaluation.plots.calibration import (
    interval_calibration,
    reliability_diagram,
    transform_histogram,
)
from latentgp.surfaces.evaluation.plots.dependence import dependence, variance_shares
from latentgp.surfaces.evaluation.plots.drawing import check_picture_path, save_figure
from latentgp.surfaces.evaluation.plots.fits import (
    comparison,
    cost_front,
    learning_curve,
    ranks,
    traces,
)
from latentgp.surfaces.evaluation.plots.hyperparameters import (
    hyperparameter,
    hyperparameter_prior,
    kernel_weights,
    relevance,
)
from latentgp.surfaces.evaluation.plots.maps import (
    field_draws,
    field_maps,
    maps,
    residual_map,
    variogram,
)
from latentgp.surfaces.evaluation.plots.predictions import (
    observed_against_predicted,
    parts,
    prediction_bands,
    standardised_residuals,
)
from latentgp.surfaces.evaluation.plots.rankings import caterpillar

__all__ = [
    "caterpillar",
    "check_picture_path",
    "comparison",
    "cost_front",
    "dependence",
    "field_draws",
    "field_maps",
    "hyperparameter",
    "hyperparameter_prior",
    "interval_calibration",
    "kernel_weights",
    "learning_curve",
    "maps",
    "observed_against_predicted",
    "parts",
    "prediction_bands",
    "ranks",
    "relevance",
    "reliability_diagram",
    "residual_map",
    "save_figure",
    "standardised_residuals",
    "traces",
    "transform_histogram",
    "variance_shares",
    "variogram",
]
