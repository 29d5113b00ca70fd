# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""State-space forms of kernels of one time-like input: f(t) = h' x(t) for a Markov process x.

Over a gap s the state moves by x(t + s) = A(s) x(t) + e, e ~ N(0, Q), from x(t) ~ N(0, P(t))
(Hartikainen & Särkkä 2010; Särkkä & Solin 2019, chapters 6 and 12). States are in units of the
latent function: derivatives are multiplied by powers of the length-scale.
"""

import math
import operator
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce, singledispatch
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, lacks
from latentgp.extensions.state_space.incomplete_gamma import lower_gammas
from latentgp.extensions.state_space.lanes import (
    UnrolledMatrix,
    block_diagonal,
    identity,
    kron,
    scaled,
    symmetric,
)
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum
from latentgp.kernels.dot_product import Linear, White
from latentgp.kernels.per_latent import LatentKernel, OwnKernels
from latentgp.kernels.stationary import (
    RBF,
    Cosine,
    Matern12,
    Matern32,
    Matern52,
    MaternHalfInteger,
    Periodic,
)
from latentgp.kernels.weighted import WeightedSum
from latentgp.modules import stored
from latentgp.typing import Values

Transition: TypeAlias = tuple[UnrolledMatrix, UnrolledMatrix]

_MOST_LEFT_OUT = 0.01  # of a variance, without a complaint
_NODES = 128  # of the integral of a harmonic's variance
_KNOWN = (
    "Matern12, Matern32, Matern52, MaternHalfInteger, Cosine, Periodic, RBF (by approximation), "
    "Linear, Constant, White, sums and products of them"
)


@stored
class Truncation(NamedTuple):
    """Where the state-space form of a kernel is a series or an approximation, how long it is."""

    rbf: int = 6  # number of states of an RBF kernel, even
    harmonics: int = 10  # of a periodic kernel, above the constant


class StateSpace(eqx.Module):
    """A process x(t) of a few states; its leaves follow from hyper-parameters.

    Times and gaps are arrays over lanes, and so are the entries of what is returned.
    """

    @property
    @abstractmethod
    def measurement(self) -> tuple[float, ...]:
        """The row h' of f = h' x."""

    @abstractmethod
    def covariance(self, t: Values) -> UnrolledMatrix:
        """P(t), the prior covariance of the state."""

    @abstractmethod
    def transition(self, t: Values, gap: Values) -> Transition:
        """A and Q over a gap >= 0 that ends at t."""

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.measurement)


@stored
class MaternSpace(StateSpace):
    """Matérn of order p + 1/2: f and its p derivatives, in units of 1 / rate."""

    rate: Values  # sqrt(2 nu) / length-scale
    variance: Values  # of f
    degree: int = eqx.field(static=True)  # p

    @property
    def measurement(self) -> tuple[float, ...]:
        return (1.0, *[0.0] * self.degree)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return scaled(UnrolledMatrix(_matern_constants(self.degree).stationary), self.variance)

    def transition(self, t: Values, gap: Values) -> Transition:
        known, s = _matern_constants(self.degree), self.rate * gap
        powers = list(accumulate([s] * self.degree, operator.mul, initial=jnp.ones_like(s)))
        decay, size = jnp.exp(-s), range(self.degree + 1)

        def move(i: int, j: int) -> Any:
            total = 0.0
            for weight, power in zip(known.powers[:, i, j], powers, strict=True):
                if weight:
                    total = total + float(weight) * power
            return total if isinstance(total, float) else total * decay

        gammas = lower_gammas(2 * s, 2 * self.degree + 1)

        def noise(i: int, j: int) -> Any:
            terms = zip(known.noise[i, j], gammas, strict=True)
            return self.variance * sum(float(c) * gamma for c, gamma in terms if c)

        A, Q = (UnrolledMatrix([[of(i, j) for j in size] for i in size]) for of in (move, noise))
        return A, Q


class _MaternConstants(NamedTuple):
    """Numbers of a Matérn process of unit rate and variance."""

    powers: Float[np.ndarray, "states states states"]  # A = exp(-s) sum_k powers_k s^k
    stationary: list[list[float]]  # P
    noise: Float[np.ndarray, "states states terms"]  # Q_ij = sum_a noise_ija gamma(a + 1, 2 s)


@lru_cache
def _matern_constants(degree: int) -> _MaternConstants:
    size = degree + 1
    drift = np.diag(np.ones(degree), 1)
    drift[-1] = [-math.comb(size, i) for i in range(size)]
    nilpotent = drift + np.eye(size)
    powers = np.stack(
        [np.round(np.linalg.matrix_power(nilpotent, k)) / math.factorial(k) for k in range(size)]
    )
    driven = powers[:, :, -1]  # state after s of a unit push to the last one, over exp(-s)
    noise = np.zeros((size, size, 2 * degree + 1))
    for k in range(size):
        for m in range(size):
            noise[:, :, k + m] += np.outer(driven[k], driven[m]) / 2 ** (k + m + 1)
    whole = noise @ [float(math.factorial(a)) for a in range(2 * degree + 1)]
    return _MaternConstants(powers, (whole / whole[0, 0]).tolist(), noise / whole[0, 0])


@stored
class Modes(StateSpace):
    """Damped oscillations driven by one white noise, f their sum: an approximate RBF."""

    rate: Values  # one over the length-scale
    variance: Values  # of the kernel that is approximated
    order: int = eqx.field(static=True)  # number of states

    @property
    def measurement(self) -> tuple[float, ...]:
        return (1.0, 0.0) * (self.order // 2)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return scaled(UnrolledMatrix(_rbf_constants(self.order).stationary), self.variance)

    def transition(self, t: Values, gap: Values) -> Transition:
        known, s = _rbf_constants(self.order), self.rate * gap
        A = block_diagonal([_turn(b * s, jnp.exp(-a * s)) for a, b in known.poles])
        P = UnrolledMatrix(known.stationary)
        return A, scaled(symmetric(P - A @ P @ A.mT), self.variance)


class _RBFConstants(NamedTuple):
    """Poles -a + ib of the upper half plane, the covariance, and the largest error."""

    poles: list[tuple[float, float]]
    stationary: list[list[float]]
    error: float


@lru_cache
def _rbf_constants(order: int) -> _RBFConstants:
    """Constants of the spectral density sqrt(2 pi) / sum_k (w^2 / 2)^k / k!, to k = order."""
    if order < 2 or order % 2:
        raise InputError(
            f"The number of states of an RBF kernel must be even and positive, got {order!r}; give "
            "6, or 10 for an error of 1.3e-4 of the variance."
        )
    polynomial = np.zeros(2 * order + 1)
    for k in range(order + 1):
        polynomial[2 * (order - k)] = (-0.5) ** k / math.factorial(k)
    roots = np.roots(polynomial)
    roots = roots[(roots.real < 0) & (roots.imag > 0)]
    poles = np.concatenate([roots, roots.conj()])
    differences = poles[:, None] - poles[None] + np.eye(len(poles))
    push = 1 / np.prod(differences, axis=1)  # of each mode, by a unit white noise
    level = np.sqrt(2 * np.pi) / abs(polynomial[0])
    crossed = -level * np.outer(push, push.conj()) / (poles[:, None] + poles.conj()[None])
    half = len(roots)
    same, other = crossed[:half, :half], crossed[:half, half:]  # E c c* and E c c of the upper ones
    P = np.empty((order, order))
    P[::2, ::2] = 2 * (same + other).real
    P[1::2, 1::2] = 2 * (same - other).real
    P[1::2, ::2] = 2 * (same + other).imag
    P[::2, 1::2] = P[1::2, ::2].T
    s = np.linspace(0, 8, 2001)
    found = 2 * ((same + other).sum(1)[None] * np.exp(roots[None] * s[:, None])).sum(1).real
    error = float(np.max(np.abs(found - np.exp(-0.5 * s**2))))
    return _RBFConstants([(-r.real, r.imag) for r in roots], P.tolist(), error)


@stored
class Oscillations(StateSpace):
    """Undamped oscillations at multiples of a frequency, and a constant."""

    frequency: Values  # angular
    # of each of J harmonics, in front that of the constant if there is one, each an array over the
    # lanes
    variances: tuple[Values, ...]
    first: int = eqx.field(static=True)  # 0 with the constant, 1 without

    @property
    def measurement(self) -> tuple[float, ...]:
        constant = self.first == 0
        return (*[1.0] * constant, *(1.0, 0.0) * (len(self.variances) - constant))

    def covariance(self, t: Values) -> UnrolledMatrix:
        each = enumerate(self.variances, self.first)
        return block_diagonal([scaled(identity(2 if j else 1), v) for j, v in each])

    def transition(self, t: Values, gap: Values) -> Transition:
        one, numbers = jnp.ones_like(gap), range(self.first, self.first + len(self.variances))
        turns = [_turn(j * self.frequency * gap, one) if j else identity(1) for j in numbers]
        return block_diagonal(turns), _zeros(self.size)


@stored
class LinearSpace(StateSpace):
    """A straight line through the origin: its height and its slope."""

    variance: Values

    @property
    def measurement(self) -> tuple[float, ...]:
        return 1.0, 0.0

    def covariance(self, t: Values) -> UnrolledMatrix:
        v = self.variance
        return UnrolledMatrix([[v * t**2, v * t], [v * t, v + 0 * t]])

    def transition(self, t: Values, gap: Values) -> Transition:
        return UnrolledMatrix([[1.0, gap], [0.0, 1.0]]), _zeros(2)


@stored
class ConstantSpace(StateSpace):
    """A constant."""

    variance: Values

    @property
    def measurement(self) -> tuple[float, ...]:
        return (1.0,)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return UnrolledMatrix([[self.variance + 0 * t]])

    def transition(self, t: Values, gap: Values) -> Transition:
        return identity(1), _zeros(1)


@stored
class WhiteSpace(ConstantSpace):
    """An independent value at every distinct time."""

    def transition(self, t: Values, gap: Values) -> Transition:
        same = jnp.where(gap == 0, 1.0, 0.0).astype(gap.dtype)
        return UnrolledMatrix([[same]]), UnrolledMatrix([[self.variance * (1 - same)]])


@stored
class ScaledSpace(StateSpace):
    """A process times the root of a number."""

    inner: StateSpace
    factor: Values

    @property
    def measurement(self) -> tuple[float, ...]:
        return self.inner.measurement

    def covariance(self, t: Values) -> UnrolledMatrix:
        return scaled(self.inner.covariance(t), self.factor)

    def transition(self, t: Values, gap: Values) -> Transition:
        A, Q = self.inner.transition(t, gap)
        return A, scaled(Q, self.factor)


@stored
class SumSpace(StateSpace):
    """Independent processes, f their sum."""

    parts: tuple[StateSpace, ...]

    @property
    def measurement(self) -> tuple[float, ...]:
        return tuple(entry for part in self.parts for entry in part.measurement)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return block_diagonal([part.covariance(t) for part in self.parts])

    def transition(self, t: Values, gap: Values) -> Transition:
        moves, noises = zip(*(part.transition(t, gap) for part in self.parts), strict=True)
        return block_diagonal(moves), block_diagonal(noises)


@stored
class ProductSpace(StateSpace):
    """Products of the states of two independent processes, whose covariances multiply."""

    left: StateSpace
    right: StateSpace

    @property
    def measurement(self) -> tuple[float, ...]:
        return tuple(a * b for a in self.left.measurement for b in self.right.measurement)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return kron(self.left.covariance(t), self.right.covariance(t))

    def transition(self, t: Values, gap: Values) -> Transition:
        A, Q = self.left.transition(t, gap)
        B, R = self.right.transition(t, gap)
        P, S = self.left.covariance(t), self.right.covariance(t)
        return kron(A, B), kron(Q, S) + kron(P - Q, R)


@singledispatch
def state_space(kernel: Kernel, truncation: Truncation) -> StateSpace:
    """The state-space form of a kernel of one column, `truncation` of what is approximated.

    Raises:
        InputError: the kernel has none.

    Example:
        >>> from latentgp import Constant, Matern32
        >>> state_space(Matern32() + Constant(), Truncation()).measurement
        (1.0, 0.0, 1.0)
    """
    lacks(kernel, f"no state-space form for Markov(); kernels that have one are {_KNOWN}")


def _one(value: Any) -> Any:
    """A parameter that is a number or one of a single column."""
    return jnp.reshape(jnp.asarray(value), ())


def _matern(kernel: Any, degree: int) -> StateSpace:
    rate = math.sqrt(2 * degree + 1) / _one(kernel.lengthscale)
    return MaternSpace(rate, kernel.variance, degree)


state_space.register(Matern12, lambda kernel, _: _matern(kernel, 0))
state_space.register(Matern32, lambda kernel, _: _matern(kernel, 1))
state_space.register(Matern52, lambda kernel, _: _matern(kernel, 2))
state_space.register(MaternHalfInteger, lambda kernel, _: _matern(kernel, kernel.degree))
state_space.register(Linear, lambda kernel, _: LinearSpace(_one(kernel.variance)))
state_space.register(Constant, lambda kernel, _: ConstantSpace(kernel.variance))
state_space.register(White, lambda kernel, _: WhiteSpace(kernel.variance))
state_space.register(ActiveDimensions, lambda kernel, cut: state_space(kernel.kernel, cut))


@state_space.register
def _(kernel: RBF, truncation: Truncation) -> StateSpace:
    return Modes(1 / _one(kernel.lengthscale), kernel.variance, truncation.rbf)


@state_space.register
def _(kernel: Cosine, truncation: Truncation) -> StateSpace:
    return Oscillations(2 * np.pi / _one(kernel.period), (kernel.variance,), 1)


@state_space.register
def _(kernel: Periodic, truncation: Truncation) -> StateSpace:
    """By its Fourier series (Solin & Särkkä 2014, eq. 27)."""
    shares = _shares(_one(kernel.lengthscale), truncation.harmonics)
    variances = tuple(kernel.variance * share for share in shares)
    return Oscillations(2 * np.pi / _one(kernel.period), variances, 0)


def _shares(lengthscale: Any, harmonics: int) -> list[Any]:
    """The variances of the series of exp((cos u - 1) / l^2), which add up to one."""
    angles = np.pi * (np.arange(_NODES) + 0.5) / _NODES
    values = jnp.exp((np.cos(angles) - 1) / lengthscale**2)
    waves = [np.cos(j * angles) for j in range(harmonics + 1)]
    return [(1 + (j > 0)) * jnp.mean(values * wave) for j, wave in enumerate(waves)]


@state_space.register
def _(kernel: Scaled, truncation: Truncation) -> StateSpace:
    return ScaledSpace(state_space(kernel.kernel, truncation), kernel.scale)


@state_space.register
def _(kernel: Sum, truncation: Truncation) -> StateSpace:
    return SumSpace(tuple(state_space(part, truncation) for part in kernel.parts))


@state_space.register
def _(kernel: WeightedSum, truncation: Truncation) -> StateSpace:
    parts = enumerate(kernel.parts)
    return SumSpace(
        tuple(ScaledSpace(state_space(part, truncation), kernel.weights[m]) for m, part in parts)
    )


@state_space.register
def _(kernel: Product, truncation: Truncation) -> StateSpace:
    return reduce(ProductSpace, [state_space(part, truncation) for part in kernel.parts])


def measurements_of_parts(kernel: Kernel, truncation: Truncation) -> list[tuple[float, ...]]:
    """The row h' of each part of a sum, in the order of `kernels.parts.parts_of`."""
    if isinstance(kernel, Scaled | ActiveDimensions):
        return measurements_of_parts(kernel.kernel, truncation)
    if not isinstance(kernel, Sum | WeightedSum):
        return [state_space(kernel, truncation).measurement]
    own = [measurements_of_parts(part, truncation) for part in kernel.parts]
    sizes, found = [len(rows[0]) for rows in own], []
    for place, rows in enumerate(own):
        before, after = sum(sizes[:place]), sum(sizes[place + 1 :])
        found += [(*[0.0] * before, *row, *[0.0] * after) for row in rows]
    return found


