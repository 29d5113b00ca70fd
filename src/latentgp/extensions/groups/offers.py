"""Effects of groups, as named methods and "auto" take them."""

from __future__ import annotations

from latentgp.choosing.choice import Offer, usual_representation
from latentgp.extensions.groups.representation import SparseEffects
from latentgp.extensions.inter_domain.per_part import GROUPS, LINEAR
from latentgp.kernels import SameGroup
from latentgp.kernels.terms import terms_of
from latentgp.models import LatentGP
from latentgp.representations import Inducing
from latentgp.representations.latent_axis import distinct_kernels


def of_groups(model: LatentGP, rows: int, n_inducing: int | None) -> SparseEffects:
    """The representation of effects, with so many points of each smooth part."""
    return SparseEffects() if n_inducing is None else SparseEffects(n_inducing)


def effects(model: LatentGP, rows: int, inputs: int | None, n_inducing: int | None) -> Offer | None:
    """The offer where every latent function has groups, for more rows than a matrix serves."""
    if inputs is None or n_inducing is not None:
        return None
    if not isinstance(usual_representation(model, rows), Inducing):
        return None
    columns = tuple(range(inputs))
    whole = True
    for kernel in distinct_kernels(model.kernel):
        parts = [part.kernel for term in terms_of(kernel, columns) for part in term.parts]
        if not any(isinstance(part, SameGroup) for part in parts):
            return None
        whole &= all(isinstance(part, GROUPS | LINEAR) for part in parts)
    why = f"{rows} rows of groups, whose effects are the coefficients"
    exactly = ": the posterior is exact" if whole else ": Gaussian noise needs no iterations"
    return Offer(0 if whole else 2, SparseEffects(), why, exactly)
