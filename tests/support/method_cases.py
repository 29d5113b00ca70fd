"""Every method of the registry, and forms of them, on a tiny problem."""

import latentgp as lgp
from latentgp.methods.registry import METHODS
from problems import BINARY, SMOOTH, X, classification, regression

METHOD_CASES = [*sorted(METHODS), "stochastic", "integrated"]
_CLASSES = {
    *("augmented", "variational", "laplace", "laplace-neighbours", "black-box", "ep"),
    *("gibbs", "elliptical-slice", "mcmc", "hmc", "nuts", "particle-flow", "random-features"),
}
_CHAINS = {"draws": 120, "warmup": 10, "chains": 1}
_SHORT = {
    lgp.GibbsSampling: _CHAINS | {"warmup": 0},
    lgp.EllipticalSlice: _CHAINS | {"warmup": 0},
    **dict.fromkeys([lgp.MCMC, lgp.HMC, lgp.NUTS, lgp.DeepMCMC, lgp.SGLD], _CHAINS),
}
_POINTS = lgp.Inducing(4)
_REGRESSORS = {
    "stochastic": lgp.Stochastic(lgp.CollapsedVI(_POINTS), batch_size=4),
    "integrated": lgp.Integrated(lgp.ExactGP()),
    "exact, products": lgp.ExactGP(lgp.MatrixFree()),
    "exact, features": lgp.ExactGP(lgp.RandomFeatures(20)),
    "exact, time": lgp.ExactGP(lgp.Markov()),
    "collapsed, splines": lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(8))),
    "deep": lgp.RandomFeatureVI(batch_size=4, epochs=4),
}
_CLASSIFIERS = {
    "stochastic, augmented": lgp.Stochastic(lgp.AugmentedVI(_POINTS), batch_size=4),
    "stochastic, variational": lgp.Stochastic(lgp.VariationalInference(_POINTS), batch_size=4),
    "integrated, laplace": lgp.Integrated(lgp.Laplace()),
    "laplace, neighbours": lgp.Laplace(lgp.Neighbours(8)),
    "laplace, products": lgp.Laplace(lgp.MatrixFree()),
    "variational, neighbours": lgp.VariationalInference(lgp.Neighbours(4)),
    "ep, points": lgp.ExpectationPropagation(_POINTS),
    "mcmc, neighbours": lgp.MCMC(lgp.Neighbours(4), **_CHAINS),
    "mcmc, points": lgp.MCMC(_POINTS, **_CHAINS),
    "black-box, two": lgp.BlackBoxVI(2),
}
FORMS = [*METHOD_CASES, *(name for name in (_REGRESSORS | _CLASSIFIERS) if ", " in name), "deep"]


def case_of(name):
    """Model, data and method of a name of the registry, or of a form of such a method."""
    classes = name in _CLASSES or name in _CLASSIFIERS
    model, y = (classification(), BINARY) if classes else (regression(), SMOOTH)
    data = lgp.Data(X[:, :1] if name in ("exact, time", "collapsed, splines") else X, y)
    if name in ("deep", "deep-mcmc"):
        model = lgp.DeepGP(lgp.RBF(), lgp.Gaussian(0.3), layers=[lgp.Layer(lgp.RBF(), 1)])
    if name in ("exact, time", "collapsed, splines"):
        model = regression(lgp.Matern32())
    known = (_REGRESSORS | _CLASSIFIERS).get(name)
    if known is not None:
        return model, data, known
    kind = METHODS[name].method
    settings = dict(_SHORT.get(kind, {}))
    if "neighbours" in name:
        settings["representation"] = METHODS[name].representation(regression(), len(X), None)
    return model, data, kind(**settings)
