# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Summaries that stand for rows: of data seen so far, and sums over all rows."""

from abc import abstractmethod
from typing import Any

import equinox as eqx

from latentgp.errors import InputError
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.representations.base import LatentPosterior
from latentgp.representations.variables import Centres
from latentgp.rows.data import Data
from latentgp.typing import Scalar


class DataSummary(Module):
    """The likelihood's part of a posterior, without the prior."""

    centres: eqx.AbstractVar[Centres]  # what it is about, such as points of shape (earlier, D)
    constant: eqx.AbstractVar[Scalar]  # in nats, such that the evidence includes the earlier rows
    signed: eqx.AbstractVar[bool]  # whether precisions of rows could be negative

    @property
    def usual_representation(self) -> Any:
        """The representation that goes on from it; None where it is of inducing points."""
        return None

    @property
    @abstractmethod
    def latents(self) -> int:
        """Number of latent functions Q."""

    @property
    def together(self) -> int:
        """Number of latent functions that its rows tie; one unless overridden."""
        return 1

    def check_columns(self, columns: int) -> None:
        """Raise InputError unless further rows have the columns of those so far."""
        if self.centres.shape[1] != columns:
            raise InputError(
                f"The stored summary has {self.centres.shape[1]} input columns, but the rows have "
                f"{columns}; give rows with the same columns."
            )


class RowsAsSums(Module):
    """Sums over rows that `fit` takes in place of them."""

    sample: eqx.AbstractVar[Data]  # some of the rows, with the weight of all

    @property
    @abstractmethod
    def representation(self) -> Any:
        """The representation that they are of, which holds them as its `sums`."""

    @abstractmethod
    def check(self, model: LatentGP) -> None:
        """Raise InputError unless the sums stand for rows of the model."""

    @abstractmethod
    def evidence(self, model: LatentGP) -> Scalar:
        """The collapsed bound of the rows, in nats; differentiable in the model."""

    @abstractmethod
    def posterior(self, model: LatentGP) -> tuple[LatentPosterior, Scalar]:
        """The posterior given the rows, and the bound."""


def row_sums(representation: Any) -> RowsAsSums | None:
    """Sums that stand for the rows where sites are the likelihood itself; None without any."""
    return getattr(representation, "sums", None)
