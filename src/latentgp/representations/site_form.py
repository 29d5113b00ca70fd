"""Form of the sites that a representation is to take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SiteForm:
    """Form of the sites of a rule, for a likelihood.

    Attributes:
        moved: updates move the sites, which takes one Gaussian posterior.
        signed: precisions can be negative.
        power: of the prior that coefficients leave open, in [0, 1], where there is any: 0 is the
            variational treatment, 1 that of an independent latent a row (FITC), between them power
            expectation propagation (Bui, Yan & Turner 2017).
        shared: precisions are the same for all latents of a row. Under one kernel so is then their
            covariance, which can be factorised once for all.
        coupled: sites couple the latents of a row.
        latents: number of latent functions.
        means_alone: updates read means alone, and variances may be anything.
    """

    moved: bool = False
    signed: bool = False
    power: float = 0.0
    shared: bool = False
    coupled: bool = False
    latents: int = 1
    means_alone: bool = False
