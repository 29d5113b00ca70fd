"""Likelihoods that are values alone: functions outside of JAX, and programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from functools import partial
from typing import Any, ClassVar, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from latentgp.errors import InputError, check_choices
from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation, Targets
from latentgp.numerics.quadrature import (
    Nodes,
    latents_at,
    lowest_where_unknown,
    prediction_nodes,
    slopes_by_values,
    training_nodes,
)
from latentgp.runtime.host_calls import call_on_host
from latentgp.typing import Array

Reasons = Callable[[int], str]  # why a value is none, by its place

_KEPT = 100  # failures that are kept in full
_SHOWN = 3


class Failure(NamedTuple):
    """A value of log p that could not be had.

    Attributes:
        y: the target.
        f: the latents.
        why: in words.
    """

    y: np.ndarray
    f: np.ndarray
    why: str


class Calls:
    """What became of the calls of a function: how many, of how many values, which failed."""

    def __init__(self) -> None:
        self.calls = self.values = self.failed = 0
        self.failures: list[Failure] = []

    def add(self, y: np.ndarray, f: np.ndarray, bad: np.ndarray, why: Reasons) -> None:
        """Note a call of B values, of which some failed."""
        self.calls += 1
        self.values += len(f)
        self.failed += int(bad.sum())
        for place in np.flatnonzero(bad)[: max(0, _KEPT - len(self.failures))]:
            self.failures.append(Failure(y[place], f[place], why(place)))

    def told(self, y: np.ndarray) -> tuple[str, ...]:
        """A sentence on values that failed, for rows with these targets; none if none did."""
        if not self.failed:
            return ()
        shown = []
        for failure in self.failures[:_SHOWN]:
            same = np.all((y == failure.y).reshape(len(y), -1), axis=1)
            row = f"row {int(np.argmax(same))}, " if same.any() else ""
            shown.append(f"{row}f = {np.array2string(failure.f, precision=4)}: {failure.why}")
        more = "; further ones failed" if self.failed > len(shown) else ""
        return (
            f"The external function gave no finite log density for {self.failed} of {self.values} "
            f"values, which were counted as the lowest of their row ({'; '.join(shown)}{more}); "
            "make it finite there, or narrow the prior.",
        )


class Host:
    """The function as it is called from compiled programs, and what became of its calls.

    A plain object: modules are taken apart wherever they are touched, which takes longer than many
    a function.
    """

    def __init__(self, likelihood: "ExternalLikelihood"):
        self.function, self.moments = likelihood.function, likelihood.moments
        self.latents, self.shape = likelihood.latents, likelihood.output_shape
        self.vectorised, self.timeout = likelihood.vectorised, likelihood.timeout
        self.calls = Calls()

    def values(
        self, y: np.ndarray, f: np.ndarray, side: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray]:
        """Values of log p for arrays with any axes before those of one row; NaN where it fails."""
        before = f.shape[:-1]
        flat = f.reshape(-1, self.latents)
        targets = y.reshape(len(flat), *self.shape)
        own = {name: part.reshape(len(flat)) for name, part in side.items()}
        values, why = self._guarded(targets, flat, own)
        bad = ~np.isfinite(values)
        if bad.any():
            values = np.where(bad, np.nan, values)
        self.calls.add(targets, flat, bad, why)
        return (values.reshape(before),)

    def _guarded(
        self, y: np.ndarray, f: np.ndarray, side: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, Reasons]:
        if self.timeout is None:
            return self._found(y, f, side)
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(self._found, y, f, side).result(self.timeout)
        except LateError:
            late = f"no answer within {self.timeout:g} s"
            return np.full(len(f), np.nan), lambda place: late
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _found(
        self, y: np.ndarray, f: np.ndarray, side: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, Reasons]:
        """Values, and why one is none; those of calls that raise are NaN."""
        with np.errstate(all="ignore"):
            if not self.vectorised:
                return self._one_by_one(y, f, side)
            try:
                values = np.asarray(self.function(y, f, **side), np.float64)
                if values.shape != (len(f),):
                    raise ValueError(f"gave shape {values.shape}, not ({len(f)},)")
            except Exception as error:  # whatever the user's code raises
                said = _in_words(error)
                return np.full(len(f), np.nan), lambda place: said
        return values, lambda place: f"it gave {values[place]}"

    def _one_by_one(
        self, y: np.ndarray, f: np.ndarray, side: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, Reasons]:
        values, said = np.full(len(f), np.nan), {}
        for place in range(len(f)):
            own = {name: part[place] for name, part in side.items()}
            try:
                values[place] = float(self.function(y[place], f[place], **own))
            except Exception as error:
                said[place] = _in_words(error)
        return values, lambda place: said.get(place, f"it gave {values[place]}")

    def moments_of(self, f: np.ndarray, side: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Mean and variance of y for latents with any axes before those of one row."""
        assert self.moments is not None
        flat = f.reshape(-1, self.latents)
        own = {name: part.reshape(len(flat)) for name, part in side.items()}
        shape = len(flat), *self.shape
        found = (np.broadcast_to(part, shape) for part in self.moments(flat, **own))
        return tuple(part.reshape(*f.shape[:-1], *self.shape) for part in found)


