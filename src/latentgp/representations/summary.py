# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Summary of the data seen so far, to which further rows are added."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Float

from latentgp.modules import Module
from latentgp.representations.variables import Centres
from latentgp.typing import Array


class DataSummary(Module):
    """The likelihood's part of a posterior, without the prior.

    Attributes:
        centres: what it is about, such as points of shape (O, D).
        constant: in nats, such that the evidence includes the earlier rows.
        signed: whether precisions of rows could be negative.
    """

    centres: eqx.AbstractVar[Centres]
    constant: eqx.AbstractVar[Float[Array, ""]]
    signed: eqx.AbstractVar[bool]

    @property
    @abstractmethod
    def latents(self) -> int:
        """Number of latent functions Q."""
