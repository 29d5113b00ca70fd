"""What neighbours leave out of the evidence, from some rows' variances given many more rows.

The Kullback-Leibler divergence of the law by neighbours from the exact one is sum_i log(D_i / E_i)
/ 2, of each row's variance D given its neighbours and E given all rows before it (Schäfer, Katzfuss
& Owhadi 2021, 2.2). It is what the log evidence lacks on average over targets of the model; of
others it may be too high. A variance given some of the rows before is between D and E, so that what
is found here is a lower bound but for the sampling of rows. Of latents D and E are with the noise
of the row's own site: about the divergence of the law of targets, which is at most that of latents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.neighbours.conditionals import given
from latentgp.extensions.neighbours.search import NOBODY
from latentgp.kernels import Kernel, LatentKernel
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.rows.arrays import evenly
from latentgp.runtime.programs import Program
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, NeighbourRows, Scalar

_SAMPLE = 200  # rows
_FURTHER = 192  # rows beside the neighbours, a third of all places, else the most correlated


class Roots(NamedTuple):
    """Roots of the precisions with which rows are observed."""

    others: Float[Array, "#Q N"]  # as neighbours of another row
    own: Float[Array, "#Q N"]  # as the row that is given its neighbours
    of_latents: bool = False  # whether neighbours are latents, not targets


class Divergence(NamedTuple):
    """Divergence of the law by neighbours from the exact one: what the evidence lacks."""

    nats: float
    error: float  # standard error by the sample of rows
    rows: int  # of the sample
    neighbours: int
    of_latents: bool = False  # whether it is not a lower bound but an estimate

    @property
    def sentence(self) -> str:
        """For the user."""
        return (
            f"Given {self.neighbours} neighbours each, rows have a law that diverges from the "
            f"exact one by {'about' if self.of_latents else 'at least'} {self.nats:.2g} nats "
            f"(standard error {self.error:.1g}, from {self.rows} rows), and the log evidence may "
            "be off by as much either way."
        )


def divergence_of(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    order: Int[Array, "M"],
    roots: Roots,
    features: Float[Array, "#Q N R"] | None = None,
) -> Divergence:
    """Nats that neighbours leave out, of all latent functions; in O(N + m^3) time a sampled row.

    Features of a low rank take off what neighbours are not asked about.
    """
    order, each = np.asarray(order), distinct_kernels(kernel)
    rows = order[evenly(len(order), _SAMPLE)]
    places = np.full(len(X), len(X))
    places[order] = np.arange(len(order))
    total = np.zeros(len(rows))
    for q in range(max(len(own) for own in (each, *roots[:2]))):
        others, own = (root[q % len(root)] for root in roots[:2])
        near = jnp.asarray(neighbours)[:, q % neighbours.shape[1]]
        known = jnp.zeros((len(X), 0)) if features is None else features[q % len(features)]
        known = jnp.asarray(known)
        total += _nats(each[q % len(each)], X, near, order, places, rows, Roots(others, own), known)
    size = len(order)
    spread = np.std(total, ddof=1) if len(rows) > 1 else 0.0
    error = size * spread * np.sqrt((1 - len(rows) / size) / len(rows))
    nats = size * float(np.mean(total))
    return Divergence(nats, float(error), len(rows), neighbours.shape[2], roots.of_latents)


@Program
def _nats(
    kernel: Kernel,
    X: Inputs,
    neighbours: Int[Array, "N V"],
    order: Int[Array, "M"],
    places: Int[Array, "N"],
    rows: Int[Array, "S"],
    roots: Roots,
    features: Float[Array, "N R"],
) -> Float[Array, "S"]:
    """log(D / E) / 2 of some rows."""
    X, others, own = map(jnp.asarray, (X, *roots[:2]))
    most = min(neighbours.shape[1] + _FURTHER, len(X))
    left = kernel.diagonal(X) - jnp.sum(features**2, axis=1)
    scale = jnp.where(left > 0, 1 / jnp.sqrt(jnp.where(left > 0, left, 1.0)), 0.0)

    def variance(row: Int[Array, ""], those: Int[Array, "V"], there: Array) -> Scalar:
        every = jnp.append(those, row)
        gram = kernel.symmetric_gram(X[every]) - features[every] @ features[every].T
        root = jnp.append(jnp.where(there, others[those], 0.0), own[row])
        less = given(gram, root, jnp.zeros_like(root[:-1]))[2]
        return 1 + own[row] ** 2 * gram[-1, -1] - less

    def of_row(row: Int[Array, ""]) -> Scalar:
        near, place = neighbours[row], places[row]
        cross = kernel.gram(X[row][None], X)[0] - features @ features[row]
        score = jnp.where(places < place, jnp.abs(cross) * scale, -jnp.inf)
        spread = order[jnp.arange(_FURTHER // 3) * place // (_FURTHER // 3)]
        score = score.at[spread].set(jnp.where(place > 0, jnp.inf, -jnp.inf))
        score = score.at[jnp.where(near == NOBODY, len(X), near)].set(jnp.inf, mode="drop")
        best, many = jax.lax.top_k(score, most)
        by_near = variance(row, jnp.maximum(near, 0), near != NOBODY)
        by_many = variance(row, many, best > -jnp.inf)
        return jnp.maximum(0.5 * jnp.log(by_near / by_many), 0.0)

    def step(carry: Any, some: Array, real: Array) -> tuple[Any, Array]:
        return carry, jax.vmap(of_row)(some)

    columns = max(most**2, len(X))
    return scan_rows(step, None, jnp.asarray(rows), columns=columns, in_cache=True)[1]