class Columns(NamedTuple):
    """The columns that a kernel in state-space form sees."""

    time: int  # that of time
    series: int | None  # that which tells independent series apart; None for one series


def time_columns(kernel: LatentKernel, inputs: int) -> tuple[Columns, list[Kernel]]:
    """The columns of time and of series, and the kernels of time alone, one for each distinct one.

    Independent series are a factor `White().on(column)`.

    Raises:
        InputError: it sees several columns, or latent functions see different ones.
    """
    each = list(kernel.each) if isinstance(kernel, OwnKernels) else [kernel]
    found, own, blind = [], [], []
    for part in each:
        series, rest = _series_of(part, inputs)
        seen = columns_seen(rest, inputs)
        if len(seen) > 1:
            raise InputError(
                f"Markov() takes a kernel of one time-like column, but {part!r} sees columns "
                f"{sorted(seen)}; name it, as in Matern32().on(0), write series apart as one "
                "factor, as in (A + B) * White().on(1), or use SpaceTime(...) of places over "
                "time, Dense(), Inducing(...) or Neighbours(...)."
            )
        (found if seen or series is not None else blind).append(
            Columns(min(seen, default=0), series)
        )
        own.append(rest)
    found = found or blind
    if len(set(found)) > 1:
        raise InputError(
            f"Markov() takes latent functions of the same time column, but {kernel!r} has several; "
            "use Dense() or Inducing(...)."
        )
    return found[0], own


