"""Weak default priors, search bounds and starting values, in the units of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro import distributions as dist
from numpyro.distributions.transforms import AffineTransform

from latentgp.hyperparameters.base import (
    IN_UNITS_OF_INPUTS,
    ParameterInfo,
    parameters,
    replace_unchecked,
)
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.hyperparameters.supports import unconstrained
from latentgp.kernels.sphere import on_unit_sphere
from latentgp.means import OffsetMean, PerLatentMean
from latentgp.models import LatentGP
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.summary import DataSummary
from latentgp.representations.variables import places_of
from latentgp.rows.data import Data
from latentgp.rows.spread import robust_spread, spread_of_columns
from latentgp.setup.shared_log_normal import SharedLogNormal
from latentgp.typing import HyperVector, Inputs, PerRow

_BOUND_FACTOR, _NOISE_FACTOR = 1e5, 1e10
# Of further starts: length-scales of the rough one in distances of nearest neighbours, but at most
# a share of the first's; noise variances of it and of the noisy one in the first's.
_NEIGHBOURS, _ROUGHER, _LESS_NOISE, _MORE_NOISE = 2.0, 0.3, 0.1, 5.0
_SHARED_BY, _OFF_GRID = 10, 1e-6  # targets of a value; from a whole number of steps
FAR_OFF = 30.0  # length-scales from those of the inputs, either way
# Of the logarithms of length-scales: their variance, and the deviation that each has to itself.
LENGTHSCALES, OWN_LENGTHSCALE = 3.0, 0.5
# Log-normal laws: times of the logarithm of a latent variance, what is added, and the deviation.
_LOG_NORMAL = {
    "variance": (1.0, 0.0, 2.0),
    "factor": (0.0, 0.0, 2.0),
    "noise_variance": (1.0, np.log(0.1), 2.0),
    "noise_scale": (0.5, 0.5 * np.log(0.1), 1.0),
    "noise_precision": (-1.0, -np.log(0.05), 2.0),
    "degrees_of_freedom": (0.0, np.log(8.0), 1.0),
}


class Scales(NamedTuple):
    """Typical sizes in the data."""

    inputs: Float[np.ndarray, "D"]  # of each input, without its wild values
    latent: Float[np.ndarray, "Q"]  # of each latent function
    stretch: Float[np.ndarray, "D"]  # deviation of each input over that; above one by wild values
    level: tuple[float, ...] | None = None  # of the first functions, for typical targets, if known
    grid_width: float = 0.0  # of targets where equal rows repeat; zero without


def scales(model: LatentGP, data: Data, remembered: DataSummary | None = None) -> Scales:
    """Weighted spreads of the inputs (one if constant) and of the latent functions.

    An input's is its standard deviation, unless wild values are the cause of that: then it is
    that of a normal law with the same central quantiles. Those of longitudes and latitudes are
    of the points on the globe. A latent function's is what the
    likelihood makes of the standard deviation of y. In streaming updates
    neither is what all rows would give: the inducing points of the streaming prior then
    count as much as the new rows, and the latent variance is that of the present model.
    InputError of values so large or small that their squares leave double precision.
    """
    if remembered is not None:
        points = np.asarray(places_of(remembered.centres))
        weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
        both = np.append(np.full(len(points), weights.sum() / len(points)), weights)
        variances = np.mean(latent_diagonals(model.kernel, jnp.asarray(points)), axis=1)
        latent = np.broadcast_to(np.sqrt(variances), (model.likelihood.latent_size,))
        every = np.concatenate([points, data.X])
        typical, stretch = robust_spread(every, both)
        return Scales(_with_places(typical, model, every, both), latent, stretch)
    spread = spread_of(without_offsets(model, data))
    latent = np.asarray(model.likelihood.latent_scale(spread), np.float64)
    latent = np.broadcast_to(latent, (model.likelihood.latent_size,))
    typical, stretch = data.input_spread
    typical = _with_places(typical, model, data.X, data.weights)
    level = None
    if not model.likelihood.is_location:
        level = model.likelihood.latent_centre(data.y, data.weights, data.side_information)
    level = level if level is None or isinstance(level, tuple) else (level,)
    return Scales(typical, latent, stretch, level)


def _with_places(
    typical: Float[np.ndarray, "D"], model: LatentGP, X: Inputs, weights: PerRow | None
) -> Float[np.ndarray, "D"]:
    """Sizes with those of longitudes and latitudes by the points on the globe, in degrees.

    Both have half their variance about the mean in space, wherever longitudes are cut.
    """
    typical = typical.copy()
    for info in parameters(model.kernel).values():
        columns = [0, 1] if info.dimensions is None else list(info.dimensions)
        if info.unit != 1 and len(columns) == 2:  # only of places on a sphere
            places = np.asarray(on_unit_sphere(X[:, columns]))
            away = np.sum((places - np.average(places, axis=0, weights=weights)) ** 2, axis=1)
            variance = np.average(away, weights=weights)
            if variance > 0:
                typical[columns] = np.degrees(np.sqrt(variance / 2))
    return typical


def without_offsets(model: LatentGP, data: Data) -> Data:
    """Rows whose targets have known offsets taken off, where the likelihood is one of y - f."""
    first = model.mean.parts[0] if isinstance(model.mean, PerLatentMean) else model.mean
    if isinstance(first, OffsetMean) and model.likelihood.is_location:
        return first.taken_off(data)
    return data


def spread_of(data: Data) -> float:
    """Weighted standard deviation of the targets, one if they are constant.

    Of several outputs the root of the mean square, each over the rows where it is there.
    """
    spreads = []
    for column in data.y.reshape(data.size, -1).T:
        seen = np.isfinite(column)
        if seen.any():
            weights = None if data.weights is None else data.weights[seen]
            spreads.append(spread_of_columns("y", column[seen, None], weights)[0])
    return float(np.sqrt(np.mean(np.square(spreads)))) if spreads else 1.0


def at_layer(model: LatentGP, path: str, scale: Scales) -> Scales:
    """Scales of what the layer that a hyper-parameter belongs to sees, and gives."""
    inputs, latent = model.spreads_at(path, scale.inputs, scale.latent)
    stretch = scale.stretch if len(inputs) == len(scale.stretch) else np.ones(len(inputs))
    return scale._replace(inputs=inputs, latent=latent, stretch=stretch)


def weak_priors(
    model: LatentGP, of_rows: Scales, known: Mapping[str, ParameterInfo] | None = None
) -> dict[str, dist.Distribution]:
    """Log-normal priors that are wide (a factor of 6 or 7 a standard deviation).

    Length-scales are around sqrt(D) standard deviations of the inputs, so that the prior over
    functions does not get rougher with more inputs (Hvarfner et al. 2024, 4). Those of a kernel
    with one an input may all be longer or shorter, but differ by a factor of 1.6 a standard
    deviation only: few rows do not say which inputs matter. Variances are
    around the latent scale squared (that of the parameter's own latent function, or else of the
    first), noise variances around a tenth of it, what multiplies another kernel's variance
    around one, and degrees of freedom around 8. Constant means are around the level of typical
    targets, if it is known, within a latent scale. Loadings are normal around zero, deviation
    one; (1 + r) / 2 of correlations r has the law Beta(2, 2), and several have the LKJ law of 2;
    shares are uniform. A module may have a prior of its own (`Parametrised.weak_prior`).
    """
    priors: dict[str, dist.Distribution] = {}
    for path, info in (parameters(model) if known is None else known).items():
        shape, scale = np.shape(info.value), at_layer(model, path, of_rows)
        if (own := _prior_of_module(info, scale)) is not None:
            priors[path] = own
        elif info.role in IN_UNITS_OF_INPUTS:
            inputs = _inputs_seen(info, scale)
            typical = _typical_inputs(inputs, shape) * np.sqrt(len(inputs))
            priors[path] = _of_lengthscales(np.asarray(typical))
        elif info.role in _LOG_NORMAL:
            power, shift, deviation = _LOG_NORMAL[info.role]
            typical = shift + (power and power * _log_variance(info, scale))
            priors[path] = dist.LogNormal(np.full(shape, typical), deviation)
        elif info.role == "level":
            latent = info.latent or 0
            if scale.level is not None and latent < len(scale.level):
                level = np.full(shape, scale.level[latent])
                priors[path] = dist.Normal(level, float(scale.latent[latent]))
        elif info.role == "loading":
            priors[path] = dist.Normal(np.zeros(shape), 1.0)
        elif info.role == "correlation" and shape != (0,):
            between = AffineTransform(-1.0, 2.0, domain=dist.constraints.unit_interval)
            own = dist.Beta(np.full(shape, 2.0), 2.0)
            priors[path] = dist.TransformedDistribution(own, between)
        elif info.role == "share":
            priors[path] = dist.Uniform(np.zeros(shape), 1.0)
    return priors


def space_of(
    model: LatentGP,
    scale: Scales,
    priors: Mapping[str, dist.Distribution | None] | Literal["weak"] | None,
    frozen: Sequence[str] = (),
    *,
    streaming: bool = False,
) -> ParameterSpace:
    """The hyper-parameters that can be learned, with their priors.

    Paths that are frozen, or begin so, are held. In streams weak priors are around the model's own
    values. InputError of an unknown path, or a prior that its parameter cannot have.
    """
    known = parameters(model)
    chosen: dict[str, dist.Distribution | None] = {}
    if priors is not None:
        weak = weak_priors(model, scale, known)
        chosen |= around(known, weak) if streaming else weak
    if isinstance(priors, Mapping):
        chosen |= priors
    names = model.likelihood.calibrated_parameters
    held = *frozen, *(f"likelihood.{name}" for name in names)
    units = {
        path: float(scale.latent[info.latent or 0])
        for path, info in known.items()
        if info.role == "level"
    }
    return ParameterSpace(model, frozen=held, priors=chosen, units=units, known=known)


def around(
    known: Mapping[str, ParameterInfo], priors: dict[str, dist.Distribution]
) -> dict[str, dist.Distribution]:
    """The log-normal ones of some priors, around the parameters' own values.

    For streaming updates: what earlier rows tell about hyper-parameters is kept nowhere else.
    """

    def moved(path: str, prior: dist.Distribution) -> dist.Distribution:
        if isinstance(prior, dist.LogNormal):
            return dist.LogNormal(np.log(known[path].value), prior.scale)
        own = isinstance(prior, SharedLogNormal)
        return _of_lengthscales(np.asarray(known[path].value)) if own else prior

    return {path: moved(path, prior) for path, prior in priors.items()}


def stretched_start(space: ParameterSpace, scale: Scales) -> Float[np.ndarray, "H"] | None:
    """A second start where inputs have wild values: their length-scales at standard deviations.

    With few wild values an input is best measured by the others; with many it may be best to do
    without it. None where there are none.
    """
    values = {}
    for path in space.paths:
        info = space.known[path]
        stretch = _inputs_seen(info._replace(unit=1.0), scale._replace(inputs=scale.stretch))
        if info.role == "lengthscale" and np.shape(info.value) == stretch.shape:
            values[path] = np.asarray(info.value) * stretch
    if np.all(scale.stretch == 1) or not values:
        return None
    return space.to_vector(replace_unchecked(space.model, values))


def typical_start(
    space: ParameterSpace, of_rows: Scales, far: float = FAR_OFF
) -> Float[np.ndarray, "H"] | None:
    """A second start, where length-scales of the first are far from those of the inputs.

    At length-scales far below the distances of rows, or far above, the evidence hardly depends on
    them, and a search stands still. One for several inputs is at a typical distance: layers see
    hidden functions of unit one beside inputs of any. None where none is off by more than a factor
    of `far`.
    """
    values = {}
    for path in space.paths:
        info, scale = space.known[path], at_layer(space.model, path, of_rows)
        if info.role == "lengthscale" and path not in space.narrowed:
            seen, shape = _inputs_seen(info, scale), np.shape(info.value)
            distance = np.full(shape, np.sqrt(np.sum(seen**2)))
            typical = np.sqrt(len(seen)) * seen if shape == seen.shape else distance
            if np.any(np.abs(np.log(info.value / typical)) > np.log(far)):
                values[path] = typical
    return space.to_vector(replace_unchecked(space.model, values)) if values else None


def other_starts(space: ParameterSpace, scale: Scales, X: Inputs) -> tuple[HyperVector, ...]:
    """Further starts beside the model's own: rough functions with little noise, and much noise.

    Evidences of regression have several modes, such as rough functions with little noise and
    smooth ones with much (Rasmussen & Williams 2006, 5.4.1); a search ends in one it starts near.
    Length-scales of rough functions are shortened by what makes the median distance of some rows
    twice that of nearest neighbours; what has bounds by its prior stays. None where no length-scale
    is learned.
    """
    known = space.known
    free = [path for path in space.paths if path not in space.narrowed]

    def started(**factors: float) -> Float[np.ndarray, "H"]:
        changed = [known[path] for path in free if known[path].role in factors]
        values = {info.path: np.asarray(info.value) * factors[info.role] for info in changed}
        return space.to_vector(replace_unchecked(space.model, values))

    roles = {known[path].role for path in free}
    if "lengthscale" not in roles:
        return ()
    rough = started(lengthscale=_roughness(X / scale.inputs), noise_variance=_LESS_NOISE)
    if "noise_variance" not in roles:
        return (rough,)
    return rough, started(noise_variance=_MORE_NOISE)


def _roughness(X: Float[np.ndarray, "N D"]) -> float:
    """Two distances of nearest neighbours over the median distance, or a share if that is less."""
    from scipy.spatial.distance import pdist, squareform  # takes long to import

    distances = pdist(X)
    apart = distances[distances > 0]
    if not apart.size:
        return _ROUGHER
    distances = squareform(np.where(distances > 0, distances, np.inf))
    np.fill_diagonal(distances, np.inf)
    nearest = np.median(distances.min(axis=1))
    return float(min(_ROUGHER, _NEIGHBOURS * nearest / np.median(apart)))


def grid_width(data: Data) -> float:
    """Width w of the grid of targets where equal rows repeat; zero without.

    A density that is measured at rounded targets grows without limit where a function goes through
    rows that are there twice. Their rounding alone is noise of variance w^2 / 12 (Sheppard 1898).
    Targets are of a grid if ten share a value on average, and differences are multiples of one. The
    rows are merged ones; one that repeats has a weight above one.
    """
    if data.weights is None or np.max(data.weights) <= 1:
        return 0.0
    y = data.y[np.isfinite(data.y)]
    values = np.unique(y)
    apart = np.diff(values)
    apart = apart[apart > 1e-9 * np.ptp(values)]
    if len(apart) == 0 or len(y) < _SHARED_BY * (len(apart) + 1):
        return 0.0
    steps = apart / np.min(apart)
    return float(np.min(apart)) if np.all(np.abs(steps - np.round(steps)) < _OFF_GRID) else 0.0


def search_bounds(
    space: ParameterSpace, of_rows: Scales, *, allows_little_noise: bool = True
) -> tuple[HyperVector, HyperVector]:
    """Bounds of the unconstrained vector: five orders of magnitude around what is typical.

    Where the role does not say what is typical, a positive parameter's start does. If
    `allows_little_noise`, noise variances may be ten orders smaller, for functions without noise,
    a noise precision as much larger: False for iterative solvers, which fail at tiny noise. Noise
    of rounded targets is at least rounding.
    """
    small = np.log(_NOISE_FACTOR if allows_little_noise else _BOUND_FACTOR)
    lower, upper = [], []
    known = space.known
    for path, support in space.supports.items():
        info, scale = known[path], at_layer(space.model, path, of_rows)
        centre = raw = unconstrained(info.value, support)
        role = info.role if type(support) is type(info.support) else "other"
        if role in IN_UNITS_OF_INPUTS:
            centre = np.log(_typical_inputs(_inputs_seen(info, scale), raw.shape))
        elif role in ("variance", "noise_variance", "factor"):
            centre = np.full(raw.shape, 0.0 if role == "factor" else _log_variance(info, scale))
        reach = np.inf if support is dist.constraints.real else np.log(_BOUND_FACTOR)
        # A start outside the usual range is the user's wish, and widens it.
        down = small if info.role == "noise_variance" and np.isfinite(reach) else reach
        up = small if info.role == "noise_precision" and np.isfinite(reach) else reach
        least = centre - down
        rounded = scale.grid_width > 0 and space.model.likelihood.is_location
        if rounded and info.role == "noise_variance":
            least = np.maximum(least, np.log(scale.grid_width**2 / 12))
        lower.append(np.minimum(least, raw).ravel())
        upper.append(np.maximum(centre + up, raw).ravel())
    return np.concatenate([np.zeros(0), *lower]), np.concatenate([np.zeros(0), *upper])


def _of_lengthscales(medians: Float[np.ndarray, "*S"]) -> dist.Distribution:
    """The prior around some medians: each has a deviation of sqrt(3), several little to itself."""
    if medians.size < 2:
        return dist.LogNormal(np.log(medians), np.sqrt(LENGTHSCALES))
    shared = np.sqrt(LENGTHSCALES - OWN_LENGTHSCALE**2)
    return SharedLogNormal(np.log(medians), shared, OWN_LENGTHSCALE)


def _prior_of_module(info: ParameterInfo, scale: Scales) -> dist.Distribution | None:
    if info.module is None:
        return None
    latent = 1.0 if info.role == "factor" else float(scale.latent[info.latent or 0])
    return info.module.weak_prior(info.path.rpartition(".")[2], latent)


def _inputs_seen(info: ParameterInfo, scale: Scales) -> Float[np.ndarray, "columns"]:
    """Sizes of the inputs that a length-scale is about, in its units."""
    inputs = scale.inputs if info.dimensions is None else scale.inputs[list(info.dimensions)]
    return inputs * info.unit


def _log_variance(info: ParameterInfo, scale: Scales) -> float:
    """Typical, of the latent function that a parameter belongs to, or of the first."""
    return 2 * float(np.log(scale.latent[info.latent or 0]))


def _typical_inputs(
    inputs: Float[np.ndarray, "columns"], shape: tuple[int, ...]
) -> Float[np.ndarray, "*S"]:
    if shape == inputs.shape:
        return inputs
    return np.full(shape, np.exp(np.mean(np.log(inputs))))
