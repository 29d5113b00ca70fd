"""Ancillary couplings: standard normal coordinates are held."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float, Key

from latentgp.inference.mcmc.couplings.base import Coupling, Place, log_joint
from latentgp.inference.mcmc.information import information_of_map
from latentgp.inference.mcmc.target import WhiteTarget
from latentgp.typing import Array


class Sites(Coupling):
    """Coordinates of sites are held: theta moves with the approximate evidence that these give.

    The pseudo-marginal scheme of one importance sample, whose noise never changes by itself.
    """

    whitened: ClassVar[bool] = False

    def held(self, target: WhiteTarget, at: Place, key: Key[Array, ""]) -> Place:
        return at

    def here(
        self,
        target: WhiteTarget,
        at: Place,
        held: Place,
        anchor: Float[Array, "N Q"],
        differentiable: bool,
    ) -> tuple[Float[Array, ""], Place]:
        return log_joint(target, at), at

    def density(
        self,
        target: WhiteTarget,
        vector: Float[Array, "P"],
        held: Place,
        anchor: Float[Array, "N Q"],
        differentiable: bool,
    ) -> tuple[Float[Array, ""], Place]:
        there = Place(
            vector,
            held.eps,
            self.coordinates(target, vector, anchor, differentiable),
            held.others,
        )
        return log_joint(target, there), there


class Whitened(Sites):
    """Prior white coordinates are held (ancillary augmentation; Filippone et al. 2013, 2.1)."""

    whitened: ClassVar[bool] = True

    def information(self, target: WhiteTarget, at: Place, held: Any) -> Float[Array, "P P"]:
        return information_of_map(target, at.vector, at.eps)
