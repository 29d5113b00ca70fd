"""Special functions of arrays in double precision, by NumPy and Python's `math`."""

from __future__ import annotations

import math
import statistics

import numpy as np


def of_math(function, x):
    """A function of one number at every entry; where it is not defined, infinity."""

    def defined(value):
        try:
            return function(value)
        except (ValueError, OverflowError):
            return math.inf

    return np.asarray(np.frompyfunc(defined, 1, 1)(x), dtype=np.float64)


def erf(x):
    """Error function."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def erfc(x):
    """Complement of the error function."""
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x), dtype=np.float64)


def lgamma(x):
    """Log of the absolute value of the gamma function."""
    return of_math(math.lgamma, x)


def erf_inv(x):
    """Inverse of the error function: near zero by a Newton step, else by quantiles of a normal."""
    normal = statistics.NormalDist()

    def inverse(value):
        size = abs(value)
        if not size < 1:
            return math.copysign(math.inf, value) if size == 1 else math.nan
        found = -normal.inv_cdf((1 - size) / 2) / math.sqrt(2)
        if size < 0.5:
            found -= (math.erf(found) - size) * math.sqrt(math.pi) / 2 * math.exp(found * found)
        return math.copysign(found, value)

    return of_math(inverse, x)


def digamma(x):
    """Derivative of log gamma: recurrence up to 10, then an asymptotic series."""
    x = np.asarray(x, dtype=np.float64)
    z = np.where(x < 0.5, 1 - x, x)
    found = np.zeros_like(z)
    for _ in range(10):
        low = z < 10
        found = found - np.where(low, 1 / z, 0.0)
        z = np.where(low, z + 1, z)
    square = 1 / (z * z)
    series = 0.0
    for coefficient in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = square * (coefficient + series)
    found = found + np.log(z) - 0.5 / z - series
    return np.where(x < 0.5, found - np.pi / np.tan(np.pi * x), found)


def zeta(s, x):
    """Hurwitz's zeta function, s > 1 and x > 0: ten terms, then the Euler-Maclaurin formula."""
    s, x = np.asarray(s, np.float64), np.asarray(x, np.float64)
    z = x + 10
    found = sum((x + k) ** -s for k in range(10)) + z ** (1 - s) / (s - 1) + z**-s / 2
    slope = s * z ** (-s - 1)
    for j, bernoulli in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6), 1):
        found = found + bernoulli / math.factorial(2 * j) * slope
        slope = slope * (s + 2 * j - 1) * (s + 2 * j) / z**2
    return found


def polygamma(n, x):
    """Derivatives of digamma, of whole orders n, at x > 0."""
    n = np.asarray(n, np.float64)
    higher = -((-1.0) ** n) * np.exp(lgamma(n + 1)) * zeta(np.maximum(n, 1) + 1, x)
    return np.where(n == 0, digamma(x), higher)


def incomplete_gamma(a, x):
    """Both regularised incomplete gamma functions: a series, or a continued fraction (Lentz)."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    by_series = x < a + 1
    factor = np.exp(a * np.log(np.where(x > 0, x, 1.0)) - x - lgamma(a))
    factor = np.where(x > 0, factor, 0.0)
    own = np.where(by_series, x, 0.0)
    term = total = 1 / a
    place = a
    for _ in range(10_000):
        place = place + 1
        term = term * own / place
        total = total + term
        if not np.any(np.abs(term) > 1e-17 * np.abs(total)):
            break
    lower = factor * total
    own = np.where(by_series, a + 2, x)
    b = own + 1 - a
    c = np.full(a.shape, 1e300)
    d = h = 1 / b
    for i in range(1, 10_000):
        ratio = -i * (i - a)
        b = b + 2
        d = 1 / (ratio * d + b)
        c = b + ratio / c
        h = h * d * c
        if not np.any(np.abs(d * c - 1) > 4e-16):
            break
    upper = np.where(np.isinf(x), 0.0, factor * h)
    lower = np.where(by_series, lower, 1 - upper)
    return lower, np.where(by_series, 1 - lower, upper)


def betainc(a, b, x):
    """Regularised incomplete beta function, by a continued fraction (Lentz)."""
    a, b, x = np.broadcast_arrays(*(np.asarray(part, np.float64) for part in (a, b, x)))
    turned = x > (a + 1) / (a + b + 2)
    a, b, x = np.where(turned, b, a), np.where(turned, a, b), np.where(turned, 1 - x, x)
    inside = np.where((x > 0) & (x < 1), x, 0.5)
    log_beta = lgamma(a) + lgamma(b) - lgamma(a + b)
    factor = np.exp(a * np.log(inside) + b * np.log1p(-inside) - log_beta) / a
    c = np.ones(a.shape)
    d = h = 1 / (1 - (a + b) * inside / (a + 1))
    for m in range(1, 10_000):
        even = m * (b - m) * inside / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * inside / ((a + 2 * m) * (a + 2 * m + 1))
        for ratio in (even, odd):
            d = 1 / (1 + ratio * d)
            c = 1 + ratio / c
            h = h * d * c
        if not np.any(np.abs(d * c - 1) > 4e-16):
            break
    found = np.where(x <= 0, 0.0, np.where(x >= 1, 1.0, factor * h))
    return np.where(turned, 1 - found, found)
