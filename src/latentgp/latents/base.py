"""How latent functions are represented: from Gaussian sites to a Gaussian posterior.

Everything here is about the zero-mean part g = f - mean(x) of Q latent functions. Arrays a latent
have Q first ((Q, M), (Q, M, M)), arrays a row have N first ((N, Q)). What follows from the kernel
alone (its blocks, the factor of K_mm) has a first axis of size Q where every latent function has
its own kernel, and of size 1 where they share it (#Q): `over_latents` puts the two together.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key, PyTree

from latentgp.arrays import Array
from latentgp.data import Data
from latentgp.errors import InputError
from latentgp.kernels import LatentKernel, PerLatent
from latentgp.linalg.sums import sum_over_first
from latentgp.modules import Module
from latentgp.sites.base import Block, GaussianSites, Rows

SiteUpdate = Callable[
    [Rows, Float[Array, "B Q"], Float[Array, "B Q"], GaussianSites, Float[Array, "B Q"]],
    tuple[GaussianSites, PyTree],
]

BatchUpdate = Callable[
    [Data, Float[Array, "B Q"], Float[Array, "B Q"]], tuple[GaussianSites, PyTree]
]


class Pullback(NamedTuple):
    """Derivatives of the log evidence with the sites held, and in the sites.

    The latter are the marginals: d/d linear is the posterior mean of g at the rows,
    d/d precision is -(mean^2 + variance) / 2.
    """

    kernel: LatentKernel
    representation: PyTree
    mean: Float[Array, "N Q"]
    variance: Float[Array, "N Q"]


class LatentPosterior(eqx.Module):
    """Gaussian posterior of the latent functions, its factors cached.

    Attributes:
        log_evidence: log of the integral of prior times sites over g, without the sites' own
            constants, in nats; a lower bound for a sparse representation.
        kl: KL divergence from the prior to the posterior of the coefficients, in nats.
        jitter: what was added to the diagonal of the prior covariance that was factorised; the
            most for any latent function.
        deficit: nats of the bound lost to prior variance that the coefficients cannot express
            at the rows; zero for an exact representation.
    """

    log_evidence: eqx.AbstractVar[Float[Array, ""]]
    kl: eqx.AbstractVar[Float[Array, ""]]
    jitter: eqx.AbstractVar[Float[Array, ""]]
    deficit: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N Q"]:
        """Posterior means at new inputs: O(M) a row, no variance computed."""

    @abstractmethod
    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N Q"], Float[Array, "N Q"]]:
        """Posterior means and variances at new inputs; variances in [0, prior variance]."""

    @abstractmethod
    def covariance(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        """Joint posterior covariances at new inputs."""

    @property
    @abstractmethod
    def centres(self) -> Float[Array, "M D"]:
        """The points whose kernel functions make up the posterior mean."""

    def without_fillers(self) -> "LatentPosterior":
        """The same without coefficients of rows that say nothing, such as those that fill up.

        Copies of other rows, they would make the prior at the coefficients singular. In NumPy.
        """
        return self

    @abstractmethod
    def remembered(self, log_evidence: float) -> PyTree:
        """What its rows said, as `Remembered`, apart from the prior that it was said under.

        Args:
            log_evidence: of all rows so far, in nats.
        """

    @abstractmethod
    def pathwise_update(
        self, key: Key[Array, ""], prior_path: Callable[[Float[Array, "M D"]], Array]
    ) -> Float[Array, "Q M"]:
        """Weights w such that prior_path(x) + sum_m w_m k(x, centre_m) is a posterior path.

        Matheron's rule (Wilson et al. 2020, eq. 13).

        Args:
            key: random key.
            prior_path: a draw of the prior, values of shape (M, Q) at the centres.
        """


class Representation(Module):
    """The coefficients that stand for the latent functions, and their algebra."""

    @abstractmethod
    def initialise(
        self,
        X: Float[Array, "N D"],
        weights: Float[Array, "N"] | None,
        kernel: LatentKernel,
        key: Key[Array, ""],
    ) -> "Representation":
        """This representation made ready for inputs X (inducing points chosen, say)."""

    def suited(self, *, signed: bool, power: float) -> "Representation":
        """This representation for the sites of a rule.

        Args:
            signed: whether precisions can be negative.
            power: of the prior that coefficients leave open, in [0, 1], where there is any: 0 is
                the variational treatment, 1 that of an independent latent a row (FITC), between
                them power expectation propagation (Bui, Yan & Turner 2017).

        Raises:
            InputError: it has no way with such sites.
        """
        if signed or power:
            raise InputError(
                f"{type(self).__name__} takes neither negative precisions nor powers of its prior; "
                "use Dense() or Inducing(...), or write its suited(...)."
            )
        return self

    def sharing(self) -> "Representation":
        """This one for sites whose precisions, row by row, are the same for all latent functions.

        Under one kernel so is then their covariance, which can be factorised once for all.
        """
        return self

    def coarse(self) -> "Representation":
        """One that costs less, for hyper-parameters to start from."""
        return self

    def kept(self, kernel: LatentKernel, X: Float[Array, "N D"], latents: int) -> Any:
        """What passes over the same rows under the same kernel can share.

        `condition` and `update_sites` take it in place of X, which it is where nothing is kept. A
        subclass whose own of these read X must give X here.
        """
        return X

    @abstractmethod
    def condition(self, kernel: LatentKernel, X: Any, sites: GaussianSites) -> LatentPosterior:
        """Prior times sites: the posterior of g. X are the rows' inputs, or what `kept` gives."""

    @abstractmethod
    def update_sites(
        self,
        posterior: Any,
        X: Any,
        rows: Rows,
        sites: GaussianSites,
        offset: Float[Array, "N Q"],
        update: SiteUpdate,
    ) -> tuple[GaussianSites, LatentPosterior, PyTree]:
        """New sites from the posterior's marginals, the posterior they give, in one pass.

        Args:
            posterior: what `condition` gave for these X and sites.
            X: inputs of the rows, or what `kept` gives.
            rows: targets, weights and side information.
            sites: the sites, as functions of f.
            offset: prior means of f at the rows.
            update: makes new sites of a chunk of rows, and anything else, arrays of one a row.

        Returns:
            New sites as functions of f, the posterior given them, and the other of all rows.
        """

    @abstractmethod
    def pull_back(self, posterior: Any, X: Float[Array, "N D"], sites: GaussianSites) -> Pullback:
        """Derivatives of `condition(kernel, X, sites).log_evidence`."""

    @abstractmethod
    def white_size(self, X: Float[Array, "N D"]) -> int:
        """How many standard normal coefficients stand for one latent function."""

    @abstractmethod
    def from_white(
        self, kernel: LatentKernel, X: Float[Array, "N D"], white: Float[Array, "Q M"]
    ) -> Float[Array, "N Q"]:
        """G at the rows from white coefficients v ~ N(0, I)."""

    @abstractmethod
    def to_white(
        self, kernel: LatentKernel, X: Float[Array, "N D"], g: Float[Array, "N Q"]
    ) -> Float[Array, "Q M"]:
        """White coefficients whose g is given at the rows (best fit if there are fewer)."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether the posterior given sites is exact."""

    @property
    def remembers(self) -> bool:
        """Whether rows that are gone count too, about as they did."""
        return False

    def sampler(
        self, kernel: LatentKernel, X: Float[Array, "N D"], alpha: float = 0.0
    ) -> "SiteSampler":
        """What draws the coefficients given sites, for samplers.

        Args:
            kernel: its hyper-parameters are held.
            X: inputs of the rows.
            alpha: of the divergence that a sparse representation minimises.
        """
        raise InputError(
            f"{type(self).__name__} does not say how to draw its coefficients; use Dense() or "
            "Inducing(...) for sampling, or write its sampler(...)."
        )


