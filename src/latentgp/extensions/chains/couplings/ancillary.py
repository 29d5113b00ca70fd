"""Ancillary couplings: standard normal coordinates are held."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax

from latentgp.extensions.chains.coordinates import (
    Kind,
)
from latentgp.extensions.chains.couplings.base import Coupling, Place, chosen, log_joint, no_others
from latentgp.extensions.chains.information import (
    information_of_map,
)
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.typing import HyperMatrix, HyperVector, RandomKey, Scalar


class Sites(Coupling):
    """Coordinates of sites are held: theta moves with the approximate evidence that these give.

    The likelihood is averaged over `samples` coordinates: those of f, and standard normal ones that
    are drawn anew before a move, their law given f. Theta moves with all of them held, and one is
    taken by its weight (Andrieu, Doucet & Holenstein 2010, 4.2): what one of them says about theta
    by chance holds a chain less, and no estimate that came out too high is carried.
    """

    kind: ClassVar[Kind] = "sites"

    samples: int = eqx.field(static=True, default=1)  # S, that the likelihood is averaged over

    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> Place:
        shape = self.samples - 1, *at.eps.shape
        return at._replace(others=jax.random.normal(key, shape, at.eps.dtype))

    def here(
        self, target: WhiteTarget, at: Place, held: Place, differentiable: bool
    ) -> tuple[Scalar, Place]:
        return log_joint(target, held), held

    def selected(self, target: WhiteTarget, at: Place, key: RandomKey) -> Place:
        if self.samples == 1:
            return at
        return chosen(target, at, key)._replace(others=no_others(at.eps))

    def density(
        self, target: WhiteTarget, vector: HyperVector, held: Place, differentiable: bool
    ) -> tuple[Scalar, Place]:
        coordinates = self.coordinates(target, vector, differentiable)
        there = Place(vector, held.eps, coordinates, held.others)
        return log_joint(target, there), there


class Partial(Sites):
    """Coordinates of sites that were made once are held: partial centring, learned beforehand.

    The sites are those expected under the posterior of f by the hyper-parameters where chains
    start: Gaussian stand-ins of the targets, between whose posterior and prior every row is centred
    as far as it is informed (Papaspiliopoulos, Roberts & Sköld 2003, section 3). No mode is sought:
    a proposal takes two Cholesky factors, of the prior covariance and of the posterior precision,
    where `Sites` takes six or seven. Far from the start the coordinates fit less well, and chains
    are as exact. Through `Neighbours` they are those of one update from the mode there.
    """

    kind: ClassVar[Kind] = "partial"


class Whitened(Sites):
    """Prior white coordinates are held (ancillary augmentation; Filippone et al. 2013, 2.1)."""

    kind: ClassVar[Kind] = "whitened"

    def information(self, target: WhiteTarget, at: Place, held: Any) -> HyperMatrix:
        return information_of_map(target, at.vector, at.eps)
