"""Optimisers of the sparse variational bound, all on the same rows, kernel and inducing points.

The methods of Izmailov's course work (Moscow State University, 3.2, 3.3 and 5): the collapsed
bound of Titsias (2009) with points at k-means centres ("vi-means") by L-BFGS-B and by projected
Newton steps (Schmidt, Kim & Sra 2011), and with points that are learned; the bound of Hensman et
al. (2013) over q(u) = N(m, L L') and the kernel by L-BFGS-B, projected gradients (FG), stochastic
average gradients (SAG), Adam and Adadelta; natural gradients for q(u) with Adam for the kernel. For
classes (Hensman, Matthews & Ghahramani 2015) the same with quadrature, and with one sample of f a
row.

The claims: optimising the points helps a little and costs a lot; L-BFGS-B on the stochastic bound
is as good as stochastic methods on moderate data; natural gradients beat SAG; vi-means beats both
on big data. The figures are not stated.

Chosen here: white inducing variables; every method has the same seconds, counted from the end of
its first step, which compiles (natural gradients from the beginning of their start on 4,096 rows),
and without those in which bounds and scores are measured; projected methods halve their step until
the bound rises; SAG has the step 0.1 / L for an estimate L of the gradients' Lipschitz constant
that is doubled and relaxed as its authors say.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import minimize

import latentgp as lgp
from common import COLORS, STYLES, Report, figure, load, parser, random_split, standardised, tidy
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations.inducing.selection import select_points
from latentgp.setup.priors import scales, search_bounds

KEY = jax.random.key(0)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
JITTER = 1e-8
BATCH = 200
NEVER = 1e30  # what a bound that is not a number counts as
NEWTON_STEP = 1e-4  # of finite differences of the gradient


class Task(NamedTuple):
    """Rows, where the search starts, and where hyper-parameters may go."""

    space: ParameterSpace
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    Z: np.ndarray
    box: tuple[np.ndarray, np.ndarray]


class Point(NamedTuple):
    """Everything that some method learns; white inducing variables have N(mean, lower lower')."""

    theta: Any
    mean: Any
    lower: Any
    Z: Any


def white_blocks(task: Task, point: Point, X: Any) -> tuple[Any, Any, lgp.LatentGP]:
    """L^-1 k(Z, X) and prior variances at some rows, and the model."""
    model = task.space.to_model(point.theta)
    Z = point.Z
    factor = jnp.linalg.cholesky(model.kernel.gram(Z, Z) + JITTER * jnp.eye(len(Z)))
    blocks = jax.scipy.linalg.solve_triangular(factor, model.kernel.gram(Z, X), lower=True)
    return blocks, model.kernel.diagonal(X), model


def marginals(task: Task, point: Point, X: Any) -> tuple[Any, Any, lgp.LatentGP]:
    blocks, prior, model = white_blocks(task, point, X)
    lower = jnp.tril(point.lower)
    variance = prior - jnp.sum(blocks**2, axis=0) + jnp.sum((lower.T @ blocks) ** 2, axis=0)
    return point.mean @ blocks, jnp.maximum(variance, 1e-10), model


def stochastic_bound(task: Task, point: Point, rows: Any, key: Any = None) -> Any:
    """The bound of Hensman et al. in nats a row, from some rows; one sample of f with a key."""
    X, y = jnp.asarray(task.X)[rows], jnp.asarray(task.y)[rows]
    mean, variance, model = marginals(task, point, X)
    nodes, weights = NODES[:, None], WEIGHTS[:, None] / WEIGHTS.sum()
    if key is not None:
        nodes, weights = jax.random.normal(key, (1, len(X))), jnp.ones((1, 1))
    f = mean + jnp.sqrt(variance) * nodes
    log_prob = jax.vmap(lambda y, f: model.likelihood.log_prob(y, f[None], {}))
    terms = jnp.sum(weights * jax.vmap(log_prob, (None, 0))(y, f), axis=0)
    lower = jnp.tril(point.lower)
    kl = 0.5 * (jnp.sum(lower**2) + point.mean @ point.mean - len(point.mean))
    kl = kl - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(lower))))
    return jnp.mean(terms) - kl / len(task.y)


