"""Capabilities that some representations have: protocols, asked for by `isinstance`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from latentgp.errors import lacks
from latentgp.kernels import LatentKernel
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.samplers import SiteSampler
from latentgp.representations.summary import DataSummary
from latentgp.representations.whitening import Whitening
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.typing import Inputs, PerRow


@runtime_checkable
class SamplesCoefficients(Protocol):
    """There are white coefficients, which chains move."""

    def whitening(self, kernel: LatentKernel, X: Inputs) -> Whitening:
        """The map from white coefficients to g at the rows; differentiable in the kernel."""
        ...

    def sampler(self, kernel: LatentKernel, X: Inputs, power: float = 0.0) -> SiteSampler:
        """Sampler of the coefficients given sites, at this kernel; power as in `SiteForm`."""
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """New inputs are conditioned on the latents at rows, not on coefficients."""

    def finished(self, posterior: Any, rows: Data | None = None) -> Any:
        """A posterior of `condition` with what predictions and updates need, such as draws.

        Rows come with their targets, padded; None where there will be no update.
        """
        ...

    def draws_at_rows(self, draws: Any) -> Any:
        """Components by draws of white coefficients as draws of g at the rows, for predictions."""
        ...


@runtime_checkable
class PicksRows(Protocol):
    """Evenly spaced rows would mislead a search, which looks at rows that this picks."""

    def on_some_rows(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, number: int
    ) -> tuple[Int[np.ndarray, "M"] | None, Any]:
        """Numbers of about so many of the rows, and the representation made ready for these.

        None for all rows, where the terms of so many stand for the evidence of all.
        """
        ...


@runtime_checkable
class Streams(Protocol):
    """Further rows can be added to a summary of those so far."""

    @property
    def streaming_prior(self) -> DataSummary | None:
        """Summary of the data seen so far, that new rows are added to; None without any."""
        ...

    def continues(self, remembered: DataSummary | None) -> bool:
        """Whether a summary is of its kind."""
        ...

    def extended(
        self, number: int | None, selection: Selection, remembered: DataSummary | None
    ) -> Any:
        """The same with a summary of the data so far, or without any.

        With at most so many inducing variables, where there are any; None keeps the own number.
        """
        ...


def coefficients_of(representation: Any) -> SamplesCoefficients:
    """A representation with white coefficients; InputError if it has none."""
    if not isinstance(representation, SamplesCoefficients):
        lacks(
            representation,
            "no white coefficients, which chains move; use Dense() or Inducing(...), or a method "
            "by sites, such as VariationalInference",
        )
    return representation


def streaming_prior_of(representation: Any) -> DataSummary | None:
    """Summary of the data seen so far; None without any."""
    return representation.streaming_prior if isinstance(representation, Streams) else None


def on_some_rows(
    representation: Any, data: Data, kernel: LatentKernel, number: int
) -> tuple[Data, Any]:
    """About so many of the rows with a weight, for a search, and the representation for these.

    Or all of these rows, and the representation that takes the terms of some.
    """
    if data.weights is not None:
        data = data.select(np.flatnonzero(np.asarray(data.weights) > 0))
    chosen, own = evenly(data.size, number), representation
    if isinstance(representation, PicksRows):
        chosen, own = representation.on_some_rows(data.X, data.weights, kernel, number)
    return data if chosen is None else data.select(chosen), own


def finished(representation: Any, posterior: Any, rows: Data | None = None) -> LatentPosterior:
    """A posterior of `condition` with what predictions and updates need; see `HoldsRows`."""
    if isinstance(representation, HoldsRows):
        return representation.finished(posterior, rows)
    return posterior
