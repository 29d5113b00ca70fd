"""scikit-learn's manners over `latentgp.fit`: a table and a target in, calibrated predictions out.

Everything is in the user's units, hyper-parameters included: priors, search bounds and starting
values scale with the data, so nothing has to be standardised before or converted after.
"""

from latentgp.surfaces.estimators.classifier import BINARY, MULTICLASS, GPClassifier
from latentgp.surfaces.estimators.counts import COUNTS, GPCountRegressor
from latentgp.surfaces.estimators.ordinal import GPOrdinalClassifier
from latentgp.surfaces.estimators.regressor import OF_OUTPUTS, REGRESSION, GPRegressor

# Whom a likelihood's name belongs to, for messages.
OWNERS = {
    **dict.fromkeys(REGRESSION, "GPRegressor (task regression)"),
    **dict.fromkeys(OF_OUTPUTS, "GPRegressor with several outputs"),
    **dict.fromkeys(COUNTS, "GPCountRegressor (task count)"),
    **dict.fromkeys(BINARY, "GPClassifier with two classes (task classification)"),
    **dict.fromkeys(MULTICLASS, "GPClassifier (task classification)"),
    "ordinal": "GPOrdinalClassifier (task ordinal)",
}

__all__ = [
    "BINARY",
    "COUNTS",
    "MULTICLASS",
    "OWNERS",
    "REGRESSION",
    "GPClassifier",
    "GPCountRegressor",
    "GPOrdinalClassifier",
    "GPRegressor",
]
