"""Effects of groups, as named methods and "auto" take them."""

from __future__ import annotations

import numpy as np

from latentgp.choosing.choice import Offer, usual_number_of_points, usual_representation
from latentgp.extensions.groups.representation import SparseEffects
from latentgp.extensions.inter_domain.per_part import OF_FINITE_RANK
from latentgp.kernels import MultipleMembership, SameGroup
from latentgp.kernels.terms import terms_of
from latentgp.models import LatentGP
from latentgp.representations import Inducing
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.representations.needs import sites_are_known

# Points of each smooth part, and products of numbers in a pass over rows that may take more.
_POINTS, _PRODUCTS = 100, 2e8


def effects(model: LatentGP, rows: int, inputs: int | None, n_inducing: int | None) -> Offer | None:
    """The offer where every latent function has groups, for more rows than a matrix serves.

    Sites of its precisions are not negative, as those of likelihoods that are not concave can be.
    """
    likelihood = model.likelihood
    if inputs is None or n_inducing is not None:
        return None
    if not (sites_are_known(likelihood) or likelihood.is_log_concave):
        return None
    if not isinstance(usual_representation(model, rows), Inducing):
        return None
    columns = tuple(range(inputs))
    whole = True
    for kernel in distinct_kernels(model.kernel):
        parts = [part.kernel for term in terms_of(kernel, columns) for part in term.parts]
        if not any(isinstance(part, SameGroup | MultipleMembership) for part in parts):
            return None
        whole &= all(isinstance(part, OF_FINITE_RANK) for part in parts)
    why = f"{rows} rows of groups, whose effects are the coefficients"
    exactly = ": the posterior is exact" if whole else ": Gaussian noise needs no iterations"
    number = max(_POINTS, int(np.sqrt(_PRODUCTS / rows)))
    points = min(usual_number_of_points(model), number)
    return Offer(0 if whole else 2, SparseEffects(points), why, exactly)
