"""Likelihoods that are values alone: functions outside of JAX, and programs."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from latentgp.errors import InputError, check_choices, check_ranges
from latentgp.extensions.black_box.mixtures.expectations import lowest_where_unknown
from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation, Targets
from latentgp.modules import forwarded
from latentgp.numerics.quadrature import (
    Nodes,
    latents_at,
    nodes_near,
    prediction_nodes,
    spread_of,
    training_nodes,
)
from latentgp.runtime.host_calls import call_on_host
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowLatents, Scalar, Vectors

Reasons: TypeAlias = Callable[[int], str]  # why a value is none, by its place
Columns: TypeAlias = Mapping[str, np.ndarray]  # side information of rows
Judged: TypeAlias = tuple[np.ndarray, Reasons]

_RAISED = Exception, SystemExit  # what a function may end with: no interruption
_OTHERS = "moments", "distribution", "draws", "gradient"  # functions beside the density
_KEPT = 100  # failures that are kept in full
_SHOWN = 3
_SEEDS = 1 << 24  # whole numbers that single precision has


class Failure(NamedTuple):
    """A value of log p that could not be had."""

    y: np.ndarray  # the target
    f: np.ndarray  # the latents
    side: dict[str, float]  # the row's side information
    why: str  # in words


class Calls:
    """Record of the calls of a function: their number, values and failures."""

    def __init__(self) -> None:
        self.calls = self.values = self.failed = 0
        self.failures: list[Failure] = []
        self.interrupted = False

    def add(
        self, y: np.ndarray, f: np.ndarray, side: Columns, bad: np.ndarray, why: Reasons
    ) -> None:
        """Note a call of B values, of which some failed."""
        self.calls += 1
        self.values += len(f)
        self.failed += int(bad.sum())
        for place in np.flatnonzero(bad)[: max(0, _KEPT - len(self.failures))]:
            own = {name: float(part[place]) for name, part in side.items()}
            self.failures.append(Failure(y[place], f[place], own, why(place)))

    def begin(self) -> None:
        """Count from here on, for the fit that begins."""
        self.__init__()

    def told(self, y: np.ndarray, side: Columns) -> tuple[str, ...]:
        """A sentence on values that failed, with the rows as they are numbered here; or none."""
        if not self.failed:
            return ()
        shown = [
            f"{_rows_like(failure, y, side)}f = {np.array2string(failure.f, precision=4)}: "
            f"{failure.why}"
            for failure in self.failures[:_SHOWN]
        ]
        more = "; further ones failed" if self.failed > len(shown) else ""
        return (
            f"The external function gave no finite log density for {self.failed} of {self.values} "
            "values, which were counted as the lowest of their row, or in chains as minus infinity "
            f"({'; '.join(shown)}{more}); make it finite there, or narrow the prior.",
        )


def _rows_like(failure: Failure, y: np.ndarray, side: Columns) -> str:
    """The rows that a function cannot tell from that of a failure: all there is to know of it."""
    same = np.all((y == failure.y).reshape(len(y), -1), axis=1)
    for name, value in failure.side.items():
        same &= np.asarray(side[name]) == value if name in side else True
    rows = np.flatnonzero(same).tolist()
    if len(rows) < 2:
        return f"row {rows[0]}, " if rows else ""
    first, more = ", ".join(map(str, rows[:_SHOWN])), len(rows) - _SHOWN
    first += f" and {more} more" if more > 0 else ""
    return f"one of the rows {first}, which have the same target, "


class Host:
    """The function as compiled programs call it: plain, as modules are slow to take apart."""

    def __init__(self, likelihood: "ExternalLikelihood"):
        self.function = likelihood.function
        self.others: dict[str, Any] = {name: getattr(likelihood, name) for name in _OTHERS}
        self.latents, self.shape = likelihood.latents, likelihood.output_shape
        self.vectorised, self.timeout = likelihood.vectorised, likelihood.timeout
        self.calls = Calls()

    def values(self, y: np.ndarray, f: np.ndarray, side: Columns) -> tuple[np.ndarray]:
        """Values of log p for arrays with any axes before those of one row; NaN where it fails.

        Minus infinity is a density of zero. A step of an ascent may leave the proper Gaussians, and
        is taken back: its latents are no numbers, and nor are their values, for which the function
        is not asked.
        """
        before, flat = f.shape[:-1], f.reshape(-1, self.latents)
        targets = y.reshape(len(flat), *self.shape)
        own = {name: part.reshape(len(flat)) for name, part in side.items()}
        found, asked = np.full(len(flat), np.nan), np.isfinite(flat).all(axis=1)
        if asked.any():
            targets, flat = targets[asked], flat[asked]
            own = {name: part[asked] for name, part in own.items()}
            try:
                values, why = self._guarded(targets, flat, own)
            except KeyboardInterrupt:  # on its way up XLA makes another error of it
                self.calls.interrupted = True
                raise
            bad = ~np.isfinite(values)
            self.calls.add(targets, flat, own, bad, why)
            found[asked] = np.where(bad & (values != -np.inf), np.nan, values)
        return (found.reshape(before),)

    def _guarded(self, y: np.ndarray, f: np.ndarray, side: Columns) -> Judged:
        if self.timeout is None:
            return self._found(y, f, side)
        answer: Future[Judged] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._found(y, f, side))
            except BaseException as error:  # an interruption goes up
                answer.set_exception(error)

        # As a daemon: the process may end while a late call goes on.
        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(self.timeout)
        except LateError:
            late = f"no answer within {self.timeout:g} s"
            return np.full(len(f), np.nan), lambda place: late

    def _found(self, y: np.ndarray, f: np.ndarray, side: Columns) -> Judged:
        """Values, and why one is none; those of calls that raise are NaN."""
        with np.errstate(all="ignore"):
            if not self.vectorised:
                return self._one_by_one(y, f, side)
            try:
                values = np.asarray(self.function(y, f, **side), np.float64)
                if values.shape != (len(f),):
                    raise ValueError(f"gave shape {values.shape}, not ({len(f)},)")
            except _RAISED as error:  # whatever the user's code raises
                said = _in_words(error)
                return np.full(len(f), np.nan), lambda place: said
        return values, lambda place: f"it gave {values[place]}"

    def _one_by_one(self, y: np.ndarray, f: np.ndarray, side: Columns) -> Judged:
        values, said = np.full(len(f), np.nan), {}
        for place in range(len(f)):
            own = {name: part[place] for name, part in side.items()}
            try:
                values[place] = float(self.function(y[place], f[place], **own))
            except _RAISED as error:
                said[place] = _in_words(error)
        return values, lambda place: said.get(place, f"it gave {values[place]}")

    def answer(self, name: str, shape: tuple[int, ...], *given: Any) -> tuple[np.ndarray, ...]:
        """Arrays of a shape a row by another function, of targets, seeds or neither."""
        *first, f, side = given
        flat = f.reshape(-1, self.latents)
        own = {key: part.reshape(len(flat)) for key, part in side.items()}
        if name == "draws":  # by one generator for all: the same seeds give the same draws
            first = [np.random.default_rng(seeds.astype(np.uint64).ravel()) for seeds in first]
        else:
            first = [y.reshape(-1, *self.shape) for y in first]
        try:
            found = self.others[name](*first, flat, **own)
            parts = found if name == "moments" else (found,)
            wanted = len(flat), *shape
            made = [np.broadcast_to(np.asarray(part, float), wanted) for part in parts]
        except _RAISED as error:
            raise InputError(
                f"ExternalLikelihood's {name} failed ({_in_words(error)}); mend that function, "
                "which is given latents of many rows at a time."
            ) from None
        return tuple(part.reshape(*f.shape[:-1], *shape) for part in made)


class ExternalLikelihood(Likelihood):
    """p(y | f) by a function outside of JAX: Python, NumPy, or another program.

    It is evaluated for many rows and draws at a time and never differentiated: expectations and
    their derivatives are found from values alone (Bonilla, Krauth & Dezfouli, Theorem 1). So
    `BlackBoxVI`, `VariationalInference`, `ExpectationPropagation` and `EllipticalSlice` take it;
    what needs the gradient of log p in f says so. Where it raises an error, or gives a value that
    is not finite, the lowest value of the row is taken, in chains minus infinity, and the
    diagnostics say so. Minus infinity is a density of zero in predictions and moments.

    Args:
        function: log p(y | f) in nats of B targets, shape (B,) or (B, P), and their latents, shape
            (B, Q), by position, and the rows' side information by name; gives shape (B,). With
            vectorised=False of one target and its latents.
        latents: Q.
        outputs: P; None where a target is one number.
        kind: of the targets: "real", "count" or "class".
        side: names of side information that it takes.
        moments: mean and variance of y given latents, shape (B, Q), each (B,) or (B, P), for
            predictions of y; without it densities alone can be predicted.
        distribution: probability of a target of at most y, of targets and latents as `function`
            has them; gives (B,) or (B, P). For quantiles and intervals of y.
        draws: draws of y, of a `numpy.random.Generator` and latents, shape (B, Q), and side
            information by name; gives (B,) or (B, P).
        gradient: of log p in the latents, of what `function` is given; gives (B, Q). For
            `NUTS(coupling="whitened")` and other methods by gradients.
        vectorised: whether the function takes many rows; the others do.
        timeout: seconds that a call may take; its values count as failed after that.

    Raises:
        InputError: something that is not a function, or settings outside their range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> def log_density(y, f):
        ...     return -np.abs(y - f[:, 0]) - np.log(2)
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.likelihoods.ExternalLikelihood(log_density))
        >>> fit = lgp.fit(model, data, method=lgp.BlackBoxVI(), key=jax.random.key(0))
        >>> fit.posterior.predict_f([1.0]).mean.shape
        (1,)
    """

    has_gradient: ClassVar[bool] = False

    function: Callable[..., Any] = eqx.field(static=True)
    latents: int = eqx.field(static=True, default=1)
    outputs: int | None = eqx.field(static=True, default=None, kw_only=True)
    kind: Targets = eqx.field(static=True, default="real", kw_only=True)
    side: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True, converter=tuple)
    moments: Callable[..., Any] | None = eqx.field(static=True, default=None, kw_only=True)
    distribution: Callable[..., Any] | None = eqx.field(static=True, default=None, kw_only=True)
    draws: Callable[..., Any] | None = eqx.field(static=True, default=None, kw_only=True)
    gradient: Callable[..., Any] | None = eqx.field(static=True, default=None, kw_only=True)
    vectorised: bool = eqx.field(static=True, default=True, kw_only=True)
    timeout: float | None = eqx.field(static=True, default=None, kw_only=True)
    host: Host = eqx.field(static=True, init=False, repr=False, metadata={"saved": False})

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", Host(self))

    def __getattr__(self, name: str) -> Any:
        """The host of one that a file brought back, which has none yet."""
        if name != "host":
            raise AttributeError(f"ExternalLikelihood has no {name!r}")
        object.__setattr__(self, "host", Host(self))
        return self.__dict__["host"]

    def __check_init__(self) -> None:
        if not callable(self.function) or self.latents < 1:
            raise InputError(
                "ExternalLikelihood needs a function of (y, f) and at least one latent, got "
                f"{self.function!r} and {self.latents}."
            )
        check_ranges(self, timeout="above 0")
        check_choices(self, kind=get_args(Targets))

    @property
    def calls(self) -> Calls:
        """Record of the calls so far."""
        return self.host.calls

    latent_size = forwarded("latents")

    @property
    def output_shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return () if self.outputs is None else (self.outputs,)

    side_information = forwarded("side")
    targets = forwarded("kind")

    def log_prob(self, y: Float[Array, "*P"], f: Latents, side: SideInformation) -> Scalar:
        value = _called(self, y, f, self._own(side))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def conditional_moments(
        self, f: Latents, side: SideInformation
    ) -> tuple[Float[Array, "*P"], Float[Array, "*P"]]:
        if self.moments is None:
            raise InputError(
                "ExternalLikelihood has no moments; give moments=..., a function of latents that "
                "gives mean and variance of y."
            )
        mean, variance = self._answer("moments", self.output_shape, f, side)
        return mean, variance

    def cdf(self, y: Float[Array, "*P"], f: Latents, side: SideInformation) -> Float[Array, "*P"]:
        if self.distribution is None:
            raise InputError(
                "ExternalLikelihood has no distribution function; give distribution=..., a "
                "function of targets and latents that gives the probability of at most y."
            )
        return self._answer("distribution", self.output_shape, f, side, y)[0]

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Float[Array, "*P"]:
        if self.draws is None:
            raise InputError(
                "ExternalLikelihood has no draws of y; give draws=..., a function of a "
                "numpy.random.Generator and latents."
            )
        seed = jax.random.randint(key, (), 0, _SEEDS).astype(f.dtype)
        return self._answer("draws", self.output_shape, f, side, seed)[0]

    def log_expected_power(
        self,
        y: Float[Array, "N *P"],
        marginals: Marginals,
        side: SideInformation,
        power: float,
        near: Marginals,
    ) -> PerRow:
        """By values at nodes that stay: their weights alone have derivatives in the law of f."""
        if self.latents <= 2:
            f, log_weights = nodes_near(*marginals, *near)
        else:
            nodes = prediction_nodes(self.latents)
            f, _ = jax.lax.stop_gradient(latents_at(*near, nodes))
            laws = [
                jnp.sum(-0.5 * (f - mean[:, None]) ** 2 / v[:, None] - 0.5 * jnp.log(v)[:, None], 2)
                for mean, v in (marginals, near)
            ]
            log_weights = laws[0] - laws[1] - float(np.log(len(nodes[0])))
        values = self._densities(y, f, side)
        return logsumexp(power * values + log_weights, axis=1)

    def expected_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> PerRow:
        """E log p(y | f), its derivatives in mean and variance by differences over nodes."""
        return _expected(self, y, *marginals, self._own(side))

    def predictive_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> PerRow:
        nodes = prediction_nodes(self.latents)
        values = self._densities(y, latents_at(*marginals, nodes)[0], side)
        return logsumexp(values, axis=1, b=jnp.asarray(nodes[1], values.dtype))

    def _densities(
        self, y: Float[Array, "N *P"], f: Float[Array, "N S Q"], side: SideInformation
    ) -> Float[Array, "N S"]:
        """Logs of densities to be averaged: those of zero stay, only failed ones are replaced."""
        values = self._along_nodes(partial(_called, self), y, self._own(side))(f)
        return jnp.where(jnp.isnan(values), lowest_where_unknown(values), values)

    def _own(self, side: SideInformation) -> dict[str, Array]:
        return {name: side[name] for name in self.side}

    def _answer(
        self, name: str, shape: tuple[int, ...], f: Latents, side: SideInformation, *first: Array
    ) -> tuple[Array, ...]:
        shapes = (shape,) * (2 if name == "moments" else 1)
        answer = partial(self.host.answer, name, shape)
        return call_on_host(answer, shapes, f.dtype, *first, f, self._own(side))

    def _at_nodes(
        self,
        y: Float[Array, "N *P"],
        mean: RowLatents,
        variance: RowLatents,
        side: SideInformation,
        nodes: Nodes,
    ) -> Float[Array, "N S"]:
        return self._along_nodes(self.log_prob, y, side)(latents_at(mean, variance, nodes)[0])


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _called(
    likelihood: ExternalLikelihood, y: Array, f: Array, side: Mapping[str, Array]
) -> Scalar:
    return call_on_host(likelihood.host.values, ((),), f.dtype, y, f, side)[0]


@_called.defjvp
def _(likelihood: ExternalLikelihood, primals: Any, tangents: Any) -> Any:
    if likelihood.gradient is None:
        raise InputError(
            "ExternalLikelihood has no gradient in f, which the method needs; use BlackBoxVI() or "
            'EllipticalSlice(), or give gradient=... for NUTS(coupling="whitened").'
        )
    y, f, side = primals
    return _called(likelihood, y, f, side), _slope(likelihood, y, f, side) @ tangents[1]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _slope(
    likelihood: ExternalLikelihood, y: Array, f: Array, side: Mapping[str, Array]
) -> Latents:
    return likelihood._answer("gradient", (likelihood.latents,), f, side, y)[0]


@_slope.defjvp
def _(likelihood: ExternalLikelihood, primals: Any, tangents: Any) -> Any:
    raise InputError(
        "ExternalLikelihood has no second derivative in f, which the method needs; use "
        'NUTS(coupling="whitened"), BlackBoxVI() or EllipticalSlice().'
    )


def slopes_by_values(
    values: Vectors, mean: RowLatents, variance: RowLatents, nodes: Nodes
) -> tuple[PerRow, RowLatents, RowLatents]:
    """E function(f) and its derivatives in mean and variance, from values at the nodes alone.

    With f = m + v^1/2 x they are E[x function] / v^1/2 and E[(x^2 - 1) function] / (2 v).
    """
    spread = spread_of(mean, variance)
    points, weights = (jnp.asarray(part, mean.dtype) for part in nodes)
    values = lowest_where_unknown(values)
    value = values @ weights
    above = weights * (values - value[:, None])  # the scores have mean zero
    in_mean = above @ points / spread
    return value, in_mean, above @ (points**2 - 1) / (2 * spread**2)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _expected(
    likelihood: ExternalLikelihood,
    y: Array,
    mean: RowLatents,
    variance: RowLatents,
    side: Mapping[str, Array],
) -> PerRow:
    nodes = training_nodes(likelihood.latents)
    values = likelihood._at_nodes(y, mean, variance, side, nodes)
    return slopes_by_values(values, mean, variance, nodes)[0]


@_expected.defjvp
def _(likelihood: ExternalLikelihood, primals: Any, tangents: Any) -> Any:
    y, mean, variance, side = primals
    nodes = training_nodes(likelihood.latents)
    values = likelihood._at_nodes(y, mean, variance, side, nodes)
    value, in_mean, in_variance = slopes_by_values(values, mean, variance, nodes)
    moved = in_mean * tangents[1] + in_variance * tangents[2]
    return value, jnp.sum(moved, axis=1)


class ExternalProgram:
    r"""A program as the function of an `ExternalLikelihood`.

    It is started for every call, reads a line for every value on its standard input, the target
    (or the targets), the latents, and side information in the order of its names, with a space
    between numbers, and writes a line with log p(y | f), in nats, for each on its standard output.

    Args:
        command: the program and its arguments.
        timeout: seconds until it is killed; None for no limit.

    Raises:
        InputError: no command.

    Example:
        >>> import numpy as np, sys
        >>> code = "import sys\nfor line in sys.stdin: print(-sum(map(float, line.split())) ** 2)"
        >>> program = ExternalProgram([sys.executable, "-c", code])
        >>> program(np.array([1.0, 2.0]), np.array([[0.0], [1.0]])).tolist()
        [-1.0, -9.0]
    """

    def __init__(self, command: Sequence[str], timeout: float | None = None):
        if isinstance(command, str) or not command:
            raise InputError(
                f"ExternalProgram needs a command as a list of words, got {command!r}."
            )
        self.command, self.timeout = tuple(map(str, command)), timeout

    def __repr__(self) -> str:
        return f"ExternalProgram({list(self.command)})"

    def __call__(
        self, y: Float[np.ndarray, "B *P"], f: Float[np.ndarray, "B Q"], **side: Any
    ) -> Float[np.ndarray, "B"]:
        """Log densities of B values.

        Raises:
            RuntimeError: the program ended with an error, was too late, or wrote something else.
        """
        columns = [np.asarray(part, float).reshape(len(f), -1) for part in (y, f, *side.values())]
        rows = np.hstack(columns).tolist()
        lines = "".join(" ".join(map(repr, row)) + "\n" for row in rows)
        known: Any = {"capture_output": True, "text": True, "check": False}
        try:
            done = subprocess.run(self.command, input=lines, timeout=self.timeout, **known)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no answer within {self.timeout:g} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise RuntimeError(f"the program ended with {done.returncode}: {last}")
        words = done.stdout.split()
        if len(words) != len(f):
            raise RuntimeError(f"the program wrote {len(words)} numbers for {len(f)} lines")
        return np.array(words, float)
