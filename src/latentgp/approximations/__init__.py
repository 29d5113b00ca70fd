"""Gaussian approximations of a log density: one file a method, and what they share."""

from latentgp.approximations.at_mode import LaplaceApproximation, Pathfinder
from latentgp.approximations.base import Approximation, Stepwise
from latentgp.approximations.batch_and_match import BatchAndMatch
from latentgp.approximations.bayesian_learning_rule import BayesianLearningRule
from latentgp.approximations.covariance import Covariance
from latentgp.approximations.front import gaussian_approximation
from latentgp.approximations.full_rank import FullRank
from latentgp.approximations.gaussian_flow import GaussianFlow
from latentgp.approximations.low_rank import EfficientLowRank, FactorCovariance
from latentgp.approximations.mean_field import MeanField
from latentgp.approximations.online_newton import VariationalOnlineNewton
from latentgp.approximations.optimisers import AdaGrad, Adam, Descent, Optimiser, RMSProp
from latentgp.approximations.particle_flow import GaussianParticleFlow
from latentgp.approximations.result import GaussianApproximation
from latentgp.approximations.stein import SteinVariational
from latentgp.approximations.swag import SWAG

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
