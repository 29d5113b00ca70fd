"""The method that "auto" takes for models with hidden layers."""

from __future__ import annotations

from latentgp.choosing.choice import Choice
from latentgp.extensions.deep.methods.random_feature_vi import RandomFeatureVI
from latentgp.models import LatentGP


def of_layers(model: LatentGP) -> Choice:
    """The method for a model with hidden layers."""
    why = f"{model.depth} layers of functions, the hidden ones by random features"
    return Choice(RandomFeatureVI(), why)