class ExternalLikelihood(Likelihood):
    """p(y | f) by a function that is called as it is: Python, NumPy, or a program of its own.

    It is evaluated for many rows and draws at a time and never differentiated: expectations and
    their derivatives are found from values alone (Bonilla, Krauth & Dezfouli, Theorem 1). So
    `BlackBoxVI`, `VariationalInference` and `EllipticalSlice` take it; what needs the gradient of
    log p in f says so. Where it raises an error, or gives a value that is not finite, the lowest
    value of the row is taken, and the diagnostics say so.

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
        vectorised: whether the function takes many rows.
        timeout: seconds that a call may take; its values count as failed after that.

    Raises:
        InputError: something that is not a function, or settings outside their range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> def log_density(y, f):
        ...     return -np.abs(y - f[:, 0]) - np.log(2)
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.ExternalLikelihood(log_density))
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
    vectorised: bool = eqx.field(static=True, default=True, kw_only=True)
    timeout: float | None = eqx.field(static=True, default=None, kw_only=True)
    host: Host = eqx.field(static=True, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", Host(self))

    def __check_init__(self) -> None:
        if not callable(self.function) or self.latents < 1:
            raise InputError(
                "ExternalLikelihood needs a function of (y, f) and at least one latent, got "
                f"{self.function!r} and {self.latents}."
            )
        if self.timeout is not None and self.timeout <= 0:
            raise InputError(
                f"ExternalLikelihood.timeout must be positive seconds, got {self.timeout}."
            )
        check_choices(self, kind=get_args(Targets))

    @property
    def calls(self) -> Calls:
        """What became of the calls so far."""
        return self.host.calls

    @property
    def latent_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.latents

    @property
    def output_shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return () if self.outputs is None else (self.outputs,)

    @property
    def side_information(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.side

    @property
    def targets(self) -> Targets:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.kind

    def log_prob(
        self, y: Float[Array, "*P"], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return _called(self, y, f, {name: side[name] for name in self.side})

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, "*P"], Float[Array, "*P"]]:
        if self.moments is None:
            raise InputError(
                "ExternalLikelihood has no moments; give moments=..., a function of latents that "
                "gives mean and variance of y."
            )
        given = {name: side[name] for name in self.side}
        shapes = self.output_shape, self.output_shape
        mean, variance = call_on_host(self.host.moments_of, shapes, f.dtype, f, given)
        return mean, variance

    def expected_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        """E log p(y | f), its derivatives in mean and variance by differences over nodes."""
        return _expected(self, y, *marginals, {name: side[name] for name in self.side})

    def predictive_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        nodes = prediction_nodes(self.latents)
        values = lowest_where_unknown(self._at_nodes(y, *marginals, side, nodes))
        return logsumexp(values, axis=1, b=jnp.asarray(nodes[1], values.dtype))

    def _at_nodes(
        self,
        y: Float[Array, "N *P"],
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
        side: SideInformation,
        nodes: Nodes,
    ) -> Float[Array, "N S"]:
        return self._along_nodes(self.log_prob, y, side)(latents_at(mean, variance, nodes)[0])


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _called(
    likelihood: ExternalLikelihood, y: Array, f: Array, side: Mapping[str, Array]
) -> Float[Array, ""]:
    return call_on_host(likelihood.host.values, ((),), f.dtype, y, f, side)[0]


@_called.defjvp
def _(likelihood: ExternalLikelihood, primals: Any, tangents: Any) -> Any:
    raise InputError(
        "ExternalLikelihood has no gradient in f, which the method needs; use BlackBoxVI() or "
        "EllipticalSlice()."
    )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _expected(
    likelihood: ExternalLikelihood,
    y: Array,
    mean: Float[Array, "N Q"],
    variance: Float[Array, "N Q"],
    side: Mapping[str, Array],
) -> Float[Array, "N"]:
    nodes = training_nodes(likelihood.latents)
    return slopes_by_values(
        likelihood._at_nodes(y, mean, variance, side, nodes), mean, variance, nodes
    )[0]


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
        lines = "".join(
            " ".join(repr(float(number)) for number in row) + "\n" for row in np.hstack(columns)
        )
        try:
            done = subprocess.run(
                self.command,
                input=lines,
                capture_output=True,
                text=True,
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no answer within {self.timeout:g} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise RuntimeError(f"the program ended with {done.returncode}: {last}")
        words = done.stdout.split()
        if len(words) != len(f):
            raise RuntimeError(f"the program wrote {len(words)} numbers for {len(f)} lines")
        return np.array(words, float)
