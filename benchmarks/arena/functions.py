"""Test functions of the duqling collection (Rumsey et al. 2025, arXiv 2512.09060), of unit cubes.

Formulas and ranges are the literature's; where no source is named they are those of Surjanovic &
Bingham's Virtual Library of Simulation Experiments. Of the sixty these fifty are here; constants,
functions with random or tabulated coefficients, and five without a published formula are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import erf

Function = Callable[[np.ndarray], np.ndarray]
FUNCTIONS: dict[str, tuple[int, Function]] = {}  # number of inputs, and f: (N, D) -> (N,)
_UNIT = (0.0, 1.0)


def known(*ranges: tuple[float, float], name: str | None = None) -> Callable[[Callable], Callable]:
    """Registers a function of columns in their own ranges."""
    low, high = np.array(ranges, float).T

    def register(function: Callable) -> Callable:
        own = (name or function.__name__).removesuffix("_")
        FUNCTIONS[own] = len(low), lambda X: function(*(low + (high - low) * X).T)
        return function

    return register


# One and two inputs


@known(_UNIT)
def forrester1(x):
    """Forrester, Sóbester & Keane (2008)."""
    return (6 * x - 2) ** 2 * np.sin(12 * x - 4)


@known((0, 50))
def higdon1(x):
    """Gramacy, Lee & Macready (2004), after Higdon (2002): a line, and waves at its end."""
    waves = np.sin(np.pi * x / 5) + np.cos(4 * np.pi * x / 5) / 5
    return np.where(x < 35.75, 1 - x / 35.75, waves)


@known((0.5, 2.5))
def grlee1(x):
    """Gramacy & Lee (2012)."""
    return np.sin(10 * np.pi * x) / (2 * x) + (x - 1) ** 4


@known((-2, 2), (-1, 3))
def banana(x, z):
    """Rosenbrock (1960)."""
    return (1 - x) ** 2 + 100 * (z - x**2) ** 2


@known(_UNIT, _UNIT)
def dms_simple(x, z):
    """Hwang et al. (1994), as the next four; Denison, Mallick & Smith (1998)."""
    return 10.391 * ((x - 0.4) * (z - 0.6) + 0.36)


@known(_UNIT, _UNIT)
def dms_radial(x, z):
    square = (x - 0.5) ** 2 + (z - 0.5) ** 2
    return 24.234 * square * (0.75 - square)


@known(_UNIT, _UNIT)
def dms_harmonic(x, z):
    x, z = x - 0.5, z - 0.5
    return 42.659 * (0.1 + x * (0.05 + x**4 - 10 * x**2 * z**2 + 5 * z**4))


@known(_UNIT, _UNIT)
def dms_additive(x, z):
    of_x = 1.5 * (1 - x) + np.exp(2 * x - 1) * np.sin(3 * np.pi * (x - 0.6) ** 2)
    return 1.3356 * (of_x + np.exp(3 * (z - 0.5)) * np.sin(4 * np.pi * (z - 0.9) ** 2))


@known(_UNIT, _UNIT)
def dms_complicated(x, z):
    of_x = np.exp(x) * np.sin(13 * (x - 0.6) ** 2)
    return 1.9 * (1.35 + of_x * np.exp(-z) * np.sin(7 * z))


@known(_UNIT, _UNIT)
def foursquare(x, z):
    """Rumsey et al. (2025): a bump, a plane, a hinge and steps."""
    bump = np.exp(-30 * ((x - 0.75) ** 2 + (z - 0.75) ** 2))
    hinge = 8.16 * np.maximum(0.35 - x, 0) * np.maximum(0.35 - z, 0)
    steps = 0.33 * (x > 0.75) + 0.36 * (x > 0.75) * (z > 0.25)
    steps = steps + 0.10 * (x > 0.85) * (z > 0.25) + 0.45 * (x > 0.5) * (z < 0.5)
    return bump + z - 1.375 * x + hinge + steps


@known(_UNIT, _UNIT)
def squiggle(x, z):
    """Rumsey et al. (2025): a winding ridge."""
    middle = np.sin(2 * np.pi * x**2) / 4 - x / 10 + 0.5
    return x * z * np.exp(-0.5 * ((z - middle) / 0.05) ** 2) / (0.05 * np.sqrt(2 * np.pi))


@known(_UNIT, _UNIT)
def lim_polynomial(x, z):
    """Lim et al. (2002), as the next one."""
    first = 9 + 2.5 * x - 17.5 * z + 2.5 * x * z + 19 * z**2
    return first - 7.5 * x**3 - 2.5 * x * z**2 - 5.5 * z**4 + x**3 * z**2


@known(_UNIT, _UNIT)
def lim_non_polynomial(x, z):
    return ((30 + 5 * x * np.sin(5 * x)) * (4 + np.exp(-5 * z)) - 100) / 6


# Three to five


@known(_UNIT, _UNIT, _UNIT)
def cube3(x, y, z):
    """Rumsey et al. (2025), as the next one and `cube5`: boxes."""
    first = (x > 0.2) & (x < 0.5) & (y > 0.1) & (y < 0.6) & (z < 0.4)
    second = (x > 0.3) & (x < 0.85) & (y > 0.5) & (y < 0.9) & (z < 0.8)
    third = (x > 0.35) & (x < 0.45) & (y < 0.75)
    return 1.0 * first + 1.0 * second + 1.0 * third


@known(_UNIT, _UNIT, _UNIT)
def cube3_rotate(x, y, z):
    return cube3((x + y + z) / 3, (1 + 2 * x - y + z / 10) / 3, z)


@known(_UNIT, _UNIT, _UNIT)
def detpep_curve(x, y, z):
    """Dette & Pepelyshev (2010)."""
    return (
        4 * (x - 2 + 8 * y - 8 * y**2) ** 2
        + (3 - 4 * y) ** 2
        + 16 * np.sqrt(z + 1) * (2 * z - 1) ** 2
    )


@known(*[(-np.pi, np.pi)] * 3)
def ishigami(x, y, z):
    """Ishigami & Homma (1990)."""
    return np.sin(x) + 7 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x)


@known(_UNIT, _UNIT, _UNIT)
def sharkfin(*columns):
    """Collins, Francom & Rumsey (2022): mean of a step function of 27 steps, three levels deep."""
    third, second, first = np.meshgrid(
        *(k * np.array([0, 1, -1]) for k in (3, 2, 1)), indexing="ij"
    )
    levels = (first + second + third).ravel() / 6
    return np.mean([levels[np.minimum((27 * x).astype(int), 26)] for x in columns], axis=0)


@known(*[_UNIT] * 4)
def park4(x, y, z, w):
    """Park (1991), the first."""
    root = np.sqrt(1 + (y + z**2) * w / x**2)
    return x / 2 * (root - 1) + (x + 3 * w) * np.exp(1 + np.sin(z))


@known(*[_UNIT] * 4)
def quad4(x, y, z, w):
    """Rumsey et al. (2025), as the three linear ones."""
    return -0.6 * x + 0.3 * y + 0.05 * z + 1.1 * w + z**2 - w**2 - 0.5 * x * w + 2 * z * w


@known((7, 13), (0.02, 0.12), (0.01, 3), (30.01, 30.295))
def pollutant_uni(mass, diffusion, place, time):
    """Bliznyuk et al. (2008) at 2.5 and time 30, before the second spill."""
    spread = 4 * diffusion * 30
    return mass / np.sqrt(np.pi * spread) * np.exp(-(2.5**2) / spread)


@known(*[_UNIT] * 5)
def cube5(*columns):
    inside = np.all([(x > 0.25) & (x < 0.75) for x in columns], axis=0)
    return cube3(*columns[:3]) + inside + 5 * (columns[4] > 1 / 3)


@known(*[_UNIT] * 5)
@known(*[_UNIT] * 10, name="friedman10")
@known(*[_UNIT] * 20, name="friedman20")
def friedman(x, y, z, v, w, *inert):
    """Friedman (1991)."""
    return 10 * np.sin(np.pi * x * y) + 20 * (z - 0.5) ** 2 + 10 * v + 5 * w


@known((4.8, 5.1), (400, 3600), (100, 900), (3, 7), (10, 20))
def short_column(stress, moment, force, b, h):
    """Kuschel & Rackwitz (1997), as the steel column."""
    return 1 - 4 * moment / (b * h**2 * stress) - (force / (b * h * stress)) ** 2


# Six to ten

_BEAM = (32e3, 48e3), (23.2e6, 34.8e6), (100, 900), (600, 1400), (3, 5), (1, 3)


@known(*_BEAM, name="cantilever_D")
def displacement(strength, modulus, across, along, w, t):
    """Wu et al. (2001), as the next one: displacement up to its tolerance, and stress."""
    size = 4 * 100**3 / (modulus * w * t)
    return np.minimum(size * np.hypot(along / t**2, across / w**2), 2.2535)


@known(*_BEAM, name="cantilever_S")
def stress(strength, modulus, across, along, w, t):
    return np.minimum(600 * along / (w * t**2) + 600 * across / (w**2 * t), strength)


_CIRCUIT = (50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300)


@known(*_CIRCUIT)
def circuit(b1, b2, f, c1, c2, beta):
    """Ben-Ari & Steinberg (2007)."""
    gain = beta * (c2 + 9)
    base = 12 * b2 / (b1 + b2) + 0.74
    return (base * gain + 11.35 * f + 0.74 * f * gain / c1) / (gain + f)


@known(*[_UNIT] * 6)
def grlee6(x, y, z, w, *inert):
    """Gramacy & Lee (2009)."""
    return np.exp(np.sin((0.9 * (x + 0.48)) ** 10)) + y * z + w


def sobol_g(weights: Sequence[float], name: str) -> None:
    """Saltelli & Sobol' (1995); a small weight is an important input."""

    @known(*[_UNIT] * len(weights), name=name)
    def product(*columns):
        terms = [(abs(4 * x - 2) + a) / (1 + a) for x, a in zip(columns, weights, strict=True)]
        return np.prod(terms, axis=0)


