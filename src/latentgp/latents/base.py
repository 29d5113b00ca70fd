"""How latent functions are represented: from Gaussian sites to a Gaussian posterior.

Everything here is about the zero-mean part g = f - mean(x) of Q latent functions that share a
kernel. Arrays a latent have Q first ((Q, M), (Q, M, M)), arrays a row have N first ((N, Q)).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key, PyTree

from latentgp.arrays import Array
from latentgp.kernels import Kernel
from latentgp.sites.base import GaussianSites, Rows

SiteUpdate = Callable[
    [Rows, Float[Array, "B Q"], Float[Array, "B Q"], GaussianSites, Float[Array, "B Q"]],
    tuple[GaussianSites, Float[Array, "B"]],
]


class Pullback(NamedTuple):
    """Derivatives of the log evidence with the sites held, and in the sites.

    The latter are the marginals: d/d linear is the posterior mean of g at the rows,
    d/d precision is -(mean^2 + variance) / 2.
    """

    kernel: Kernel
    representation: PyTree
    mean: Float[Array, "N Q"]
    variance: Float[Array, "N Q"]


class LatentPosterior(eqx.Module):
    """Gaussian posterior of the latent functions, its factors cached.

    Attributes:
        log_evidence: log of the integral of prior times sites over g, without the sites' own
            constants, in nats; a lower bound for a sparse representation.
        kl: KL divergence from the prior to the posterior of the coefficients, in nats.
        jitter: what was added to the diagonal of the prior covariance that was factorised.
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


class Representation(eqx.Module):
    """The coefficients that stand for the latent functions, and their algebra."""

    @abstractmethod
    def initialise(
        self, X: np.ndarray, weights: np.ndarray | None, kernel: Kernel, key: Key[Array, ""]
    ) -> "Representation":
        """This representation made ready for inputs X (inducing points chosen, say)."""

    @abstractmethod
    def condition(
        self, kernel: Kernel, X: Float[Array, "N D"], sites: GaussianSites
    ) -> LatentPosterior:
        """Prior times sites: the posterior of g."""

    @abstractmethod
    def update_sites(
        self,
        posterior: Any,
        X: Float[Array, "N D"],
        rows: Rows,
        sites: GaussianSites,
        offset: Float[Array, "N Q"],
        update: SiteUpdate,
    ) -> tuple[GaussianSites, LatentPosterior, Float[Array, ""]]:
        """New sites from the posterior's marginals, the posterior they give, in one pass.

        Args:
            posterior: what `condition` gave for these X and sites.
            X: inputs of the rows.
            rows: targets, weights and side information.
            sites: the sites, as functions of f.
            offset: prior means of f at the rows.
            update: makes new sites of a chunk of rows, and the rows' terms of the bound.

        Returns:
            New sites as functions of f, the posterior given them, and the sum of the terms.
        """

    @abstractmethod
    def pull_back(self, posterior: Any, X: Float[Array, "N D"], sites: GaussianSites) -> Pullback:
        """Derivatives of `condition(kernel, X, sites).log_evidence`."""

    @abstractmethod
    def white_size(self, X: Float[Array, "N D"]) -> int:
        """How many standard normal coefficients stand for one latent function."""

    @abstractmethod
    def from_white(
        self, kernel: Kernel, X: Float[Array, "N D"], white: Float[Array, "Q M"]
    ) -> Float[Array, "N Q"]:
        """G at the rows from white coefficients v ~ N(0, I)."""

    @abstractmethod
    def to_white(
        self, kernel: Kernel, X: Float[Array, "N D"], g: Float[Array, "N Q"]
    ) -> Float[Array, "Q M"]:
        """White coefficients whose g is given at the rows (best fit if there are fewer)."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether the posterior given sites is exact."""


def log_evidence(
    representation: Representation, kernel: Kernel, X: Float[Array, "N D"], sites: GaussianSites
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
    """Map a function over the leading axis Q of its arguments; no batching where Q = 1."""
    if jax.tree.leaves(arguments)[0].shape[0] == 1:
        result = function(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: jnp.asarray(a)[None], result)
    return jax.vmap(function)(*arguments)
