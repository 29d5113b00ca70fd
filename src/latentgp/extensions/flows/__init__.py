"""Gaussian approximations of log densities, by flows and other ascents."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.flows.base import Approximation as Approximation
    from latentgp.extensions.flows.base import GaussianApproximation as GaussianApproximation
    from latentgp.extensions.flows.base import Stepwise as Stepwise
    from latentgp.extensions.flows.baselines import SWAG as SWAG
    from latentgp.extensions.flows.baselines import LaplaceApproximation as LaplaceApproximation
    from latentgp.extensions.flows.baselines import Pathfinder as Pathfinder
    from latentgp.extensions.flows.baselines import SteinVariational as SteinVariational
    from latentgp.extensions.flows.covariance import Covariance as Covariance
    from latentgp.extensions.flows.front import gaussian_approximation as gaussian_approximation
    from latentgp.extensions.flows.gaussian_flow import GaussianFlow as GaussianFlow
    from latentgp.extensions.flows.method import DensityApproximation as DensityApproximation
    from latentgp.extensions.flows.natural import BatchAndMatch as BatchAndMatch
    from latentgp.extensions.flows.natural import BayesianLearningRule as BayesianLearningRule
    from latentgp.extensions.flows.natural import VariationalOnlineNewton as VariationalOnlineNewton
    from latentgp.extensions.flows.optimisers import Adam as Adam
    from latentgp.extensions.flows.optimisers import Descent as Descent
    from latentgp.extensions.flows.optimisers import Optimiser as Optimiser
    from latentgp.extensions.flows.optimisers import RMSProp as RMSProp
    from latentgp.extensions.flows.particle_flow import GaussianParticleFlow as GaussianParticleFlow
    from latentgp.extensions.flows.reparameterised import EfficientLowRank as EfficientLowRank
    from latentgp.extensions.flows.reparameterised import FactorCovariance as FactorCovariance
    from latentgp.extensions.flows.reparameterised import FullRank as FullRank
    from latentgp.extensions.flows.reparameterised import MeanField as MeanField

_METHODS = {
    "particle-flow": Entry(
        f"{__name__}.method:DensityApproximation",
        "a Gaussian approximation of the log density of coordinates, by particles that flow",
        "all that are differentiable",
        "latentgp.choosing.registry:for_samplers",
    )
}
_APART = {
    "base": "Approximation GaussianApproximation Stepwise",
    "baselines": "LaplaceApproximation Pathfinder SteinVariational SWAG",
    "covariance": "Covariance",
    "front": "gaussian_approximation",
    "gaussian_flow": "GaussianFlow",
    "natural": "BatchAndMatch BayesianLearningRule VariationalOnlineNewton",
    "optimisers": "Adam Descent Optimiser RMSProp",
    "particle_flow": "GaussianParticleFlow",
    "reparameterised": "EfficientLowRank FactorCovariance FullRank MeanField",
}
EXTENSION = Extension(
    __name__,
    names={**_APART, "method": "DensityApproximation"},
    methods=_METHODS,
    offers={"approximation": f"{__name__}.method:DensityApproximation"},
    requires=("chains",),
    apart=" ".join(_APART.values()),
)
__getattr__ = EXTENSION.attribute