sobol_g([0, 0.25, 0.5], "Gfunction")
sobol_g([0, 0, *[6.52] * 4], "Gfunction6")
sobol_g([*[0] * 4, *[1] * 4, *[9] * 4, *[18] * 4, 99, 99], "Gfunction18")


@known((0.01, 20), (0.01, 6), (1e-4, 0.04), (730, 3200), (1500, 2500), (25, 77), (5e-3, 5.5e-3))
def crater(length, d, density, speed, least, strength, tile):
    """Stellingwerf et al. (2004): depth of an impact."""
    above = np.maximum(speed - least, 0) ** (2 / 3)
    size = 0.0195 * (length / d) ** 0.45 * d * density**0.27
    return size * above * strength**-0.25 * tile ** (-1 / 6)


_PISTON = (
    (30, 60), (0.005, 0.02), (0.002, 0.01), (1e3, 5e3), (9e4, 11e4), (290, 296), (340, 360)
)  # fmt: skip


@known(*_PISTON)
def piston(mass, area, volume, k, pressure, ambient, filling):
    """Kenett & Zacks (1998): seconds of a cycle."""
    A = pressure * area + 19.62 * mass - k * volume / area
    gas = pressure * volume * ambient / filling
    V = area / (2 * k) * (np.sqrt(A**2 + 4 * k * gas) - A)
    return 2 * np.pi * np.sqrt(mass / (k + area**2 * gas / V**2))


