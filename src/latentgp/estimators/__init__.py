"""scikit-learn's manners over `latentgp.fit`: a table and a target in, calibrated predictions out.

Everything is in the user's units, hyper-parameters included: priors, search bounds and starting
values scale with the data, so nothing has to be standardised before or converted after.
"""

from latentgp.estimators.classifier import BINARY, MULTICLASS, GPClassifier
from latentgp.estimators.counts import COUNTS, GPCountRegressor
from latentgp.estimators.ordinal import GPOrdinalClassifier
from latentgp.estimators.regressor import REGRESSION, GPRegressor

__all__ = [
    "BINARY",
    "COUNTS",
    "MULTICLASS",
    "REGRESSION",
    "GPClassifier",
    "GPCountRegressor",
    "GPOrdinalClassifier",
    "GPRegressor",
]
