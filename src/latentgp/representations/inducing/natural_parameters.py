"""Natural parameters of inducing variables: sums over rows, white sites, streaming memory."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.modules import stored, stored_as
from latentgp.numerics.cholesky import Factor, cholesky, lower_cholesky
from latentgp.numerics.triangular import congruence, lower_product
from latentgp.representations.latent_axis import vmap_latents
from latentgp.typing import Array, Coefs, Latents, Scalar


def for_all(blocks: Float[Array, "#Q A B"], together: int) -> Float[Array, "#K rows columns"]:
    """Blocks of latents that one factor ties, along the diagonal of one matrix.

    Of latents apart, one `together`, the blocks themselves.
    """
    if together == 1:
        return blocks
    each = jnp.broadcast_to(blocks, (together, *blocks.shape[1:]))
    return jax.scipy.linalg.block_diag(*each)[None]


def of_each(whole: Float[Array, "K R R"], together: int) -> Float[Array, "Q M M"]:
    """The blocks along the diagonal, of each latent."""
    if together == 1:
        return whole
    size = whole.shape[1] // together
    blocks = whole.reshape(together, size, together, size)
    return jnp.stack([blocks[q, :, q] for q in range(together)])


class Statistics(NamedTuple):
    """Sums over rows of raw kernel blocks k_n = k(Z, x_n), whitened only afterwards."""

    products: Float[Array, "Q M M"]  # sum_n w_n k_n k_n'
    linear: Coefs  # sum_n l_n k_n
    # what the evidence loses to prior variance that the coefficients leave open, in half nats,
    # shape (Q,): sum_n w_n k(x_n, x_n), of which the part that they express is taken off
    # afterwards, or that of a power above zero
    loss: Latents

    def add(
        self,
        blocks: Float[Array, "#Q M B"],
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        loss: Float[Array, "Q B"],
    ) -> "Statistics":
        """These sums with some rows added, given their kernel blocks and sites for k' K_mm^-1 u."""

        def sums(block, linear, precision, loss):
            return (block * precision) @ block.T, linear @ block.T, jnp.sum(loss)

        return Statistics(*map(jnp.add, self, vmap_latents(sums, blocks, linear, precision, loss)))


@stored
class WhiteSites(NamedTuple):
    """Gaussian factor of white inducing variables v: exp(linear'v - v' precision v / 2).

    One of each latent, or, where rows tie the latents, one of the Q M variables of all, shape
    (1, Q M): what holds of one latent holds of all with block-diagonal prior.
    """

    linear: Coefs
    precision: Float[Array, "Q M M"]  # A, symmetric

    @classmethod
    def of(cls, statistics: Statistics, prior: Factor) -> "WhiteSites":
        """White sites from sums over rows, given the factor of K_mm."""

        def whitened(inverse, products, linear):
            return cls(inverse @ linear, congruence(inverse, products))

        return vmap_latents(whitened, prior.inverse, statistics.products, statistics.linear)

    @classmethod
    def of_rows(
        cls,
        blocks: Float[Array, "#Q M B"],
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        prior: Factor,
    ) -> "WhiteSites":
        """White sites of rows with these kernel blocks and sites, given the factor of K_mm.

        A is a Gram matrix, whatever the rounding, where that of `of` has lost it once rounding in
        the sums, times K_mm^-1, is more than one.
        """

        def sums(white, linear, precision):
            return cls(linear @ white.T, (white * precision) @ white.T)

        white = vmap_latents(jnp.matmul, prior.inverse, blocks)
        return vmap_latents(sums, white, linear, precision)

    def towards(self, other: "WhiteSites", share: Scalar) -> "WhiteSites":
        """A convex combination of natural parameters."""
        return WhiteSites(*(a + share * (b - a) for a, b in zip(self, other, strict=True)))

    def carried(self, inverse: Float[Array, "#Q M M"], new: Factor) -> "WhiteSites":
        """The same factor of u, where another K_mm, of factor `new`, makes its variables white.

        The inverse is that of the factor of the K_mm that made them so.
        """
        turn = vmap_latents(lower_product, inverse, new.lower)

        def carry(sites, turn):
            precision = congruence(turn, sites.precision, transposed=True)
            return WhiteSites(sites.linear @ turn, precision)

        return vmap_latents(carry, self, for_all(turn, self.together(turn.shape[1])))

    def moved(self, old: Factor, new: Factor, cross: Float[Array, "#Q M earlier"]) -> "WhiteSites":
        """The same factor of g, projected on other inducing points, of factor `new`.

        The old factor is that of the points that made `self` white; cross is k(new, old points).
        """
        turn = vmap_latents(lambda a, c, b: a @ c @ b.T, new.inverse, cross, old.inverse)
        return vmap_latents(WhiteSites._turned, self, for_all(turn, self.together(turn.shape[2])))

    def together(self, points: int) -> int:
        """Number of latents that one factor is of, given how many variables each has."""
        return self.linear.shape[1] // points

    def _turned(self, turn: Float[Array, "M earlier"]) -> "WhiteSites":
        """White sites of one latent for white variables whose mean is turn' v."""
        A = turn @ self.precision @ turn.T
        return WhiteSites(turn @ self.linear, 0.5 * (A + A.T))

    def plus(self, other: "WhiteSites") -> "WhiteSites":
        """Product of both factors."""
        return WhiteSites(*map(jnp.add, self, other))

    def keeps_half(self, other: "WhiteSites") -> Bool[Array, ""]:
        """Whether another's I + A is in no direction less than half of this one's."""
        half = 0.5 * jnp.eye(self.linear.shape[1], dtype=self.linear.dtype)

        def lower(ours, others):
            return lower_cholesky(others - 0.5 * ours + half)

        return jnp.all(jnp.isfinite(vmap_latents(lower, self.precision, other.precision)))

    def factor(self) -> Factor:
        """Factor of I + A, shapes (Q, M, M)."""
        identity = jnp.eye(self.linear.shape[1], dtype=self.linear.dtype)
        return vmap_latents(lambda A: cholesky(identity + A), self.precision)


@stored
class Memory(NamedTuple):
    """Factor of white inducing variables from earlier rows: exp(constant) times white sites."""

    white: WhiteSites  # the factor
    constant: Scalar  # in nats
    lost: Scalar  # nats of earlier rows that the present points cannot express

    def expected(self, mean: Coefs, root: Float[Array, "Q M M"]) -> Scalar:
        """Mean log under N(mean, root' root), in nats."""

        def worth(sites, mean, root):
            turned = root @ sites.precision
            squares = mean @ sites.precision @ mean + jnp.sum(turned * root)
            return sites.linear @ mean - 0.5 * squares

        return jnp.sum(vmap_latents(worth, self.white, mean, root)) + self.constant


@stored_as("Seen")
class ProjectedPrior(NamedTuple):
    """Streaming prior projected on other inducing points."""

    # k(Z, earlier points) L^-T: its product with K_mm^-1 u is the mean of what was white then
    turn: Float[Array, "Q M earlier"]
    loss: Latents  # mean of v' precision v under the prior, shape (Q,)