_BOREHOLE = (
    (0.05, 0.15), (100, 50_000), (63_070, 115_600), (990, 1110), (63.1, 116), (700, 820),
    (1120, 1680), (9855, 12_045),
)  # fmt: skip


@known(*_BOREHOLE)
def borehole(rw, r, Tu, Hu, Tl, Hl, length, Kw):
    """Harper & Gupta (1983)."""
    log = np.log(r / rw)
    return 2 * np.pi * Tu * (Hu - Hl) / (log * (1 + Tu / Tl) + 2 * length * Tu / (rw**2 * Kw))


@known(*[_UNIT] * 8)
def detpep8(*columns):
    """Dette & Pepelyshev (2010)."""
    sums = np.cumsum(columns[2:], axis=0)
    return detpep_curve(*columns[:3]) + sum(j * np.log1p(sums[j - 3]) for j in range(4, 9))


@known(
    (0.1, 0.4), (0.1, 0.4), (0.05, 0.2), (0.41, 1), (0.0276, 0.1702), (0.081, 0.21), (0.25, 0.5),
    (0.0833, 0.7),
)  # fmt: skip
def ebola(beta1, beta2, beta3, rho, gamma1, gamma2, omega, psi):
    """Basic reproduction number (Diaz et al. 2018)."""
    return (beta1 + beta2 * rho * gamma1 / omega + beta3 * psi / gamma2) / (gamma1 + psi)


@known(*[(0, 2 * np.pi)] * 4, *[_UNIT] * 4)
def robot(*columns):
    """An & Owen (2001): distance of an arm's end."""
    angles, lengths = np.cumsum(columns[:4], axis=0), np.array(columns[4:])
    return np.hypot(np.sum(lengths * np.cos(angles), 0), np.sum(lengths * np.sin(angles), 0))


@known(
    (260, 540), (3e5, 7e5), (24e4, 96e4), (24e4, 96e4), (288, 312), (12, 28), (280, 320),
    (0.01, 70), (193_200, 226_800),
)  # fmt: skip
def steel_column(strength, p1, p2, p3, b, d, h, deflection, modulus):
    load = p1 + p2 + p3
    euler = np.pi**2 * modulus * b * d * h**2 / (2 * 7500**2)
    return strength - load * (1 / (2 * b * d) + deflection * euler / (b * d * h * (euler - load)))


