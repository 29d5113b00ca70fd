"""Likelihoods that are made of another likelihood."""

from __future__ import annotations

import dataclasses

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood
from latentgp.modules import forwarded


class OfBase(Likelihood):
    """A likelihood made of another one, with its latents, targets and side information.

    What follows from the base is a default, for overriding.

    Raises:
        InputError: a base that is something else.
    """

    base: Likelihood  # a likelihood of one real number or count

    def __check_init__(self) -> None:
        base = self.base
        if isinstance(base, Likelihood) and not base.output_shape and base.targets != "class":
            return
        raise InputError(
            f"{type(self).__name__} needs a likelihood of one real number or count, such as "
            f"Poisson(), got {base!r}."
        )

    latent_size = forwarded("base.latent_size")
    side_information = forwarded("base.side_information")
    targets = forwarded("base.targets")
    atoms = forwarded("base.atoms")
    is_smooth = forwarded("base.is_smooth")
    is_continuous = forwarded("base.is_continuous")
    is_positive = forwarded("base.is_positive")
    has_gradient = forwarded("base.has_gradient")
    check_side_information = forwarded("base.check_side_information")
    check_targets = forwarded("base.check_targets")
    check_rows = forwarded("base.check_rows")
    latent_scale = forwarded("base.latent_scale")
    latent_centre = forwarded("base.latent_centre")
    latent_start = forwarded("base.latent_start")

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        return dataclasses.replace(self, base=self.base.scaled_to(spread, centre))
