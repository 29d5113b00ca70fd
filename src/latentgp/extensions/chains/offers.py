"""The sampler that "auto" takes."""

from __future__ import annotations

from typing import Any

from latentgp.choosing.choice import Choice
from latentgp.extensions.chains.methods.gibbs import GibbsSampling
from latentgp.extensions.chains.methods.hmc import NUTS
from latentgp.extensions.chains.methods.mcmc import MCMC
from latentgp.models import LatentGP
from latentgp.representations.needs import Needs
from latentgp.sites.augmentations import augmentation_of


def sampler(choice: Choice, model: LatentGP) -> Choice:
    """The sampler with the representation of a method by sites."""
    own: Any = choice.method
    instead = "MCMC or GibbsSampling"
    Needs(log_evidence=True).check('hyperparameters="sample"', method=own, instead=instead)
    likelihood, representation = model.likelihood, own.representation
    if not likelihood.is_positive:
        method, why = GibbsSampling(representation), "Gibbs sampling, as the likelihood can be zero"
    elif not representation.traits.coordinates_of_sites and augmentation_of(likelihood) is not None:
        method, why = GibbsSampling(representation), "Gibbs sampling, given sites f integrated out"
    elif not representation.traits.coordinates_of_sites and likelihood.has_gradient:
        method = NUTS(representation=representation)
        why = "NUTS, as Markov has no coordinates of sites"
    elif likelihood.is_continuous and likelihood.has_gradient:
        method, why = MCMC(representation), "MCMC in coordinates of sites"
    else:
        method = MCMC(representation, latents="elliptical-slice", coupling="whitened")
        why = "MCMC by elliptical slices, as the likelihood has no gradient to follow"
    return Choice(method, f"{choice.reason}; hyper-parameters sampled by {why}")
