"""Targets that are one of K classes, numbered from 0."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jaxtyping import Float
from numpyro.distributions import constraints
from scipy.special import ndtri

from latentgp.errors import InputError, check_ranges
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import (
    JointMarginals,
    Likelihood,
    Marginals,
    SideInformation,
    Targets,
)
from latentgp.likelihoods.bernoulli import class_shares
from latentgp.likelihoods.joint import WhitenedLikelihood
from latentgp.modules import forwarded
from latentgp.numerics.orthants import log_orthant_probability
from latentgp.numerics.quadrature import prediction_nodes
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerClass, PerRow, RandomKey, Scalar, Values

_ROOT_TWO = math.sqrt(2.0)  # no NumPy scalar, which would widen single precision


class ClassLikelihood(Likelihood):
    """A law of y in {0, ..., K - 1}.

    Args:
        classes: K, at least two.
    """

    classes: int = eqx.field(static=True)

    targets: ClassVar[Targets] = "class"

    def __check_init__(self) -> None:
        if self.classes < 2:
            name = type(self).__name__
            raise InputError(f"{name} needs at least two classes, got {self.classes}.")

    latent_size = forwarded("classes")

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        probabilities = self.predictive_probabilities(marginals, side)
        chosen = jnp.take_along_axis(probabilities, y.astype(int)[:, None], axis=1)
        return jnp.log(chosen[:, 0])

    def latent_centre(
        self, y: PerRow, weights: PerRow | None, side: SideInformation
    ) -> tuple[float, ...] | None:
        latents = self._latents_of(class_shares(y, weights, self.classes))
        return None if latents is None else tuple(latents.tolist())

    def _latents_of(self, shares: Float[np.ndarray, "K"]) -> Float[np.ndarray, "Q"] | None:
        """Latents at which classes have these shares; None if zero will do."""
        return None

    def check_targets(self, y: PerRow) -> None:
        name, kind = f"{type(self).__name__} targets", f"classes 0 to {self.classes - 1}"
        advice = "number the classes, or let GPClassifier do it"
        check_values(name, y, np.isin(y, np.arange(self.classes)), kind, advice)


class MulticlassLikelihood(ClassLikelihood):
    """p(y | f) = exp(t_y) / sum_k exp(t_k); a subclass defines the `terms` t."""

    @abstractmethod
    def terms(self, f: Float[Array, "*S Q"]) -> Float[Array, "*S K"]:
        """One a class, given the latents: log probabilities up to a constant."""

    def class_log_probabilities(self, f: Float[Array, "*S Q"]) -> Float[Array, "*S K"]:
        """Log probabilities of the classes given the latents."""
        return jax.nn.log_softmax(self.terms(f), axis=-1)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        # A sum over indicators, because the derivative of an index is a scatter.
        terms = self.terms(f)
        chosen = jax.nn.one_hot(y.astype(int), self.classes, dtype=terms.dtype)
        return jnp.sum(chosen * terms) - jax.nn.logsumexp(terms)

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        # Not by the probabilities of all classes: that of one far off underflows.
        return self._log_expected_at_nodes(y, marginals, side)

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        return jnp.exp(self.class_log_probabilities(f))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jax.random.categorical(key, self.class_log_probabilities(f)).astype(f.dtype)


class Softmax(MulticlassLikelihood):
    """p(y = k | f) = exp(f_k) / sum_j exp(f_j), one latent a class."""

    is_log_concave: ClassVar[bool] = True
    is_jointly_log_concave: ClassVar[bool] = True

    def _latents_of(self, shares: Float[np.ndarray, "K"]) -> Float[np.ndarray, "Q"]:
        return np.log(shares) - np.mean(np.log(shares))

    def terms(self, f: Float[Array, "*S Q"]) -> Float[Array, "*S K"]:
        return f


class LogisticSoftmaxLikelihood(MulticlassLikelihood):
    """p(y = k | f) = theta_k sigmoid(f_k) / (D + sum_j theta_j sigmoid(f_j)).

    What the logistic-softmax likelihoods share. Where D > 0, the last class has no latent and
    has D in place of its term.
    """

    pinned_term: ClassVar[float] = 0.0  # D

    @property
    @abstractmethod
    def class_weights(self) -> Latents:
        """theta, one a latent."""

    def absent(self, side: SideInformation) -> tuple[Array, Array] | None:
        """D, and the log of the term of a row's own class where that has no latent, if any has."""
        pinned = jnp.asarray(self.pinned_term)
        return (pinned, jnp.log(pinned)) if self.pinned_term > 0 else None

    def terms(self, f: Float[Array, "*S Q"]) -> Float[Array, "*S K"]:
        terms = self._log_weights(f) + jax.nn.log_sigmoid(f)
        if self.pinned_term > 0:
            last = jnp.full_like(terms[..., :1], jnp.log(self.pinned_term))
            terms = jnp.concatenate([terms, last], axis=-1)
        return terms

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        # As for any class likelihood, with half the exponentials and logarithms.
        chosen = jax.nn.one_hot(y.astype(int), self.latent_size, dtype=f.dtype)
        has_latent = jnp.sum(chosen)
        own = has_latent * jax.nn.log_sigmoid(jnp.sum(chosen * f))
        own = own + jnp.sum(chosen * self._log_weights(f))
        # sum_k theta_k sigmoid(f_k), in units of exp(top) lest it underflow.
        top = jax.lax.stop_gradient(jnp.minimum(jnp.max(f), 0.0))
        absent, pinned = self.absent(side), 0.0
        if absent is not None:
            pinned, of_own = absent
            own = own + (1 - has_latent) * of_own
            top = jnp.zeros_like(top)
        scaled = jnp.exp(jnp.minimum(f, 0.0) - top) / (1 + jnp.exp(-jnp.abs(f)))
        total = jnp.sum(jnp.asarray(self.class_weights, f.dtype) * scaled)
        return own - top - jnp.log(total + pinned)

    def _log_weights(self, f: Float[Array, "..."]) -> Latents:
        return jnp.log(jnp.asarray(self.class_weights, f.dtype))


