"""What a fit through inducing points leaves: scores that resemble those of near rows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.choosing.choice import Choice
from latentgp.extensions.neighbours.offers import are_found_soon, may_be_by_latents
from latentgp.extensions.neighbours.representation import Neighbours
from latentgp.extensions.neighbours.search import coordinates
from latentgp.kernels import has_effects, is_tabulated
from latentgp.methods.result import Fit
from latentgp.representations import Inducing
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.rows.arrays import evenly
from latentgp.site_inference.methods.laplace import Laplace
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import PerRow

_ROWS, _NEIGHBOURS = 2_000, 5
_MOST_ROWS = 100_000  # all of which a prediction looks at
# Moran's I above which rows tell more than points take in, and its standard errors
_ALIKE, _SURELY = 0.1, 4.0


def near_rows_instead(fit: Fit) -> Choice | None:
    """Laplace's approximation through neighbours, where points leave what near rows share.

    None for other fits, and where the scores of rows hardly resemble those of rows near them.
    """
    own: Any = fit.diagnostics.method
    model = fit.model
    plain = type(getattr(own, "representation", None)) is Inducing and fit.diagnostics.converged
    if not plain or fit.rows is None or not isinstance(fit.sites, GaussianSites):
        return None
    if has_effects(model.kernel) or is_tabulated(model.kernel):
        return None
    data = fit.rows.merged
    rows, inputs = data.X.shape
    few = rows <= _MOST_ROWS and are_found_soon(rows, inputs)
    if not (few and may_be_by_latents(model, rows)):
        return None
    linear, precision = fit.sites.linear[:, 0], fit.sites.precision[:, 0]
    # The slope of a row's log density in f, expected given all rows.
    score = linear - precision * np.asarray(fit.posterior.predict_f(data.X).mean)
    X = jnp.asarray(data.X)
    places = np.asarray(coordinates(distinct_kernels(model.kernel)[0], X, X))
    alike, error = moran(np.asarray(places), score)
    if not alike > max(_ALIKE, _SURELY * error):
        return None
    near = Neighbours()
    why = (
        f"what {own.representation.number} inducing points left of {rows} rows was alike in near "
        f"rows (Moran's I {alike:.2f}), so that each is given its {near.number} nearest; the "
        "curvature at the mode takes few variances"
    )
    return Choice(Laplace(near), why)


def moran(places: Float[np.ndarray, "N E"], score: PerRow) -> tuple[float, float]:
    """Moran's I of scores with the mean of the five nearest rows', and its standard error at most.

    Of at most 2,000 rows among all (Moran 1950); zero where no scores are. The error is that of
    rows whose neighbours all have them for neighbours, so that each product counts twice.
    """
    from scipy.spatial import KDTree  # takes long to import

    chosen = evenly(len(score), _ROWS)
    near = np.asarray(KDTree(places).query(places[chosen], _NEIGHBOURS + 1)[1])
    # A row is among its own nearest, but for rows at the same place.
    itself = near == chosen[:, None]
    itself[~itself.any(axis=1), -1] = True
    others = near[~itself].reshape(len(chosen), _NEIGHBOURS)
    square = float(np.mean(score**2))
    if not square > 0:
        return 0.0, 0.0
    products = score[chosen] * np.mean(score[others], axis=1) / square
    return float(np.mean(products)), float(np.std(products)) * (2 / len(chosen)) ** 0.5
