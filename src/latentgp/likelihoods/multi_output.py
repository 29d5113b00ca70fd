"""Several outputs a row, linear in latent functions that they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import triangular_solve as solve
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import ClosedForms, JointMarginals, Marginals, SideInformation
from latentgp.likelihoods.gaussian import USUAL_NOISE_SHARE, NormalPredictions
from latentgp.likelihoods.joint import WhitenedLikelihood
from latentgp.numerics.quadrature import expectation, prediction_nodes
from latentgp.numerics.small_matrices import small_cholesky, small_inverse, small_solve_lower
from latentgp.rows.arrays import as_targets, as_weights
from latentgp.typing import Array, Latents, PerRow, RandomKey, Scalar

Outputs: TypeAlias = Float[Array, "N P"]
OutputMoments: TypeAlias = tuple[Outputs, Outputs]
_STEPS = 6  # towards the law of the shared functions given the outputs


class Parts(NamedTuple):
    """Independent parts of the outputs L g: the R functions g and their loadings L, a row."""

    mean: Float[Array, "N R"]  # of g
    variance: Float[Array, "N R"]  # of g
    loading: Float[Array, "#N P R"]  # mean of L; N may be 1 where it is the same for all rows
    loading_variance: Float[Array, "#N P R"]  # of L


class LinearOutputs(ClosedForms):
    """y = centre + scale (L g + noise), noise ~ N(0, diag(noise_variance)), g latent functions.

    A missing output is NaN and is left out.

    Args:
        mixing: what L is, or is around; learned, shape (P, R).
        noise_variance: of each output, learned, in units of scale squared; a number, or (P,).
        centre: what is taken from each output first, not learned, units of y; a number, or (P,).
        scale: the unit of each output, not learned, units of y; a number, or (P,).

    Raises:
        InputError: shapes that do not agree, or a scale that is not positive.
    """

    is_log_concave: ClassVar[bool] = True
    has_own_kernels: ClassVar[bool] = True

    centre: Float[Array, "P"]
    scale: Float[Array, "P"]
    mixing: Float[Array, "P R"] = parameter(role="loading")
    noise_variance: Float[Array, "P"] = parameter(constraints.positive, role="noise_variance")

    def __init__(
        self, mixing: Any, noise_variance: Any = 1.0, *, centre: Any = 0.0, scale: Any = 1.0
    ):
        self.mixing = np.asarray(mixing, np.float64)
        if self.mixing.ndim != 2 or not self.mixing.size:
            raise InputError(
                f"mixing must have shape (outputs, latents), got {self.mixing.shape}; give one row "
                "an output."
            )
        outputs = len(self.mixing)
        self.noise_variance = _one_an_output("noise_variance", noise_variance, outputs)
        self.centre = _one_an_output("centre", centre, outputs)
        self.scale = _one_an_output("scale", scale, outputs)
        if not np.all(self.scale > 0):
            raise InputError(f"scale must be positive, got {self.scale.tolist()}.")

    @classmethod
    def for_targets(cls, y: Any, latents: int = 1, *, weights: Any = None) -> "LinearOutputs":
        """A likelihood to start from: units and leading principal components of targets.

        Args:
            y: shape (N, P), NaN for what is missing.
            latents: how many functions g the outputs share, 1 to P.
            weights: how often each row counts, shape (N,).

        Raises:
            InputError: y is not a table, or has not as many outputs as latents are wanted.
        """
        y = as_targets(y, len(y))
        if y.ndim != 2 or not 1 <= latents <= y.shape[1]:
            raise InputError(
                f"{cls.__name__} needs y of shape (rows, outputs) and 1 to {y.shape[-1]} latents, "
                f"got shape {y.shape} and {latents} latents; to have more, give `mixing` itself."
            )
        counts = ~np.isnan(y) * (1.0 if weights is None else as_weights(weights, len(y))[:, None])
        total = np.maximum(np.sum(counts, axis=0), np.finfo(float).tiny)
        seen = np.where(counts > 0, y, 0.0)
        centre = np.sum(counts * seen, axis=0) / total
        away = np.where(counts > 0, seen - centre, 0.0)
        scale = np.sqrt(np.sum(counts * away**2, axis=0) / total)
        varies = scale > 8 * np.finfo(float).eps * np.abs(centre)
        scale = np.where(varies, scale, 1.0)
        # Of the pairs that are both there; shared weights count once.
        root = np.sqrt(counts) * away / scale
        together = np.maximum(np.sqrt(counts).T @ np.sqrt(counts), np.finfo(float).tiny)
        values, vectors = np.linalg.eigh(root.T @ root / together)
        leading = np.argsort(values)[::-1][:latents]
        size = np.sqrt(np.maximum(values[leading], USUAL_NOISE_SHARE))
        direction = vectors[:, leading] * np.sign(np.sum(vectors[:, leading], axis=0) + 1e-300)
        return cls(direction * size, USUAL_NOISE_SHARE, centre=centre, scale=scale)

    @property
    def output_shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.mixing.shape[:1]

    @abstractmethod
    def parts(self, marginals: Marginals) -> Parts:
        """The outputs as R independent functions and their loadings, given marginals of f."""

    def latent_scale(self, spread: float) -> float | tuple[float, ...]:
        return 1.0

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Float[Array, "P"]:
        mean, variance = self.conditional_moments(f, side)
        return mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape, mean.dtype)

    def cdf(self, y: Float[Array, "P"], f: Latents, side: SideInformation) -> Float[Array, "P"]:
        mean, variance = self.conditional_moments(f, side)
        return ndtr((y - mean) / jnp.sqrt(variance))

    def expected_log_prob(self, y: Outputs, marginals: Marginals, side: SideInformation) -> PerRow:
        return self._expected(y, *self._output_moments(marginals))

    def _expected(self, y: Outputs, centre: Outputs, spread: Outputs) -> PerRow:
        """E log p(y | f), given means and variances of L g."""
        away, seen = self._away(y, centre)
        terms = jnp.log(2 * jnp.pi * self.noise_variance) + (away**2 + spread) / self.noise_variance
        return jnp.sum(jnp.where(seen, -0.5 * terms - jnp.log(self.scale), 0.0), axis=1)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> OutputMoments:
        return self._in_units(*self._output_moments(marginals))

    def _in_units(self, centre: Outputs, spread: Outputs) -> OutputMoments:
        """Means and variances of y, given those of L g."""
        variance = self.scale**2 * (spread + self.noise_variance)
        return self.centre + self.scale * centre, variance

    def predictive_log_prob(
        self, y: Outputs, marginals: Marginals, side: SideInformation
    ) -> PerRow:
        return self._log_expected(y, marginals, self.noise_variance)

    def log_expected_power(
        self, y: Outputs, marginals: Marginals, side: SideInformation, power: float, near: Marginals
    ) -> PerRow:
        value = self._log_expected(y, marginals, self.noise_variance / power)
        return value + self._constant_of_power(y, power)

    def _constant_of_power(self, y: Outputs, power: float) -> PerRow:
        """N(y; m, s)^a is N(y; m, s / a) times a constant, whose log this is."""
        shared = (1 - power) * (jnp.log(2 * jnp.pi * self.noise_variance)) - jnp.log(power)
        constant = 0.5 * shared + (1 - power) * jnp.log(self.scale)
        return jnp.sum(jnp.where(jnp.isnan(y), 0.0, constant), axis=1)

    def turned(self) -> "TurnedOutputs":
        return TurnedOutputs(self)

    @abstractmethod
    def _joint_output_moments(self, joint: JointMarginals) -> OutputMoments:
        """Means and variances of L g where the latents of a row are correlated."""

    @abstractmethod
    def _log_expected(self, y: Outputs, marginals: Marginals, noise: Float[Array, "P"]) -> PerRow:
        """Log density of the outputs together, g and L integrated out."""

    def _output_moments(self, marginals: Marginals) -> OutputMoments:
        """Means and variances of L g."""
        g, v, loading, loading_variance = self.parts(marginals)
        spread = (loading**2 + loading_variance) * v[:, None] + loading_variance * g[:, None] ** 2
        return jnp.sum(loading * g[:, None], axis=2), jnp.sum(spread, axis=2)

    def _away(self, y: Outputs, outputs: Outputs) -> tuple[Outputs, Any]:
        """Standardised outputs less L g, zero where they are missing; and which are there."""
        seen = ~jnp.isnan(y)
        standard = (jnp.where(seen, y, self.centre) - self.centre) / self.scale
        return jnp.where(seen, standard - outputs, 0.0), seen


class TurnedOutputs(WhitenedLikelihood):
    """Linear outputs of correlated latents: moments of the outputs are those of products."""

    own: LinearOutputs  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def has_sure_bounds(self) -> bool:
        return True

    def expected_log_prob(self, y: Outputs, marginals: Marginals, side: SideInformation) -> PerRow:
        joint, _ = self.of_f(side)
        return self.own._expected(y, *self.own._joint_output_moments(joint))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> OutputMoments:
        joint, _ = self.of_f(side)
        return self.own._in_units(*self.own._joint_output_moments(joint))


class LinearCoregionalisation(LinearOutputs, NormalPredictions):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Outputs that mix latent functions by numbers: L = mixing.

    With a kernel for each latent function this is the linear model of coregionalisation (Journel
    & Huijbregts 1978; Alvarez, Rosasco & Lawrence 2012, 4.2), with one for all of them the
    intrinsic one. A latent function with the kernel `White` is a nugget that outputs of a place
    share. Coupled sites give the exact posterior, whatever is missing. Without coupling, latent
    functions are taken to be independent, which is exact for columns of `mixing` that are
    orthogonal in the metric of the noise (Bruinsma et al. 2020, proposition 5) if no output is
    missing; learning turns them that way.

    Example:
        >>> likelihood = LinearCoregionalisation([[1.0], [-2.0]], noise_variance=[0.1, 0.4])
        >>> mean, variance = likelihood.conditional_moments(np.array([0.5]), {})
        >>> np.asarray(mean).tolist(), np.asarray(variance, float).round(3).tolist()
        ([0.5, -1.0], [0.1, 0.4])
    """

    is_jointly_log_concave: ClassVar[bool] = True
    is_jointly_gaussian: ClassVar[bool] = True

    @property
    def latent_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.mixing.shape[1]

    def parts(self, marginals: Marginals) -> Parts:
        mean, variance = marginals
        loading = jnp.asarray(self.mixing, mean.dtype)[None]
        return Parts(mean, variance, loading, jnp.zeros_like(loading))

    def turned(self) -> "TurnedCoregionalisation":
        return TurnedCoregionalisation(self)

    def _joint_output_moments(self, joint: JointMarginals) -> OutputMoments:
        loading = jnp.asarray(self.mixing, joint.mean.dtype)
        spread = jnp.einsum("pr,nrs,ps->np", loading, joint.covariance, loading)
        return joint.mean @ loading.T, spread

    def _log_expected(self, y: Outputs, marginals: Marginals, noise: Float[Array, "P"]) -> PerRow:
        return self._log_joint(y, JointMarginals.independent(marginals), noise)

    def _log_joint(self, y: Outputs, joint: JointMarginals, noise: Float[Array, "P"]) -> PerRow:
        """Log density of the outputs together under correlated latents."""
        mixing = jnp.asarray(self.mixing, joint.mean.dtype)
        away, seen = self._away(y, joint.mean @ mixing.T)
        loading = jnp.where(seen[:, :, None], mixing, 0.0)
        shared = loading @ joint.covariance @ jnp.swapaxes(loading, 1, 2)
        own = jnp.where(seen, noise, 1.0)
        identity = jnp.eye(y.shape[1], dtype=own.dtype)
        factor = jnp.linalg.cholesky(shared + own[:, :, None] * identity)
        white = solve(factor, away[:, :, None], left_side=True, lower=True)[:, :, 0]
        halves = 0.5 * white**2 + jnp.log(jnp.diagonal(factor, axis1=1, axis2=2))
        constant = jnp.where(seen, 0.5 * jnp.log(2 * jnp.pi) + jnp.log(self.scale), 0.0)
        return -jnp.sum(halves + constant, axis=1)