class LogisticSoftmax(LogisticSoftmaxLikelihood):
    """p(y = k | f) = sigmoid(f_k) / sum_j sigmoid(f_j) (Galy-Fajou et al. 2020, eq. 5).

    The softmax of log sigmoid(f): no probability can pass 1 / (1 + sum of the others' sigmoids),
    so with many classes it is never very sure; `ScaledLogisticSoftmax` can be.
    """

    def _latents_of(self, shares: Float[np.ndarray, "K"]) -> Float[np.ndarray, "Q"]:
        return np.log(shares / (1 - shares))

    @property
    def class_weights(self) -> Latents:
        return np.ones(self.classes)


class BijectiveLogisticSoftmax(LogisticSoftmaxLikelihood):
    """The logistic-softmax with K - 1 latents: the last class's term is fixed at 1/2.

    Galy-Fajou (2022, eq. 7.11). The prior of its auxiliary variables is proper; no class but the
    last can have a probability above 2/3, and the last class is unlike the others.
    """

    pinned_term: ClassVar[float] = 0.5

    @property
    def latent_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.classes - 1

    @property
    def class_weights(self) -> Latents:
        return np.ones(self.classes - 1)


class ScaledLogisticSoftmax(LogisticSoftmaxLikelihood):
    """The logistic-softmax with a learned weight a class (Galy-Fajou 2022, 7.4.3).

    Args:
        classes: K.
        weights: theta, positive, shape (K,); ones unless given. Only their ratios matter.
    """

    weights: Float[Array, "K"] = parameter(constraints.positive, role="factor")

    def __init__(self, classes: int, weights: Any = None):
        self.classes = classes
        self.weights = np.ones(classes) if weights is None else weights

    @property
    def class_weights(self) -> Latents:
        return self.weights


class SomeOfLogisticSoftmax(LogisticSoftmax):
    """Logistic-softmax on a subset of the classes, the others' terms held fixed.

    A row of one of the others has the number of those that are looked at for a target.

    Args:
        classes: how many are looked at.
    """

    side_information: ClassVar[tuple[str, ...]] = ("others", "own")

    def absent(self, side: SideInformation) -> tuple[Array, Array] | None:
        return side["others"], side["own"]

    def terms(self, f: Float[Array, "*S Q"]) -> Float[Array, "*S K"]:
        raise NotImplementedError("The terms of the other classes are what rows carry.")


