"""Gaussian approximations of a log density: one file a method, and what they share."""

from latentgp.extensions.flows.at_mode import LaplaceApproximation, Pathfinder
from latentgp.extensions.flows.base import Approximation, Stepwise
from latentgp.extensions.flows.batch_and_match import BatchAndMatch
from latentgp.extensions.flows.bayesian_learning_rule import BayesianLearningRule
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.front import gaussian_approximation
from latentgp.extensions.flows.full_rank import FullRank
from latentgp.extensions.flows.gaussian_flow import GaussianFlow
from latentgp.extensions.flows.low_rank import EfficientLowRank, FactorCovariance
from latentgp.extensions.flows.mean_field import MeanField
from latentgp.extensions.flows.online_newton import VariationalOnlineNewton
from latentgp.extensions.flows.optimisers import AdaGrad, Adam, Descent, Optimiser, RMSProp
from latentgp.extensions.flows.particle_flow import GaussianParticleFlow
from latentgp.extensions.flows.result import GaussianApproximation
from latentgp.extensions.flows.stein import SteinVariational
from latentgp.extensions.flows.swag import SWAG

__all__ = [
    "SWAG",
    "AdaGrad",
    "Adam",
    "Approximation",
    "BatchAndMatch",
    "BayesianLearningRule",
    "Covariance",
    "Descent",
    "EfficientLowRank",
    "FactorCovariance",
    "FullRank",
    "GaussianApproximation",
    "GaussianFlow",
    "GaussianParticleFlow",
    "LaplaceApproximation",
    "MeanField",
    "Optimiser",
    "Pathfinder",
    "RMSProp",
    "SteinVariational",
    "Stepwise",
    "VariationalOnlineNewton",
    "gaussian_approximation",
]
