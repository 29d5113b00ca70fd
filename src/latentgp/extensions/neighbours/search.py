"""Orders of rows, and the nearest of the earlier ones: in NumPy, before anything is compiled."""

from __future__ import annotations

from functools import partial, singledispatch
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.hyperparameters.base import parameters
from latentgp.kernels import Kernel
from latentgp.kernels.base import ActiveDimensions, Constant, Product, Scaled, Sum
from latentgp.kernels.metric import MetricKernel
from latentgp.kernels.parts import parts_of
from latentgp.kernels.sphere import OnSphere
from latentgp.kernels.stationary import Stationary
from latentgp.kernels.warping import InputWarping
from latentgp.kernels.weighted import WeightedSum
from latentgp.rows.arrays import evenly
from latentgp.rows.subsets import blocks_of_rows
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs

Ordering = Literal["random", "maximin"]
SearchBy = Literal["scaled", "correlation"]

NOBODY = -1  # in place of a neighbour, where there are not so many
_FIRST_BLOCK = 256  # rows that are compared with each other directly
_MORE = 3  # times as many are asked for, of which about half come later in the order
_CANDIDATES = 6  # times as many, of which those are taken that say the most
_NUMBERS_AT_ONCE, _DISTANCES_AT_ONCE = 1 << 24, 1 << 22
# Coordinates of which a tree is slower than all distances, and that of few rows alone.
_MANY, _SEVERAL, _FEW_ROWS = 40, 15, 30_000
_BLOCK = 32
PLACE_COLUMNS = 3  # inputs, at most, of places and times, of which points say too little


@singledispatch
def coordinates(
    kernel: Kernel, X: Inputs, reference: Float[Array, "reference D"]
) -> Float[Array, "N E"]:
    """Coordinates in which what is near is highly correlated: inputs over length-scales.

    A kernel without length-scales takes the inputs in standard deviations. Coordinates of factors
    stand side by side, those of a sum's parts too, shorter by the root of what the other parts have
    of the variance. Centres, standard deviations and variances are those of the reference rows.
    """
    spread = jnp.std(reference, axis=0)
    return (X - jnp.mean(reference, axis=0)) / jnp.where(spread > 0, spread, 1.0)


@coordinates.register
def _(kernel: Stationary, X: Inputs, reference: Array) -> Array:
    return kernel.embed(X - jnp.mean(reference, axis=0))


@coordinates.register
def _(kernel: OnSphere, X: Inputs, reference: Array) -> Array:
    return kernel.place(X) / kernel.kernel.lengthscale


@coordinates.register
def _(kernel: MetricKernel, X: Inputs, reference: Array) -> Array:
    return kernel.place(X)


@coordinates.register
def _(kernel: Scaled, X: Inputs, reference: Array) -> Array:
    return coordinates(kernel.kernel, X, reference)


@coordinates.register
def _(kernel: ActiveDimensions, X: Inputs, reference: Array) -> Array:
    return coordinates(kernel.kernel, kernel.select(X), kernel.select(reference))


@coordinates.register
def _(kernel: InputWarping, X: Inputs, reference: Array) -> Array:
    return coordinates(kernel.kernel, kernel.warp(X), kernel.warp(reference))


@coordinates.register
def _(kernel: Constant, X: Inputs, reference: Array) -> Array:
    return X[:, :0]


@coordinates.register
def _(kernel: Product, X: Inputs, reference: Array) -> Array:
    return jnp.concatenate([coordinates(part, X, reference) for part in kernel.parts], axis=1)


@coordinates.register
def _(kernel: Sum, X: Inputs, reference: Array) -> Array:
    return _of_parts(kernel.parts, jnp.ones(len(kernel.parts), X.dtype), X, reference)


@coordinates.register
def _(kernel: WeightedSum, X: Inputs, reference: Array) -> Array:
    return _of_parts(kernel.parts, kernel.weights, X, reference)