class LargestLatent(ClassLikelihood):
    """Laws of y that depend on f through which latent is the largest."""

    is_smooth: ClassVar[bool] = False
    is_continuous: ClassVar[bool] = False

    def _latents_of(self, shares: Float[np.ndarray, "K"]) -> Float[np.ndarray, "Q"]:
        # Of two classes: their difference then is positive with the probability of the first.
        return self.latent_scale(1.0) * ndtri(shares) / 2**0.5

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return jnp.log(self.class_probabilities(f, side)[y.astype(int)])

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        largest = jax.nn.one_hot(jnp.argmax(f), self.classes, dtype=f.dtype)
        return self._given_largest(largest, 1.0)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        log_probabilities = jnp.log(self.class_probabilities(f, side))
        return jax.random.categorical(key, log_probabilities).astype(f.dtype)

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return jnp.log(self._given_largest(self._largest(y, marginals), 1.0))

    def log_expected_power(
        self, y: PerRow, marginals: Marginals, side: SideInformation, power: float, near: Marginals
    ) -> PerRow:
        # Nodes would see no slope of a step.
        return jnp.log(self._given_largest(self._largest(y, marginals), power))

    def predictive_probabilities(self, marginals: Marginals, side: SideInformation) -> PerClass:
        mean = marginals.mean
        labels = jnp.broadcast_to(jnp.arange(self.classes), mean.shape).astype(mean.dtype)
        largest = jax.vmap(self._largest, (1, None), 1)(labels, marginals)
        return self._given_largest(largest / jnp.sum(largest, axis=1, keepdims=True), 1.0)

    def turned(self) -> "TurnedLargest":
        return TurnedLargest(self)

    @abstractmethod
    def _of_largest(self, largest: PerRow) -> PerRow:
        """E log p(class | f), given the probability that its latent is the largest."""

    @abstractmethod
    def _given_largest(self, largest: Values, power: float) -> Values:
        """E p(class | f)^power, given the probability that its latent is the largest."""

    def _largest(self, y: PerRow, marginals: Marginals) -> PerRow:
        """P(f_y is the largest), f ~ N(mean, diag(variance)), by quadrature over f_y."""
        mean, variance = marginals
        nodes, weights = prediction_nodes(1)
        own = jnp.arange(self.classes) == y.astype(int)[:, None]
        spread = jnp.sqrt(jnp.maximum(variance, float(jnp.finfo(variance.dtype).eps) ** 2))
        own_mean, own_spread = (jnp.sum(jnp.where(own, a, 0.0), axis=1) for a in (mean, spread))
        f = own_mean[:, None] + own_spread[:, None] * jnp.asarray(nodes[:, 0], mean.dtype)
        above = (f[:, :, None] - mean[:, None]) / spread[:, None]
        below = jnp.where(own[:, None], 1.0, 0.5 * erfc(-above / _ROOT_TWO))
        return jnp.prod(below, axis=2) @ jnp.asarray(weights, mean.dtype)


class RobustMax(LargestLatent):
    """1 - epsilon for the class of the largest latent, epsilon / (K - 1) for each other.

    Hernández-Lobato et al. (2011); expectations as in Hensman et al. (2015b, 4.4), by quadrature
    over one latent whatever K.

    Args:
        epsilon: the chance of a wrong label, in (0, 1); held fixed.
    """

    epsilon: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        check_ranges(self, epsilon="(0, 1)")

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self._of_largest(self._largest(y, marginals))

    def _of_largest(self, largest: PerRow) -> PerRow:
        other = self.epsilon / (self.classes - 1)
        return largest * jnp.log1p(-self.epsilon) + (1 - largest) * jnp.log(other)

    def _given_largest(self, largest: Values, power: float) -> Values:
        other = self.epsilon / (self.classes - 1)
        return (1 - self.epsilon) ** power * largest + other**power * (1 - largest)


