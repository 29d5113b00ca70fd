"""Choosing inducing points among the rows."""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from latentgp.arrays import Array
from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.latents.base import latent_diagonals, latent_grams, over_latents

Selection = Literal["k-means++", "greedy-variance"]

_MAXIMAL_CANDIDATES = 10_000
_KMEANS_ITERATIONS = 10
_MOST_CODES = 30


def select_points(
    X: Float[np.ndarray, "N D"],
    weights: Float[np.ndarray, "N"] | None,
    kernel: LatentKernel,
    number: int,
    selection: Selection,
    key: Key[Array, ""],
) -> Float[np.ndarray, "M D"]:
    """At most `number` inducing points, shape (M, D); all distinct rows if there are no more.

    Rows are put in an order of their own first, so the choice does not depend on theirs, and
    thinned evenly to 10,000 candidates (or twice `number`).
    """
    if weights is not None:
        X, weights = X[weights > 0], weights[weights > 0]
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = (X - centre) / spread
    order = np.argsort(np.sum(scaled**2, axis=1), kind="stable")
    stride = -(-len(order) // max(_MAXIMAL_CANDIDATES, 2 * number))
    order = order[::stride]
    X, scaled = X[order], scaled[order]
    weights = None if weights is None else weights[order]
    distinct = np.unique(X, axis=0)
    if len(distinct) <= number:
        return distinct
    if selection == "greedy-variance":
        chosen = _greedy_variance(kernel, jnp.asarray(X), number)
        return X[np.asarray(chosen)]
    if selection == "k-means++":
        from sklearn.cluster import KMeans

        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        settings: Any = {"n_init": 1, "max_iter": _KMEANS_ITERATIONS, "random_state": seed}
        clusters: Any = KMeans(number, **settings)
        clusters.fit(scaled, sample_weight=weights)
        return _with_known_codes(clusters.cluster_centers_, scaled) * spread + centre
    raise InputError(f'selection must be "k-means++" or "greedy-variance", got {selection!r}.')


def _with_known_codes(
    centres: Float[np.ndarray, "M D"], rows: Float[np.ndarray, "N D"]
) -> Float[np.ndarray, "M D"]:
    """Centres whose columns of few distinct values hold values that occur.

    A kernel that compares codes sees nothing in the mean of two of them.
    """
    centres = centres.copy()
    for column in range(rows.shape[1]):
        codes = np.unique(rows[:, column])
        if len(codes) <= _MOST_CODES:
            nearest = np.abs(centres[:, column, None] - codes).argmin(axis=1)
            centres[:, column] = codes[nearest]
    return centres


@partial(jax.jit, static_argnames="number")
def _greedy_variance(kernel: LatentKernel, X: Float[Array, "N D"], number: int) -> Int[Array, "M"]:
    """Pivots of a partial Cholesky factorisation of the Gram matrix (Fine & Scheinberg 2001).

    Where latent functions have kernels of their own, the pivot has the largest sum of what
    remains of their variances, each as a share of its largest prior variance.
    """
    prior = latent_diagonals(kernel, X)
    largest = jnp.max(prior, axis=1)
    rounding = jnp.finfo(X.dtype).eps * largest

    def choose(index, state):
        remaining, factor, chosen = state
        share = remaining / jnp.where(largest > 0, largest, 1.0)[:, None]
        pivot = jnp.argmax(jnp.sum(share, axis=0)).astype(chosen.dtype)

        def reduce(gram, remaining, factor, rounding):
            column = gram[:, 0] - factor @ factor[pivot]
            column = jnp.where(
                remaining[pivot] > rounding,
                column / jnp.sqrt(jnp.maximum(remaining[pivot], rounding)),
                0.0,
            )
            # What is chosen stays chosen, also when rounding is all that remains.
            remaining = jnp.where(remaining < 0, -1.0, jnp.maximum(remaining - column**2, 0.0))
            return remaining.at[pivot].set(-1.0), factor.at[:, index].set(column)

        blocks = latent_grams(kernel, X, X[pivot][None])
        remaining, factor = over_latents(reduce, blocks, remaining, factor, rounding)
        return remaining, factor, chosen.at[index].set(pivot)

    state = (prior, jnp.zeros((*prior.shape, number), X.dtype), jnp.zeros(number, jnp.int32))
    return jax.lax.fori_loop(0, number, choose, state)[2]
