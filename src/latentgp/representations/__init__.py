"""Representations of the latent functions: columns of the design's table."""

from latentgp.representations.base import LatentPosterior, Representation
from latentgp.representations.dense import Dense
from latentgp.representations.evidence import log_evidence
from latentgp.representations.features import (
    BSplines,
    FourierFeatures,
    HilbertSpace,
    MultiScale,
    PerPart,
    SphericalHarmonics,
)
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.markov.representation import Markov
from latentgp.representations.matrix_free.representation import MatrixFree
from latentgp.representations.neighbours.latent import LatentNeighbours
from latentgp.representations.neighbours.representation import Neighbours
from latentgp.representations.random_features import RandomFeatures
from latentgp.representations.space_time.representation import SpaceTime

__all__ = [
    "BSplines",
    "Dense",
    "FourierFeatures",
    "HilbertSpace",
    "Inducing",
    "LatentNeighbours",
    "LatentPosterior",
    "Markov",
    "MatrixFree",
    "MultiScale",
    "Neighbours",
    "PerPart",
    "RandomFeatures",
    "Representation",
    "SpaceTime",
    "SphericalHarmonics",
    "log_evidence",
]