class Covariances(NamedTuple):
    """Posterior covariances of some rows' g, exact to rounding however precise their sites are.

    Attributes:
        with_all: C = cov(g, g_S), shape (K, M, S).
        shrinkage: I - W^1/2 C_S W^1/2 for the sites' precisions W of these rows, (K, S, S).
    """

    with_all: Float[Array, "K M S"]
    shrinkage: Float[Array, "K S S"]


class Drawn(NamedTuple):
    """A draw of coefficients, shape (K, M), and covariances of some rows if wanted."""

    coefficients: Float[Array, "K M"]
    covariances: Covariances | None


class SiteSampler(eqx.Module):
    """Draws from prior times sites, for one kernel and the rows' inputs.

    Attributes:
        centres: where the coefficients belong, shape (M, D).
        lower: L, with L L' = K + jitter at the centres, shape (#Q, M, M).
        jitter: the largest that was added, absolute.
    """

    centres: eqx.AbstractVar[Float[Array, "M D"]]
    lower: eqx.AbstractVar[Float[Array, "#Q M M"]]
    jitter: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def draw(
        self,
        sites: GaussianSites,
        block: Block,
        key: Key[Array, ""],
        start: Float[Array, "K M"],
        over_relaxation: float = 0.0,
        rows: Int[Array, "S"] | None = None,
    ) -> "Drawn":
        """A draw of the coefficients of a block of latents, given their sites for g.

        Args:
            sites: of all latents.
            block: whose coefficients are drawn.
            key: random key.
            start: the coefficients so far.
            over_relaxation: a in [0, 1): the draw is m - a (start - m) + sqrt(1 - a^2) e with
                mean m and e ~ N(0, S), which leaves N(m, S) unchanged (Adler 1981). What does
                not say how draws afresh.
            rows: whose covariances are wanted too, where coefficients are rows.
        """

    @abstractmethod
    def at_rows(
        self, coefficients: Float[Array, "K M"], block: Block, key: Key[Array, ""]
    ) -> Float[Array, "N K"]:
        """A draw of the block's g at the rows, given its coefficients."""

    @abstractmethod
    def white(self, coefficients: Float[Array, "Q *T M"]) -> Float[Array, "Q *T M"]:
        """White coefficients v ~ N(0, I) under the prior, g = L v at the centres."""