class TurnedCoregionalisation(TurnedOutputs, NormalPredictions):
    """Outputs by numbers of correlated latents: everything is Gaussian."""

    own: LinearCoregionalisation  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def has_sure_moments(self) -> bool:
        return True

    def predictive_log_prob(
        self, y: Outputs, marginals: Marginals, side: SideInformation
    ) -> PerRow:
        return self.own._log_joint(y, self.of_f(side)[0], self.own.noise_variance)

    def tilted(
        self,
        y: Outputs,
        cavity: JointMarginals,
        side: SideInformation,
        power: float,
        near: JointMarginals,
    ) -> tuple[PerRow, JointMarginals]:
        own = self.own
        mixing = jnp.asarray(own.mixing, cavity.mean.dtype)
        target, seen = own._away(y, jnp.zeros_like(y))
        weighted = jnp.where(seen, power / own.noise_variance, 0.0)[:, :, None] * mixing
        linear = jnp.sum(weighted * target[:, :, None], axis=1)
        log_mass = own._log_joint(y, cavity, own.noise_variance / power)
        log_mass = log_mass + own._constant_of_power(y, power)
        return log_mass, cavity.given(linear, mixing.T @ weighted)


class GPRegressionNetwork(LinearOutputs):
    """Outputs whose mixing changes with the inputs: L = mixing + W(x), W latent functions too.

    The Gaussian process regression network of Wilson, Knowles & Ghahramani (2012, eq. 2), its
    weights' prior mean learned (theirs is zero, where the sign of a weight and of its function
    can change together). The latent functions are the R of g, then the P R of W, row by row.

    Example:
        >>> GPRegressionNetwork([[1.0, 0.5], [0.2, -1.0], [0.4, 0.3]]).latent_size
        8
    """

    @property
    def latent_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.mixing.shape[1] + self.mixing.size

    def latent_scale(self, spread: float) -> tuple[float, ...]:
        return (1.0,) * self.mixing.shape[1] + (0.5,) * self.mixing.size

    def parts(self, marginals: Marginals) -> Parts:
        mean, variance = marginals
        number = self.mixing.shape[1]
        table = (len(mean), *self.mixing.shape)
        loading, spread = (part[:, number:].reshape(table) for part in marginals)
        return Parts(mean[:, :number], variance[:, :number], loading + self.mixing, spread)

    def _log_expected(self, y: Outputs, marginals: Marginals, noise: Float[Array, "P"]) -> PerRow:
        # Given g the outputs are independent and normal. In units of its spread from its mean,
        # the law of g is a standard normal one, and that given y about N(centre, root root^T).
        parts = self.parts(marginals)
        spread = jnp.sqrt(parts.variance)
        slopes = parts.loading * spread[:, None]
        away, seen = self._away(y, jnp.sum(parts.loading * parts.mean[:, None], axis=2))
        centre, root = jax.lax.stop_gradient(self._given(slopes, away, seen, parts, noise))
        nodes, weights = prediction_nodes(self.mixing.shape[1])

        def at(node: tuple[Float[Array, "R"], Scalar]) -> PerRow:
            z, log_weight = node
            x = centre + root @ z
            left = away - (slopes @ x[:, :, None])[:, :, 0]
            total = self._variances(parts, parts.mean + spread * x, noise)
            log_density = norm.logpdf(left, 0.0, jnp.sqrt(total)) - jnp.log(self.scale)
            log_law = log_weight + 0.5 * (jnp.sum(z**2) - jnp.sum(x**2, axis=1))
            return log_law + jnp.sum(jnp.where(seen, log_density, 0.0), axis=1)

        log_size = jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
        dtype = marginals.mean.dtype
        nodes = jnp.asarray(nodes, dtype), jnp.log(jnp.asarray(weights, dtype))
        return log_size + logsumexp(jax.lax.map(at, nodes), axis=0)

    def _joint_output_moments(self, joint: JointMarginals) -> OutputMoments:
        # Each output is f' A f / 2 + b' f for a matrix A and a vector b of its own.
        outputs, number = self.mixing.shape
        size = self.latent_size
        places = number + np.arange(outputs * number).reshape(outputs, number)
        A, b = np.zeros((outputs, size, size)), jnp.zeros((outputs, size))
        for r in range(number):
            A[np.arange(outputs), r, places[:, r]] = A[np.arange(outputs), places[:, r], r] = 1.0
        b = b.at[:, :number].set(jnp.asarray(self.mixing)).astype(joint.mean.dtype)
        mean, covariance = joint
        slope = b + jnp.einsum("pqr,nr->npq", A, mean)
        turned = jnp.einsum("pqr,nrs->npqs", A, covariance)
        centre = jnp.einsum("npq,nq->np", 0.5 * (slope + b), mean)
        centre = centre + 0.5 * jnp.trace(turned, axis1=2, axis2=3)
        spread = jnp.einsum("npq,nqr,npr->np", slope, covariance, slope)
        return centre, spread + 0.5 * jnp.einsum("npqs,npsq->np", turned, turned)

    def turned(self) -> "TurnedNetwork":
        return TurnedNetwork(self)

    def _given(
        self,
        slopes: Float[Array, "N P R"],
        away: Outputs,
        seen: Any,
        parts: Parts,
        noise: Float[Array, "P"],
    ) -> tuple[Float[Array, "N R"], Float[Array, "N R R"]]:
        """Mean and root of the covariance of x given y, the outputs' variances at their mean."""
        x = jnp.zeros_like(parts.mean)
        identity = jnp.eye(x.shape[1], dtype=x.dtype)
        root = jnp.broadcast_to(identity, (*x.shape, x.shape[1]))
        for _ in range(_STEPS):
            # The outputs' variances given g, on average over its law so far.
            g = parts.mean + jnp.sqrt(parts.variance) * x
            square = g**2 + parts.variance * jnp.sum(root**2, axis=2)
            total = jnp.sum(parts.loading_variance * square[:, None], axis=2) + noise
            scaled = jnp.where(seen, 1 / total, 0.0)[:, :, None] * slopes
            precision = identity + jnp.swapaxes(slopes, 1, 2) @ scaled
            covariance = jnp.linalg.inv(precision)
            x = (covariance @ (jnp.swapaxes(scaled, 1, 2) @ away[:, :, None]))[:, :, 0]
            root = jnp.linalg.cholesky(covariance)
        return x, root

    def _variances(self, parts: Parts, g: Float[Array, "N R"], noise: Float[Array, "P"]) -> Outputs:
        """Variances of the outputs given g, in units of scale squared."""
        return jnp.sum(parts.loading_variance * g[:, None] ** 2, axis=2) + noise

    def predictive_cdf(self, y: Outputs, marginals: Marginals, side: SideInformation) -> Outputs:
        parts = self.parts(marginals)

        def below(g: Float[Array, "N R"]) -> Outputs:
            centre = self.centre + self.scale * jnp.sum(parts.loading * g[:, None], axis=2)
            spread = jnp.sqrt(self._variances(parts, g, self.noise_variance))
            return ndtr((y - centre) / (self.scale * spread))

        nodes = prediction_nodes(self.mixing.shape[1])
        return expectation(jax.vmap(below, 1, 1), parts.mean, parts.variance, nodes)


