"""Gaussian particle flow and its rivals: Gaussians, a banana, logistic regression, a network.

Galy-Fajou (2022), chapter 6 (Galy-Fajou, Perrone & Opper 2021, "Flexible and efficient inference
with particles for the variational Gaussian approximation", Entropy).

4.1: N(mu, S) with D = 20, eigenvalues of S from 0.1 to 0.1 kappa, kappa 1, 10 and 100; D + 1
particles or draws a step. As published: plain steps of 0.01 for particles, RMSProp with 0.01 for
the others. Published: the particle flow is exact whatever the target; Gaussian flow, DSVI and FCS
alike; IBLR has an exact covariance by Hessians; linear SVGD mostly diverges; SVGD with a
squared-exponential kernel fails on the covariance (figures only).
4.2: D = 50, kappa 100, few particles: the error of the trace "perfectly matches" theorem 3.
4.3: D = 500, rank 10, 20 and 30: eigenvalues N(2, 1), made at least 0.1, the others 1e-8; methods
of rank 20. All but SVGD do well.
4.4: the banana exp(-(0.01 x1^2 + 0.1 (x2 + 0.1 x1^2 - 10)^2) / 2).
4.5: logistic regression with weights N(0, 10), batches of 100 rows; here 5 folds, other data sets
than the source's, 3,000 steps of RMSProp with a rate of 0.01 that falls. Published: flows on par
with the others, mean field no worse (figures only).
4.6 (`--parts network`): a network of 784-200-200-10 tanh units on MNIST, prior N(0, 1), batches of
128, 5,000 steps; here on the rows and steps that are asked for, start at the mode of a short Adam
run. Published: table 1.

What is not said is chosen: the number of steps by when errors stand still, rates of others as for
those of the source, every method's own defaults beyond that.
"""

import time
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from common import COLORS, Report, class_scores, figure, folds, load, parser, standardised, tidy
from latentgp.extensions.flows import (
    SWAG,
    Adam,
    BayesianLearningRule,
    Descent,
    EfficientLowRank,
    FactorCovariance,
    FullRank,
    LaplaceApproximation,
    MeanField,
    Pathfinder,
    RMSProp,
    SteinVariational,
)

KEY = jax.random.key(0)
PARTS = ["gaussian", "spectrum", "low-rank", "banana", "logistic", "network"]


class Normal(eqx.Module):
    """Log density of N(mean, U diag(scale) U' + small I), up to a constant."""

    mean: jax.Array
    turn: jax.Array
    inverse: jax.Array
    small: float = eqx.field(static=True)

    def __call__(self, x):
        r = x - self.mean
        along = r @ self.turn
        rest = r @ r - along @ along
        return -0.5 * (along**2 @ self.inverse + rest / self.small)