def has_small_state_space(kernel: LatentKernel, inputs: int, most: int) -> bool:
    """Whether a kernel of so many columns has an exact state-space form of at most some states.

    Example:
        >>> from latentgp import RBF, Matern32
        >>> has_small_state_space(Matern32(), 1, 12), has_small_state_space(RBF(), 1, 12)
        (True, False)
    """
    try:
        each = time_columns(kernel, inputs)[1]
        small = all(state_space(own, Truncation()).size <= most for own in each)
    except InputError:
        return False
    return small and not any(isinstance(k, RBF | Periodic) for own in each for k in _leaves(own))


def _series_of(kernel: Kernel, inputs: int) -> tuple[int | None, Kernel]:
    """The column of a factor of white noise, and the kernel without it, its variance kept."""
    if isinstance(kernel, Scaled):
        series, rest = _series_of(kernel.kernel, inputs)
        return series, kernel if series is None else Scaled(rest, kernel.scale)
    if not isinstance(kernel, Product):
        return None, kernel
    apart, others = [], []
    for part in kernel.parts:
        inner = isinstance(part, ActiveDimensions) and len(part.dimensions) == 1 and part.kernel
        (apart if isinstance(inner, White) else others).append(part)
    if len(apart) != 1 or not others or apart[0].dimensions[0] in _seen_by_all(others, inputs):
        return None, kernel
    rest = others[0] if len(others) == 1 else Product(tuple(others))
    return apart[0].dimensions[0], Scaled(rest, apart[0].kernel.variance)