class TurnedNetwork(TurnedOutputs):
    """Regression networks of correlated latents: normal given the shared functions g."""

    own: GPRegressionNetwork  # pyright: ignore[reportIncompatibleVariableOverride]

    def predictive_log_prob(
        self, y: Outputs, marginals: Marginals, side: SideInformation
    ) -> PerRow:
        own, (joint, _) = self.own, self.of_f(side)
        target, seen = own._away(y, jnp.zeros_like(y))
        dtype, number = joint.mean.dtype, own.mixing.shape[1]
        identity = jnp.eye(number, dtype=dtype)

        def of_row(target: Array, seen: Array, mean: Array, covariance: Array) -> Array:
            outputs = _outputs_given(own, mean, covariance)

            def seen_law(x: Float[Array, "R"]) -> tuple[Array, Array]:
                """Law of the observed outputs; missing ones are standard normal."""
                centre, spread = outputs(x)
                spread = jnp.where(seen[:, None] & seen, spread, 0.0)
                own_noise = jnp.where(seen, own.noise_variance, 1.0)
                return jnp.where(seen, centre, 0.0), spread + jnp.diag(own_noise)

            def given(x: Float[Array, "R"]) -> tuple[Array, Array]:
                """Gauss and Newton's step towards the law of x given y: its mean and root."""
                centre, spread = seen_law(x)
                lower = small_cholesky(spread)
                half = small_solve_lower(lower, jax.jacfwd(lambda x: seen_law(x)[0])(x))
                left = small_solve_lower(lower, (target - centre)[:, None])
                covariance = small_inverse(identity + half.T @ half)
                pull = half.T @ (left[:, 0] + half @ x)
                return covariance @ pull, small_cholesky(covariance)

            x = jnp.zeros(number, dtype)
            x = jax.lax.fori_loop(0, _STEPS, lambda _, x: given(x)[0], x)
            x, root = jax.lax.stop_gradient(given(x))

            def at(z: Float[Array, "R"]) -> Scalar:
                place = x + root @ z
                centre, spread = seen_law(place)
                lower = small_cholesky(spread)
                white = small_solve_lower(lower, (target - centre)[:, None])
                log_size = jnp.sum(jnp.log(jnp.diagonal(lower)))
                return 0.5 * (jnp.sum(z**2) - jnp.sum(place**2) - jnp.sum(white**2)) - log_size

            nodes, weights = prediction_nodes(number)
            values = jax.vmap(at)(jnp.asarray(nodes, dtype))
            log_size = jnp.sum(jnp.log(jnp.diagonal(root)))
            return log_size + logsumexp(values, b=jnp.asarray(weights, dtype))

        constant = jnp.where(seen, 0.5 * jnp.log(2 * jnp.pi) + jnp.log(own.scale), 0.0)
        return jax.vmap(of_row)(target, seen, *joint) - jnp.sum(constant, axis=1)

    def predictive_cdf(self, y: Outputs, marginals: Marginals, side: SideInformation) -> Outputs:
        own, (joint, _) = self.own, self.of_f(side)
        nodes, weights = prediction_nodes(own.mixing.shape[1])
        nodes = jnp.asarray(nodes, joint.mean.dtype)

        def of_row(y: Array, mean: Array, covariance: Array) -> Array:
            centre, spread = jax.vmap(_outputs_given(own, mean, covariance))(nodes)
            variance = jnp.diagonal(spread, axis1=1, axis2=2) + own.noise_variance
            away = (y - own.centre) / own.scale - centre
            return jnp.asarray(weights, y.dtype) @ ndtr(away / jnp.sqrt(variance))

        return jax.vmap(of_row)(y, *joint)