def collapsed_bound(task: Task, point: Point) -> Any:
    """The bound of Titsias in nats a row."""
    blocks, prior, model = white_blocks(task, point, task.X)
    noise, size = model.likelihood.noise_variance, len(point.Z)
    factor = jnp.linalg.cholesky(jnp.eye(size) + blocks @ blocks.T / noise)
    c = jax.scipy.linalg.solve_triangular(factor, blocks @ task.y, lower=True) / noise
    squares = task.y @ task.y / noise - c @ c
    rest = (jnp.sum(prior) - jnp.sum(blocks**2)) / noise
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    rows = len(task.y) * jnp.log(2 * jnp.pi * noise)
    return -0.5 * (squares + rest + log_determinant + rows) / len(task.y)


def optimal(task: Task, point: Point) -> Point:
    """The same hyper-parameters and points with the q(u) at which both bounds agree."""
    blocks, _, model = white_blocks(task, point, task.X)
    noise, size = model.likelihood.noise_variance, len(point.Z)
    precision = jnp.eye(size) + blocks @ blocks.T / noise
    mean = jnp.linalg.solve(precision, blocks @ task.y) / noise
    return point._replace(mean=mean, lower=jnp.linalg.cholesky(jnp.linalg.inv(precision)))


def start_of(task: Task) -> Point:
    size = len(task.Z)
    theta = jnp.asarray(task.space.to_vector())
    return Point(theta, jnp.zeros(size), jnp.eye(size), jnp.asarray(task.Z))


# What a method calls with the point where it stands, as often as it likes; it raises `TimeIsUp`.
Note = Callable[[Point | None], None]


class TimeIsUp(Exception):
    """A method has had its seconds."""


def parts(names: tuple[str, ...]) -> tuple[Callable[[Point], Any], Callable[[Point, Any], Point]]:
    """To a vector of what is learned, and back."""

    def pack(point: Point) -> Any:
        return jnp.concatenate([jnp.ravel(getattr(point, name)) for name in names])

    def unpack(point: Point, vector: Any) -> Point:
        sizes = np.cumsum([np.size(getattr(point, name)) for name in names])[:-1]
        values = zip(names, jnp.split(vector, sizes), strict=True)
        return point._replace(
            **{name: jnp.reshape(value, np.shape(getattr(point, name))) for name, value in values}
        )

    return pack, unpack


