"""Representations of the latent functions: columns of the design's table."""

from latentgp.extensions.deep.random_features import RandomFeatures
from latentgp.extensions.inter_domain import (
    BSplines,
    FourierFeatures,
    HilbertSpace,
    MultiScale,
    PerPart,
    SphericalHarmonics,
)
from latentgp.extensions.iterative.matrix_free.representation import MatrixFree
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.representation import Neighbours
from latentgp.extensions.state_space.markov.representation import Markov
from latentgp.extensions.state_space.space_time.representation import SpaceTime
from latentgp.representations.base import LatentPosterior, Representation
from latentgp.representations.dense import Dense
from latentgp.representations.evidence import log_evidence
from latentgp.representations.inducing.representation import Inducing

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
