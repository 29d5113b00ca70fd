# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Representations of the latent functions: from Gaussian sites to a Gaussian posterior.

Everything here is about the zero-mean part g = f - mean(x) of Q latent functions. Arrays a latent
have Q first ((Q, M), (Q, M, M)), arrays a row have N first ((N, Q)). What follows from the kernel
alone (its blocks, the factor of K_mm) has a first axis of size Q where every latent function has
its own kernel, and of size 1 where they share it (#Q): `vmap_latents` puts the two together.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key, PyTree

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import AnyMarginals, Marginals
from latentgp.modules import Module
from latentgp.numerics.cholesky import jittered_lower
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.representations.samplers import SiteSampler
from latentgp.representations.variables import Centres
from latentgp.representations.whitening import Whitening
from latentgp.rows.data import Data
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array

SiteUpdate = Callable[
    [Rows, AnyMarginals, Any, Float[Array, "B Q"]],
    tuple[Any, PyTree],
]

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


class LatentPosterior(eqx.Module):
    """Gaussian posterior of the latent functions, its factors cached.

    Attributes:
        kernel: of the prior.
        log_evidence: log of the integral of prior times sites over g, without the sites' own
            constants, in nats; a lower bound for a sparse representation.
        kl: KL divergence from the prior to the posterior of the coefficients, in nats.
        jitter: what was added to the diagonal of the prior covariance that was factorised; the
            most for any latent function.
        trace_term: nats of the bound lost to prior variance that the coefficients cannot express
            at the rows; zero for an exact representation.
    """

    kernel: eqx.AbstractVar[LatentKernel]
    log_evidence: eqx.AbstractVar[Float[Array, ""]]
    kl: eqx.AbstractVar[Float[Array, ""]]
    jitter: eqx.AbstractVar[Float[Array, ""]]
    trace_term: eqx.AbstractVar[Float[Array, ""]]

    @property
    def evidence_error(self) -> Float[Array, ""]:
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
    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N Q"]:
        """Posterior means at new inputs: O(M) a row, no variance computed."""

    @abstractmethod
    def marginals(self, X: Float[Array, "N D"]) -> AnyMarginals:
        """Posterior means and variances at new inputs; variances in [0, prior variance].

        Means and covariances of the latents of a row where sites couple these.
        """

    @abstractmethod
    def covariance(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        """Joint posterior covariances at new inputs, of each latent function."""

    def draws(
        self, key: Key[Array, ""], X: Float[Array, "N D"], number: int
    ) -> Float[Array, "S N Q"]:
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

    def check_inputs(self, X: Float[np.ndarray, "N D"]) -> None:
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
        raise InputError(
            f"{type(self).__name__} has no posterior of the parts of f; fit with Dense() or "
            "Inducing(...)."
        )

    def left_out(
        self, rows: Int[np.ndarray, "R"]
    ) -> tuple[Float[np.ndarray, "R"], Float[np.ndarray, "R"]] | None:
        """Leave-one-out residuals of the first latent function's pseudo-targets, their variances.

        The variances are those of f without the row (Rasmussen & Williams 2006, 5.12). None
        where rows cannot be left out. In NumPy.

        Args:
            rows: which, counted from 0.
        """
        return None

    def open_variances(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        """Prior variances at rows that the coefficients leave open; zero unless overridden."""
        return jnp.zeros((len(X), 1), X.dtype)

    @abstractmethod
    def remembered(self, log_evidence: float) -> PyTree:
        """Summary of the data, a `StreamingPrior`: the likelihood's part, without the prior.

        Args:
            log_evidence: of all rows so far, in nats.
        """

    @abstractmethod
    def pathwise_update(
        self, key: Key[Array, ""], prior_path: Callable[[Centres], Array]
    ) -> Float[Array, "Q M"]:
        """Weights w such that prior_path(x) + sum_m w_m k(x, centre_m) is a posterior path.

        The prior path is zero where inducing variables span the prior.

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

    def for_rows(
        self, X: Float[Array, "N D"], weights: Float[Array, "N"] | None, kernel: LatentKernel
    ) -> "Representation":
        """This representation, initialised, with what it holds of every row, such as neighbours.

        Itself, unless there is such a thing. Called for every set of rows that `condition` is; X
        and the kernel must not be traced where there is.
        """
        return self

    def renewed(
        self, X: Float[Array, "N D"], weights: Float[Array, "N"] | None, kernel: LatentKernel
    ) -> "Representation | None":
        """The same for the same rows and another kernel; None where hardly anything changes."""
        return None

    @property
    def row_sums(self) -> Any:
        """Sums that stand for the rows where sites are the likelihood itself; None without any."""
        return None

    def configured_for(self, *, signed: bool, power: float) -> "Representation":
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
                "use Dense() or Inducing(...), or write its configured_for(...)."
            )
        return self

    def of_latents(self) -> "Representation":
        """The representation for sites that updates move, with one Gaussian posterior."""
        return self

    def for_means(self) -> "Representation":
        """The representation for updates that read means alone; variances may be anything."""
        return self

    def finished(self, posterior: Any, rows: Data | None = None) -> LatentPosterior:
        """A posterior of `condition` with what predictions and updates need, such as draws.

        Args:
            posterior: of the rows.
            rows: with their targets, padded; None where there will be no update.
        """
        return posterior

    def sharing(self) -> "Representation":
        """The representation for sites whose precisions are shared by all latents of a row.

        Under one kernel so is then their covariance, which can be factorised once for all.
        """
        return self

    def coupling(self) -> "Representation":
        """The representation for sites that couple the latents of a row.

        Raises:
            InputError: it has no way with such sites.
        """
        raise InputError(
            f"{type(self).__name__} takes no sites that couple the latents of a row; use Dense(), "
            "or coupled=False."
        )

    def coarse(self) -> "Representation":
        """Cheaper representation, for initial hyper-parameters."""
        return self

    def kept(self, kernel: LatentKernel, X: Float[Array, "N D"], latents: int) -> Any:
        """Quantities shared by passes over the same rows under the same kernel.

        `condition` and `update_sites` take it in place of X, which it is where nothing is kept. A
        subclass whose own of these read X must give X here.
        """
        return X

    @abstractmethod
    def condition(self, kernel: LatentKernel, X: Any, sites: Any) -> LatentPosterior:
        """Prior times sites: the posterior of g. X are the rows' inputs, or what `kept` gives."""

    def update_sites(
        self,
        posterior: Any,
        X: Any,
        rows: Rows,
        sites: Any,
        offset: Float[Array, "N Q"],
        update: SiteUpdate,
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
    def pull_back(self, posterior: Any, X: Float[Array, "N D"], sites: Any) -> Pullback:
        """Derivatives of `condition(kernel, X, sites).log_evidence`."""

    def linearised(
        self, posterior: Any, X: Float[Array, "N D"], sites: Any
    ) -> Callable[[Float[Array, "N Q"]], tuple[LatentKernel, Float[Array, "N Q"]]]:
        """Derivatives of `pull_back`'s kernel part and means along a direction of linear terms.

        Args:
            posterior: what `condition` gave for these X and sites.
            X: inputs of the rows.
            sites: the sites, as functions of g.
        """

        def pulled(linear: Float[Array, "N Q"]) -> tuple[LatentKernel, Float[Array, "N Q"]]:
            own = sites._replace(linear=linear)
            pullback = self.pull_back(self.condition(posterior.kernel, X, own), X, own)
            return pullback.kernel, pullback.marginals.mean

        return lambda along: jax.jvp(pulled, (sites.linear,), (along,))[1]

    @abstractmethod
    def whitening(self, kernel: LatentKernel, X: Float[Array, "N D"]) -> Whitening:
        """The map from white coefficients to g at the rows; differentiable in the kernel."""

    def conditional(
        self, kernel: LatentKernel, X: Float[Array, "N D"], white: Float[Array, "Q M"]
    ) -> Marginals:
        """Marginals of g at the rows given white coefficients v ~ N(0, I).

        Differentiable in the kernel, the inputs and the coefficients. The variance is what the
        coefficients leave open: none with one of them a row.
        """
        return self.whitening(kernel, X).conditional(white)

    @property
    def has_coordinates_of_sites(self) -> bool:
        """Whether chains can move in coordinates in which the posterior by sites is white."""
        return self.has_coefficients

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what chains keep of it, for the user; none unless overridden."""
        return ()

    @property
    @abstractmethod
    def evidence_is_exact(self) -> bool:
        """Whether the evidence of Gaussian sites, and the posterior given them, are exact."""

    def products_a_row(self, inputs: int) -> float | None:
        """Products of numbers that a pass over the rows takes a row; None where N decides too.

        Args:
            inputs: number of input columns D.
        """
        return None

    def with_terms(self, number: int) -> "Representation | None":
        """The same for a search, the terms of so many rows for the evidence of all.

        None where a search has to look at these rows alone.
        """
        return None

    def some_rows(self, rows: int, number: int) -> Int[np.ndarray, "M"]:
        """Numbers of at most so many of the rows, for a first look at the hyper-parameters."""
        return np.linspace(0, rows - 1, min(number, rows)).astype(int)

    def rows_looked_at(self, rows: int) -> int:
        """Number of rows, of so many, whose terms make the evidence."""
        return rows

    @property
    def estimates_evidence(self) -> bool:
        """Whether evidence and gradient are estimates, alike in error from call to call."""
        return False

    @property
    def is_one_gaussian(self) -> bool:
        """Whether evidence and marginals are those of one Gaussian posterior.

        The derivatives of the evidence in the sites are then the marginals, which site updates
        rest on.
        """
        return True

    @property
    def predicts_by_all_centres(self) -> bool:
        """Whether a new input is conditioned on what all centres have, as paths are.

        Paths have the law of the posterior then, and approximate it otherwise.
        """
        return True

    @property
    def evidence_is_bound(self) -> bool:
        """Whether the evidence of Gaussian sites is exact or a lower bound."""
        return True

    @property
    def has_coefficients(self) -> bool:
        """Whether there are white coefficients, which chains move."""
        return True

    @property
    def has_dense_factors(self) -> bool:
        """Whether prior and posterior have dense factors, and so an evidence without noise.

        Chains need them for coordinates of sites and for metrics of curvature, streams to remember.
        """
        return True

    @property
    def has_paths(self) -> bool:
        """Whether posterior draws are functions, `pathwise_update`."""
        return True

    @property
    def estimates_variances(self) -> bool:
        """Whether variances at the rows are estimates, which no sites can be made of."""
        return False

    @property
    def spreads_rows(self) -> bool:
        """Whether rows can be spread over devices: each pass over them is a sum over rows."""
        return False

    @property
    def one_coefficient_a_row(self) -> bool:
        """Whether the coefficients are the latents at the rows themselves."""
        return False

    @property
    def needs_rows(self) -> bool:
        """Whether `initialise` needs the rows, so that they must not be traced."""
        return False

    @property
    def streaming_prior(self) -> PyTree | None:
        """Summary of the data seen so far, a `StreamingPrior`, that new rows are added to."""
        return None

    def sampler(
        self, kernel: LatentKernel, X: Float[Array, "N D"], power: float = 0.0
    ) -> "SiteSampler":
        """Sampler of the coefficients given sites.

        Args:
            kernel: its hyper-parameters are held.
            X: inputs of the rows.
            power: of the prior variance given the coefficients, as in `configured_for`.
        """
        raise InputError(
            f"{type(self).__name__} has no sampler of its coefficients; use Dense() or "
            "Inducing(...) for sampling, or write its sampler(...)."
        )
