# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Representations of the latent functions: from Gaussian sites to a Gaussian posterior.

Everything here is about the zero-mean part g = f - mean(x) of Q latent functions. Arrays a latent
have Q first ((Q, M), (Q, M, M)), or #Q (see `latent_axis`), arrays a row have N first ((N, Q)).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from latentgp.errors import lacks
from latentgp.kernels import LatentKernel
from latentgp.kernels.parts import as_wholes, telling_parts
from latentgp.likelihoods.base import AnyMarginals, Marginals
from latentgp.modules import Module
from latentgp.numerics.cholesky import jittered_lower
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.representations.variables import Centres
from latentgp.rows.data import Data
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, Coefs, Inputs, PerRow, Points, RandomKey, RowLatents, Scalar

SiteUpdate = Callable[[Rows, AnyMarginals, Any, Float[Array, "B Q"]], tuple[Any, PyTree]]
BatchUpdate = Callable[[Data, Marginals], tuple[GaussianSites, PyTree]]


class Pullback(NamedTuple):
    """Derivatives of the log evidence with the sites held, and in the sites.

    The latter are the marginals: d/d linear is the posterior mean of g at the rows,
    d/d precision is -(mean^2 + variance) / 2. The representation's are None where it has nothing
    to be differentiated in.
    """

    kernel: LatentKernel
    representation: PyTree
    marginals: AnyMarginals

    def kernel_with(self, change: PyTree) -> LatentKernel:
        """The kernel's with a change of them, as `linearised` gives it."""
        return jax.tree.map(jnp.add, self.kernel, change)


