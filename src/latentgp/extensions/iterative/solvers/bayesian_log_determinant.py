"""Log-determinants inferred from traces of few powers: an estimate with a standard deviation."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.solution import compiled, is_plain
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.typing import Array, RandomKey, Scalar

_BINS = 512
_NODES = 16  # of a bin, for the logarithm
# Of the deviations of the density from the arcsine law, relative to it, and their range.
_SCALES = np.geomspace(0.03, 30.0, 13)
_RANGES = np.geomspace(0.05, 3.0, 7)
_UPDATES = 3  # of the noise, which depends on the density


class LogDeterminantPosterior(NamedTuple):
    """A posterior mean and standard deviation."""

    mean: Scalar
    standard_deviation: Scalar


def bayesian_log_determinant(
    operator: LinearOperator,
    key: RandomKey,
    *,
    lower: Any,
    upper: Any,
    probes: int = 16,
    products: int = 10,
) -> LogDeterminantPosterior:
    """The log-determinant of A given stochastic traces of its powers (Fitzsimons et al. 2017).

    Traces of powers up to twice the products are means of z' A^k z over vectors z of random signs.
    They are taken as Chebyshev polynomials, which span the same space and lose no digits; what
    follows from them is in `infer_log_determinant`.

    Bounds of the eigenvalues are, of a kernel matrix with noise, the noise variance and the largest
    sum of a row's absolute values (Gershgorin). The products with A are those of each probe vector.

    Raises:
        InputError: bounds that are not 0 < lower < upper.

    Example:
        >>> from latentgp.extensions.iterative.solvers.operators import StoredCovariance
        >>> A = StoredCovariance(jnp.diag(jnp.linspace(1.0, 3.0, 40)))
        >>> found = bayesian_log_determinant(A, jax.random.key(0), lower=0.5, upper=3.5)
        >>> exact = jnp.sum(jnp.log(jnp.linspace(1.0, 3.0, 40)))
        >>> bool(abs(found.mean - exact) < 3 * found.standard_deviation)
        True
    """
    _check_bounds(lower, upper)
    return _by_probes(operator, key, lower=lower, upper=upper, probes=probes, products=products)


@compiled("lower", "upper")
def _by_probes(
    operator: LinearOperator, key: RandomKey, *, lower: Any, upper: Any, probes: int, products: int
) -> LogDeterminantPosterior:
    z = jax.random.rademacher(key, (operator.size, probes), operator.dtype)
    middle, half = (upper + lower) / 2, (upper - lower) / 2

    def times(v: Array) -> Array:
        return (operator.times(v) - middle * v) / half

    def step(state: Any, _: None) -> tuple[Any, Any]:
        """T_{2j-1} = 2 T_{j-1} T_j - T_1 and T_2j = 2 T_j T_j - T_0."""
        before, now = state
        moments = 2 * jnp.stack([jnp.mean(before * now), jnp.mean(now * now)])
        return (now, 2 * times(now) - before), moments

    first = times(z)
    _, found = jax.lax.scan(step, (z, first), None, length=products)
    shift = jnp.stack([jnp.mean(z * first), jnp.ones((), z.dtype)])
    moments = jnp.concatenate([jnp.ones(1, z.dtype), (found - shift).ravel()])
    return _infer(moments, operator.size, lower=lower, upper=upper, probes=probes)


def infer_log_determinant(
    moments: Float[Array, "moments"],
    size: int,
    *,
    lower: Any,
    upper: Any,
    probes: int | None = None,
) -> LogDeterminantPosterior:
    """The log-determinant of an N x N matrix given Chebyshev moments of its eigenvalues.

    With eigenvalues x = c + h cos t, the density p of t on [0, pi] has as its prior a Gaussian
    process around 1 / pi, constant in bins (the histogram kernel of Fitzsimons et al. 2017), with
    a covariance that falls exponentially, and a mass ~ N(0, 1) at the lower end, where noise puts
    most eigenvalues of a kernel matrix. Moments m_k = int cos(k t) p(t) dt and the target
    N int log(c + h cos t) p(t) dt are linear in p: Bayesian quadrature (O'Hagan 1991). Means over
    S probe vectors have the noise covariance 2 / (N S) int cos(j t) cos(k t) p(t) dt, that of
    Gaussian probes and an upper bound for random signs; p is its posterior mean here, after some
    rounds. Scale and range of the prior are summed over a grid, by the likelihood of the moments.

    That densities are positive is not used. The standard deviation is that of the prior's family,
    no bound: of exact traces, and eigenvalues that crowd near the lower end but not at it, it was
    found up to six times too small.

    Moments are from m_0 = 1 on, N is the size, and without S, the probes, traces are exact.

    Raises:
        InputError: bounds that are not 0 < lower < upper.

    Example:
        >>> t = jnp.linspace(0.0, jnp.pi, 101)[1::2]  # 50 nodes of the arcsine law
        >>> moments = jnp.mean(jnp.cos(jnp.arange(8.0)[:, None] * t), axis=1)
        >>> found = infer_log_determinant(moments, 50, lower=1.0, upper=3.0)
        >>> exact = jnp.sum(jnp.log(2 + jnp.cos(t)))
        >>> bool(abs(found.mean - exact) < 0.01)
        True
    """
    _check_bounds(lower, upper)
    return _infer(moments, size, lower=lower, upper=upper, probes=probes)


@compiled("lower", "upper")
def _infer(
    moments: Float[Array, "moments"], size: int, *, lower: Any, upper: Any, probes: int | None
) -> LogDeterminantPosterior:
    dtype = moments.dtype
    features, width = _features(len(moments))
    features = jnp.asarray(features, dtype)
    logs = _logs(jnp.asarray(lower, dtype), jnp.asarray(upper, dtype))
    flat = jnp.full(_BINS, 1 / np.pi, dtype)
    residual, centre = moments - features @ flat, logs @ flat
    places = (jnp.arange(_BINS) + 0.5) * width
    gaps = jnp.abs(places[:, None] - places)
    ranges = jnp.asarray(_RANGES, dtype)

    wanted = jnp.concatenate([features, logs[None]])
    last = wanted[:, -1] / width  # of a mass of one at the lower end

    def of_range(length: Array) -> tuple[Array, Array, Array]:
        cross = jnp.exp(-gaps / length) / np.pi**2 @ wanted.T
        both = wanted @ cross
        return both[:-1, :-1], both[:, -1], cross[:, :-1]

    inner, target, cross = jax.lax.map(of_range, ranges)

    def given(noise: Array) -> tuple[LogDeterminantPosterior, Array]:
        def one(pair: tuple[Array, Array]) -> tuple[Array, ...]:
            place, scale = pair
            S = scale**2 * inner[place] + jnp.outer(last[:-1], last[:-1]) + noise
            factor = jittered_cholesky(S).factor
            half = factor.inverse @ residual
            across = factor.inverse @ (scale**2 * target[place, :-1] + last[-1] * last[:-1])
            likelihood = -0.5 * half @ half - factor.half_log_determinant
            variance = scale**2 * target[place, -1] + last[-1] ** 2 - across @ across
            weights = factor.inverse.T @ half
            density = scale**2 * cross[place] @ weights
            density = density.at[-1].add(last[:-1] @ weights / width)
            return likelihood, across @ half, jnp.maximum(variance, 0.0), density

        number, scale = np.meshgrid(np.arange(len(_RANGES)), _SCALES, indexing="ij")
        pairs = jnp.asarray(number.ravel()), jnp.asarray(scale.ravel(), dtype)
        likelihood, mean, variance, density = jax.lax.map(one, pairs)
        weights = jnp.exp(likelihood - logsumexp(likelihood))
        middle = weights @ mean
        spread = weights @ (variance + (mean - middle) ** 2)
        return LogDeterminantPosterior(centre + middle, jnp.sqrt(spread)), flat + weights @ density

    def noise_of(density: Array) -> Array:
        if probes is None:
            return jnp.zeros_like(inner[0])
        share = jnp.maximum(density, 0.0) * width
        share = share / jnp.sum(share)
        at = features / width
        # The number of eigenvalues is known.
        noise = 2 / (size * probes) * (at * share) @ at.T
        return noise.at[0].set(0.0).at[:, 0].set(0.0)

    found, density = given(noise_of(flat))
    for _ in range(0 if probes is None else _UPDATES - 1):
        found, density = given(noise_of(density))
    return LogDeterminantPosterior(*(size * part for part in found))


def _features(number: int) -> tuple[Float[np.ndarray, "moments B"], float]:
    """Integrals of cos(k t) over the bins, and their width."""
    ends = np.linspace(0.0, np.pi, _BINS + 1)
    k = np.arange(1, number)[:, None]
    first = np.diff(ends)[None]
    return np.concatenate([first, np.diff(np.sin(k * ends), axis=1) / k]), float(ends[1])


def _logs(lower: Scalar, upper: Scalar) -> Float[Array, "B"]:
    """Integrals of log(c + h cos t) over the bins."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    width = np.pi / _BINS
    t = width * (np.arange(_BINS)[:, None] + (nodes + 1) / 2)
    # c + h cos t without the cancellation near pi
    x = lower + (upper - lower) * jnp.asarray(np.cos(t / 2) ** 2, lower.dtype)
    return jnp.log(x) @ jnp.asarray(weights * width / 2, lower.dtype)


def _check_bounds(lower: Any, upper: Any) -> None:
    known = all(is_plain(bound) or isinstance(bound, np.ndarray) for bound in (lower, upper))
    if known and not 0 < lower < upper:
        raise InputError(
            f"lower and upper must bound the eigenvalues, 0 < lower < upper, got {lower} and "
            f"{upper}; give for example the noise variance and the largest sum of a row."
        )