def _outputs_given(
    own: GPRegressionNetwork, mean: Latents, covariance: Float[Array, "Q Q"]
) -> Callable[[Float[Array, "R"]], tuple[Float[Array, "P"], Float[Array, "P P"]]]:
    """Mean and covariance of a row's outputs without noise given g = m + root x, x ~ N(0, I)."""
    outputs, number = own.mixing.shape
    law = JointMarginals(mean[None, :number], covariance[None, :number, :number])
    root = law.root()[0]
    # Weights are normal given g: their covariances with x, and what is left of theirs.
    with_x = small_solve_lower(root, covariance[:number, number:]).T
    left = covariance[number:, number:] - with_x @ with_x.T
    left = left.reshape(outputs, number, outputs, number)

    def at(x: Float[Array, "R"]) -> tuple[Float[Array, "P"], Float[Array, "P P"]]:
        g = mean[:number] + root @ x
        weights = (mean[number:] + with_x @ x).reshape(outputs, number) + own.mixing
        return weights @ g, jnp.einsum("r,prqs,s->pq", g, left, g)

    return at


def _one_an_output(name: str, values: Any, outputs: int) -> Float[np.ndarray, "P"]:
    array = np.asarray(values, np.float64)
    if array.shape not in ((), (outputs,)):
        raise InputError(
            f"{name} must be a number, or one for each of {outputs} outputs, got shape "
            f"{array.shape}."
        )
    return np.broadcast_to(array, (outputs,)).copy()
