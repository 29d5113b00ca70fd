"""Small deep models that tests share."""

import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.extensions.batches.step_sizes import RobbinsMonro
from latentgp.extensions.deep.inference.family import Architecture
from latentgp.extensions.deep.inference.steps import DeepInference
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.site_inference.rules.variational import VariationalRule
from latentgp.site_inference.search.algorithm import SiteInference

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(80, 2))
X = (X - X.mean(0)) / X.std(0)
STEP = np.where(X[:, 0] > 0, 1.0, -1.0) + 0.2 * GENERATOR.normal(size=len(X))
NEW = GENERATOR.normal(size=(9, 2))


def deep(likelihood=None, layers=1, width=2, **settings):
    hidden = [lgp.Layer(lgp.RBF(1.2), width) for _ in range(layers)]
    return lgp.DeepGP(lgp.RBF(1.5), likelihood or lgp.Gaussian(0.1), layers=hidden, **settings)


def method(**settings):
    usual = {"features": 20, "batch_size": 40, "epochs": 40, "components": 4, "learning_rate": 0.01}
    usual["start"] = "given"
    return lgp.RandomFeatureVI(**(usual | settings))


def fitted(model, own, y=STEP, **settings):
    return lgp.fit(model, lgp.Data(X, y), key=KEY, method=own, **settings)


def inference(model, *, frequencies="variational", last="natural", y=STEP, draws=(1, 1)):
    """The algorithm and its first state, hyper-parameters free."""
    with jax.enable_x64(True):
        architecture = Architecture.of(model, X, 12, None, frequencies, KEY)
        algorithm = SiteInference.of(model, lgp.RandomFeatures(12), VariationalRule(coupled=False))
        space = ParameterSpace(model)
        numbers = (jnp.asarray(a) for a in (0.01, 1000.0, float(len(X)), 1.0))
        steps = (jnp.asarray(n, jnp.int32) for n in (10, 0))
        own = DeepInference(
            architecture,
            algorithm,
            space,
            RobbinsMonro(),
            *numbers,
            draws,
            *steps,
            jnp.ones(space.size, bool),
            KEY,
        )
        learned = architecture.start(model, space.to_vector(), KEY, natural=last == "natural")
        rows = lgp.Data(X, y, weights=np.ones(len(X))).to_device()
        return own, own.begin(learned, model), rows