def target_of(scale, size, seed, small=1.0):
    """The log density, its mean and covariance."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(size, len(scale))))[0]
    mean = rng.normal(size=size)
    covariance = (turn * scale) @ turn.T
    if len(scale) < size:
        covariance = covariance + small * (np.eye(size) - turn @ turn.T)
    log_density = Normal(jnp.asarray(mean), jnp.asarray(turn), jnp.asarray(1 / scale), small)
    return log_density, mean, covariance


def errors_of(method, target, mean, covariance, **start):
    """Errors of mean and covariance, relative, and seconds of a second run, which compiles none."""
    size = len(mean)
    try:
        lgp.gaussian_approximation(target, size, method, key=KEY, **start)
        began = time.perf_counter()
        found = lgp.gaussian_approximation(target, size, method, key=KEY, **start)
        seconds = time.perf_counter() - began
    except lgp.InputError:
        return "diverged", "diverged", 0.0
    off = np.linalg.norm(found.mean - mean) / np.linalg.norm(mean)
    dense = np.asarray(found.covariance.dense())
    far = np.linalg.norm(dense - covariance) / np.linalg.norm(covariance)
    if not found.converged and "NaN" in found.verdict:
        return "diverged", "diverged", seconds
    return float(off), float(far), seconds


def gaussian(report, quick, ax):
    """4.1."""
    size, steps = 20, 300 if quick else 10_000
    held, number = {"final": 1.0}, 21
    methods = {
        "particle flow, plain steps": lgp.GaussianParticleFlow(
            particles=number, optimiser=Descent(0.01), steps=steps
        ),
        "particle flow, natural mean": lgp.GaussianParticleFlow(
            particles=number, optimiser=Descent(0.01), metric="mean", steps=steps
        ),
        "particle flow, searched steps": lgp.GaussianParticleFlow(particles=number),
        "Gaussian flow": lgp.GaussianFlow(
            samples=number, optimiser=RMSProp(0.01, **held), steps=steps
        ),
        "Gaussian flow, falling rate": lgp.GaussianFlow(
            samples=number, optimiser=RMSProp(0.01), steps=steps
        ),
        "DSVI": FullRank(samples=number, optimiser=RMSProp(0.01, **held), steps=steps),
        "FCS": FactorCovariance(
            rank=size, samples=number, optimiser=RMSProp(0.01, **held), steps=steps
        ),
        "IBLR, Hessian": BayesianLearningRule(
            samples=number, rate=0.01, final=1.0, steps=min(steps, 2000)
        ),
        "IBLR, gradients": BayesianLearningRule(
            samples=number, hessian=False, rate=0.01, final=1.0, steps=min(steps, 2000)
        ),
        "SVGD, linear": SteinVariational(
            particles=number, kernel="linear", optimiser=Descent(0.01), steps=steps
        ),
        "SVGD, squared exponential": SteinVariational(
            particles=number, optimiser=Descent(0.01), steps=steps
        ),
        "Laplace": LaplaceApproximation(),
        "Pathfinder": Pathfinder(),
    }
    rows = []
    for name, method in methods.items():
        cells = []
        for condition in 1, 10, 100:
            scale = 10 ** (np.log10(condition) * np.arange(size) / (size - 1) - 1)
            off, far, seconds = errors_of(method, *target_of(scale, size, 0))
            cells += [off, far]
            if name == "particle flow, plain steps":
                target, _, _ = target_of(scale, size, 0)
                found = lgp.gaussian_approximation(target, size, method, key=KEY)
                fall = found.free_energy - found.free_energy.min() + 1e-16
                ax.semilogy(0.01 * np.arange(len(fall)), fall, label=f"kappa {condition}")
        rows.append([name, *cells, seconds])
    tidy(ax, "free energy above its minimum", "time of the flow", "nats", legend=True)
    heads = ["method", *(f"{what} {k}" for k in (1, 10, 100) for what in ("mean", "cov"))]
    report.table("4.1 Relative errors at kappa 1, 10, 100", [*heads, "seconds"], rows)


def spectrum(report, quick):
    """4.2."""
    size = 20 if quick else 50
    scale = 10 ** (2 * np.arange(size) / (size - 1) - 1)
    target, mean, _ = target_of(scale, size, 0)
    largest = np.sort(scale)[::-1]
    rows = []
    for number in [2, 5, 10, size // 2, size, size + 1]:
        found = lgp.gaussian_approximation(
            target, size, lgp.GaussianParticleFlow(particles=number), key=KEY
        )
        trace = float(np.sum(found.covariance.variances))
        lost = float(np.sum(largest[number - 1 :]))
        rows.append([
            number, abs(trace - scale.sum()), lost,
            float(np.abs(found.mean - mean).max()), found.steps,
        ])  # fmt: skip
    heads = ["particles", "|tr(C - S)|", "theorem 3", "error of mean", "steps"]
    report.table(f"4.2 Few particles, D = {size}", heads, rows)


def low_rank(report, quick):
    """4.3."""
    size, steps = (60, 500) if quick else (500, 5000)
    methods = {
        "particle flow, 21 particles": lgp.GaussianParticleFlow(particles=21),
        "particle flow, 21, RMSProp": lgp.GaussianParticleFlow(
            particles=21, optimiser=RMSProp(0.01), steps=steps
        ),
        "Gaussian flow": lgp.GaussianFlow(rank=20, samples=21, steps=steps),
        "FCS": FactorCovariance(rank=20, samples=21, optimiser=RMSProp(0.01), steps=steps),
        "ELRGVI": EfficientLowRank(rank=20, samples=21, optimiser=RMSProp(0.01), steps=steps),
        "SVGD, squared exponential": SteinVariational(
            particles=21, optimiser=RMSProp(0.01), steps=min(steps, 2000)
        ),
    }
    rows = []
    for name, method in methods.items():
        cells = []
        for rank in 10, 20, 30:
            scale = np.maximum(np.random.default_rng(1).normal(2, 1, size=rank), 0.1)
            off, far, seconds = errors_of(method, *target_of(scale, size, 0, small=1e-8))
            cells += [off, far]
        rows.append([name, *cells, seconds])
    heads = ["method", *(f"{what} {k}" for k in (10, 20, 30) for what in ("mean", "cov"))]
    report.table(f"4.3 Targets of rank 10, 20, 30, D = {size}", [*heads, "seconds"], rows)


def banana_density(x):
    return -0.5 * (0.01 * x[0] ** 2 + 0.1 * (x[1] + 0.1 * x[0] ** 2 - 10) ** 2)


def banana(report, quick, ax):
    """4.4."""
    rows = []
    for number in 3, 5, 10, 20, 50, None:
        for name, optimiser in (("searched", None), ("plain 0.1", Descent(0.1)), ("Adam", Adam())):
            method = lgp.GaussianParticleFlow(
                particles=number, optimiser=optimiser, steps=300 if quick else 3000, tolerance=1e-4
            )
            found = lgp.gaussian_approximation(banana_density, 2, method, key=KEY, start=[0.0, 8.0])
            number = len(found.particles)
            rows.append([number, name, *found.mean, *found.std, found.free_energy[-1], found.steps])
            if optimiser is None:
                ax.plot(*found.particles.T, ".", label=f"{number} particles")
    heads = ["particles", "steps by", "mean 1", "mean 2", "std 1", "std 2", "free energy", "steps"]
    report.table("4.4 Banana", heads, rows)
    grid = np.stack(np.meshgrid(np.linspace(-20, 20, 80), np.linspace(-15, 20, 80)), -1)
    ax.contour(*np.moveaxis(grid, -1, 0), jax.vmap(jax.vmap(banana_density))(grid), 8, alpha=0.3)
    tidy(ax, "banana", "x1", "x2", legend=True)


class BatchedLogistic(eqx.Module):
    """Log posterior of logistic regression, by batches of 100 rows."""

    X: jax.Array
    y: jax.Array
    batch: int = eqx.field(static=True)

    def __call__(self, w, key):
        rows = jax.random.choice(key, len(self.y), (self.batch,))
        terms = jax.nn.log_sigmoid((2 * self.y[rows] - 1) * (self.X[rows] @ w))
        return len(self.y) / self.batch * jnp.sum(terms) - 0.05 * w @ w


def logistic(report, quick, data_dir):
    """4.5."""
    steps, number = (200, 2) if quick else (3000, 5)
    settings = {"optimiser": RMSProp(0.01), "steps": steps}
    for name in "ratsch_german", "ratsch_image":
        X, y = load(data_dir, name)
        size = X.shape[1] + 1
        methods = {
            "particle flow": lgp.GaussianParticleFlow(particles=size + 1, **settings),
            "particle flow, mean field": lgp.GaussianParticleFlow(
                particles=size + 1, structure="mean-field", **settings
            ),
            "Gaussian flow": lgp.GaussianFlow(**settings),
            "Gaussian flow, mean field": lgp.GaussianFlow(structure="mean-field", **settings),
            "DSVI": FullRank(**settings),
            "DSVI, mean field": MeanField(**settings),
            "FCS, rank 5": FactorCovariance(rank=5, **settings),
            "ELRGVI, rank 5": EfficientLowRank(rank=5, **settings),
            "IBLR, gradients": BayesianLearningRule(hessian=False, rate=0.01, steps=steps),
            "SVGD": SteinVariational(particles=size + 1, **settings),
            "SWAG": SWAG(optimiser=Descent(1e-4), steps=steps),
        }
        rows = []
        for label, method in methods.items():
            scores, began = [], time.perf_counter()
            for train, test in folds(len(y), number):
                inside, outside = standardised(X[train], X[test])
                one = [np.column_stack([part, np.ones(len(part))]) for part in (inside, outside)]
                binary = (y > 0).astype(float)
                target = BatchedLogistic(jnp.asarray(one[0]), jnp.asarray(binary[train]), 100)
                try:
                    found = lgp.gaussian_approximation(
                        target, size, method, key=KEY, stochastic=True, start_std=0.1
                    )
                except lgp.InputError:
                    continue
                w = found.particles
                w = found.sample(KEY, 200) if w is None else w
                p = np.mean(1 / (1 + np.exp(-one[1] @ w.T)), axis=1)
                p = np.clip(p, 1e-12, 1 - 1e-12)
                truth = binary[test]
                loss = -np.mean(truth * np.log(p) + (1 - truth) * np.log(1 - p))
                scores.append([loss, np.mean((p > 0.5) == truth)])
            if scores:
                both = np.mean(scores, axis=0), np.std(scores, axis=0) / np.sqrt(len(scores))
                cells = [both[0][0], both[1][0], both[0][1], both[1][1]]
            else:
                cells = ["diverged"] * 4
            rows.append([label, *cells, (time.perf_counter() - began) / number])
        heads = ["method", "NLL", "error", "accuracy", "error of it", "seconds a fold"]
        report.table(f"4.5 Logistic regression, {name}, {len(y)} rows of {size - 1}", heads, rows)


SIZES = (784, 200, 200, 10)
LAYERS = tuple((i + 1) * o for i, o in pairwise(SIZES))


def logits(w, X):
    """Of the network, for its weights as one vector."""
    for number, (inputs, outputs) in enumerate(pairwise(SIZES)):
        size = (inputs + 1) * outputs
        own, w = w[:size].reshape(inputs + 1, outputs), w[size:]
        X = X @ own[:-1] + own[-1]
        X = jnp.tanh(X) if number < len(SIZES) - 2 else X
    return X


class Network(eqx.Module):
    """Log posterior of the network's weights, by batches of 128 rows."""

    X: jax.Array
    y: jax.Array

    def __call__(self, w, key):
        rows = jax.random.choice(key, len(self.y), (128,))
        terms = jax.nn.log_softmax(logits(w, self.X[rows]))[jnp.arange(128), self.y[rows]]
        return len(self.y) / 128 * jnp.sum(terms) - 0.5 * w @ w


