"""Choosing inducing points among the rows."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.numerics.cholesky import cholesky
from latentgp.representations.latent_axis import latent_diagonals, latent_grams, vmap_latents
from latentgp.typing import Array, Inputs, PerRow, RandomKey, Scalar

Selection = Literal["k-means++", "greedy-variance", "k-dpp", "grid", "oips"]

_MAXIMAL_CANDIDATES = 10_000
_KMEANS_ITERATIONS = 10
_MOST_CODES = 30
_TIE = 1e-6  # standard deviations, that decide between values as near as each other
_SWAPS_A_POINT = 20


def select_points(
    X: Inputs,
    weights: PerRow | None,
    kernel: LatentKernel,
    number: int,
    selection: Selection,
    key: RandomKey,
    earlier: Float[np.ndarray, "earlier D"] | None = None,
    resemblance: float = 0.95,
) -> Float[np.ndarray, "M D"]:
    """At most `number` inducing points, shape (M, D); all distinct rows if there are no more.

    Rows are put in an order of their own first, so the choice does not depend on theirs, and
    thinned evenly to 10,000 candidates (or twice `number`). Points of earlier rows that are
    remembered are all candidates too; "oips" keeps them as they are while there is room.
    """
    if weights is not None:
        X, weights = X[weights > 0], weights[weights > 0]
    if selection == "grid":
        return _grid(X if earlier is None else np.concatenate([earlier, X]), number)
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    order = np.argsort(np.sum(((X - centre) / spread) ** 2, axis=1), kind="stable")
    stride = -(-len(order) // max(_MAXIMAL_CANDIDATES, 2 * number))
    order = order[::stride]
    X, weights = X[order], None if weights is None else weights[order]
    if earlier is not None:
        X = np.concatenate([earlier, X])
        weights = None if weights is None else np.append(np.ones(len(earlier)), weights)
    distinct = _distinct(X)
    if selection == "oips":
        return _novel(kernel, X, number, earlier, resemblance)
    if len(distinct) <= number:
        return distinct
    if selection in ("greedy-variance", "k-dpp"):
        rows = jnp.asarray(distinct)
        chosen = _greedy_variance(kernel, rows, number)
        if selection == "k-dpp":
            chosen = _swapped(kernel, rows, chosen, key)
        return distinct[np.asarray(chosen)]
    from sklearn.cluster import KMeans

    bits = np.ravel(jax.random.key_data(key)).tolist()
    seed = int(np.random.SeedSequence(bits).generate_state(1)[0])
    settings: Any = {"n_init": 1, "max_iter": _KMEANS_ITERATIONS, "random_state": seed}
    clusters: Any = KMeans(number, **settings)
    clusters.fit((X - centre) / spread, sample_weight=weights)
    return _with_known_codes(clusters.cluster_centers_, X, centre, spread)


def _distinct(X: Inputs) -> Float[np.ndarray, "M D"]:
    """Every row once, where it is met first."""
    return X[np.sort(np.unique(X, axis=0, return_index=True)[1])]


def _grid(X: Inputs, number: int) -> Float[np.ndarray, "M D"]:
    """A regular grid over the box of the rows, equally many points along every input."""
    inputs = X.shape[1]
    along = round(number ** (1 / inputs))
    along -= along**inputs > number
    if along < 2:
        raise InputError(
            f'selection="grid" needs at least {2**inputs} points for {inputs} inputs, got '
            f'{number}; take more, or "k-means++".'
        )
    axes = [np.linspace(*ends, along) for ends in zip(X.min(axis=0), X.max(axis=0), strict=True)]
    return np.unique(np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, inputs), axis=0)


def _novel(
    kernel: LatentKernel,
    X: Inputs,
    number: int,
    earlier: Float[np.ndarray, "earlier D"] | None,
    resemblance: float,
) -> Float[np.ndarray, "M D"]:
    """Online inducing point selection (Galy-Fajou & Opper 2021, Alg. 1).

    A row is added if some latent function correlates less than `resemblance` with itself at every
    point so far.
    Where `number` points are not enough, those of the largest remaining variance are taken of all
    rows, and of the earlier points: the first ones would leave the rest of the inputs without any.
    """
    kept = 0 if earlier is None else len(earlier)
    rows = jnp.asarray(X)
    most = max(number, kept)
    chosen, count, refused = _sift(kernel, rows, jnp.asarray(resemblance), most, kept)
    points = _distinct(X) if refused else X[np.asarray(chosen[: int(count)])]
    if len(points) <= number:
        return points
    return points[np.asarray(_greedy_variance(kernel, jnp.asarray(points), number))]


@partial(jax.jit, static_argnames=("most", "kept"))
def _sift(
    kernel: LatentKernel, rows: Inputs, resemblance: Scalar, most: int, kept: int
) -> tuple[Int[Array, "M"], Int[Array, ""], Bool[Array, ""]]:
    """Indices of the first rows, which are kept, and of those that no point so far resembles.

    Further, how many these are, and whether there was no room for another.
    """
    roots = jnp.sqrt(latent_diagonals(kernel, rows))

    def visit(index, state):
        chosen, count, refused = state
        gram = latent_grams(kernel, rows[index][None], rows[chosen])[:, 0]
        scale = roots[:, index, None] * roots[:, chosen]
        # Without prior variance there is nothing new.
        correlation = jnp.where(scale > 0, gram / jnp.where(scale > 0, scale, 1.0), 1.0)
        known = jnp.where(jnp.arange(most) < count, correlation, -jnp.inf)
        novel = jnp.min(jnp.max(known, axis=1)) < resemblance
        added = novel & (count < most)
        place = jnp.where(added, count, most)
        return chosen.at[place].set(index, mode="drop"), count + added, refused | (novel & ~added)

    first = jnp.where(jnp.arange(most) < kept, jnp.arange(most), 0)
    start = first, jnp.asarray(kept), jnp.asarray(False)
    return jax.lax.fori_loop(kept, len(rows), visit, start)


@jax.jit
def _swapped(
    kernel: LatentKernel, X: Inputs, chosen: Int[Array, "M"], key: RandomKey
) -> Int[Array, "M"]:
    """About a draw of a k-determinantal point process, by swaps (Burt et al. 2020, Alg. 1).

    A chain that starts at a greedy choice: a chosen row and another one change places with
    probability min(1, det K_new / det K_old) / 2. The kernel is the mean of the latent
    functions' correlations.
    """
    roots = jnp.sqrt(latent_diagonals(kernel, X))
    roots = jnp.where(roots > 0, roots, 1.0)
    jitter = jnp.sqrt(jnp.finfo(X.dtype).eps)

    def gram(rows: Int[Array, "rows"], others: Int[Array, "others"]) -> Float[Array, "rows others"]:
        blocks = latent_grams(kernel, X[rows], X[others])
        blocks = blocks / (roots[:, rows, None] * roots[:, None, others])
        return jnp.mean(blocks, axis=0) + jitter * (rows[:, None] == others)

    def swap(step, chosen):
        place_key, row_key, accept_key = jax.random.split(jax.random.fold_in(key, step), 3)
        place = jax.random.randint(place_key, (), 0, len(chosen))
        row = jax.random.randint(row_key, (), 0, len(X), chosen.dtype)
        inverse = cholesky(gram(chosen, chosen)).inverse_of_product()

        # 1 / variance of the chosen row given the others, and that of the new one given them.
        own = inverse[place]
        cross = gram(chosen, row[None])[:, 0]
        variance = gram(row[None], row[None])[0, 0] - cross @ inverse @ cross
        variance = variance + (own @ cross) ** 2 / own[place]
        ratio = 0.5 * jnp.minimum(1.0, variance * own[place])
        accepted = jax.random.uniform(accept_key, dtype=X.dtype) < ratio
        return jnp.where(accepted & ~jnp.any(chosen == row), chosen.at[place].set(row), chosen)

    return jax.lax.fori_loop(0, _SWAPS_A_POINT * len(chosen), swap, chosen)


def _with_known_codes(
    scaled: Float[np.ndarray, "M D"],
    X: Inputs,
    centre: Float[np.ndarray, "D"],
    spread: Float[np.ndarray, "D"],
) -> Float[np.ndarray, "M D"]:
    """Points in the units of X whose columns of few distinct values hold values that occur.

    A kernel that compares codes sees nothing in the mean of two of them. Of two values as near as
    each other the one nearer to the centre is taken, not the one that rounding prefers.
    """
    points = scaled * spread + centre
    for column in range(X.shape[1]):
        codes = np.unique(X[:, column])
        if len(codes) <= _MOST_CODES:
            known = (codes - centre[column]) / spread[column]
            off = np.abs(scaled[:, column, None] - known) + _TIE * np.abs(known)
            points[:, column] = codes[off.argmin(axis=1)]
    return points


@partial(jax.jit, static_argnames="number")
def _greedy_variance(kernel: LatentKernel, X: Inputs, number: int) -> Int[Array, "M"]:
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
            scaled = column / jnp.sqrt(jnp.maximum(remaining[pivot], rounding))
            column = jnp.where(remaining[pivot] > rounding, scaled, 0.0)
            # What is chosen stays chosen, also when rounding is all that remains.
            remaining = jnp.where(remaining < 0, -1.0, jnp.maximum(remaining - column**2, 0.0))
            return remaining.at[pivot].set(-1.0), factor.at[:, index].set(column)

        blocks = latent_grams(kernel, X, X[pivot][None])
        remaining, factor = vmap_latents(reduce, blocks, remaining, factor, rounding)
        return remaining, factor, chosen.at[index].set(pivot)

    state = (prior, jnp.zeros((*prior.shape, number), X.dtype), jnp.zeros(number, jnp.int32))
    return jax.lax.fori_loop(0, number, choose, state)[2]
