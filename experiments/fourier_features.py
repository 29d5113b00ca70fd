"""Variational Fourier features in one dimension, and what else M = 41 variables can do.

Hensman, Durrande & Solin (2018), "Variational Fourier features for Gaussian processes", section 5
and the stored figures of their code: 10,000 rows, uniform on [0, 1], a draw of a Matérn-3/2 of
length-scale 0.2 and variance 1 with noise variance 0.1, hyper-parameters held at these. There, of
the first draw, the evidence is -2,690, the bound by 41 Fourier features on [-0.3, 1.3] -3,164 and
that by 41 inducing points -2,704.

Here the rows are other draws of the same law. The evidence is exact, by a Kalman filter. The mean
loss of a bound by M inducing variables, whatever they are, is at least half the sum of the
covariance's eigenvalues beyond the M-th over the noise variance. `approximation="fitc"` gives no
bound.
"""

import jax
import numpy as np

import latentgp as lgp
from common import STYLES, Report, figure, parser, tidy

LENGTHSCALE, VARIANCE, NOISE = 0.2, 1.0, 0.1
RATE = np.sqrt(3.0) / LENGTHSCALE
STATE = np.diag([VARIANCE, RATE**2 * VARIANCE])


def main():
    arguments = parser(__doc__, real_data=False).parse_args()
    report = Report("fourier_features", arguments)
    rows, draws = (1000, 1) if arguments.quick else (10_000, 3)
    model = lgp.LatentGP(lgp.Matern32(LENGTHSCALE, VARIANCE), lgp.Gaussian(NOISE))
    gaps = {}
    for draw in range(draws):
        x, y = drawn(np.random.default_rng(draw), rows)
        exact = evidence(x, y)
        print(f"draw {draw}: evidence {exact:.1f}", flush=True)
        for name, representation in representations(x).items():
            found = lgp.fit(
                model,
                lgp.Data(x[:, None], y),
                key=jax.random.key(draw),
                method=lgp.CollapsedVI(representation),
                learn_hyperparameters=False,
            ).posterior.log_evidence
            gaps.setdefault((name, found.kind), []).append(exact - found.value)
    heads = ("variables", "kind", "nats below the evidence", "of single draws")
    table = [
        (name, kind, float(np.mean(gap)), " ".join(f"{g:.2f}" for g in gap))
        for (name, kind), gap in gaps.items()
    ]
    report.table("bounds", heads, table)
    grid = (np.arange(1500) + 0.5)[:, None] / 1500
    values = np.linalg.eigvalsh(np.asarray(model.kernel.gram(grid, grid)))[::-1] * rows / 1500
    least = [(m, float(0.5 * values[m:].sum() / NOISE)) for m in (41, 61, 81, 101)]
    report.table("least loss of any M variables", ("M", "nats"), least)
    picture = figure(6.0, 4.0)
    ax = picture.add_subplot()
    of_kind = {}
    for name, _, gap, _ in table:
        kind, _, m = name.partition(", ")
        if m.isdigit():
            of_kind.setdefault(kind, []).append((int(m), gap))
    for (kind, places), style in zip(of_kind.items(), STYLES, strict=False):
        ax.semilogy(*zip(*places, strict=True), style, marker="o", label=kind)
    ax.semilogy(*zip(*least, strict=True), "k:", label="least of any variables")
    tidy(ax, "", "variables M", "nats below the evidence", legend=True)
    report.save(picture)


def representations(x):
    """By name."""
    kinds = {f"Fourier features, {m}": lgp.FourierFeatures(m) for m in (41, 101, 401)}
    kinds |= {f"B-splines, {m}": lgp.BSplines(m) for m in (41, 61, 81, 101)}
    kinds |= {f"B-splines of degree 2, {m}": lgp.BSplines(m, degree=2) for m in (41, 101)}
    kinds |= {f"eigenfunctions, {m}": lgp.HilbertSpace(m, box=1.8) for m in (41, 81, 161, 401)}
    found = {name: lgp.Inducing(features=kind) for name, kind in kinds.items()}
    for m in (41, 81, 101):
        found[f"inducing points, {m}"] = lgp.Inducing(points=np.linspace(0, 1, m)[:, None])
    found["B-splines, 41, FITC"] = lgp.Inducing(features=lgp.BSplines(41), approximation="fitc")
    return found


def steps(x):
    """Transition matrices and noise covariances of the state (f, f') between sorted rows."""
    t = RATE * np.diff(x)
    decay, gap = np.exp(-t), np.diff(x)
    A = np.array([[1 + t, gap], [-RATE * t, 1 - t]]) * decay
    A = np.moveaxis(A, 2, 0)
    return A, STATE - A @ STATE @ np.swapaxes(A, 1, 2)


def drawn(rng, rows):
    """Sorted inputs, and targets."""
    x = np.sort(rng.uniform(size=rows))
    state, values = np.linalg.cholesky(STATE) @ rng.normal(size=2), []
    for A, Q in zip(*steps(x), strict=True):
        values.append(state[0])
        scales, directions = np.linalg.eigh(Q)  # of near rows singular up to rounding
        state = A @ state + directions @ (np.sqrt(np.maximum(scales, 0)) * rng.normal(size=2))
    values.append(state[0])
    return x, np.array(values) + np.sqrt(NOISE) * rng.normal(size=rows)


def evidence(x, y):
    """Log evidence by a Kalman filter, in nats."""
    A, Q = steps(x)
    mean, covariance, total = np.zeros(2), STATE, 0.0
    for n, target in enumerate(y):
        if n:
            mean, covariance = A[n - 1] @ mean, A[n - 1] @ covariance @ A[n - 1].T + Q[n - 1]
        variance, error = covariance[0, 0] + NOISE, target - mean[0]
        total -= 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
        gain = covariance[:, 0] / variance
        mean, covariance = mean + gain * error, covariance - np.outer(gain, covariance[0])
    return total


if __name__ == "__main__":
    main()
