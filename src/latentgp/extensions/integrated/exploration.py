"""Exploration of a log density of hyper-parameters around its mode, and integrals over it.

Rotated, standardised coordinates and a design of points are those of Rue, Martino & Chopin (2009,
JRSSB 71:319), 3.1 and 6.5. As gradients come with values, the density between the points is
interpolated, and further points are added where that is least certain; so skewed densities are
integrated as they are, not as split normal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.extensions.integrated.design import design
from latentgp.extensions.integrated.interpolation import Interpolant, interpolate
from latentgp.numerics.quadrature import sobol_nodes

_STEP, _STEPS = 0.05, 6  # of differences of gradients, first and how many
_FALLS = 1e-4, 0.5  # nats that are worth a difference
_FLAT = 1e-2  # of a curvature, over those of the coordinates
_WIDEST = 3.0  # deviation taken where the curvature tells none
_PROBE = np.sqrt(2.0)
_DRAWS, _CANDIDATES = 13, 256  # a power of two, a number
_DEGREES = 5.0  # of the law that draws come from
_ROUNDS, _STILL = 20, 0.015  # of further points; deviations
_MOST_UNKNOWN = 2.0  # nats
_KEEP, _LIGHT = 0.02, 3e-3  # how much masses of a design are held to; a weight that is left out
_LOWEST = 9.0  # nats below the highest point, of a mixture
MOST_POINTS = 64  # of a mixture: of more, quantiles would be those of draws


class DensityEvaluation(NamedTuple):
    """A log density where it was evaluated."""

    vector: Float[np.ndarray, "H"]
    value: float  # log density in nats, up to a constant
    gradient: Float[np.ndarray, "H"]  # of it


class Frame(NamedTuple):
    """Rotated, standardised coordinates z around a mode."""

    origin: Float[np.ndarray, "H"]  # the mode
    axes: Float[np.ndarray, "H H"]  # columns that are one deviation long; vector = origin + axes z
    # deviation towards negative z over the mean of both, that of a split normal law
    below: Float[np.ndarray, "H"]
    above: Float[np.ndarray, "H"]  # the same towards positive z

    def vectors(self, z: Float[np.ndarray, "*S H"]) -> Float[np.ndarray, "*S H"]:
        """Places of coordinates."""
        return self.origin + z @ self.axes.T

    def coordinates(self, vectors: Float[np.ndarray, "*S H"]) -> Float[np.ndarray, "*S H"]:
        """Coordinates of places."""
        return np.linalg.solve(self.axes, (vectors - self.origin).T).T

    def split(self, z: Float[np.ndarray, "*S H"]) -> Float[np.ndarray, "*S H"]:
        """Coordinates stretched by the deviations of their sides."""
        return z * np.where(z < 0, self.below, self.above)


class Exploration(NamedTuple):
    """A log density after exploration."""

    points: Float[np.ndarray, "points H"]  # of a mixture that has the density's mean and covariance
    weights: Float[np.ndarray, "points"]  # of the points, with a sum of one
    draws: Float[np.ndarray, "S H"]  # places all over the density
    draw_weights: Float[np.ndarray, "S"]  # of the draws, with a sum of one
    log_integral: float  # of the density, in nats
    evaluations: int  # how many there were
    left_out: int  # how many of them failed
    flat: int  # number of directions without curvature at the mode
    drop: float  # nats from the mode down to the lowest of the points
    rise: float  # nats by which the highest place is above the mode
    # by how much the last further points, twice, moved the integrals: the log integral in nats, a
    # mean in deviations, or the logarithm of a deviation, whichever most
    moved: float


Places = Sequence[Float[np.ndarray, "H"]] | Float[np.ndarray, "S H"]
Evaluate = Callable[[Places], list[DensityEvaluation | None]]


def explore(
    evaluate: Evaluate,
    mode: DensityEvaluation,
    goes_on: Callable[[], bool],
    most: int = MOST_POINTS,
) -> Exploration:
    """Explore a log density.

    `evaluate` takes several places at once, and gives None where it fails. Further points are added
    while there is time; the design is evaluated in any case. So many points at most have a weight.
    """
    asked: list[DensityEvaluation | None] = []

    def at(places: Places) -> list[DensityEvaluation | None]:
        found = evaluate(places)
        asked.extend(found)
        return found

    axes, flat = axes_at_mode(at, mode)
    frame, probes = _framed(at, mode, axes)
    planned = design(mode.vector.size)
    at_points = [mode, *at(frame.vectors(frame.split(planned.points[1:])))]
    masses = [m for m, found in zip(planned.masses, at_points, strict=True) if found is not None]
    known = [*(found for found in at_points if found is not None), *probes]
    moved = [np.inf]
    proposal = _Proposal.of(frame)
    interpolant = _interpolated(frame, mode, known)
    weights, log_mean = proposal.weights(interpolant)
    for _ in range(_ROUNDS):
        if max(moved[-2:]) < _STILL or not goes_on():
            break
        found = at(frame.vectors(proposal.least_certain(interpolant)))
        known += [one for one in found if one is not None]
        near, before = interpolant.lengthscale, (weights, log_mean)
        interpolant = _interpolated(frame, mode, known, near)
        weights, log_mean = proposal.weights(interpolant)
        moved.append(_change(proposal.z, before, (weights, log_mean)))
    _, log_volume = np.linalg.slogdet(frame.axes)
    values = np.array([point.value for point in known])
    masses = np.append(masses, np.zeros(len(known) - len(masses)))
    point_weights = _point_weights(frame, known, masses, proposal.z, weights, most)
    used = point_weights > 0
    return Exploration(
        points=np.array([point.vector for point in known])[used],
        weights=point_weights[used],
        draws=frame.vectors(proposal.z),
        draw_weights=weights,
        log_integral=float(mode.value + log_mean + log_volume),
        evaluations=len(asked),
        left_out=sum(found is None for found in asked),
        flat=flat,
        drop=float(mode.value - values[used].min()),
        rise=float(values.max() - mode.value),
        moved=max(moved[-2:]),
    )


def axes_at_mode(at: Evaluate, mode: DensityEvaluation) -> tuple[Float[np.ndarray, "H H"], int]:
    """Principal axes of the curvature at the mode, one deviation long, and how many are flat.

    Coordinates are scaled by their own curvatures before they are rotated, so that the axes do
    not depend on units. The curvature is that of differences of gradients.
    """
    rows = [_curvature(at, mode, place) for place in range(mode.vector.size)]
    hessian = np.array([row for row, _ in rows])
    hessian = 0.5 * (hessian + hessian.T)
    own = np.diagonal(hessian)
    curved = np.array([is_curved for _, is_curved in rows]) & (own > 0)
    scales = 1 / np.sqrt(np.where(curved, own, _WIDEST**-2))
    values, vectors = np.linalg.eigh(hessian * scales * scales[:, None])
    floored = values < _FLAT
    lengths = 1 / np.sqrt(np.where(floored, np.maximum(_FLAT, 1 / _WIDEST**2), values))
    return scales[:, None] * vectors * lengths, int(np.sum(floored))


def _curvature(
    at: Evaluate, mode: DensityEvaluation, coordinate: int
) -> tuple[Float[np.ndarray, "H"], bool]:
    """A row of minus the Hessian, and whether the density falls along its coordinate.

    The step is one over which the density falls by little but clearly, whatever the units.
    """
    size, step = mode.vector.size, _STEP
    row, fall = np.zeros(size), 0.0
    for _ in range(_STEPS):
        move = step * np.eye(size)[coordinate]
        below, above = at([mode.vector - move, mode.vector + move])
        if below is None or above is None:
            step /= 10
            continue
        row = (below.gradient - above.gradient) / (2 * step)
        fall = mode.value - 0.5 * (below.value + above.value)
        if _FALLS[0] <= fall <= _FALLS[1]:
            break
        step *= 10 if fall < _FALLS[0] else 0.1
    return row, fall >= _FALLS[0]


def _framed(
    at: Evaluate, mode: DensityEvaluation, axes: Float[np.ndarray, "H H"]
) -> tuple[Frame, list[DensityEvaluation]]:
    """Frame whose axes have the deviations of the density on both sides, and what told them."""
    size = mode.vector.size
    found = at([mode.vector + sign * _PROBE * axis for sign in (-1, 1) for axis in axes.T])
    falls = np.array([np.inf if one is None else mode.value - one.value for one in found])
    sides = 1 / np.sqrt(np.clip(falls, _WIDEST**-2, _WIDEST**2)).reshape(2, size)
    probes = [one for one in found if one is not None]
    both = sides.mean(axis=0)
    return Frame(mode.vector, axes * both, *(sides / both)), probes


def _interpolated(
    frame: Frame, mode: DensityEvaluation, known: list[DensityEvaluation], *near: float
) -> Interpolant:
    return interpolate(
        frame.coordinates(np.array([point.vector for point in known])),
        np.array([point.value - mode.value for point in known]),
        np.array([point.gradient for point in known]) @ frame.axes,
        *near,
    )


def _change(
    z: Float[np.ndarray, "S H"], before: tuple[Any, float], after: tuple[Any, float]
) -> float:
    """Greatest change of the log integral, of a mean over its deviation, of a log deviation."""
    means = [weights @ z for weights, _ in (before, after)]
    deviations = [
        np.sqrt(weights @ (z - mean) ** 2)
        for (weights, _), mean in zip((before, after), means, strict=True)
    ]
    moved = np.abs(means[1] - means[0]) / deviations[1]
    wider = np.abs(np.log(deviations[1] / deviations[0]))
    return float(max(abs(after[1] - before[1]), moved.max(), wider.max()))


class _Proposal(NamedTuple):
    """Quasi-random draws of split Student laws, and their log densities."""

    z: Float[np.ndarray, "S H"]
    log_density: Float[np.ndarray, "S"]

    @classmethod
    def of(cls, frame: Frame) -> _Proposal:
        from scipy.stats import norm, t

        normal, _ = sobol_nodes(frame.origin.size, 1 << _DRAWS)
        plain = np.sign(normal) * t.isf(norm.sf(np.abs(normal)), _DEGREES)
        z = frame.split(plain)
        stretch = np.where(plain < 0, frame.below, frame.above)
        return cls(z, np.sum(t.logpdf(plain, _DEGREES) - np.log(stretch), axis=1))

    def weights(self, interpolant: Interpolant) -> tuple[Float[np.ndarray, "S"], float]:
        """Importance weights, with a sum of one, and the log of their mean before."""
        logarithms = interpolant(self.z) - self.log_density
        most = logarithms.max()
        weights = np.exp(logarithms - most)
        return weights / weights.sum(), float(most + np.log(weights.mean()))

    def least_certain(self, interpolant: Interpolant) -> Float[np.ndarray, "B H"]:
        """Places where an error of the interpolant would change the second moments most.

        Each is chosen given those before it.
        """
        counts = self.weights(interpolant)[0] * (1 + np.sum(self.z**2, axis=1))
        upto = np.cumsum(counts)
        typical = np.searchsorted(upto, (np.arange(_CANDIDATES) + 0.5) / _CANDIDATES * upto[-1])
        some = np.union1d(np.arange(_CANDIDATES), np.minimum(typical, len(upto) - 1))
        z, counts, covariance = self.z[some], counts[some], interpolant.covariance(self.z[some])
        chosen = []
        for _ in range(self.z.shape[1] + 1):
            variance = np.clip(np.diagonal(covariance), 0.0, _MOST_UNKNOWN**2)
            # The standard deviation of a log-normal number.
            place = int(np.argmax(counts * np.exp(0.5 * variance) * np.sqrt(np.expm1(variance))))
            column = covariance[:, place]
            chosen.append(place)
            covariance = covariance - np.outer(column, column) / max(column[place], 1e-12)
        return z[chosen]


def _point_weights(
    frame: Frame,
    points: Sequence[DensityEvaluation],
    masses: Float[np.ndarray, "points"],
    z: Float[np.ndarray, "S H"],
    weights: Float[np.ndarray, "S"],
    most: int,
) -> Float[np.ndarray, "points"]:
    """Weights of points that give the density's mean and covariance.

    Those of Rue et al. are masses of the design times what the density is over the split normal
    one. They are moved as little as is needed, none below zero.
    """
    from scipy.optimize import nnls

    own = frame.coordinates(np.array([point.vector for point in points]))
    plain = own / np.where(own < 0, frame.below, frame.above)
    stretch = np.prod(np.where(own < 0, frame.below, frame.above), axis=1)
    values = np.array([point.value for point in points])
    over = values + 0.5 * np.sum(plain**2, axis=1)
    usual = masses * stretch * np.exp(over - over.max())
    usual /= usual.sum()

    def moments(z: Float[np.ndarray, "S H"]) -> Float[np.ndarray, "S moments"]:
        pairs = np.triu_indices(z.shape[1])
        return np.concatenate([np.ones((len(z), 1)), z, z[:, pairs[0]] * z[:, pairs[1]]], axis=1)

    held = _KEEP / np.sqrt(np.maximum(usual, 1 / len(points)))
    possible = values > values.max() - _LOWEST
    wanted, of_points = weights @ moments(z), moments(own).T
    found = usual
    for _ in range(2):  # again without those that count for next to nothing
        equations = np.concatenate([of_points * possible, np.diag(held)])
        found, _ = nnls(equations, np.append(wanted, held * usual))
        heaviest = np.sort(found)[-most:]
        possible &= (found > _LIGHT * found.sum()) & (found >= heaviest[0])
    found = np.where(possible, found, 0.0)
    return found / found.sum()
