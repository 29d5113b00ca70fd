"""A deep model to start from, and the method that "auto" takes for it."""

from __future__ import annotations

import numpy as np

from latentgp.choosing.choice import Choice
from latentgp.errors import InputError
from latentgp.extensions.deep.methods.random_feature_vi import RandomFeatureVI
from latentgp.extensions.deep.models import DeepGP, Layer
from latentgp.kernels import RBF, Kernel, PerLatent
from latentgp.models import LatentGP
from latentgp.rows.data import Data
from latentgp.setup.priors import scales

_HIDDEN_FUNCTIONS = 3  # of a layer


def deepened(model: LatentGP, depth: int, data: Data) -> LatentGP:
    """A model with hidden layers in place of one without.

    Hidden layers have as many functions as there are inputs, three at most; every kernel is an RBF
    with one length-scale a column, started at the root of their number in the column's scale.

    Raises:
        InputError: a depth below one.
    """
    if not isinstance(depth, int | np.integer) or depth < 1:
        raise InputError(f"depth must be a positive number of layers, got {depth!r}.")
    if depth == 1:
        return model
    columns = data.X.shape[1]
    width = min(columns, _HIDDEN_FUNCTIONS)

    inputs, latent = scales(model, data)[:2]

    def rbf(functions: int, variance: float) -> Kernel:
        seen = np.concatenate([np.ones(functions), inputs])
        return RBF(np.sqrt(len(seen)) * seen, variance)

    hidden = [Layer(rbf(width * (place > 0), 1.0), width) for place in range(depth - 1)]
    last = [rbf(width, float(scale) ** 2) for scale in latent]
    alike = bool(np.all(latent == latent[0]))
    kernel = last[0] if alike else PerLatent(*last)
    return DeepGP(kernel, model.likelihood, model.mean, layers=hidden)


def of_layers(model: LatentGP) -> Choice:
    """The method for a model with hidden layers."""
    why = f"{model.depth} layers of functions, the hidden ones by random features"
    return Choice(RandomFeatureVI(), why)
