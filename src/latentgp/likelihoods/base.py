"""Likelihoods: one factor p(y | f) a row, with defaults by quadrature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.hyperparameters.base import Parametrised
from latentgp.modules import stored
from latentgp.numerics.quadrature import (
    expectation,
    latents_at,
    log_expectation,
    nodes_near,
    prediction_nodes,
    training_nodes,
    trapezoidal_nodes,
)
from latentgp.numerics.root_finding import invert_cdf, invert_cdf_of_counts
from latentgp.numerics.small_matrices import small_cholesky, small_solve_lower
from latentgp.typing import Array, Latents, PerClass, PerRow, RandomKey, RowLatents, Scalar

Targets = Literal["real", "count", "class"]
_SINGULAR = 1e2  # roundings of a variance by which covariances are kept from being singular
SideInformation = Mapping[str, Float[Array, "..."]]


@stored
class Marginals(NamedTuple):
    """Independent Gaussian laws of the latent functions at rows: f ~ N(mean, diag(variance)).

    Attributes:
        mean: shape (N, Q); what users are handed has shape (N,) for one latent function.
        variance: likewise.
    """

    mean: Float[Array, "N *Q"]
    variance: Float[Array, "N *Q"]

    @classmethod
    def known(cls, f: RowLatents) -> "Marginals":
        """Marginals of known latents: variance zero."""
        return cls(f, jnp.zeros_like(f))

    @property
    def first(self) -> tuple[PerRow, PerRow]:
        """Means and variances of the first latent function."""
        return self.mean[:, 0], self.variance[:, 0]

    def shifted(self, offset: RowLatents) -> "Marginals":
        """Marginals of f + offset."""
        return Marginals(self.mean + offset, self.variance)

    def given(self, linear: RowLatents, precision: RowLatents) -> "Marginals":
        """Marginals of each latent times exp(linear f - precision f^2 / 2)."""
        variance = self.variance / (1 + precision * self.variance)
        return Marginals(self.mean + variance * (linear - precision * self.mean), variance)


class JointMarginals(NamedTuple):
    """Gaussian laws of the latent functions at rows, those of a row together."""

    mean: RowLatents
    covariance: Float[Array, "N Q Q"]  # of the latents of each row

    @classmethod
    def known(cls, f: RowLatents) -> "JointMarginals":
        """Marginals of known latents: covariance zero."""
        return cls(f, jnp.zeros((*f.shape, f.shape[1]), f.dtype))

    @classmethod
    def independent(cls, marginals: Marginals) -> "JointMarginals":
        """Latents of a row without covariances."""
        identity = jnp.eye(marginals.mean.shape[1], dtype=marginals.mean.dtype)
        return cls(marginals.mean, marginals.variance[:, :, None] * identity)

    @property
    def variance(self) -> RowLatents:
        """Variances of each latent alone."""
        return jnp.diagonal(self.covariance, axis1=1, axis2=2)

    def shifted(self, offset: RowLatents) -> "JointMarginals":
        """Marginals of f + offset."""
        return JointMarginals(self.mean + offset, self.covariance)

    def given(self, linear: RowLatents, precision: Float[Array, "N Q Q"]) -> "JointMarginals":
        """Marginals times exp(linear' f - f' precision f / 2), precisions not negative."""
        root = self.root()
        turned = jnp.swapaxes(root, 1, 2)
        inner = jnp.eye(root.shape[-1], dtype=root.dtype) + turned @ precision @ root
        half = small_solve_lower(small_cholesky(inner), turned)
        covariance = jnp.swapaxes(half, 1, 2) @ half
        pull = linear - (precision @ self.mean[:, :, None])[:, :, 0]
        return JointMarginals(self.mean + (covariance @ pull[:, :, None])[:, :, 0], covariance)

    def root(self) -> Float[Array, "N Q Q"]:
        """Lower factors of the covariances, which are kept from being singular."""
        variance = self.variance
        eps = float(np.finfo(variance.dtype).eps)
        # As `expectation` does: derivatives in the covariance are differences over nodes.
        floor = jnp.maximum(eps**1.25 * self.mean**2 + eps**1.75 - variance, 0.0)
        more = jax.lax.stop_gradient(floor + _SINGULAR * eps * variance)
        identity = jnp.eye(variance.shape[1], dtype=variance.dtype)
        return small_cholesky(self.covariance + more[:, :, None] * identity)


AnyMarginals = Marginals | JointMarginals


class Likelihood(Parametrised):
    """Law of one target given the Q latent functions at its input.

    An author writes `log_prob` for one row; everything else has a default or is optional.
    A likelihood holds no data: what belongs to a row arrives as `side`, a mapping from the
    names in `side_information` to that row's numbers (absent where the user gave none).

    Attributes:
        latent_size: Q.
        output_shape: of one target: (), or (P,) for P outputs, where NaN is a missing one.
        side_information: names of the per-row numbers it reads.
        targets: what y is: a real number, a count, or a class numbered from 0.
        atoms: values that a real target has with a positive probability, beside a density.
        is_normalised: whether exp(log_prob) adds up to one over y; false for a pseudo-likelihood.
        is_log_concave: whether log_prob is concave in each latent, for every y and whatever the
            parameters; false where it is not known.
        is_jointly_log_concave: whether log_prob is concave in all latents jointly.
        is_jointly_gaussian: whether log_prob is quadratic in all latents of a row jointly, so that
            one site which couples them is the likelihood itself.
        is_location: whether p(y given f) depends on y - f_1 only, so that shifting y shifts the
            first latent.
        is_positive: whether p(y given f) > 0 for every y and f.
        has_own_kernels: whether each latent is to have its own kernel although all have one role.
        is_continuous: whether log_prob is continuous in f, so that its gradient is informative.
        is_smooth: whether log_prob has two informative derivatives in f.
        has_gradient: whether log_prob can be differentiated in f; false of functions outside of
            JAX.
        calibrated_parameters: names of those that `calibrated` sets and no search learns.
    """

    latent_size: ClassVar[int] = 1
    output_shape: ClassVar[tuple[int, ...]] = ()
    side_information: ClassVar[tuple[str, ...]] = ()
    targets: ClassVar[Targets] = "real"
    atoms: ClassVar[tuple[float, ...]] = ()
    is_normalised: ClassVar[bool] = True
    is_log_concave: ClassVar[bool] = False
    is_jointly_log_concave: ClassVar[bool] = False
    is_jointly_gaussian: ClassVar[bool] = False
    is_location: ClassVar[bool] = False
    is_positive: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = True
    has_gradient: ClassVar[bool] = True
    is_continuous: ClassVar[bool] = True
    has_own_kernels: ClassVar[bool] = False
    calibrated_parameters: ClassVar[tuple[str, ...]] = ()

    @property
    def calls(self) -> Any:
        """Record of calls outside of JAX, `Calls`; None for a likelihood without any."""
        return None

    @abstractmethod
    def log_prob(self, y: Float[Array, "*P"], f: Latents, side: SideInformation) -> Scalar:
        """Log p(y | f) of one row, in nats."""

    def conditional_moments(
        self, f: Latents, side: SideInformation
    ) -> tuple[Float[Array, "*P"], Float[Array, "*P"]]:
        """Mean and variance of y given f, one row."""
        raise self._undefined("conditional_moments(f, side)", "predict the mean and variance of y")

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Float[Array, "*P"]:
        """A draw of y given f, one row."""
        raise self._undefined("sample(key, f, side)", "draw targets")

    def cdf(self, y: Float[Array, "*P"], f: Latents, side: SideInformation) -> Float[Array, "*P"]:
        """Probability of a target (of each output) of at most y given f, one row."""
        raise self._undefined("cdf(y, f, side)", "predict quantiles of y")

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        """Log probabilities of a target of at most y and of more than y, given f, one row.

        They have derivatives in f and in the parameters, and keep their digits in both tails.
        """
        raise self._undefined("log_tails(y, f, side)", "have censored targets")

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        """Probabilities of the classes given f, one row."""
        raise self._undefined("class_probabilities(f, side)", "predict classes")

    def check_rows(self, y: Float[Array, "N *P"], side: SideInformation) -> None:
        """Raise InputError if a target contradicts its row's side information."""

    def latent_scale(self, spread: float) -> float | tuple[float, ...]:
        """A typical standard deviation of f (one number, or one a latent), given that of y.

        Default priors and search bounds are centred on it. On the scale of a logarithm or a
        logit, 2 is typical; where f has the units of y, it is the spread of y.
        """
        return 2.0

    def latent_centre(
        self, y: Float[Array, "N *P"], weights: PerRow | None, side: SideInformation
    ) -> float | tuple[float, ...] | None:
        """Value of the first latent for typical targets, or of all; None if zero will do.

        A prior mean that is learned starts there, with a weak prior around it.
        """
        return None

    def latent_start(self, y: Float[Array, "N *P"], side: SideInformation) -> PerRow | None:
        """Likely value of the first latent at each row; None if zero will do.

        The first site updates start there: from where log_prob is exponentially steep they would
        go astray.
        """
        return None

    def scaled_to(self, spread: float, centre: float = 0.0) -> "Likelihood":
        """This likelihood with its noise at a typical size, given the spread and mean of y.

        Where a search starts when the user gave no starting values.
        """
        return self

    def calibrated(
        self,
        y: Float[np.ndarray, "N *P"],
        weights: PerRow | None,
        marginals: Marginals,
        side: SideInformation,
    ) -> "Likelihood":
        """This likelihood with `calibrated_parameters` set, which only predictions depend on.

        Args:
            y: targets of the rows.
            weights: of the rows.
            marginals: of f at each row given all other rows.
            side: what the rows carry.
        """
        return self

    def check_targets(self, y: Float[Array, "N *P"]) -> None:
        """Raise InputError if targets are outside the support, naming what is expected."""

    def check_side_information(self, side: SideInformation) -> None:
        """Raise InputError if a row's numbers are outside their range, naming what is expected."""

    def expected_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> PerRow:
        """E log p(y | f) under f ~ N(mean, diag(variance)), in nats, a row."""
        nodes = training_nodes(self.latent_size)
        return expectation(self._along_nodes(self.log_prob, y, side), *marginals, nodes)

    def predictive_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> PerRow:
        """Log E p(y | f) under f ~ N(mean, diag(variance)), in nats, a row."""
        if self.latent_size > 2:
            return self._log_expected_at_nodes(y, marginals, side)
        mean, variance = marginals
        along, spread = self._along_nodes(self.log_prob, y, side), jnp.sqrt(variance)
        nodes, weights = prediction_nodes(self.latent_size)
        if self.latent_size == 2:
            nodes, weights = trapezoidal_nodes(1, round(len(weights) ** 0.5))

        def of_first(x: Float[Array, "N S"]) -> Float[Array, "N S"]:
            """Given the first latent, the second one integrated out."""
            first = mean[:, :1] + spread[:, :1] * x
            if self.latent_size == 1:
                return along(first[:, :, None])
            rest = mean[:, 1:] + spread[:, 1:] * nodes[:, 0]
            f = jnp.stack(jnp.broadcast_arrays(first[:, :, None], rest[:, None]), axis=-1)
            log_prob = along(f.reshape(len(mean), -1, 2)).reshape(f.shape[:3])
            return logsumexp(log_prob, axis=2, b=weights)

        unimodal = self.is_log_concave and self.latent_size == 1
        return log_expectation(of_first, mean[:, 0], unimodal=unimodal)

    def log_expected_power(
        self,
        y: Float[Array, "N *P"],
        marginals: Marginals,
        side: SideInformation,
        power: float,
        near: Marginals,
    ) -> PerRow:
        """Log E p(y | f)^power under f ~ N(mean, diag(variance)), in nats, a row.

        Args:
            y: targets.
            marginals: of f.
            side: what the rows carry.
            power: above 0.
            near: a law around where the integrand is, for the nodes.
        """
        overridden = type(self).predictive_log_prob is not Likelihood.predictive_log_prob
        if power == 1 and (overridden or self.latent_size > 2):
            return self.predictive_log_prob(y, marginals, side)
        if self.latent_size > 2:
            return self._log_expected_at_nodes(y, marginals, side, power)
        f, log_weights = nodes_near(*marginals, *near)
        log_prob = self._along_nodes(self.log_prob, y, side)(f)
        return logsumexp(power * log_prob + log_weights, axis=1)

    def _log_expected_at_nodes(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation, power: float = 1
    ) -> PerRow:
        """The same by nodes of all latents at once; in logs, which do not underflow."""
        nodes = prediction_nodes(self.latent_size)
        log_prob = self._along_nodes(self.log_prob, y, side)(latents_at(*marginals, nodes)[0])
        return logsumexp(power * log_prob, axis=1, b=jnp.asarray(nodes[1], log_prob.dtype))

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N *P"], Float[Array, "N *P"]]:
        """Mean and variance of y under f ~ N(mean, diag(variance)), a row."""

        def moments(f: Float[Array, "N S Q"]) -> Float[Array, "N S *P 2"]:
            over_nodes = jax.vmap(self.conditional_moments, (0, None))
            first, second = jax.vmap(over_nodes)(f, dict(side))
            return jnp.stack([first, second + first**2], axis=-1)

        nodes = prediction_nodes(self.latent_size)
        first, second = jnp.moveaxis(expectation(moments, *marginals, nodes), -1, 0)
        variance = jnp.maximum(second - first**2, 0.0)
        return first, jnp.where(jnp.isinf(second), jnp.inf, variance)

    def predictive_cdf(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N *P"]:
        """Probability of a target of at most y under f ~ N(mean, diag(variance)), a row."""
        nodes = prediction_nodes(self.latent_size)
        return expectation(self._along_nodes(self.cdf, y, side), *marginals, nodes)

    def predictive_quantiles(
        self, probabilities: Float[Array, "levels"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N *P levels"]:
        """Quantiles of y under f ~ N(mean, diag(variance)), a row, by inverting the CDF."""

        def cdf(y: Float[Array, "N *P"]) -> Float[Array, "N *P"]:
            return self.predictive_cdf(y, marginals, side)

        centre, width = self._quantiles_around(marginals, side)
        if self.targets == "count":
            return invert_cdf_of_counts(cdf, probabilities, centre)
        if not self.atoms:
            return invert_cdf(cdf, probabilities, centre, width)
        at_atoms = quantiles_at_atoms(self.atoms, cdf, centre)

        def one(probability: Scalar) -> PerRow:
            at, atom = at_atoms(probability)

            def without_jump(y: PerRow) -> PerRow:
                """A line through the atom in rows that have their quantile there."""
                return jnp.where(at, probability + (y - atom) / (1 + width), cdf(y))

            found = invert_cdf(without_jump, probability[None], centre, width)[:, 0]
            return jnp.where(at, atom, found)

        return jnp.moveaxis(jax.lax.map(one, probabilities), 0, -1)

    def _quantiles_around(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N *P"], Float[Array, "N *P"]]:
        """Where quantiles are sought: places and widths."""
        if self.output_shape:
            centre, variance = self.predictive_moments(marginals, side)
            return centre, jnp.sqrt(variance)
        centre, variance = marginals.first
        return centre, jnp.sqrt(variance) + 1e-3 * jnp.abs(centre) + 1e-8

    def predictive_probabilities(self, marginals: Marginals, side: SideInformation) -> PerClass:
        """Probabilities of the classes under f ~ N(mean, diag(variance)), a row."""

        def probabilities(f: Float[Array, "N S Q"]) -> Float[Array, "N S K"]:
            over_nodes = jax.vmap(self.class_probabilities, (0, None))
            return jax.vmap(over_nodes)(f, dict(side))

        nodes = prediction_nodes(self.latent_size)
        values = expectation(probabilities, *marginals, nodes)
        return values / jnp.sum(values, axis=1, keepdims=True)

    def turned(self) -> "Likelihood | None":
        """This likelihood of latents f = m + R z, with z independent; None for the usual way.

        See `jointly`; a subclass of `WhitenedLikelihood` that has expectations of its own.
        """
        return None

    def _undefined(self, method: str, purpose: str) -> InputError:
        name = type(self).__name__
        return InputError(f"{name} does not define {method}; write that method to {purpose}.")

    def _along_nodes(
        self, function: Callable, y: Float[Array, "N *P"], side: SideInformation
    ) -> Callable[[Float[Array, "N S Q"]], Float[Array, "N S *P"]]:
        """A function of one row, over all rows and over S values of their latents."""
        over_nodes = jax.vmap(function, (None, 0, None))
        return lambda f: jax.vmap(over_nodes)(y, f, dict(side))


def quantiles_at_atoms(
    atoms: tuple[float, ...], cdf: Callable[[Array], Array], like: Float[Array, "N *P"]
) -> Callable[[Scalar], tuple[Bool[Array, "N *P"], Float[Array, "N *P"]]]:
    """Function of a probability: whether a row's quantile is an atom, and which, else zero.

    Args:
        atoms: values of positive probability.
        cdf: of every row.
        like: an array of its shape.
    """
    least = jnp.finfo(like.dtype)
    jumps = []
    for atom in atoms:
        # The number just below; subnormal ones count as zero.
        below = atom - max(float(least.eps) * abs(atom), float(least.tiny))
        jumps.append((atom, cdf(jnp.full_like(like, below)), cdf(jnp.full_like(like, atom))))

    def at_atoms(probability: Scalar) -> tuple[Bool[Array, "N *P"], Float[Array, "N *P"]]:
        at, found = jnp.zeros(like.shape, bool), jnp.zeros_like(like)
        for atom, low, high in jumps:
            here = (low < probability) & (probability <= high)
            at, found = at | here, jnp.where(here, atom, found)
        return at, found

    return at_atoms


class ClosedMoments(Likelihood):
    """A likelihood whose predictive moments are closed: those given f are of variance zero."""

    def conditional_moments(
        self, f: Latents, side: SideInformation
    ) -> tuple[Float[Array, "*P"], Float[Array, "*P"]]:
        mean, variance = self.predictive_moments(Marginals.known(f[None]), side)
        return mean[0], variance[0]


class ClosedForms(ClosedMoments):
    """The same with a closed expected log density, of which log_prob is that of variance zero."""

    @abstractmethod
    def expected_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> PerRow:
        """E log p(y | f) under f ~ N(mean, diag(variance)), in nats, a row."""

    def log_prob(self, y: Float[Array, "*P"], f: Latents, side: SideInformation) -> Scalar:
        return self.expected_log_prob(y[None], Marginals.known(f[None]), side)[0]