def network(report, quick, data_dir, rows_used, steps):
    """4.6: NLL, accuracy and calibration error, table 1."""
    X, y = load(data_dir, "mnist")
    X, y = (X.reshape(len(X), -1) / 255).astype(np.float32), y.astype(int)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:rows_used], order[-2000:]
    target, size = Network(jnp.asarray(X[train]), jnp.asarray(y[train])), sum(LAYERS)
    layers = zip(SIZES, LAYERS, strict=False)
    scale = np.concatenate([np.full(number, inputs**-0.5) for inputs, number in layers])
    first = (np.random.default_rng(1).normal(size=size) * scale).astype(np.float32)
    mode = lgp.gaussian_approximation(
        target, size, SWAG(rank=2, optimiser=Adam(0.001), steps=steps),
        key=KEY, start=first, stochastic=True,
    ).mean  # fmt: skip
    falls = {"optimiser": Adam(1e-3), "steps": steps}
    methods = {
        "GPF, mean field": lgp.GaussianParticleFlow(particles=10, structure="mean-field", **falls),
        "GF, mean field": lgp.GaussianFlow(samples=5, structure="mean-field", **falls),
        "DSVI": MeanField(samples=5, **falls),
    }
    for rank in (5,) if quick else (5, 10):
        methods |= {
            f"GPF, L = {rank}": lgp.GaussianParticleFlow(particles=rank + 1, **falls),
            f"GPF (layers), L = {rank}": lgp.GaussianParticleFlow(
                particles=rank + 1, structure=LAYERS, **falls
            ),
            f"GF, L = {rank}": lgp.GaussianFlow(rank=rank, samples=5, **falls),
            f"SVGD, L = {rank}": SteinVariational(particles=rank + 1, **falls),
            f"SWAG, L = {rank}": SWAG(rank=rank, optimiser=Descent(1e-6), steps=steps),
            f"ELRGVI, L = {rank}": EfficientLowRank(rank=rank, samples=5, **falls),
        }
    probabilities = jax.jit(
        lambda draws: jnp.mean(
            jax.lax.map(lambda w: jax.nn.softmax(logits(w, jnp.asarray(X[test]))), draws), axis=0
        )
    )
    rows = []
    for label, method in {"mode": None, **methods}.items():
        began = time.perf_counter()
        draws = mode[None]
        if method is not None:
            found = lgp.gaussian_approximation(
                target, size, method, key=KEY, start=mode, start_std=0.01, stochastic=True
            )
            draws = found.particles
            draws = found.sample(KEY, 20) if draws is None else draws
        p = np.asarray(probabilities(jnp.asarray(draws)), float)
        p = np.clip(p, 1e-12, 1) / np.clip(p, 1e-12, 1).sum(axis=1, keepdims=True)
        scores = class_scores(y[test], p)
        cells = scores["log loss"], 1 - scores["error"], scores["ECE"]
        rows.append([label, *cells, time.perf_counter() - began])
        print(f"  {rows[-1]}", flush=True)
    heads = ["method", "NLL", "accuracy", "ECE", "seconds"]
    report.table(f"4.6 Network on MNIST, {rows_used} rows, {steps} steps", heads, rows)


def main():
    options = parser(__doc__)
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:-1])
    options.add_argument("--rows", type=int, default=10_000, help="of MNIST to train on")
    options.add_argument("--steps", type=int, default=1000, help="of the network's methods")
    arguments = options.parse_args()
    report, quick, parts = Report("particle_flows", arguments), arguments.quick, arguments.parts
    drawn = figure(8, 3.6)
    left, right = drawn.subplots(1, 2)
    left.set_prop_cycle(color=COLORS)
    with jax.enable_x64(True):
        if "gaussian" in parts:
            gaussian(report, quick, left)
        if "spectrum" in parts:
            spectrum(report, quick)
        if "low-rank" in parts:
            low_rank(report, quick)
        if "banana" in parts:
            banana(report, quick, right)
        if "logistic" in parts:
            logistic(report, quick, arguments.data_dir)
    if "network" in parts:
        steps, rows = (20, 1000) if quick else (arguments.steps, arguments.rows)
        network(report, quick, arguments.data_dir, rows, steps)
    report.save(drawn)


if __name__ == "__main__":
    main()
