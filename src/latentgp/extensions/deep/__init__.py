"""Random features, and deep models of them."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.deep.methods.deep_mcmc import DeepMCMC as DeepMCMC
    from latentgp.extensions.deep.methods.random_feature_vi import (
        RandomFeatureVI as RandomFeatureVI,
    )
    from latentgp.extensions.deep.models import DeepGP as DeepGP
    from latentgp.extensions.deep.models import Layer as Layer
    from latentgp.extensions.deep.random_features import RandomFeatures as RandomFeatures

_METHODS = {
    "random-features": Entry(
        f"{__name__}.methods.random_feature_vi:RandomFeatureVI",
        "gradients by batches through random features, of deep models too",
        "all that are positive",
        "latentgp.choosing.registry:without_points",
    ),
    "deep-mcmc": Entry(
        f"{__name__}.methods.deep_mcmc:DeepMCMC",
        "log density of the layers of a deep model, weights or hidden functions",
        "all that are differentiable",
        "latentgp.choosing.registry:without_points",
    ),
}
EXTENSION = Extension(
    __name__,
    names={
        "methods.deep_mcmc": "DeepMCMC",
        "methods.random_feature_vi": "RandomFeatureVI",
        "models": "DeepGP Layer",
        "random_features": "RandomFeatures",
    },
    methods=_METHODS,
    offers={
        "layers": f"{__name__}.initial_model:of_layers",
        "hidden layers": f"{__name__}.initial_model:deepened",
    },
    requires=("batches", "chains", "iterative"),
    apart="DeepMCMC RandomFeatureVI DeepGP Layer",
)
__getattr__ = EXTENSION.attribute
