"""Representations by neighbours, as named methods and "auto" take them."""

from __future__ import annotations

from latentgp.choosing.choice import Offer, inducing_points, usual_representation
from latentgp.choosing.registry import without_points
from latentgp.extensions.neighbours.search import PLACE_COLUMNS
from latentgp.kernels import has_effects, is_tabulated
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.likelihoods.row_modes import is_concave
from latentgp.models import LatentGP
from latentgp.representations import Inducing, Representation

_MOST_ROWS = 100_000  # all of which a prediction looks at
_MOST_PLACES = 300_000
_FEWEST_OF_LATENTS = 2_000  # of fewer, points leave little
# Of all distances, for two cores; where inputs are fewer a tree leaves most of them out.
_MANY_INPUTS, _MOST_SECONDS = 40, 60.0
_SECONDS_A_PAIR, _SECONDS_AN_INPUT = 7e-9, 6e-11


def of_targets(model: LatentGP, rows: int, n_inducing: int | None) -> Representation:
    """As many neighbours as is usual."""
    from latentgp.extensions.neighbours.representation import Neighbours

    return Neighbours(inducing=_beside_neighbours(model, rows, n_inducing))


def of_latents(model: LatentGP, rows: int, n_inducing: int | None) -> Representation:
    """As many neighbours of latents as is usual."""
    from latentgp.extensions.neighbours.latent import LatentNeighbours

    return LatentNeighbours(inducing=_beside_neighbours(model, rows, n_inducing))


def _beside_neighbours(model: LatentGP, rows: int, n_inducing: int | None) -> Inducing | None:
    """What has the effects of a model, which neighbours say little of; None without any.

    Of a smooth part it has few points: neighbours see what these leave.
    """
    if has_effects(model.kernel):
        return inducing_points(model, rows, 50 if n_inducing is None else n_inducing)
    without_points(model, rows, n_inducing)
    return None


def nearest_rows(
    model: LatentGP, rows: int, inputs: int | None, n_inducing: int | None
) -> Offer | None:
    """The offer where the nearest rows are all that a row needs, of one output.

    With Gaussian noise these are their targets, else their latents, of many places.
    """
    places = inputs is not None and inputs <= PLACE_COLUMNS
    many = isinstance(usual_representation(model, rows), Inducing)
    many &= rows <= (_MOST_PLACES if places else _MOST_ROWS)
    gaussian = isinstance(model.likelihood, Gaussian)
    if not gaussian:
        many &= places and inputs != 1 and may_be_by_latents(model, rows)
    known = is_tabulated(model.kernel) or has_effects(model.kernel)
    if n_inducing is not None or not many or known:
        return None
    if inputs is not None and not are_found_soon(rows, inputs):
        return None
    from latentgp.extensions.neighbours.representation import Neighbours  # where rows are many

    near = Neighbours()
    why = f"{rows} rows, each given its {near.number} nearest, which say more than points"
    return Offer(2, near, why, at_mode=not gaussian)


def are_found_soon(rows: int, inputs: int) -> bool:
    """Whether the nearest rows are found in a time that is small beside that of a fit."""
    seconds = rows**2 * (_SECONDS_A_PAIR + _SECONDS_AN_INPUT * inputs)
    return inputs <= _MANY_INPUTS or seconds <= _MOST_SECONDS


def may_be_by_latents(model: LatentGP, rows: int) -> bool:
    """Whether rows are many, and one latent has a mode that Newton's method finds from anywhere."""
    likelihood: Likelihood = model.likelihood
    smooth = likelihood.is_smooth and likelihood.has_gradient and likelihood.is_positive
    one = smooth and likelihood.latent_size == 1 and is_concave(likelihood)
    return one and rows > _FEWEST_OF_LATENTS


def candidates() -> dict[str, tuple[Representation, int | None, bool]]:
    """What a pilot tries: by name, for so many rows at most, for any likelihood."""
    from latentgp.extensions.neighbours.representation import Neighbours

    near, both = Neighbours(20), Neighbours(20, inducing=200)
    return {"neighbours-20": (near, None, True), "both": (both, None, False)}
