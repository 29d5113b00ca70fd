"""Preconditioners of Gaussian-process regression: iterations against plain conjugate gradients.

Cutajar, Osborne, Cunningham & Filippone (2016), "Preconditioning kernel matrices", section 4: (K +
noise) z = y by preconditioned conjugate gradients on concrete, power and protein, an isotropic RBF
kernel of variance one over a grid of length-scales and noise variances, until the squared residual
is below N 1e-10. Shown is log10 of the products with K over those of plain conjugate gradients,
those inside a preconditioner counted: below zero is a gain. Rows of the low-rank ones, and of a
block, are as many as the root of N; the regularised one adds 100 noise variances; SKI has about N
grid points and takes the nearest; the spectral one has as many cosines as the others have rows,
and as many sines. The source has no figures in its text, only a heat map.

Here at most --rows rows, drawn at random (the source has all: 1,030, 9,568 and 45,730), inputs and
targets standardised, and at most --cap products where the source has 100,000; SKI on power alone,
as a grid over more than four inputs is coarse or large (the source leaves it out on protein).
"""

import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from common import Report, figure, load, parser, standardised, tidy
from latentgp import RBF
from latentgp.extensions.iterative.solvers.conjugate_gradients import (
    conjugate_gradients,
    flexible_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import (
    StoredCovariance,
    TiledCovariance,
    noisy_system,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.preconditioners.iterated import (
    Interpolation,
    Regularised,
)
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import (
    Fitc,
    Nystrom,
    Pitc,
    PivotedCholesky,
    RandomisedSVD,
    Spectral,
    random_rows,
)
from latentgp.extensions.iterative.solvers.preconditioners.roots import BlockJacobi
from latentgp.rows.subsets import blocks_of_rows

SETS = ("concrete", "power", "protein")
NAMES = (
    "Nystrom", "FITC", "PITC", "spectral", "randomised SVD", "pivoted Cholesky", "block Jacobi",
    "SKI", "regularised",
)  # fmt: skip


def recipe_of(name, X, noise):
    """A preconditioner's recipe for rows and a noise variance."""
    number = math.isqrt(len(X))
    key = jax.random.key(0)
    rows, blocks = random_rows(key, len(X), number), blocks_of_rows(X, number)
    side = max(2, round(len(X) ** (1 / X.shape[1])))
    return {
        "Nystrom": lambda: Nystrom(rows),
        "FITC": lambda: Fitc(rows),
        "PITC": lambda: Pitc(rows, jnp.asarray(blocks)),
        "spectral": lambda: Spectral(key, 2 * number),
        "randomised SVD": lambda: RandomisedSVD(key, number),
        "pivoted Cholesky": lambda: PivotedCholesky(number),
        "block Jacobi": lambda: BlockJacobi(jnp.asarray(blocks)),
        "regularised": lambda: Regularised(jnp.asarray(100 * noise)),
        "SKI": lambda: Interpolation((side,) * X.shape[1], nearest=True),
    }[name]()


@eqx.filter_jit
def made(recipe, system):
    """The preconditioner of a system."""
    return recipe(system)


def products(system, y, P, cap):
    """Products with the system's matrix that a solve takes, and whether it converged."""
    solve = conjugate_gradients if P.is_fixed else flexible_conjugate_gradients
    tolerance = 1e-5 * math.sqrt(len(y)) / float(np.linalg.norm(y))
    most = cap if P.is_fixed else max(1, cap // 20)  # it has up to a hundred inside each
    found = solve(system, y[:, None], preconditioner=P, tolerance=tolerance, max_steps=most)
    return int(found.steps) + int(found.inner_steps), found.outcomes[0] == "converged"


def systems_of(X, lengthscale, noise):
    """K + noise with K kept, and the same by tiles, whose kernel recipes may ask for."""
    kernel = RBF(lengthscale=jnp.asarray(lengthscale), variance=jnp.asarray(1.0))
    kept, tiles = (
        StoredCovariance(kernel.symmetric_gram(jnp.asarray(X))),
        TiledCovariance(kernel, jnp.asarray(X)),
    )
    return tuple(noisy_system(K, jnp.asarray(noise)) for K in (kept, tiles))


def grid_of(report, name, X, y, lengthscales, noises, names, cap):
    """log10 of the ratio of products, shape (names, length-scales, noises)."""
    ratios = np.zeros((len(names), len(lengthscales), len(noises)))
    rows = []
    for i, lengthscale in enumerate(lengthscales):
        for j, noise in enumerate(noises):
            system, tiles = systems_of(X, lengthscale, noise)
            plain, done = products(system, y, Identity(), cap)
            row = [f"{np.log10(lengthscale):.1f}", f"{np.log10(noise):.1f}"]
            row.append(plain if done else f"over {cap}")
            for k, own in enumerate(names):
                known = system if own == "regularised" else tiles
                P = made(recipe_of(own, X, noise), known)
                count, solved = products(system, y, P, cap)
                if done or solved:
                    ratios[k, i, j] = math.log10(max(count, 1) / plain)
                row.append(count if solved else f"over {count}")
            rows.append(row)
    heads = ("log10 l", "log10 noise", "none", *names)
    report.table(f"{name}, {len(X)} rows: products to convergence", heads, rows)
    best = [
        (own, round(float(np.median(r)), 2), round(float(r.min()), 2), round(float(r.max()), 2))
        for own, r in zip(names, ratios, strict=True)
    ]
    heads = ("preconditioner", "median", "best", "worst")
    report.table(f"{name}: log10 of products over those of plain conjugate gradients", heads, best)
    return ratios


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1030, help="at most so many of a set")
    options.add_argument("--cap", type=int, default=3000, help="the most products of a solve")
    options.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    arguments = options.parse_args()
    report = Report("preconditioners", arguments)
    lengthscales, noises = 10.0 ** np.linspace(-0.5, 1, 4), 10.0 ** np.linspace(-4, 0, 5)
    sets, names = list(arguments.sets), list(NAMES)
    most, cap = arguments.rows, arguments.cap
    if arguments.quick:
        lengthscales, noises, most, cap = lengthscales[1:2], noises[1::2], 150, 300
        sets, names = sets[:1], ["Nystrom", "PITC", "block Jacobi", "regularised"]
    found = {}
    with jax.enable_x64(True):
        for name in sets:
            started = time.perf_counter()
            X, y = load(arguments.data_dir, name)
            kept = np.random.default_rng(0).permutation(len(y))[:most]
            X, y = standardised(X[kept])[0], standardised(y[kept])[0]
            own = [n for n in names if n != "SKI" or X.shape[1] <= 4]
            found[name] = own, grid_of(report, name, X, y, lengthscales, noises, own, cap)
            report.note(f"{name}: {time.perf_counter() - started:.0f} s")
    report.save(drawn(found, lengthscales, noises))


def drawn(found, lengthscales, noises):
    """A heat map for every set and preconditioner."""
    names = [name for name in NAMES if any(name in own for own, _ in found.values())]
    picture = figure(1.7 * len(names), 2.1 * len(found))
    axes = picture.subplots(len(found), len(names), squeeze=False)
    image = None
    for row, (name, (own, ratios)) in zip(axes, found.items(), strict=True):
        for ax, title in zip(row, names, strict=True):
            if title not in own:
                ax.set_axis_off()
                continue
            edges = np.log10(noises[[0, -1]]), np.log10(lengthscales[[0, -1]])
            image = ax.imshow(
                ratios[own.index(title)], cmap="RdBu_r", vmin=-2, vmax=2, origin="lower",
                aspect="auto", extent=(*edges[0], *edges[1]),
            )  # fmt: skip
            first = title == names[0]
            tidy(ax, title, "log10 noise", f"{name}\nlog10 length-scale" if first else "")
    picture.colorbar(image, ax=axes, label="log10 of products over plain", shrink=0.8)
    return picture


if __name__ == "__main__":
    main()
