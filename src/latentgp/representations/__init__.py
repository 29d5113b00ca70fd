"""Representations of the latent functions: columns of the design's table."""

from latentgp.representations.base import LatentPosterior, Representation
from latentgp.representations.dense import Dense
from latentgp.representations.evidence import log_evidence
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits

__all__ = [
    "Dense",
    "Inducing",
    "LatentPosterior",
    "Representation",
    "SiteForm",
    "Traits",
    "log_evidence",
]
