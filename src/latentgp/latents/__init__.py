"""Representations of the latent functions: columns of the design's table."""

from latentgp.latents.base import LatentPosterior, Representation, log_evidence
from latentgp.latents.dense import Dense
from latentgp.latents.inducing import Inducing

__all__ = ["Dense", "Inducing", "LatentPosterior", "Representation", "log_evidence"]