def _of_parts(
    parts: tuple[Kernel, ...], weights: Float[Array, "M"], X: Array, reference: Array
) -> Array:
    """Distance of a sum: 1 - correlation near a point is the weighted mean of its parts'."""
    variances = [w * jnp.mean(p.diagonal(reference)) for p, w in zip(parts, weights, strict=True)]
    total = sum(variances)
    shares = [jnp.sqrt(variance / total) for variance in variances]
    each = [s * coordinates(p, X, reference) for p, s in zip(parts, shares, strict=True)]
    return jnp.concatenate(each, axis=1)


def parts_apart(kernel: Kernel, X: Inputs) -> tuple[Kernel, ...]:
    """The parts of a sum, where some see other columns than others; none of another kernel.

    Rows near by one part may say nothing of another. Constants are near everywhere.
    """

    def columns(part: Kernel) -> frozenset[int]:
        seen = (info.dimensions or () for info in parameters(part).values())
        return frozenset(column for dimensions in seen for column in dimensions)

    def vary(part: Kernel) -> bool:
        return jax.eval_shape(lambda X: coordinates(part, X, X), X).shape[1] > 0

    parts = tuple(filter(vary, parts_of(kernel)))
    return parts if len(set(map(columns, parts))) > 1 else ()


def varies_apart(kernel: Kernel, X: Inputs) -> bool:
    """Whether length-scales are of different columns, in sums, products or otherwise.

    What is near in scaled inputs may then be less correlated than what is not, but not where they
    have one distance.
    """
    if isinstance(kernel, MetricKernel):
        return False
    lengths = (info for info in parameters(kernel).values() if info.role == "lengthscale")
    return len({info.dimensions for info in lengths}) > 1 or len(parts_apart(kernel, X)) > 0


def order_of(points: Float[np.ndarray, "N E"], ordering: Ordering) -> Int[np.ndarray, "N"]:
    """Row numbers in the order in which rows are conditioned on each other.

    "random" is the same permutation for as many rows, of their ranks by distance from the mean: a
    rotation or another order of the rows changes nothing, except among rows as far from it as
    others. "maximin" takes the row that is farthest from all taken before (Guinness 2018), in
    O(N^2 E).
    """
    if ordering == "random":
        far = np.sqrt(np.sum((points - points.mean(axis=0)) ** 2, axis=1))
        ranks = np.round(far * (2**30 / max(far.max(initial=0.0), np.finfo(float).tiny)))
        ranked = np.lexsort((points[:, 0], ranks))
        return ranked[np.random.default_rng(0).permutation(len(points))]
    squares = np.sum(points**2, axis=1)
    order = np.empty(len(points), int)
    row = int(np.argmin(np.sum((points - points.mean(axis=0)) ** 2, axis=1)))
    distance = np.full(len(points), np.inf)
    for place in range(len(points)):
        order[place] = row
        np.minimum(distance, squares + squares[row] - 2 * points @ points[row], out=distance)
        distance[row] = -np.inf
        row = int(np.argmax(distance))
    return order


def earlier_neighbours(
    points: Float[np.ndarray, "N E"],
    order: Int[np.ndarray, "N"],
    number: int,
    asked_of: Bool[np.ndarray, "N"] | None = None,
) -> Int[np.ndarray, "N V"]:
    """Row numbers of the nearest of the rows earlier in the order; `NOBODY` where there are fewer.

    Some rows may be left out, to save time. Exact: by trees, or of many coordinates, of which
    these leave out nothing, by all distances.
    """
    size, coordinates = points.shape
    all_distances = coordinates > _MANY or (coordinates > _SEVERAL and size <= _FEW_ROWS)
    wanted = np.ones(size, bool) if asked_of is None else asked_of[order]
    search = _by_all_distances if all_distances else _by_trees
    found = search(np.ascontiguousarray(points[order]), wanted, number)
    rows = np.empty_like(found)
    rows[order] = np.where(found == NOBODY, NOBODY, order[found])
    return rows


