"""Priors from statements on a parameter's probable sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpyro.distributions import (
    Distribution,
    Exponential,
    Gamma,
    InverseGamma,
    LogNormal,
    TransformedDistribution,
    Weibull,
)
from numpyro.distributions.transforms import PowerTransform

from latentgp.errors import InputError

_LAWS = "inverse-gamma", "log-normal", "gamma"


def prior_from(
    *,
    below: float | None = None,
    above: float | None = None,
    std_above: float | None = None,
    probability: float | Sequence[float] = 0.05,
    law: str = "inverse-gamma",
    dimension: float = 1,
) -> Distribution:
    """Prior of a positive parameter from statements on its size, as `fit(priors=...)` takes it.

    | statements | law |
    |---|---|
    | `below` and `above` | `law` with these probabilities in its tails |
    | `below` alone, of a length-scale | penalised complexity (Fuglstad et al. 2019) |
    | `above` alone, of a standard deviation | penalised complexity (Simpson et al. 2017) |
    | `std_above`, of a variance | the law of the square of that standard deviation |

    Penalised complexity takes the simpler model for the base, from which the prior falls
    exponentially: an infinite length-scale, a standard deviation of zero. That of the variance is
    for kernels and for noise.

    Args:
        below: the parameter is below this with the given probability.
        above: the parameter is above this with the given probability.
        std_above: the parameter's square root is above this with the given probability.
        probability: of the statement, in (0, 1); of two statements one for both, or two, of which
            the sum is below one.
        law: of two statements: "inverse-gamma" has hardly anything near zero and a heavy upper
            tail, which suits length-scales; "gamma" has the opposite; "log-normal" is even.
        dimension: of the inputs that share the length-scale. The more there are, the less is known
            of long ones.

    Raises:
        InputError: no statement, or such that do not go together.

    Example:
        >>> prior = prior_from(below=0.5, above=5.0, probability=0.05)
        >>> round(float(prior.concentration), 2), round(float(prior.rate), 2)
        (2.44, 2.72)
        >>> round(float(prior_from(std_above=2.0, probability=0.1).cdf(4.0)), 4)
        0.9
    """
    tails = np.atleast_1d(np.asarray(probability, np.float64))
    stated = [
        f"{name}={value}"
        for name, value in (("below", below), ("above", above), ("std_above", std_above))
        if value is not None and not (np.ndim(value) == 0 and 0 < value < np.inf)
    ]
    if stated:
        raise InputError(f"prior_from needs positive numbers, got {', '.join(stated)}.")
    two = below is not None and above is not None
    if not (np.all((tails > 0) & (tails < 1)) and tails.shape in ((1,), (2,) if two else (1,))):
        raise InputError(
            f"probability must be in (0, 1), one for each statement at most, got {probability}."
        )
    if std_above is not None and below is None and above is None:
        return Weibull(float((std_above / -np.log(tails[0])) ** 2), 0.5)
    if std_above is not None or (below is None and above is None):
        raise InputError("prior_from takes below, above, both, or std_above; give one of the four.")
    if below is None:
        assert above is not None
        return Exponential(float(-np.log(tails[0]) / above))
    if above is None:
        return _long(below, tails[0], dimension)
    lower, upper = np.broadcast_to(tails, 2)
    if not (below < above and lower + upper < 1):
        raise InputError(
            f"Statements contradict each other: below={below} with probability {lower:g} and "
            f"above={above} with {upper:g}; below must be smaller, and the sum less than one."
        )
    if law not in _LAWS:
        raise InputError(f"law must be one of {', '.join(_LAWS)}, got {law!r}.")
    return _between(float(below), float(above), float(lower), float(upper), law)


def _long(below: float, probability: float, dimension: float) -> Distribution:
    """Length-scale l whose l^(-D / 2) is exponential."""
    if not (dimension == int(dimension) and dimension >= 1):
        raise InputError(f"dimension must be a whole number of at least 1, got {dimension}.")
    half = dimension / 2
    rate = -np.log(probability) * below**half
    if half == 1:
        return InverseGamma(1.0, float(rate))
    return TransformedDistribution(Weibull(float(rate ** (-1 / half)), half), PowerTransform(-1.0))


def _between(below: float, above: float, lower: float, upper: float, law: str) -> Distribution:
    """A law of two parameters by two of its quantiles."""
    from scipy.optimize import brentq  # takes long to import
    from scipy.special import gammainccinv, gammaincinv, ndtri

    if law == "log-normal":
        z = ndtri([lower, 1 - upper])
        scale = np.log(above / below) / (z[1] - z[0])
        return LogNormal(float(np.log(below) - z[0] * scale), float(scale))
    # The ratio of two quantiles depends on the shape alone, and falls with it.
    tails = np.array([lower, 1 - upper])
    inverse = law == "inverse-gamma"

    def quantiles(shape: float) -> np.ndarray:
        return 1 / gammainccinv(shape, tails) if inverse else gammaincinv(shape, tails)

    def excess(log_shape: float) -> float:
        ends = quantiles(np.exp(log_shape))
        with np.errstate(divide="ignore"):
            return float(np.clip(np.diff(np.log(ends))[0], 0, 1e3) - np.log(above / below))

    root: Any = brentq(excess, -5.0, 18.0, xtol=1e-13)
    shape = float(np.exp(root))
    scale = below / quantiles(shape)[0]
    return InverseGamma(shape, float(scale)) if inverse else Gamma(shape, float(1 / scale))