def deterministic(
    task: Task, names: tuple[str, ...], bound: Callable[[Point], Any]
) -> tuple[Any, Any, Any, Any]:
    """The start, minus the bound and its gradient, the box, and how to read a vector."""
    pack, unpack = parts(names)
    first = start_of(task)
    negative = jax.jit(jax.value_and_grad(lambda vector: -bound(unpack(first, vector))))
    start = np.asarray(pack(first))
    lower, upper = np.full(start.shape, -np.inf), np.full(start.shape, np.inf)
    lower[: len(task.box[0])], upper[: len(task.box[0])] = task.box  # theta is the first part
    read = jax.jit(lambda vector: unpack(first, vector))

    def value(vector: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = negative(vector)
        if not np.isfinite(found):
            return NEVER, np.zeros_like(vector)
        return float(found), np.asarray(gradient)

    return start, value, (lower, upper), read


def lbfgs(task: Task, note: Note, names: tuple[str, ...], bound: Callable[[Point], Any]) -> None:
    start, value, (lower, upper), read = deterministic(task, names, bound)
    minimize(
        value,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([lower, upper], 1),
        options={"maxiter": 100_000, "maxfun": 100_000, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9},
        callback=lambda vector: note(read(vector)),
    )


def projected(task: Task, note: Note, names: tuple[str, ...], bound: Any, *, newton: bool) -> None:
    """Steps along the gradient, or along Newton's direction, projected on the box.

    The Hessian is made of finite differences of the gradient, its eigenvalues' signs are taken
    away, and variables at their limits whose gradient points outwards are held.
    """
    vector, value, (lower, upper), read = deterministic(task, names, bound)
    here, gradient = value(vector)
    step = 1.0
    while True:
        direction = -gradient
        if newton:
            held = ((vector <= lower) & (gradient > 0)) | ((vector >= upper) & (gradient < 0))
            moves = NEWTON_STEP * np.eye(len(vector))
            columns = [value(vector + h)[1] - value(vector - h)[1] for h in moves]
            hessian = np.array(columns) / (2 * NEWTON_STEP)
            hessian = 0.5 * (hessian + hessian.T)[np.ix_(~held, ~held)]
            curvatures, axes = np.linalg.eigh(hessian)
            curvatures = np.maximum(np.abs(curvatures), 1e-6 * np.abs(curvatures).max())
            direction = np.zeros_like(vector)
            direction[~held] = -axes @ ((axes.T @ gradient[~held]) / curvatures)
            step = 1.0
        while True:
            after = np.clip(vector + step * direction, lower, upper)
            there, slope = value(after)
            if there <= here + 1e-4 * gradient @ (after - vector) or step < 1e-12:
                break
            step *= 0.5
        if there < here:
            vector, here, gradient = after, there, slope
        elif step < 1e-12:
            return
        step = min(2 * step, 1e6)
        note(read(vector))


def batches(task: Task, rng: np.random.Generator) -> np.ndarray:
    """An epoch's rows, without replacement, shape (batches, BATCH)."""
    whole = len(task.y) // BATCH
    return rng.permutation(len(task.y))[: whole * BATCH].reshape(whole, BATCH)


def first_order(
    task: Task, note: Note, optimiser: Any, *, sampled: bool = False, points: bool = False
) -> None:
    """Steps of an optax optimiser on everything, on batches."""

    @jax.jit
    def epoch(carry: Any, rows: Any, key: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            (point, state), (rows, key) = carry, batch
            key = key if sampled else None
            slope = jax.grad(lambda p: -stochastic_bound(task, p, rows, key))(point)
            slope = slope if points else slope._replace(Z=jnp.zeros_like(slope.Z))
            change, state = optimiser.update(slope, state, point)
            point = optax.apply_updates(point, change)
            return (point._replace(theta=jnp.clip(point.theta, *task.box)), state), None

        return jax.lax.scan(step, carry, (rows, jax.random.split(key, len(rows))))[0]

    rng, point = np.random.default_rng(0), start_of(task)
    carry = point, optimiser.init(point)
    while True:
        key = jax.random.key(int(rng.integers(2**31)))
        carry = jax.block_until_ready(epoch(carry, batches(task, rng), key))
        note(carry[0])


def sag(task: Task, note: Note) -> None:
    """Stochastic average gradients (Schmidt, Le Roux & Bach 2017), a memory a batch."""
    rng, first = np.random.default_rng(0), start_of(task)
    rows = batches(task, rng)
    pack, unpack = parts(("theta", "mean", "lower"))
    low, high = (jnp.asarray(end) for end in task.box)

    def loss(vector: Any, rows: Any) -> Any:
        return -stochastic_bound(task, unpack(first, vector), rows)

    @jax.jit
    def epoch(carry: Any, order: Any) -> Any:
        def step(carry: Any, index: Any) -> Any:
            vector, memory, total, seen, lipschitz = carry
            value, slope = jax.value_and_grad(loss)(vector, rows_[index])
            squares = slope @ slope
            trial = loss(vector - slope / lipschitz, rows_[index])
            steep = ~(trial <= value - 0.5 * squares / lipschitz)
            lipschitz = jnp.where(steep, 2 * lipschitz, lipschitz * 2 ** (-1 / len(rows)))
            total = total + slope - memory[index]
            memory, seen = memory.at[index].set(slope), seen.at[index].set(1.0)
            vector = vector - 0.1 / lipschitz * total / jnp.sum(seen)
            theta = jnp.clip(vector[: len(low)], low, high)
            return (vector.at[: len(low)].set(theta), memory, total, seen, lipschitz), None

        return jax.lax.scan(step, carry, order)[0]

    rows_ = jnp.asarray(rows)
    vector = pack(first)
    memory = jnp.zeros((len(rows), len(vector)))
    carry = vector, memory, jnp.zeros_like(vector), jnp.zeros(len(rows)), jnp.asarray(1.0)
    while True:
        order = rng.integers(0, len(rows), len(rows))
        carry = jax.block_until_ready(epoch(carry, order))
        note(unpack(first, carry[0]))


def natural(task: Task, note: Note) -> None:
    """The library's own: `Stochastic`, with the time of its start on 4,096 rows."""
    model = task.space.to_model(jnp.asarray(task.space.to_vector()))

    def fit(epochs: int, callback: Callable[[Any], bool] | None) -> None:
        method = lgp.Stochastic(
            lgp.VariationalInference(lgp.Inducing(points=task.Z)),
            batch_size=BATCH,
            epochs=epochs,
            tolerance=0.0,
            patience=100_000,
        )
        data = lgp.Data(task.X, task.y)
        lgp.fit(model, data, key=KEY, method=method, priors=None, callback=callback)

    def look(progress: Any) -> bool:
        posterior = progress.posterior()
        latent = posterior.latent
        theta = ParameterSpace(posterior.model).to_vector()
        root = latent.white_root[0]
        lower = np.linalg.cholesky(root.T @ root)
        point = Point(theta, latent.white_mean[0], lower, latent.centres)
        try:
            note(point)
        except TimeIsUp:
            return True
        return False

    fit(1, None)  # compiles
    note(None)
    fit(100_000, look)


def regression_methods() -> dict[str, Callable[[Task, Note], None]]:
    def collapsed(task: Task) -> Callable[[Point], Any]:
        return lambda point: collapsed_bound(task, point)

    def whole(task: Task) -> Callable[[Point], Any]:
        return lambda point: stochastic_bound(task, point, slice(None))

    every = ("theta", "mean", "lower")
    return {
        "vi-means, L-BFGS-B": lambda t, n: lbfgs(t, n, ("theta",), collapsed(t)),
        "vi-means, projected Newton": lambda t, n: projected(
            t, n, ("theta",), collapsed(t), newton=True
        ),
        "vi, points learned, L-BFGS-B": lambda t, n: lbfgs(t, n, ("theta", "Z"), collapsed(t)),
        "svi-natural": natural,
        "svi, L-BFGS-B": lambda t, n: lbfgs(t, n, every, whole(t)),
        "svi, FG": lambda t, n: projected(t, n, every, whole(t), newton=False),
        "svi, SAG": sag,
        "svi, Adam": lambda t, n: first_order(t, n, optax.adam(0.01)),
        "svi, Adadelta": lambda t, n: first_order(t, n, optax.adadelta(1.0)),
    }


def classification_methods() -> dict[str, Callable[[Task, Note], None]]:
    def whole(task: Task) -> Callable[[Point], Any]:
        return lambda point: stochastic_bound(task, point, slice(None))

    every = ("theta", "mean", "lower")
    return {
        "svi-natural": natural,
        "svi, L-BFGS-B": lambda t, n: lbfgs(t, n, every, whole(t)),
        "svi, SAG": sag,
        "svi, Adam": lambda t, n: first_order(t, n, optax.adam(0.01)),
        "svi, Adam, points learned": lambda t, n: first_order(t, n, optax.adam(0.01), points=True),
        "svi, Adam, one sample": lambda t, n: first_order(t, n, optax.adam(0.01), sampled=True),
        "svi, Adadelta": lambda t, n: first_order(t, n, optax.adadelta(1.0)),
    }


class Watch:
    """Bounds and held-out scores against a method's seconds."""

    def __init__(self, task: Task, seconds: float, collapsed: bool) -> None:
        self.task, self.seconds = task, seconds
        self.trace: list[tuple[float, float, float]] = []
        self._started: float | None = None
        self._due = 0.0
        self.last: Point | None = None

        @jax.jit
        def measure(point: Point) -> Any:
            point = optimal(task, point) if collapsed else point
            bound = stochastic_bound(task, point, slice(None))
            return bound, marginals(task, point, task.X_test)[:2]

        self.measure = measure

    def note(self, point: Point | None) -> None:
        """Where a method stands; nothing to say starts the clock, as the first point does."""
        now = time.perf_counter()
        if self._started is None:
            self._started = now
        if point is None:
            return
        elapsed = now - self._started
        self.last = point
        if elapsed >= self._due or elapsed >= self.seconds:
            self.record(elapsed)
            self._due = 1.15 * elapsed + 0.02
        self._started += time.perf_counter() - now
        if elapsed >= self.seconds:
            raise TimeIsUp

    def finish(self) -> None:
        """Where a method that ended by itself has come to."""
        assert self._started is not None
        self.record(time.perf_counter() - self._started)

    def record(self, elapsed: float) -> None:
        bound, (mean, _) = self.measure(self.last)
        error = np.asarray(mean) - self.task.y_test
        if self.task.space.model.likelihood.targets == "real":
            score = 1 - np.mean(error**2) / np.var(self.task.y_test)
        else:
            score = np.mean((np.asarray(mean) > 0) == self.task.y_test)
        self.trace.append((elapsed, float(bound), float(score)))


def task_of(arguments: Any, name: str, likelihood: lgp.Likelihood) -> Task:
    X, y = load(arguments.data_dir, name)
    train, test = random_split(len(y), 1000 if arguments.quick else round(0.9 * len(y)))
    X, X_test = standardised(X[train], X[test])
    if likelihood.targets == "real":
        y, y_test = standardised(y[train], y[test])
    else:
        y, y_test = ((rows > y.min()).astype(float) for rows in (y[train], y[test]))
    model = lgp.LatentGP(lgp.RBF(lengthscale=X.shape[1] ** 0.5), likelihood)
    space = ParameterSpace(model)
    box = search_bounds(space, scales(model, lgp.Data(X, y)))
    Z = select_points(X, None, model.kernel, arguments.inducing, "k-means++", KEY)
    return Task(space, X, y, X_test, y_test, Z, box)


def main() -> None:
    parser_ = parser(__doc__)
    parser_.add_argument("--inducing", type=int, default=100)
    parser_.add_argument("--seconds", type=float, default=20.0)
    arguments = parser_.parse_args()
    if arguments.quick:
        arguments.inducing, arguments.seconds = 20, 1.0
    report = Report("optimisers", arguments)
    drawn = figure(10.5, 4.2)
    problems = (
        ("kin8nm", lgp.Gaussian(0.1), regression_methods(), "R^2"),
        ("magic", lgp.Bernoulli(), classification_methods(), "accuracy"),
    )
    for ax, (name, likelihood, methods, score) in zip(drawn.subplots(1, 2), problems, strict=True):
        with jax.enable_x64(True):
            task = task_of(arguments, name, likelihood)
        rows = []
        for number, (label, method) in enumerate(methods.items()):
            trace = followed(task, method, arguments.seconds, label.startswith("vi"))
            best = max(bound for _, bound, _ in trace)
            rows.append([label, trace[-1][1], trace[-1][2], trace[-1][0], *times_to(trace, best)])
            seconds, bounds, _ = np.array(trace).T
            ax.plot(
                np.maximum(seconds, 0.01),
                bounds,
                color=COLORS[number % len(COLORS)],
                linestyle=STYLES[(number + number // len(COLORS)) % len(STYLES)],
                label=label,
            )
        bounds = [row[1] for row in rows]
        ax.set_ylim(np.nanmax(bounds) - 0.6, np.nanmax(bounds) + 0.03)
        ax.set_xscale("log")
        title = f"{name}, {len(task.y)} rows, {len(task.Z)} inducing points"
        tidy(ax, title, "seconds", "bound [nats a row]", legend=True, loc="upper left")
        heads = ["", "bound a row", score, "seconds", "to within 0.01 of its best"]
        report.table(title, heads, rows)
    report.note("Published: figures only; claims as in this script's docstring.")
    report.save(drawn)


def followed(task: Task, method: Any, seconds: float, collapsed: bool) -> list[Any]:
    """A method's trace."""
    with jax.enable_x64(True):
        watch = Watch(task, seconds, collapsed)
        with contextlib.suppress(TimeIsUp):
            method(task, watch.note)
            watch.finish()
        return watch.trace


def times_to(trace: list[Any], best: float) -> list[float | None]:
    return [next((s for s, bound, _ in trace if bound >= best - 0.01), None)]


if __name__ == "__main__":
    main()
