"""The unbiased solver, and Langevin dynamics on covariance parameters, on concrete and protein.

Filippone & Engler (2015), "Enabling scalable stochastic gradient-based inference for Gaussian
processes by employing the unbiased linear system solver (ULISSE)", sections 4 and 5, an isotropic
RBF kernel with noise, 1,030 rows of 8 inputs.

Study: relative squared error of the gradient of the log evidence, and products with the
covariance, over 100 repetitions with one probe vector, by conjugate gradients to the end and
stopped early with q = 0.1 and 1 and beta = 1 and 100, at three places (the mode, and with a tenth
and ten times its noise variance). Published: "orders of magnitude improvements in the number of
iterations" at the cost of larger variance (figures only). The targets here are in units of their
noise, so that q sqrt(N) is a residual of as many of its deviations.

Chains: Langevin steps as published (q = 1, beta = 1, four probes, step sizes falling from 0.1 by 4
/ (40 + t)) and as the library has them by default (a Nyström preconditioner that is a control
variate too, solves to a tolerance, step sizes frozen once the monitor allows), beside Metropolis
on the exact evidence. Published: SGLD's posterior a "striking match" with Metropolis, an effective
sample size of 0.1 % of 40,000 iterations, an independent sample every 27 seconds. What is not
said, weak priors and logarithms of hyper-parameters, is the library's.

Large: the same on 20,000 rows of protein, nine inputs, in place of 22,784 of the 1990 census with
eight, which is not there; M from 1,000 rows, step sizes from 0.05, as published. Published, on two
GPUs: 10,000 iterations a day (8.6 s each), 0.1 % effective, an independent sample every 2.4 hours.
A few iterations are made, so that what an iteration takes is measured and no sample size is. With
steps e M, M the covariance of the posterior, theta keeps 1 - e / 2 of itself in an iteration, so
that an independent sample takes 4 / e - 1 iterations, fewer where M, of 1,000 rows, is wider than
that: what this makes of the seconds is an extrapolation.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, load, parser, standardised, tidy
from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.posteriors.arviz_versions import import_arviz
from latentgp.setup.priors import scales, space_of

KEY = jax.random.key(0)
MODEL = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
PARTS = ["study", "chains", "large"]
SOLVERS = {
    "to the end": {"tolerance": 1e-8},
    **{
        f"q = {q:g}, beta = {rate:g}": {
            "solver": "ulisse", "threshold": q, "rate": float(rate),
        }
        for q in (0.1, 1.0)
        for rate in (1, 100)
    },
}  # fmt: skip


def density_of(space, X, y):
    """Exact log evidence plus log prior, by a factorisation."""

    def density(vector):
        model = space.to_model(vector)
        noise = model.likelihood.noise_variance * jnp.eye(len(y))
        root = jnp.linalg.cholesky(model.kernel.symmetric_gram(X) + noise)
        white = jax.scipy.linalg.solve_triangular(root, y, lower=True)
        value = -0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(root)))
        value = value + space.log_prior(vector)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    return density


def study(report, space, data, mode, repetitions):
    """Errors and products of solvers at three places; the rows of the table."""
    density = density_of(space, jnp.asarray(data.X), jnp.asarray(data.y))
    exact = jax.jit(jax.grad(density))
    algorithm = lgp.ExactGP().algorithm(space.model)
    rows = []
    noise = list(space.paths).index("likelihood.noise_variance")

    # Numbers of the solvers are traced, so that few programs are compiled.
    @eqx.filter_jit
    def run(evidence, place, keys):
        def one(key):
            signs = jax.random.rademacher(key, (data.size, 1), float)
            probes = Probes(signs, jnp.zeros(0, int), jnp.zeros(2, jnp.uint32))
            start = jnp.zeros((data.size, 2))
            found = evidence.slope(place, probes, start, jax.random.fold_in(key, 1))
            return found.gradient, found.steps

        return jax.lax.map(one, keys)

    for shift in (-1.0, 1.0):
        place = jnp.asarray(mode).at[noise].add(shift * np.log(10))
        wanted = np.asarray(exact(place))
        for name, settings in SOLVERS.items():
            solves = lgp.Solves(probes=2, rank=0, **settings).settled(data.size)
            evidence = SolvedEvidence(algorithm, space, data.to_device(), solves)
            evidence = jax.tree.map(jnp.asarray, evidence)
            gradients, steps = run(evidence, place, jax.random.split(KEY, repetitions))
            errors = np.sum((np.asarray(gradients) - wanted) ** 2, axis=1) / np.sum(wanted**2)
            rows.append(
                (f"{shift:+.0f}", name, float(errors.mean()), float(np.median(errors)),
                 float(np.mean(steps)))
            )  # fmt: skip
    heads = ("log10 noise, from mode", "solver", "mean error", "median error", "products")
    report.table("ULISSE: relative squared error of the gradient", heads, rows)
    return rows


def metropolis(space, data, mode, iterations, chains=2):
    """Random walks on the exact log posterior, scaled by its curvature; draws, seconds, rate."""
    density = density_of(space, jnp.asarray(data.X), jnp.asarray(data.y))
    gradient = jax.jit(jax.grad(density))
    steps = 1e-3 * np.eye(len(mode))
    curvature = np.array([gradient(mode - s) - gradient(mode + s) for s in steps]) / 2e-3
    covariance = np.linalg.inv(0.5 * (curvature + curvature.T))
    root = jnp.asarray(np.linalg.cholesky(covariance)) * 2.38 / np.sqrt(len(mode))

    @jax.jit
    def chain(key):
        def step(state, key):
            vector, value = state
            key_move, key_accept = jax.random.split(key)
            other = vector + root @ jax.random.normal(key_move, vector.shape)
            new = density(other)
            taken = jnp.log(jax.random.uniform(key_accept)) < new - value
            state = jnp.where(taken, other, vector), jnp.where(taken, new, value)
            return state, (state[0], taken)

        start = jnp.asarray(mode)
        return jax.lax.scan(step, (start, density(start)), jax.random.split(key, iterations))[1]

    chain(KEY)[0].block_until_ready()
    started = time.perf_counter()
    draws = [chain(key) for key in jax.random.split(KEY, chains)]
    vectors = np.stack([np.asarray(vector) for vector, _ in draws])[:, iterations // 10 :]
    seconds = time.perf_counter() - started
    return vectors, seconds, float(np.mean([np.mean(taken) for _, taken in draws]))


def effective(vectors):
    """The smallest effective sample size, of the bulk, over hyper-parameters."""
    arviz = import_arviz()
    return min(float(arviz.ess(vectors[:, :, p], method="bulk")) for p in range(vectors.shape[2]))


def langevin(data, options, iterations):
    """Draws of two chains by Langevin steps, after half as many iterations of warm-up."""
    method = lgp.SGLD(chains=2, draws=iterations, warmup=iterations // 2, thin=1, **options)
    fit = lgp.fit(MODEL, data, method=method, key=KEY)
    columns = fit.posterior.hyperparameters.values()
    return np.stack([np.log(values) for values in columns], axis=-1), fit


def chains_of(report, space, data, mode, sizes):
    """Langevin steps beside Metropolis; draws by name."""
    published = {
        "solves": lgp.Solves(solver="ulisse", rank=0, threshold=1.0, rate=1.0),
        "scale": 4.0, "delay": 40.0, "power": 1.0,
    }  # fmt: skip
    found, rows = {}, []
    vectors, seconds, accepted = metropolis(space, data, mode, sizes["metropolis"])
    found["Metropolis"] = vectors
    report.note(f"Metropolis: {accepted:.0%} accepted")
    rows.append(_row("Metropolis", vectors, seconds, 1.0))
    variants = {
        "SGLD as published": published,
        "SGLD, the library's": {},
        "SGLD, rank N / 4": {"solves": lgp.Solves(rank=data.size // 4)},
    }
    for name, options in variants.items():
        vectors, fit = langevin(data, options, sizes["langevin"])
        report.note(f"{name}: {fit.diagnostics.verdict}")
        found[name] = vectors
        rows.append(_row(name, vectors, fit.diagnostics.seconds, 1.5))
    heads = (
        "chains", "iterations", "seconds", "an iteration", "effective, %", "seconds a sample",
        *(f"{part} {path.rpartition('.')[2]}" for path in space.paths for part in ("mean", "sd")),
    )  # fmt: skip
    report.table("Chains: logarithms of hyper-parameters", heads, rows)
    return found


def large(report, folder, rows, iterations):
    """Seconds of an iteration on many rows; nothing N x N is kept or factorised."""
    X, y = load(folder, "protein")
    kept = np.random.default_rng(0).permutation(len(y))[:rows]
    data = lgp.Data(standardised(X[kept])[0], standardised(y[kept])[0])
    common = {
        "representation": lgp.Inducing(100), "predicted": 1, "chains": 1, "thin": 1,
        "subset": min(rows, 1000), "draws": iterations, "warmup": 3 * iterations,
        "scale": 0.05 * 100**0.55,
    }  # fmt: skip
    variants = {
        "the library's": {},
        "as published": {"solves": lgp.Solves(solver="ulisse", rank=0, threshold=1.0, rate=1.0)},
    }
    table = []
    for name, options in variants.items():
        clock = []  # the first piece compiles

        def tell(progress, clock=clock):
            clock.append((progress.sweeps, time.process_time(), progress.seconds))

        fit = lgp.fit(MODEL, data, method=lgp.SGLD(**common | options), key=KEY, callback=tell)
        (first, began, _), (last, ended, _) = clock[0], clock[-1]
        each = (ended - began) / (last - first)
        phase = fit.diagnostics.finding("langevin")
        report.note(f"{name}: {each:.1f} processor seconds an iteration; {phase.verdict}")
        vectors = fit.posterior.hyperparameters
        size = phase.step_size[0]
        table.append(
            (name, last, phase.solver_steps, each, size, 4 / size - 1, each * (4 / size - 1) / 3600,
             *(float(np.log(values).mean()) for values in vectors.values()))
        )  # fmt: skip
    heads = (
        "SGLD", "iterations", "products each", "processor s each", "last step size",
        "iterations a sample", "hours a sample",
        *(f"mean {path.rpartition('.')[2]}" for path in vectors),
    )  # fmt: skip
    report.table(f"protein, {rows} rows, one chain", heads, table)


def _row(name, vectors, seconds, made):
    """Seconds are those of all iterations, `made` for each that is kept."""
    kept = vectors.shape[0] * vectors.shape[1]
    share = effective(vectors) / kept
    each = seconds / (kept * made)
    flat = vectors.reshape(kept, -1)
    moments = np.stack([flat.mean(axis=0), flat.std(axis=0)], axis=1).ravel()
    rest = (round(float(value), 3) for value in moments)
    return (name, vectors.shape[1], round(seconds), each, 100 * share, each / share, *rest)


def drawn(study_rows, found, paths):
    """Errors against products, and densities of the chains' draws."""
    picture = figure(12, 3.4)
    axes = picture.subplots(1, 1 + len(paths))
    for color, name in zip(COLORS, SOLVERS, strict=False):
        own = [row for row in study_rows if row[1] == name]
        if not own:
            continue
        axes[0].plot([r[4] for r in own], [r[2] for r in own], "o", color=color, label=name)
    if study_rows:
        axes[0].set(xscale="log", yscale="log")
    tidy(axes[0], "Gradient", "products", "relative squared error", legend=bool(study_rows))
    for place, (ax, path) in enumerate(zip(axes[1:], paths, strict=True)):
        for color, (name, vectors) in zip(COLORS, found.items(), strict=False):
            values = vectors[..., place].ravel()
            ax.hist(values, 30, density=True, histtype="step", color=color, label=name)
        tidy(ax, path, "logarithm", "density", legend=bool(found) and place == 0)
    return picture


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1030, help="of concrete, at most")
    options.add_argument("--iterations", type=int, default=1000, help="of a Langevin chain, kept")
    options.add_argument("--large-rows", type=int, default=20_000, help="of protein")
    options.add_argument("--large-iterations", type=int, default=2, help="a fourth of them")
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = options.parse_args()
    report = Report("unbiased_solver", arguments)
    parts = arguments.parts
    sizes = {"langevin": arguments.iterations, "metropolis": 4 * arguments.iterations}
    rows, repetitions = arguments.rows, 100
    many = arguments.large_rows, arguments.large_iterations
    if arguments.quick:
        rows, repetitions, sizes = 60, 20, {"langevin": 60, "metropolis": 400}
        many = 300, 2
    X, y = load(arguments.data_dir, "concrete")
    kept = np.random.default_rng(0).permutation(len(y))[:rows]
    data = lgp.Data(standardised(X[kept])[0], standardised(y[kept])[0])
    fit = lgp.fit(MODEL, data, method=lgp.ExactGP(), key=KEY)
    with jax.enable_x64(True):
        space = space_of(MODEL, scales(MODEL, data), "weak")
        mode = space.to_vector(fit.model)
        studied = study(report, space, data, mode, repetitions) if "study" in parts else []
        found = chains_of(report, space, data, mode, sizes) if "chains" in parts else {}
    if "large" in parts:
        large(report, arguments.data_dir, *many)
    report.save(drawn(studied, found, space.paths))


if __name__ == "__main__":
    main()