@known(
    *((middle / factor**3, middle * factor**3) for middle, factor in (
        (0.76, 1.2), (0.39, 1.1), (0.85, 1.1), (0.3, 1.3), (5, 1.4), (1.7, 1.2), (71, 1.15),
        (0.5, 1.5), (5.5, 1.5),
    ))
)  # fmt: skip
def sulfur(T, cloud, R, beta, psi, f, Q, Y, lifetime):
    """Charlson et al. (1992), without its constants: radiative forcing of sulphate."""
    return -(T**2) * cloud * R**2 * beta * psi * f * Q * Y * lifetime


@known(*[_UNIT] * 10)
def ignition(*columns):
    """Hatfield et al. (2019): logarithm of a yield with a cliff."""
    r = np.sqrt(np.sum(np.square(columns), axis=0))
    return np.log10(r**5 * (1 + 1e5 * (1 + erf(10 * (r - 2)))))


_WING = (
    (150, 200), (220, 300), (6, 10), (-10, 10), (16, 45), (0.5, 1), (0.08, 0.18), (2.5, 6),
    (1700, 2500), (0.025, 0.08),
)  # fmt: skip


@known(*_WING)
def wingweight(area, fuel, aspect, sweep, q, taper, thickness, load, weight, paint):
    """Forrester, Sóbester & Keane (2008)."""
    cosine = np.cos(np.radians(sweep))
    size = 0.036 * area**0.758 * fuel**0.0035 * (aspect / cosine**2) ** 0.6 * q**0.006
    shape = taper**0.04 * (100 * thickness / cosine) ** -0.3
    return size * shape * (load * weight) ** 0.49 + area * paint


# Many


@known(*[(-16, 16)] * 16)
def permdb(*columns):
    """The perm function d, beta with beta = 0.5, in units of 16^33."""
    d, i = len(columns), np.arange(1.0, len(columns) + 1)[:, None]
    sums = [np.sum((i**j + 0.5) * ((np.array(columns) / i) ** j - 1), 0) for j in range(1, d + 1)]
    return np.sum(np.square(sums), axis=0) / float(d) ** (2 * d + 1)


@known(*[(-0.5, 0.5)] * 20)
def welch20(*x):
    """Welch et al. (1992)."""
    (x1, x2, x3, x4, x5, x6, x7, _, x9, x10, x11, x12, x13, x14, x15, _, x17, x18, x19, x20) = x
    strong = 5 * x12 / (1 + x1) + 5 * (x4 - x20) ** 2 + x5 + 40 * x19**3 - 5 * x19
    weak = 0.05 * x2 + 0.08 * x3 - 0.03 * x6 + 0.03 * x7 - 0.09 * x9 - 0.01 * x10 - 0.07 * x11
    return strong + weak + 0.25 * x13**2 - 0.04 * x14 + 0.06 * x15 - 0.01 * x17 - 0.03 * x18


def linear(name: str, coefficients: Sequence[float]) -> None:
    @known(*[_UNIT] * len(coefficients), name=name)
    def plane(*columns):
        return np.asarray(coefficients) @ np.array(columns)


linear("linear21", range(-10, 11))
linear("linear21_s10", [a if a % 2 == 0 and a < 10 else 0 for a in range(-10, 11)])
linear("linear21_s1", [10] + [0] * 20)


@known(*_BOREHOLE, *_WING, *_CIRCUIT, *_PISTON)
def moon31(*columns):
    """Moon, Dean & Santner (2012): four functions, scaled to their range at each input."""
    slices = columns[:8], columns[8:18], columns[18:24], columns[24:]
    functions = borehole, wingweight, circuit, piston
    values = np.array([f(*x) for f, x in zip(functions, slices, strict=True)])
    return np.sum(values - values.min(0), axis=0) / np.ptp(values, axis=0)


@known(*[(1, 3) if k == 20 else (1, 2) for k in range(1, 101)])
def onehundred(*columns):
    """Lüthen, Marelli & Sudret (2021), of which 55 inputs are weighed."""
    x, k = np.array(columns), np.arange(1.0, 56)[:, None]
    some = x[:55]
    sums = k * (-5 * some + some**3 + np.log(some**2 + some**4) / 3)
    others = x[0] * x[1] ** 2 + x[1] * x[3] - x[2] * x[4] + x[50] + x[49] * x[53] ** 2
    return 3 + np.sum(sums, axis=0) / 55 + others