class HeavisideMulticlass(LargestLatent):
    """y is the class of the largest latent, surely (Villacampa-Calvo & Hernández-Lobato 2017).

    The likelihood is zero elsewhere, so there is no variational bound: for moment matching.
    """

    is_positive: ClassVar[bool] = False

    def _of_largest(self, largest: PerRow) -> PerRow:
        return jnp.where(largest < 1, -jnp.inf, 0.0)

    def _given_largest(self, largest: Values, power: float) -> Values:
        return largest


class TurnedLargest(WhitenedLikelihood):
    """Laws that depend on which latent is the largest, of correlated latents.

    Their expectations are probabilities that a latent's differences to all others are positive.
    """

    own: LargestLatent  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def has_sure_moments(self) -> bool:
        return True

    @property
    def has_sure_bounds(self) -> bool:
        return self.own.classes <= 3

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        joint, _ = self.of_f(side)
        return self.own._of_largest(jnp.exp(self._log_largest(y, joint)))

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self._log_mass(y, self.of_f(side)[0], 1.0)

    def log_expected_power(
        self, y: PerRow, marginals: Marginals, side: SideInformation, power: float, near: Marginals
    ) -> PerRow:
        return self._log_mass(y, self.of_f(side)[0], power)

    def predictive_probabilities(self, marginals: Marginals, side: SideInformation) -> PerClass:
        joint, _ = self.of_f(side)
        labels = jnp.broadcast_to(jnp.arange(self.own.classes), joint.mean.shape)
        labels = labels.astype(joint.mean.dtype)
        log_largest = jax.vmap(self._log_largest, (1, None), 1)(labels, joint)
        return self.own._given_largest(jax.nn.softmax(log_largest, axis=1), 1.0)

    def tilted(
        self,
        y: PerRow,
        cavity: JointMarginals,
        side: SideInformation,
        power: float,
        near: JointMarginals,
    ) -> tuple[PerRow, JointMarginals]:
        """By the derivatives of the log mass in the cavity's mean, as nodes see no step."""

        def of_row(y: Array, mean: Array, covariance: Array) -> tuple[Array, Array, Array]:
            def value(mean: Array) -> tuple[Array, Array]:
                joint = JointMarginals(mean[None], covariance[None])
                log_mass = self._log_mass(y[None], joint, power)[0]
                return log_mass, log_mass

            def slope(mean: Array) -> tuple[Array, tuple[Array, Array]]:
                slope, log_mass = jax.grad(value, has_aux=True)(mean)
                return slope, (slope, log_mass)

            curvature, (first, log_mass) = jax.jacfwd(slope, has_aux=True)(mean)
            return log_mass, first, 0.5 * (curvature + curvature.T)

        log_mass, slope, curvature = jax.vmap(of_row)(y, *cavity)
        covariance = cavity.covariance
        mean = cavity.mean + (covariance @ slope[:, :, None])[:, :, 0]
        return log_mass, JointMarginals(mean, covariance + covariance @ curvature @ covariance)

    def _log_mass(self, y: PerRow, joint: JointMarginals, power: float) -> PerRow:
        log_largest = self._log_largest(y, joint)
        # Of p^power there is a share where the latent is the largest, and one elsewhere.
        given = jnp.log(self.own._given_largest(jnp.asarray([1.0, 0.0], log_largest.dtype), power))
        below_one = jnp.minimum(log_largest, -float(jnp.finfo(log_largest).eps))
        log_other = jnp.log(-jnp.expm1(below_one))
        return jnp.logaddexp(given[0] + log_largest, given[1] + log_other)

    def _log_largest(self, y: PerRow, joint: JointMarginals) -> PerRow:
        """Log probability that f_y is the largest."""
        classes = self.own.classes
        # Row k of the table of a class: f_y - f_j for the k-th other class j.
        identity = np.eye(classes)
        tables = [identity[k] - np.delete(identity, k, axis=0) for k in range(classes)]
        to_gaps = jnp.asarray(np.stack(tables), joint.mean.dtype)[y.astype(int)]
        mean = (to_gaps @ joint.mean[:, :, None])[:, :, 0]
        covariance = to_gaps @ joint.covariance @ jnp.swapaxes(to_gaps, 1, 2)
        return log_orthant_probability(mean, covariance)
