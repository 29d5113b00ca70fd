"""Likelihoods that are made of another likelihood."""

from __future__ import annotations

import dataclasses

from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, SideInformation, Targets
from latentgp.typing import Array


class OfBase(Likelihood):
    """A likelihood made of another one, with its latents, targets and side information.

    What follows from the base is a default, for overriding.

    Args:
        base: a likelihood of one real number or count.

    Raises:
        InputError: a base that is something else.
    """

    base: Likelihood

    def __check_init__(self) -> None:
        base = self.base
        if isinstance(base, Likelihood) and not base.output_shape and base.targets != "class":
            return
        raise InputError(
            f"{type(self).__name__} needs a likelihood of one real number or count, such as "
            f"Poisson(), got {base!r}."
        )

    @property
    def latent_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.latent_size

    @property
    def side_information(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.side_information

    @property
    def targets(self) -> Targets:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.targets

    @property
    def atoms(self) -> tuple[float, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.atoms

    @property
    def is_smooth(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.is_smooth

    @property
    def is_continuous(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.is_continuous

    @property
    def is_positive(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.is_positive

    @property
    def has_gradient(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.has_gradient

    def check_side_information(self, side: SideInformation) -> None:
        self.base.check_side_information(side)

    def check_targets(self, y: Float[Array, "N"]) -> None:
        self.base.check_targets(y)

    def check_rows(self, y: Float[Array, "N"], side: SideInformation) -> None:
        self.base.check_rows(y, side)

    def latent_scale(self, spread: float) -> float | tuple[float, ...]:
        return self.base.latent_scale(spread)

    def latent_centre(
        self, y: Float[Array, "N"], weights: Float[Array, "N"] | None, side: SideInformation
    ) -> float | tuple[float, ...] | None:
        return self.base.latent_centre(y, weights, side)

    def latent_start(self, y: Float[Array, "N"], side: SideInformation) -> Float[Array, "N"] | None:
        return self.base.latent_start(y, side)

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        return dataclasses.replace(self, base=self.base.scaled_to(spread, centre))
