# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Estimates of fixed effects, and tests of weighted sums of them."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.extensions.groups.inference.contrasts import Contrasts, TermTest, TermTests

_RANK = 1e-9  # relative, of singular values


class EffectsLaw(eqx.Module):
    """Estimates of fixed effects, and what their tests need. `notes` may be overridden."""

    names: eqx.AbstractVar[tuple[str, ...]]
    estimate: eqx.AbstractVar[Float[np.ndarray, "effects"]]
    covariance: eqx.AbstractVar[Float[np.ndarray, "effects effects"]]  # as tests of one sum take it

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what tests leave out."""
        return ()

    def __str__(self) -> str:
        return "\n".join((str(self.coefficients()), *self.notes))

    @abstractmethod
    def degrees(self, weights: Float[np.ndarray, "sums effects"]) -> Float[np.ndarray, "sums"]:
        """Degrees of freedom of a t test of each weighted sum."""

    @abstractmethod
    def f_test(self, weights: Float[np.ndarray, "rank effects"]) -> TermTest:
        """F test of rows of weights of full rank."""

    def contrasts(self, weights: Any, names: Sequence[str] | None = None) -> Contrasts:
        """T tests of weighted sums of the fixed effects.

        Args:
            weights: shape (sums, effects).
            names: of the sums; the numbers of the rows unless given.

        Raises:
            InputError: weights that are not one for each fixed effect.
        """
        weights = self._checked(weights)
        names = [str(row) for row in range(len(weights))] if names is None else names
        variance = np.einsum("ci,ij,cj->c", weights, self.covariance, weights)
        error = np.sqrt(variance)
        return Contrasts.of(names, weights @ self.estimate, error, self.degrees(weights))

    def term_test(self, weights: Any) -> TermTest:
        """F test that all of some weighted sums are zero; weights as in `contrasts`."""
        weights = self._checked(weights)
        _, size, rows = np.linalg.svd(weights, full_matrices=False)
        return self.f_test(rows[size > _RANK * size[0]])

    def coefficients(self) -> Contrasts:
        """T tests of the fixed effects themselves."""
        return self.contrasts(np.eye(len(self.names)), self.names)

    def term_tests(self, weights: Mapping[str, Any]) -> TermTests:
        """F tests of several terms."""
        return TermTests({name: self.term_test(own) for name, own in weights.items()})

    def _checked(self, weights: Any) -> Float[np.ndarray, "sums effects"]:
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        if weights.shape[1:] != self.estimate.shape:
            raise InputError(
                f"Weights need a column for each of the {len(self.names)} fixed effects, got shape "
                f"{weights.shape}."
            )
        return weights
