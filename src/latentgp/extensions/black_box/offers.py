"""The method that "auto" takes where a likelihood has no gradient."""

from __future__ import annotations

from latentgp.extensions.black_box.method import BlackBoxVI
from latentgp.representations import Representation


def values_alone(representation: Representation) -> BlackBoxVI:
    """The method by values of log p(y given f) alone."""
    return BlackBoxVI(representation)
