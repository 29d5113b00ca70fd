"""Markov chains of latent functions and hyper-parameters."""

from typing import TYPE_CHECKING

from latentgp.extension import Entry, Extension

if TYPE_CHECKING:
    from latentgp.extensions.chains.measures import Ranking as Ranking
    from latentgp.extensions.chains.measures import r_hat_at as r_hat_at
    from latentgp.extensions.chains.measures import rank_samplers as rank_samplers
    from latentgp.extensions.chains.methods.elliptical_slice import (
        EllipticalSlice as EllipticalSlice,
    )
    from latentgp.extensions.chains.methods.gibbs import GibbsSampling as GibbsSampling
    from latentgp.extensions.chains.methods.hmc import HMC as HMC
    from latentgp.extensions.chains.methods.hmc import NUTS as NUTS
    from latentgp.extensions.chains.methods.mcmc import MCMC as MCMC
    from latentgp.extensions.chains.methods.sampling import SamplingMethod as SamplingMethod
    from latentgp.extensions.chains.posterior import SampledPosterior as SampledPosterior
    from latentgp.extensions.chains.testing import check_sampler as check_sampler

_FOR_SAMPLERS = "latentgp.choosing.registry:for_samplers"
_METHODS = {
    "gibbs": Entry(
        f"{__name__}.methods.gibbs:GibbsSampling",
        "sites drawn from an augmentation",
        "as AugmentedVI",
        _FOR_SAMPLERS,
    ),
    "elliptical-slice": Entry(
        f"{__name__}.methods.elliptical_slice:EllipticalSlice",
        "log density of white coefficients, hyper-parameters held",
        "all that are positive",
        _FOR_SAMPLERS,
    ),
    "mcmc": Entry(
        f"{__name__}.methods.mcmc:MCMC",
        "log density of coordinates by sites, and of hyper-parameters, in blocks",
        "all that are positive; continuous ones by gradients",
        _FOR_SAMPLERS,
    ),
    "hmc": Entry(
        f"{__name__}.methods.hmc:HMC",
        "gradient of that log density",
        "all that are differentiable",
        _FOR_SAMPLERS,
    ),
    "nuts": Entry(
        f"{__name__}.methods.hmc:NUTS",
        "gradient of that log density",
        "all that are differentiable",
        _FOR_SAMPLERS,
    ),
}
EXTENSION = Extension(
    __name__,
    names={
        "methods.elliptical_slice": "EllipticalSlice",
        "methods.gibbs": "GibbsSampling",
        "methods.hmc": "HMC NUTS",
        "methods.mcmc": "MCMC",
        "methods.sampling": "SamplingMethod",
        "posterior": "SampledPosterior",
        "measures": "Ranking r_hat_at rank_samplers",
        "testing": "check_sampler",
    },
    methods=_METHODS,
    offers={"sample": f"{__name__}.offers:sampler"},
    apart="Ranking r_hat_at rank_samplers check_sampler SamplingMethod SampledPosterior",
)
__getattr__ = EXTENSION.attribute
