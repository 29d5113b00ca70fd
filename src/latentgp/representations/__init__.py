"""Representations of the latent functions: columns of the design's table."""

from latentgp.representations.base import LatentPosterior, Representation
from latentgp.representations.dense import Dense
from latentgp.representations.evidence import log_evidence
from latentgp.representations.inducing.representation import Inducing

__all__ = ["Dense", "Inducing", "LatentPosterior", "Representation", "log_evidence"]
