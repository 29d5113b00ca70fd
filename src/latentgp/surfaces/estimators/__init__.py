"""scikit-learn's manners over `latentgp.fit`: a table and a target in, calibrated predictions out.

Everything is in the user's units, hyper-parameters included: priors, search bounds and starting
values scale with the data, so nothing has to be standardised before or converted after.
"""

from latentgp.surfaces.estimators.classifier import GPClassifier
from latentgp.surfaces.estimators.counts import GPCountRegressor
from latentgp.surfaces.estimators.likelihoods import BINARY, COUNTS, MULTICLASS, OWNERS, REGRESSION
from latentgp.surfaces.estimators.ordinal import GPOrdinalClassifier
from latentgp.surfaces.estimators.regressor import GPRegressor

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