class LatentPosterior(eqx.Module):
    """Gaussian posterior of the latent functions, its factors cached.

    Attributes:
        kernel: of the prior.
        log_evidence: log of the integral of prior times sites over g, without the sites' own
            constants, in nats; a lower bound for a sparse representation.
        kl: KL divergence from the prior, with what is remembered of earlier rows and its constant,
            to the posterior of the coefficients, in nats.
        jitter: what was added to the diagonal of the prior covariance that was factorised; the
            most for any latent function.
        trace_term: nats of the bound lost to prior variance that the coefficients cannot express
            at the rows, or neighbours of these; zero for an exact representation.
    """

    kernel: eqx.AbstractVar[LatentKernel]
    log_evidence: eqx.AbstractVar[Scalar]
    kl: eqx.AbstractVar[Scalar]
    jitter: eqx.AbstractVar[Scalar]
    trace_term: eqx.AbstractVar[Scalar]

    @property
    def evidence_error(self) -> Scalar:
        """Standard error of the log evidence, in nats: zero where nothing of it is estimated."""
        return jnp.zeros_like(self.log_evidence)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how it was computed, for the user; none unless overridden. In NumPy."""
        return ()

    @property
    def complaints(self) -> tuple[str, ...]:
        """Sentences on what went wrong and what to do, such as a solve; likewise."""
        return ()

    @abstractmethod
    def mean(self, X: Inputs) -> RowLatents:
        """Posterior means at new inputs: O(M) a row, no variance computed."""

    @abstractmethod
    def marginals(self, X: Inputs) -> AnyMarginals:
        """Posterior means and variances at new inputs; variances in [0, prior variance].

        Means and covariances of the latents of a row where sites couple these.
        """

    @abstractmethod
    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        """Joint posterior covariances at new inputs, of each latent function."""

    def draws(self, key: RandomKey, X: Inputs, number: int) -> Float[Array, "S N Q"]:
        """Joint draws at new inputs."""
        mean = self.mean(X)
        factors = vmap_latents(
            lambda covariance, prior: jittered_lower(covariance, jnp.mean(prior)),
            self.covariance(X),
            latent_diagonals(self.kernel, X),
        )
        noise = jax.random.normal(key, (number, *mean.shape), mean.dtype)
        return mean + jnp.einsum("qij,sjq->siq", factors, noise)

    @property
    def draws_copies(self) -> bool:
        """Whether `draws` may have copies of rows, so that few numbers of them are compiled."""
        return False

    @property
    @abstractmethod
    def centres(self) -> Centres:
        """Points whose kernel functions make up the posterior mean, or other inducing variables."""

    def check_inputs(self, X: Inputs) -> None:
        """Raise InputError where the posterior no longer knows f, nowhere unless overridden."""

    def with_targets_shifted(self, centre: float) -> "LatentPosterior":
        """The same with a constant added to the targets of rows that are kept, if any are."""
        return self

    def without_fillers(self) -> "LatentPosterior":
        """The same without the coefficients of uninformative rows, such as padding.

        Copies of other rows, they would make the prior at the coefficients singular. In NumPy.
        """
        return self

    def telling_parts(self, number: int) -> "LatentPosterior":
        """The same of rows with coefficients of the kernel's parts as further columns.

        A row [x, a_1, ..., a_J] is then sum_j a_j f_j(x), with f = sum_j f_j of the parts of a sum
        of kernels; the rows of the data have ones. Refused unless overridden.

        Args:
            number: of parts J.

        Raises:
            InputError: the representation has no posterior of them.
        """
        lacks(self, "no posterior of the parts of f; fit with Dense() or Inducing(...)")

    def left_out(
        self, rows: Int[np.ndarray, "chosen"]
    ) -> tuple[Float[np.ndarray, "chosen"], Float[np.ndarray, "chosen"]] | None:
        """Leave-one-out residuals of the first latent function's pseudo-targets, their variances.

        The variances are those of f without the row (Rasmussen & Williams 2006, 5.12). None
        where rows cannot be left out. In NumPy.

        Args:
            rows: which, counted from 0.
        """

    def open_variances(self, X: Inputs) -> Float[Array, "N #Q"]:
        """Prior variances at rows that the coefficients leave open; zero unless overridden."""
        return jnp.zeros((len(X), 1), X.dtype)

    def remembered(self, log_evidence: float) -> PyTree:
        """Summary of the data, a `StreamingPrior`: the likelihood's part, without the prior.

        Refused unless overridden.

        Args:
            log_evidence: of all rows so far, in nats.

        Raises:
            InputError: the representation has none.
        """
        lacks(
            self,
            "no summary of the data that further rows could be added to; fit all rows again, or, "
            "without groups in the kernel, use CollapsedVI(Inducing(number=...)) for streams",
        )

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Centres], Array]) -> Coefs:
        """Weights w such that prior_path(x) + sum_m w_m k(x, centre_m) is a posterior path.

        The prior path is zero where inducing variables span the prior.

        Matheron's rule (Wilson et al. 2020, eq. 13). Refused unless overridden.

        Args:
            key: random key.
            prior_path: a draw of the prior, values of shape (M, Q) at the centres.

        Raises:
            InputError: the representation has no paths.
        """
        lacks(
            self,
            "no paths as functions; use sample_f for joint draws at given inputs, or "
            "Inducing(number=...)",
        )


class PosteriorAtRows(LatentPosterior):
    """Posterior with coefficients at the rows, whose inputs are `X`."""

    X: eqx.AbstractVar[Inputs]

    def telling_parts(self, number: int) -> "PosteriorAtRows":
        kernel = telling_parts(self.kernel, number)
        return eqx.tree_at(lambda p: (p.kernel, p.X), self, (kernel, as_wholes(self.X, number)))

    @property
    def centres(self) -> Points:
        return self.X


class Representation(Module):
    """The coefficients that stand for the latent functions, and their algebra.

    What only some representations can do is in `representations.protocols`. Subclasses may override
    `for_rows`, `for_sites`, `kept`, `update_sites`, `marginals_at_rows` and `linearised`.
    """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """Properties by which methods choose and refuse."""

    @abstractmethod
    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "Representation":
        """This representation made ready for inputs X (inducing points chosen, say)."""

    def for_rows(self, X: Inputs, weights: PerRow | None, kernel: LatentKernel) -> "Representation":
        """This representation, initialised, with what it holds of every row, such as neighbours.

        Itself, unless there is such a thing, or where it has it for these rows already and hardly
        anything would change. Called for every set of rows that `condition` is; X
        and the kernel must not be traced where there is.
        """
        return self

    def for_sites(self, form: SiteForm) -> "Representation":
        """This representation for the sites of a rule.

        Args:
            form: of the sites; no other than `traits` allows.
        """
        return self

    def kept(self, kernel: LatentKernel, X: Inputs, sites: Any) -> Any:
        """Quantities shared by passes over the same rows under the same kernel.

        The passes begin with these sites. `condition` and `update_sites` take it in place of X,
        which it is where nothing is kept. A subclass whose own of these read X must give X here.
        """
        return X

    @abstractmethod
    def condition(self, kernel: LatentKernel, X: Any, sites: Any) -> LatentPosterior:
        """Prior times sites: the posterior of g. X are the rows' inputs, or what `kept` gives."""

    def update_sites(
        self, posterior: Any, X: Any, rows: Rows, sites: Any, offset: RowLatents, update: SiteUpdate
    ) -> tuple[Any, LatentPosterior, PyTree]:
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
        sites, other = update(rows, self.marginals_at_rows(posterior, X), sites, offset)
        return sites, self.condition(posterior.kernel, X, sites.about(offset)), other

    def marginals_at_rows(self, posterior: Any, X: Any) -> Marginals:
        """Means and variances of f at the rows that the posterior is given."""
        return posterior.marginals(X)

    @abstractmethod
    def pull_back(self, posterior: Any, X: Inputs, sites: Any) -> Pullback:
        """Derivatives of `condition(kernel, X, sites).log_evidence`."""

    def linearised(
        self, posterior: Any, X: Inputs, sites: Any
    ) -> Callable[[RowLatents], tuple[PyTree, RowLatents]]:
        """Derivatives of the pullback's kernel part and of means along a direction.

        The direction is one of linear terms. The first is what `Pullback.kernel_with` takes.

        Args:
            posterior: what `condition` gave for these X and sites.
            X: inputs of the rows.
            sites: the sites, as functions of g.
        """

        def pulled(linear: RowLatents) -> tuple[LatentKernel, RowLatents]:
            own = sites._replace(linear=linear)
            pullback = self.pull_back(self.condition(posterior.kernel, X, own), X, own)
            return pullback.kernel, pullback.marginals.mean

        return lambda along: jax.jvp(pulled, (sites.linear,), (along,))[1]