def log_evidence(
    representation: Representation,
    kernel: LatentKernel,
    X: Float[Array, "N D"],
    sites: GaussianSites,
) -> Float[Array, ""]:
    """Log of the integral of prior times sites, in nats, the sites' own constants included.

    Differentiable in the kernel, the sites and the representation (inducing points) by one more
    pass over the rows. X is held fixed: its derivative is not computed and reads zero.
    """
    posterior = jax.lax.stop_gradient(representation.condition(kernel, X, sites))
    return _log_evidence_of(posterior, representation, kernel, X, sites)


@jax.custom_vjp
def _log_evidence_of(posterior, representation, kernel, X, sites):
    return posterior.log_evidence + jnp.sum(sites.log_constant)


def _forward(posterior, representation, kernel, X, sites):
    value = _log_evidence_of(posterior, representation, kernel, X, sites)
    return value, (posterior, representation, X, sites)


def _backward(residuals, cotangent):
    posterior, representation, X, sites = residuals
    pullback = representation.pull_back(posterior, X, sites)
    in_sites = GaussianSites(
        pullback.mean,
        -0.5 * (pullback.mean**2 + pullback.variance),
        jnp.ones_like(sites.log_constant),
    )
    kernel, places, in_sites = jax.tree.map(
        lambda leaf: cotangent * leaf, (pullback.kernel, pullback.representation, in_sites)
    )
    nothing = jax.tree.map(jnp.zeros_like, posterior)
    return nothing, places, kernel, jnp.zeros_like(X), in_sites


_log_evidence_of.defvjp(_forward, _backward)


def over_latents(function: Callable[..., Any], *arguments: PyTree) -> Any:
    """Map a function over the leading axis Q of its arguments, where that is not 1.

    Arguments (or parts of them) with a leading axis of size 1 are the same for every latent
    function; nothing is batched where all are. So work on what is shared is done once.
    """
    leaves, structure = jax.tree.flatten(arguments)
    axes = [None if leaf.shape[0] == 1 else 0 for leaf in leaves]
    leaves = [leaf[0] if axis is None else leaf for leaf, axis in zip(leaves, axes, strict=True)]
    if all(axis is None for axis in axes):
        result = function(*jax.tree.unflatten(structure, leaves))
        return jax.tree.map(lambda a: jnp.asarray(a)[None], result)
    return jax.vmap(lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), axes)(*leaves)


def split_linear(
    linear: Float[Array, "N"], root: Float[Array, "N"], diagonal: Float[Array, "N"]
) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
    """Split l = W^1/2 r + l_0: r of rows that say more than the prior, l_0 of the others.

    Sites of great precision have great l, which cancels wherever it is multiplied by K.

    Args:
        linear: l.
        root: W^1/2.
        diagonal: of B = I + W^1/2 K W^1/2.
    """
    strong = diagonal > 2
    ratio = jnp.where(strong, linear / jnp.where(strong, root, 1.0), 0.0)
    return ratio, jnp.where(strong, 0.0, linear)


def block_means(
    blocks: Float[Array, "#Q M N"], weights: Float[Array, "Q M"]
) -> Float[Array, "N Q"]:
    """Functions sum_m w_m k(centre_m, x) at N points whose kernel blocks are known."""
    return over_latents(lambda block, w: w @ block, blocks, weights).T


def outer_sums(weights: Float[Array, "Q M"], like: Float[Array, "#Q *S"]) -> Float[Array, "#Q M M"]:
    """Outer products of each latent's weights, summed over those that share a block."""
    return (weights.T @ weights)[None] if len(like) == 1 else jax.vmap(jnp.outer)(weights, weights)


def over_sharing(
    values: Float[Array, "Q *S"], like: Float[Array, "#Q *S"]
) -> Float[Array, "#Q *S"]:
    """Derivatives in kernel blocks: summed over the latent functions that share a block."""
    return sum_over_first(values)[None] if len(like) == 1 else values


def latent_grams(
    kernel: LatentKernel, X: Float[Array, "N D"], Z: Float[Array, "M D"] | None = None
) -> Float[Array, "#Q N M"]:
    """Covariances between all rows of X and all rows of Z.

    Without Z, between all rows of X, the diagonal free of rounding.
    """
    return _leading(kernel, kernel.symmetric_gram(X) if Z is None else kernel.gram(X, Z))


def latent_diagonals(kernel: LatentKernel, X: Float[Array, "N D"]) -> Float[Array, "#Q N"]:
    """Prior variances at every row of X."""
    return _leading(kernel, kernel.diagonal(X))


def _leading(kernel: LatentKernel, block: Array) -> Array:
    return block if isinstance(kernel, PerLatent) else block[None]
