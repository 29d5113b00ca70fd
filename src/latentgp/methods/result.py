"""Results of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.diagnostics import ChainDiagnostics, Diagnostics
from latentgp.models import LatentGP
from latentgp.posteriors.posterior import Posterior


class History(NamedTuple):
    """Every evaluation of the bound while hyper-parameters were learned, in order.

    Attributes:
        bound: in nats, shape (E,).
        value: bound plus log prior, what was maximised, in nats, shape (E,).
        seconds: since the start of the search, shape (E,).
        restart: 0 for the first run, below for those before it, shape (E,).
    """

    bound: Float[np.ndarray, "E"]
    value: Float[np.ndarray, "E"]
    seconds: Float[np.ndarray, "E"]
    restart: Float[np.ndarray, "E"]

    @classmethod
    def of(cls, records: Sequence[Any] = ()) -> "History":
        """History of records that have these fields; empty without any."""
        return cls(*(np.array([getattr(r, name) for r in records]) for name in cls._fields))


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Attributes:
        model: with learned hyper-parameters.
        posterior: of the latent functions.
        history: of the search for hyper-parameters; empty after sampling.
        diagnostics: what happened, with a verdict.
        summary: a table of the learned hyper-parameters, their priors and where these came from.
    """

    model: LatentGP
    posterior: Posterior
    history: History
    diagnostics: Diagnostics | ChainDiagnostics
    summary: str = ""

    def warned_before(self, sentences: Sequence[str]) -> "Fit":
        """The same result with further warnings before its own."""
        if not sentences:
            return self
        told = *sentences, *self.diagnostics.warnings
        diagnostics = dataclasses.replace(self.diagnostics, warnings=told)
        return dataclasses.replace(self, diagnostics=diagnostics)