def _seen_by_all(kernels: Sequence[Kernel], inputs: int) -> set[int]:
    return set().union(*(columns_seen(kernel, inputs) for kernel in kernels))


def columns_seen(kernel: Kernel, inputs: int) -> set[int]:
    """Columns that a kernel sees."""
    if isinstance(kernel, Sum | Product | WeightedSum):
        return _seen_by_all(kernel.parts, inputs)
    if isinstance(kernel, Scaled):
        return columns_seen(kernel.kernel, inputs)
    if isinstance(kernel, ActiveDimensions):
        inner = columns_seen(kernel.kernel, len(kernel.dimensions))
        return {kernel.dimensions[column] for column in inner}
    return set() if isinstance(kernel, Constant) else set(range(inputs))


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    """The kernels that sums, products, scales and columns are of."""
    if isinstance(kernel, Sum | Product | WeightedSum):
        for part in kernel.parts:
            yield from _leaves(part)
    elif isinstance(kernel, Scaled | ActiveDimensions):
        yield from _leaves(kernel.kernel)
    else:
        yield kernel


class LeftOut(NamedTuple):
    """Errors of state-space forms, a sentence for each approximated part of a kernel."""

    notes: tuple[str, ...]
    complaints: tuple[str, ...]  # where it is more than a hundredth of the variance

    @classmethod
    def of(cls, kernels: Iterable[Kernel], truncation: Truncation) -> "LeftOut":
        """In NumPy, from the kernels of the latent functions."""
        notes, complaints = {}, {}
        for leaf in (leaf for kernel in kernels for leaf in _leaves(kernel)):
            if isinstance(leaf, RBF):
                share, states = _rbf_constants(truncation.rbf).error, truncation.rbf
                said = f"RBF has {states} states, whose covariance is off by at most {share:.1e} of"
                more = "rbf_states"
            elif isinstance(leaf, Periodic):
                size = float(np.ravel(np.asarray(leaf.lengthscale))[0])
                kept = float(sum(map(np.asarray, _shares(size, truncation.harmonics))))
                share, more = max(1 - kept, 0.0), "harmonics"
                waves = truncation.harmonics
                said = f"Periodic has {waves} harmonics, which leave out a share of {share:.1e} of"
            else:
                continue
            if share > _MOST_LEFT_OUT:
                complaints[f"{said} the variance; raise {more}=, or use Dense()."] = None
            else:
                notes[f"{said} the variance."] = None
        return cls(tuple(notes), tuple(complaints))


def _turn(angle: Any, size: Any) -> UnrolledMatrix:
    cosine, sine = size * jnp.cos(angle), size * jnp.sin(angle)
    return UnrolledMatrix([[cosine, -sine], [sine, cosine]])


def _zeros(size: int) -> UnrolledMatrix:
    return UnrolledMatrix([[0.0] * size for _ in range(size)])
