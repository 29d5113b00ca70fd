"""Every method of the registry, and forms of them, on a tiny problem."""

import latentgp as lgp
from latentgp.choosing.registry import METHODS
from problems import BINARY, SMOOTH, X, classification, regression

METHOD_CASES = [*sorted(METHODS), "stochastic", "integrated"]
_CLASSES = {
    *("augmented", "variational", "laplace", "laplace-neighbours", "black-box", "ep"),
    *("gibbs", "elliptical-slice", "mcmc", "hmc", "nuts", "particle-flow", "random-features"),
}
_CHAINS = {"draws": 120, "warmup": 10, "chains": 1}
_SHORT = {
    **dict.fromkeys(["gibbs", "elliptical-slice"], _CHAINS | {"warmup": 0}),
    **dict.fromkeys(["mcmc", "hmc", "nuts", "deep-mcmc", "sgld"], _CHAINS),
}
_REGRESSORS = {
    "stochastic": lambda: lgp.Stochastic(lgp.CollapsedVI(_points()), batch_size=4, epochs=50),
    "integrated": lambda: lgp.Integrated(lgp.ExactGP()),
    "exact, products": lambda: lgp.ExactGP(lgp.MatrixFree()),
    "exact, time": lambda: lgp.ExactGP(lgp.Markov()),
    "collapsed, features": lambda: lgp.CollapsedVI(lgp.RandomFeatures(20)),
    "collapsed, splines": lambda: lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(8))),
    "random-features, deep": lambda: lgp.RandomFeatureVI(batch_size=4, epochs=50),
}
_CLASSIFIERS = {
    "stochastic, augmented": lambda: lgp.Stochastic(
        lgp.AugmentedVI(_points()), batch_size=4, epochs=50
    ),
    "stochastic, variational": lambda: lgp.Stochastic(
        lgp.VariationalInference(_points()), batch_size=4, epochs=50
    ),
    "integrated, laplace": lambda: lgp.Integrated(lgp.Laplace()),
    "laplace, neighbours": lambda: lgp.Laplace(lgp.Neighbours(8)),
    "laplace, products": lambda: lgp.Laplace(lgp.MatrixFree()),
    "variational, neighbours": lambda: lgp.VariationalInference(lgp.Neighbours(4)),
    "ep, points": lambda: lgp.ExpectationPropagation(_points()),
    "mcmc, neighbours": lambda: lgp.MCMC(lgp.Neighbours(4), **_CHAINS),
    "mcmc, points": lambda: lgp.MCMC(_points(), **_CHAINS),
    "black-box, two": lambda: lgp.BlackBoxVI(components=2),
}
FORMS = [*METHOD_CASES, *(name for name in (_REGRESSORS | _CLASSIFIERS) if ", " in name)]


def _points():
    return lgp.Inducing(4)


def case_of(name):
    """Model, data and method of a name of the registry, or of a form of such a method."""
    classes = name in _CLASSES or name in _CLASSIFIERS
    model, y = (classification(), BINARY) if classes else (regression(), SMOOTH)
    data = lgp.Data(X[:, :1] if name in ("exact, time", "collapsed, splines") else X, y)
    if name in ("random-features, deep", "deep-mcmc"):
        model = lgp.DeepGP(lgp.RBF(), lgp.Gaussian(0.3), layers=[lgp.Layer(lgp.RBF(), 1)])
    if name in ("exact, time", "collapsed, splines"):
        model = regression(lgp.Matern32())
    known = (_REGRESSORS | _CLASSIFIERS).get(name)
    if known is not None:
        return model, data, known()
    kind = METHODS[name].method
    settings = dict(_SHORT.get(name, {}))
    if "neighbours" in name:
        settings["representation"] = METHODS[name].representation(regression(), len(X), None)
    return model, data, kind(**settings)