def _by_trees(
    points: Float[np.ndarray, "N E"], wanted: Bool[np.ndarray, "N"], number: int
) -> Int[np.ndarray, "N V"]:
    """Places of the nearest earlier points; `NOBODY` where there are fewer.

    A tree of the points up to the end of a block, as long as all before it, is asked for some more
    neighbours than are needed, and for twice as many where too few of them are earlier.
    """
    from scipy.spatial import KDTree  # takes long to import

    size = len(points)
    found = np.full((size, number), NOBODY)
    start = min(size, max(_FIRST_BLOCK, 2 * number))
    first = points[:start]
    for i in range(1, start):
        distance = np.sum((first[:i] - first[i]) ** 2, axis=1)
        nearest = np.argsort(distance, kind="stable")[:number]
        found[i, : len(nearest)] = nearest
    while start < size:
        end = min(2 * start, size)
        tree = KDTree(points[:end])
        pending, asked = start + np.flatnonzero(wanted[start:end]), min(end, _MORE * number)
        while len(pending):
            left = []
            for part in np.array_split(pending, -(-len(pending) * asked // _NUMBERS_AT_ONCE)):
                near = tree.query(points[part], asked, workers=-1)[1].reshape(len(part), asked)
                later = near >= part[:, None]
                enough = asked - np.sum(later, axis=1) >= number
                places = np.argsort(later[enough], axis=1, kind="stable")[:, :number]
                found[part[enough]] = np.take_along_axis(near[enough], places, axis=1)
                left.append(part[~enough])
            pending, asked = np.concatenate(left), min(end, 2 * asked)
        start = end
    return found


def _by_all_distances(
    points: Float[np.ndarray, "N E"], wanted: Bool[np.ndarray, "N"], number: int
) -> Int[np.ndarray, "N V"]:
    """The same, in blocks."""
    points = points - points.mean(axis=0)  # squares of what is left have more digits
    half, size, asked = 0.5 * np.sum(points**2, axis=1), len(points), np.flatnonzero(wanted)
    found = np.full((size, number), NOBODY)
    for part in np.array_split(asked, max(1, -(-len(asked) * size // _DISTANCES_AT_ONCE))):
        if not len(part):
            continue
        end = part[-1] + 1
        most = min(number, end)
        nearness = points[part] @ points[:end].T - half[:end]
        nearness[part[:, None] <= np.arange(end)] = -np.inf
        places = np.argpartition(-nearness, most - 1, axis=1)[:, :most]
        values = np.take_along_axis(nearness, places, axis=1)
        ranked = np.argsort(-values, axis=1, kind="stable")
        places, values = (np.take_along_axis(a, ranked, axis=1) for a in (places, values))
        found[part, :most] = np.where(values > -np.inf, places, NOBODY)
    return found


def blocks_of(points: Float[np.ndarray, "N E"]) -> Int[np.ndarray, "K S"]:
    """Row numbers of blocks of at most 32 rows near each other, by halving along the longest side.

    `NOBODY` in the place of a row that a block is short of.
    """
    blocks = [np.arange(len(points))]
    while max(map(len, blocks)) > _BLOCK:
        blocks = [half for block in blocks for half in _halves(points, block)]
    full = max(map(len, blocks))
    return np.stack([np.pad(b, (0, full - len(b)), constant_values=NOBODY) for b in blocks])


def _halves(
    points: Float[np.ndarray, "N E"], block: Int[np.ndarray, "M"]
) -> tuple[Int[np.ndarray, "below"], Int[np.ndarray, "above"]]:
    own = points[block]
    middle = len(block) // 2
    longest = np.argmax(np.ptp(own, axis=0)) if own.size else 0
    places = np.argpartition(own[:, longest], middle)
    return block[places[:middle]], block[places[middle:]]


def neighbours_of(
    kernel: Kernel,
    X: Inputs,
    order: Int[np.ndarray, "N"],
    number: int,
    search: SearchBy,
    features: Float[Array, "N M"] | None = None,
    asked_of: Bool[np.ndarray, "N"] | None = None,
) -> Int[np.ndarray, "N V"]:
    """The nearest earlier rows under a kernel, or of six times as many those that say the most.

    Each is the most correlated with what those taken before it leave of the row, and of what
    features leave of the latent function, if there are any. Candidates are the nearest by all parts
    of a sum together and, where these see different columns, by each. Some rows may be left out.
    """
    inputs = jnp.asarray(X)
    if search == "scaled":
        points = np.asarray(coordinates(kernel, inputs, inputs))
        return earlier_neighbours(points, order, number, asked_of)
    by = kernel, *parts_apart(kernel, inputs)
    most = max(number, min(_CANDIDATES * number // len(by), len(X) - 1))
    each = [np.asarray(coordinates(one, inputs, inputs)) for one in by]
    found = [earlier_neighbours(points, order, most, asked_of) for points in each]
    candidates = np.sort(np.concatenate(found, axis=1), axis=1)
    candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = NOBODY
    features = jnp.zeros((len(X), 0)) if features is None else features
    asked = np.arange(len(X)) if asked_of is None else np.flatnonzero(asked_of)
    rows = np.full((len(X), number), NOBODY)
    rows[asked] = _telling(kernel, inputs, asked, candidates[asked], features, number)
    return rows


@partial(jax.jit, static_argnames="number")
def _telling(
    kernel: Kernel,
    X: Inputs,
    rows: Int[Array, "B"],
    candidates: Int[Array, "B candidates"],
    features: Float[Array, "N M"],
    number: int,
) -> Int[Array, "B V"]:
    """Candidates by the variance of each row that they take from what others leave, largest first.

    Steps of a pivoted Cholesky factorisation of the covariance of candidates with a little noise,
    whose pivots are chosen by what they say of the row.
    """
    prior = kernel.diagonal(X)
    left = jnp.maximum(prior - jnp.sum(features**2, axis=1), 0.0)
    least = 0.01 * prior  # noise of candidates

    def between(row: Array, those: Array) -> Array:
        known = features[those] @ features[row]
        return kernel.gram(X[row][None], X[those])[0] - known

    def of_row(row: Array, those: Array) -> Array:
        def step(k: Any, state: Any) -> Any:
            chosen, free, cross, open_, factor = state
            gains = jnp.where(free, cross**2 / open_, -1.0)
            best = jnp.argmax(gains)
            chosen = chosen.at[k].set(jnp.where(free[best], those[best], NOBODY))
            own = between(those[best], those) - factor[:, best] @ factor
            own = own / jnp.sqrt(open_[best])
            cross = cross - own * cross[best] / jnp.sqrt(open_[best])
            open_ = jnp.maximum(open_ - own**2, least[those])
            return chosen, free.at[best].set(False), cross, open_, factor.at[k].set(own)

        chosen = jnp.full(number, NOBODY)
        factor = jnp.zeros((number, len(those)), X.dtype)
        open_ = (left + least)[those]
        start = chosen, those != NOBODY, between(row, those), open_, factor
        return jax.lax.fori_loop(0, number, step, start)[0]

    def chunk(carry: Any, some: Any, real: Any) -> tuple[Any, Array]:
        return carry, jax.vmap(of_row)(*some)

    columns = candidates.shape[1] * (number + features.shape[1])
    return scan_rows(chunk, None, (rows, candidates), columns=columns, in_cache=True)[1]


def far_and_near(X: Float[np.ndarray, "N D"], number: int) -> Int[np.ndarray, "M"]:
    """At most so many rows: half evenly spaced numbers, half patches of up to 256 near rows.

    Together they tell of length-scales between the distance of neighbours and the whole range,
    where evenly spaced rows alone look rougher than all do.

    Example:
        >>> X = np.random.default_rng(0).uniform(size=(40_000, 2))
        >>> len(far_and_near(X, 4096))
        3991
    """
    spread = X.std(axis=0)
    patches = blocks_of_rows(X / np.where(spread > 0, spread, 1.0), 256)
    near = patches[evenly(len(patches), number // 2 // patches.shape[1])].ravel()
    near = near[near < len(X)]
    return np.unique(np.concatenate([evenly(len(X), number - len(near)), near]))
