"""Design of the fixed effects of a kernel, and its other parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.kernels import FixedEffects
from latentgp.kernels.parts import parts_of
from latentgp.kernels.terms import terms_of
from latentgp.posteriors.posterior import Posterior

if TYPE_CHECKING:
    from latentgp.surfaces.coefficients import Coefficients

_SAYS_NOTHING = 1e-3  # share of the prior precision


class FixedDesign(NamedTuple):
    """What the fixed effects of a kernel multiply, their priors, and the rest of the kernel."""

    inputs: tuple[int, ...]  # numbers of their columns
    centre: Float[np.ndarray, "effects"]  # of these
    prior_variance: Float[np.ndarray, "effects"]  # of the effects
    others: tuple[int, ...]  # numbers of the other parts of the sum

    @classmethod
    def of(cls, kernel: Any, inputs: int) -> FixedDesign:
        """That of a kernel of so many inputs.

        Example:
            >>> import latentgp as lgp
            >>> kernel = lgp.RBF().on(0) + FixedEffects(4.0, centre=2.0).on(1)
            >>> found = FixedDesign.of(kernel, 2)
            >>> found.columns(np.array([[0.0, 5.0]])).tolist(), found.others
            ([[3.0]], (0,))
        """
        own, others = [cls((), np.zeros(0), np.zeros(0), ())], list[int]()
        for place, part in enumerate(parts_of(kernel)):
            terms = terms_of(part, tuple(range(inputs)))
            factors: Any = terms[0].parts if len(terms) == 1 else ()
            fixed: Any = factors[0].kernel if len(factors) == 1 else None
            if isinstance(fixed, FixedEffects):
                columns = factors[0].columns
                centre, variance = (
                    np.broadcast_to(np.asarray(a), len(columns))
                    for a in (fixed.centre, terms[0].scale * fixed.variance)
                )
                own.append(cls(columns, centre, variance, ()))
            else:
                others.append(place)
        columns = tuple(column for each in own for column in each.inputs)
        centre, variance = (np.concatenate([each[k] for each in own]) for k in (1, 2))
        return cls(columns, centre, variance, tuple(others))

    def columns(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N effects"]:
        """What rows multiply the effects by."""
        return X[:, list(self.inputs)] - self.centre

    def effects(self, posterior: Posterior, names: Sequence[str] | None) -> Coefficients:
        """The fixed effects, their covariance that without a prior."""
        found = posterior.coefficients(names)
        shown = [str(place) for place in self.inputs]
        if names is not None:
            shown = [names[place] for place in self.inputs]
        own = [found.names.index(name) for name in shown]
        covariance = _without_prior(found.covariance[np.ix_(own, own)], self.prior_variance)
        return found._replace(
            names=tuple(shown), estimate=found.estimate[own], covariance=covariance
        )


def _without_prior(
    covariance: Float[np.ndarray, "effects effects"], prior_variance: Float[np.ndarray, "effects"]
) -> Float[np.ndarray, "effects effects"]:
    """The inverse of C^-1 - P^-1, at most 1,000 prior variances where the rows say nothing."""
    deviation = np.sqrt(prior_variance)
    scale = np.outer(deviation, deviation)
    share, axes = np.linalg.eigh(covariance / scale)
    return (axes * (share / np.maximum(1 - share, _SAYS_NOTHING))) @ axes.T * scale
