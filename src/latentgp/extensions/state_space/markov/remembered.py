"""Rows of a series so far, with their sites, or states: what an update goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError
from latentgp.extensions import answer
from latentgp.extensions.state_space.kernels import Columns, Truncation
from latentgp.extensions.state_space.markov.beliefs import Starts
from latentgp.representations.summary import DataSummary
from latentgp.rows.data import padded_size
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, PerRow, Points, Scalar


class RememberedRows(DataSummary):
    """Rows seen so far, exactly; those before a window by the states that they lead to."""

    centres: Float[Array, "earlier D"]  # their inputs
    linear: Float[Array, "earlier Q"]  # of their sites, as functions of g
    precision: Float[Array, "earlier Q"]  # likewise
    constant: Scalar
    signed: bool = eqx.field(static=True, default=False)
    # of what was approximated
    truncation: Truncation = eqx.field(static=True, default=Truncation())
    # states at the first rows, for each process; empty where all rows are remembered
    starts: tuple[Starts, ...] = ()

    @classmethod
    def of(
        cls,
        X: Inputs,
        sites: Any,
        rows: Int[np.ndarray, "kept"],
        first: Int[np.ndarray, "S"],
        each: Mapping[str, PerRow] = MappingProxyType({}),
        **others: Any,
    ) -> Any:
        """Some rows with their sites, as far as they have any, behind first ones without.

        In one of few numbers of rows: others fill up. Sites are linear terms and precisions; there
        may be other values of each row.
        """
        linear, precision = map(np.asarray, sites)
        says = np.any((linear != 0) | (precision != 0), axis=1)
        kept = np.concatenate([first, rows[says[rows]]])
        told = (np.arange(len(kept)) >= len(first))[:, None]
        if not len(kept):
            kept, told = np.arange(1), False
        more = padded_size(len(kept)) - len(kept)
        full = np.pad(kept, (0, more), mode="edge")
        return cls(
            centres=np.asarray(X)[full],
            linear=np.pad(linear[kept] * told, ((0, more), (0, 0))),
            precision=np.pad(precision[kept] * told, ((0, more), (0, 0))),
            **{name: np.asarray(values)[full] for name, values in each.items()},
            **others,
        )

    @property
    def usual_representation(self) -> Any:
        return answer("representation of a series")()

    @property
    def latents(self) -> int:
        return self.linear.shape[1]

    @property
    def known(self) -> int:
        """Number of series that go on from a state."""
        return known_in(self.starts)

    def check(self, X: Inputs, columns: Columns) -> None:
        """Raise InputError if there are further rows from before the states."""
        early = before_states(np.asarray(self.centres)[: self.known], X, columns)
        if np.any(early):
            since = np.asarray(self.centres)[: self.known, columns.time]
            raise InputError(
                f"There are further rows at time {X[early, columns.time].min():g}, but an update "
                f"with a lag has left only what comes from {since.max():g} on; leave them out, "
                "add them to an earlier posterior, or update with a greater lag."
            )


def with_earlier(remembered: RememberedRows | None, X: Inputs) -> Points:
    """The rows that are remembered before others."""
    return X if remembered is None else jnp.concatenate([remembered.centres, X])


def sites_with_earlier(remembered: RememberedRows | None, sites: GaussianSites) -> GaussianSites:
    """Their sites before those of others."""
    if remembered is None:
        return sites
    return GaussianSites(
        jnp.concatenate([remembered.linear, sites.linear]),
        jnp.concatenate([remembered.precision, sites.precision]),
        jnp.concatenate([jnp.zeros_like(remembered.linear[:, 0]), sites.log_constant]),
    )


def before_states(
    first: Float[np.ndarray, "series D"], X: Inputs, columns: Columns
) -> Bool[np.ndarray, "N"]:
    """Mask of rows before the state that their series continues from, at its first row."""
    early = np.zeros(len(X), bool)
    for row in first:
        before = X[:, columns.time] < row[columns.time]
        if columns.series is not None:
            before &= X[:, columns.series] == row[columns.series]
        early |= before
    return early


def known_in(starts: tuple[Starts, ...]) -> int:
    """Number of series with a state."""
    return starts[0].mean.shape[1] if starts else 0
