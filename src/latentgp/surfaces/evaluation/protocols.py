"""What some posteriors have besides: protocols, asked for by `isinstance`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Shaped

from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.rows.data import Data
from latentgp.typing import RandomKey


@runtime_checkable
class HoldsDraws(Protocol):
    """Draws of hyper-parameters and of the latents at some rows, chain by chain."""

    # draws by path, shape (C, S, ...); empty if they were fixed
    hyperparameters: dict[str, Float[np.ndarray, "C S ..."]]
    f: Float[np.ndarray, "C S W Q"]  # draws of the latent functions at the rows in `watched`
    watched: Int[np.ndarray, "W"]  # places of these rows among those that were given
    rows: Data  # the data of these rows
    summary: Any  # the worst R-hat and effective sample sizes
    model: Any

    def sample_watched(self, *, key: RandomKey) -> Shaped[np.ndarray, "C S W *P"]:
        """A draw of y at every watched row from every draw of f."""
        ...


@runtime_checkable
class HoldsMarginals(Protocol):
    """Marginal posteriors of the hyper-parameters."""

    model: Any

    @property
    def hyperparameter_marginals(self) -> dict[str, HyperparameterMarginal]:
        """By path, a marginal an entry."""
        ...
