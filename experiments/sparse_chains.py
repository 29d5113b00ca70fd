"""Chains through inducing points against the Gaussian approximation, at the same points and priors.

Hensman, Matthews, Filippone & Ghahramani (2015), "MCMC for variationally sparse Gaussian
processes", NIPS: the free-form variational posterior of inducing variables and hyper-parameters
is sampled; a Gaussian one with the most probable hyper-parameters says where the points are.

1. image: error and held-out log loss over the number of points, k-means points and optimised ones,
   one length-scale (RBF) and one an input (ARD). The source has figures only; its link is not
   stated, here probit. 2,086 distinct rows, 1,000 to train on and 1,019 held out, one split.
2. coal: disasters in 100 bins, half of them held out (each with probability 1/2), ten splits, 30
   evenly spaced points. Then "tuning", on all disasters: joint HMC of at most 20 leapfrog steps,
   tuned in windows and by Bayesian optimisation of the squared jump distance (the source's), the
   source's comparator (f and hyper-parameters in turn) and the library's default, two chains.
3. pines: saplings on grids of 32 x 32 and 64 x 64 cells through 225 points on a lattice, and all
   latents of 32 x 32 cells. Seconds an effective sample are those of the draws, warm-up counted and
   not, over the least bulk ESS of hyper-parameters and of f at (200) cells. Compilation is in a
   first fit, which is not counted. Two chains, one a core; the source has one core.
4. robust-max: 750 points of three Gaussians that overlap, 20 points. Elliptical slices, as the
   likelihood is a step, where the source has HMC on its expectation.
5. mnist: 500 points, softmax where the source has robust-max. The Gaussian is by batches of all
   60,000 rows, as the source's. Chains have 4,000 rows and hyper-parameters held at the learned
   ones, where the source has all rows and samples them: two cores take no more. What compares is
   how chains differ from the Gaussian of the same rows.

Priors are the library's weak ones, as the source does not print its own (gamma ones); a
prior mean of a log intensity is normal around the log of the mean rate, deviation 1.
"""

import jax
import numpy as np
from numpyro.distributions import Normal

import latentgp as lgp
from common import (
    COLORS,
    Report,
    at_once,
    figure,
    load,
    log_losses,
    paired,
    parser,
    random_split,
    standardised,
    tidy,
    train_and_test,
)

KEY = jax.random.key(0)
GAUSSIAN, CHAINS = "Gaussian", "chains"
CHOICES = ("k-means", "optimised")
KINDS, NUMBERS = ("RBF", "ARD"), (10, 40, 100)  # kernels and points of `image`
NUGGET = 0.1  # variance that no inducing point explains, at the start: it makes steps soft


def gaussian(model, data, points, **settings):
    """The variational Gaussian, independent over latent functions, everything learned."""
    method = lgp.VariationalInference(points, coupled=False)
    return lgp.fit(model, data, key=KEY, method=method, **settings)


def sampled(model, data, points, draws, *, chains=2, warmup=None, callback=None, **settings):
    """Chains of latents and hyper-parameters."""
    moves = {name: settings.pop(name) for name in ("latents", "coupling") if name in settings}
    method = lgp.MCMC(
        points, chains=chains, draws=draws, warmup=draws if warmup is None else warmup, **moves
    )
    return lgp.fit(model, data, key=KEY, method=method, callback=callback, **settings)


def points_of(fit):
    """The inducing points of a fit, fixed."""
    return lgp.Inducing(points=np.asarray(fit.posterior.components.latent.centres))


# 1. image


def image(
    report, data_dir, quick, *, jobs=1, kinds=KINDS, numbers=NUMBERS, choices=CHOICES, draws=250
):
    X, labels = load(data_dir, "ratsch_image")
    X, first = np.unique(X, axis=0, return_index=True)
    y = (labels[first] > 0).astype(float)
    train, test = random_split(len(y), 1000)
    train, test = (train[:200], test[:200]) if quick else (train, test[:1019])
    X_train, X_test = standardised(X[train], X[test])
    data, typical = lgp.Data(X_train, y[train]), np.sqrt(X.shape[1])
    kernels = {"RBF": typical, "ARD": np.full(X.shape[1], typical)}
    kernels = {name: kernels[name] for name in (("ARD",) if quick else kinds)}
    numbers, draws = ((10,), 50) if quick else (numbers, draws)

    def task(name: str, number: int) -> list:
        """Rows of the table: k-means points, then optimised ones from there."""
        model = lgp.LatentGP(lgp.RBF(kernels[name]), lgp.BernoulliProbit())
        rows = []
        for choice in choices:
            if choice == "k-means":
                fit = gaussian(model, data, lgp.Inducing(number))
            else:  # all rows a step
                learning = lgp.Stochastic(
                    lgp.VariationalInference(points_of(fit)),
                    batch_size=len(train),
                    epochs=20 if quick else 200,
                    learn_points=True,
                )
                moved = lgp.fit(fit.model, data, key=KEY, method=learning)
                fit = gaussian(moved.model, data, points_of(moved))
            chains = sampled(fit.model, data, points_of(fit), draws)
            errors, losses = [], []
            for posterior in (fit.posterior, chains.posterior):
                p = posterior.predict(X_test).mean
                losses.append(log_losses(y[test], np.stack([1 - p, p], axis=1)))
                errors.append(np.mean((p > 0.5) != y[test]))
            summary = chains.diagnostics.summary
            rows.append(
                [
                    *(f"{name}, {number}, {choice}", *errors, *(loss.mean() for loss in losses)),
                    *(*paired(losses[0] - losses[1]), summary.r_hat, summary.ess_bulk),
                ]
            )
            print(f"  {rows[-1]}", flush=True)
        return rows

    cases = [(name, number) for name in kernels for number in numbers]
    found = at_once([lambda case=case: task(*case) for case in cases], jobs)
    table = [row for rows in found for row in rows]
    curves = {}
    for (name, number), rows in zip(cases, found, strict=True):
        for choice, row in zip(choices, rows, strict=True):
            for label, loss in zip((GAUSSIAN, CHAINS), row[3:5], strict=True):
                curves.setdefault((name, choice, label), []).append((number, loss))
    report.table(
        f"1. image: {len(train)} rows, {len(test)} held out, 2 chains of {draws} draws",
        [
            "kernel, points", "error, Gaussian", "error, chains", "log loss, Gaussian",
            "log loss, chains", "gained by chains", "std. error", "R-hat", "ESS",
        ],
        table,
    )  # fmt: skip
    report.note(
        "Published: figures only. Claims: optimised points are a significant improvement over "
        "k-means; chains are better than the Gaussian once there are enough points, more so with "
        "ARD; with few points the Gaussian works very well."
    )

    def draw(ax):
        for color, (name, choice) in zip(
            COLORS, [(name, choice) for name in kernels for choice in choices], strict=False
        ):
            for style, label in (("--", GAUSSIAN), ("-", CHAINS)):
                number, loss = np.array(curves[name, choice, label]).T
                ax.plot(
                    number, loss, style, marker="o", markersize=3, color=color,
                    label=f"{name}, {choice}, {label}",
                )  # fmt: skip
        tidy(ax, "image", "inducing points", "held-out log loss [nats]", legend=True)

    return [draw]


# 2. coal and 3. pines


def cox_process(data, lengthscale):
    """Model and priors of a log intensity whose prior mean is near the log of the mean rate."""
    level = float(np.log(data.y.sum() / np.sum(data.side_information["exposure"])))
    model = lgp.LatentGP(lgp.RBF(lengthscale), lgp.Poisson(), mean=lgp.ConstantMean(level))
    return model, {"mean.value": Normal(level, 1.0)}


def disasters(data_dir):
    """Years since the first, their span, and points evenly spaced over it."""
    with np.load(data_dir / "coal_mining.npz", allow_pickle=False) as file:
        years = (file["event_days"] - 0.5) / 365.25
    span = (0.0, 811 * 50 / 365.25)
    return years, span, lgp.Inducing(points=lgp.bin_points([], 30, span).X)


def coal(report, data_dir, quick):
    years, span, points = disasters(data_dir)
    splits, draws = (2, 100) if quick else (10, 1500)
    rng = np.random.default_rng(0)
    scores = {GAUSSIAN: [], CHAINS: []}
    worst, least = 1.0, np.inf
    for _ in range(splits):
        kept = rng.random(len(years)) < 0.5
        train, test = (lgp.bin_points(years[rows], 100, span) for rows in (kept, ~kept))
        model, priors = cox_process(train, 10.0)
        fits = {
            GAUSSIAN: gaussian(model, train, points, priors=priors),
            CHAINS: sampled(model, train, points, draws, priors=priors),
        }
        worst = max(worst, fits[CHAINS].diagnostics.summary.r_hat)
        least = min(least, fits[CHAINS].diagnostics.summary.ess_bulk)
        for label, fit in fits.items():
            predictive = fit.posterior.predict(test.X, **test.side_information)
            scores[label].append(predictive.log_prob(test.y).mean())
    values = {label: np.array(score) for label, score in scores.items()}
    gain = values[CHAINS] - values[GAUSSIAN]
    report.table(
        f"2. coal: {splits} splits, nats a cell of 100",
        ["", "Gaussian", "chains", "chains minus Gaussian", "std. error", "splits where better"],
        [
            [
                "ours", values[GAUSSIAN].mean(), values[CHAINS].mean(), *paired(gain),
                f"{np.sum(gain > 0)} of {splits}",
            ],
            ["published", -1.229, -1.225, 0.003, None, "10 of 10"],
        ],
    )  # fmt: skip
    report.note(f"coal: 2 chains of {draws} draws, worst R-hat {worst:.3f}, least ESS {least:.0f}.")
    everything = lgp.bin_points(years, 100, span)
    model, priors = cox_process(everything, 10.0)
    shown = {
        GAUSSIAN: gaussian(model, everything, points, priors=priors),
        CHAINS: sampled(model, everything, points, draws, priors=priors),
    }
    kernel = shown[GAUSSIAN].model.kernel
    drawn = {
        name: np.quantile(values, [0.05, 0.5, 0.95]).round(2)
        for name, values in shown[CHAINS].posterior.hyperparameters.items()
    }
    report.note(
        f"coal, all disasters: the Gaussian's variance is {kernel.variance:.3g}, its length-scale "
        f"{float(np.ravel(kernel.lengthscale)[0]):.3g} years (published: 12.06 and 0.55, in units "
        f"that are not stated); quantiles of chains at 5, 50 and 95 %: variance "
        f"{drawn['kernel.variance']}, length-scale {drawn['kernel.lengthscale']}."
    )

    def draw(ax):
        time = 1851.2 + everything.X[:, 0]
        for color, style, (label, fit) in zip(COLORS, ("--", "-"), shown.items(), strict=False):
            law = fit.posterior.predict_f(everything.X)
            spread = 1.96 * np.sqrt(law.variance)
            ax.plot(time, np.exp(law.mean), style, color=color, label=f"{label}, 95 %")
            for sign in (-1, 1):
                edge = np.exp(law.mean + sign * spread)
                ax.plot(time, edge, style, color=color, linewidth=0.7)
        tidy(ax, "coal", "year", "intensity [disasters a year]", legend=True)

    return [draw]


def tuning(report, data_dir, quick):
    years, span, points = disasters(data_dir)
    data = lgp.bin_points(years, 100, span)
    model, priors = cox_process(data, 10.0)
    size = {"chains": 2, "draws": 100 if quick else 1000, "warmup": 900}
    gibbs = {"latents": "hmc", "hyperparameters": "random-walk", "coupling": "whitened"}
    samplers = {
        "HMC, windows": lgp.HMC(points, steps=20, **size),
        "HMC, jumps": lgp.HMC(points, steps=20, tuning="jumps", **size),
        "in turn": lgp.MCMC(points, **gibbs, **size),
        "ours": lgp.MCMC(points, **size),
    }
    table = []
    for name, method in samplers.items():
        for seed in range(2):  # the second has its programs
            fit = lgp.fit(model, data, key=jax.random.key(seed), method=method, priors=priors)
        statistics, least = fit.posterior.statistics, fit.posterior.summary.least
        table.append(
            [
                name, least, least / fit.diagnostics.seconds, fit.posterior.summary.r_hat,
                float(fit.posterior.acceptance.mean()), float(np.mean(statistics["n_steps"])),
            ]
        )  # fmt: skip
    report.table(
        f"2. coal, tuning: two chains of {size['draws']} draws after {size['warmup']}",
        ["sampler", "least ESS", "a second, warm-up counted", "R-hat", "acceptance", "steps"],
        table,
    )

    def draw(ax):
        for place, (row, color) in enumerate(zip(table, COLORS, strict=False)):
            ax.plot(row[2], place, "o", color=color)
        ax.set_yticks(range(len(table)), [row[0] for row in table])
        ax.set_xscale("log")
        ax.invert_yaxis()
        tidy(ax, "coal", "effective draws a second, of the worst quantity", "")

    return [draw]


def timed(model, data, points, draws, priors):
    """Seconds an effective sample, warm-up not counted and counted, of programs compiled before."""
    sampled(model, data, points, min(draws, 50), warmup=0, priors=priors)  # compiles
    seconds = {}
    fit = sampled(
        model, data, points, draws, priors=priors,
        callback=lambda told: seconds.update({told.sweeps: told.seconds}),
    )  # fmt: skip
    total = max(seconds)
    warm = seconds[total - draws]
    summary = fit.diagnostics.summary
    return fit, [
        (seconds[total] - warm) / summary.ess_bulk,
        seconds[total] / summary.ess_bulk,
        summary.ess_bulk,
        summary.r_hat,
    ]


def pines(report, data_dir, quick):
    with np.load(data_dir / "pp_finpines.npz", allow_pickle=False) as file:
        saplings, window = file["X"], np.stack([file["xrange"], file["yrange"]])
    cells, along, draws = ((8, 16), 5, 50) if quick else ((32, 64), 15, 300)
    points = lgp.Inducing(points=lgp.bin_points([], along, window).X)
    cases = [
        (cells[0], points, draws, "3.4"),
        (cells[1], points, draws, "4.7"),
        (cells[0], lgp.Dense(), draws if quick else 100, "554"),
    ]
    if quick:
        del cases[1]
    table, shown = [], None
    for number, representation, length, published in cases:
        data = lgp.bin_points(saplings, number, window)
        model, priors = cox_process(data, 1.0)
        fit, figures = timed(model, data, representation, length, priors)
        of = f"{along**2} points" if representation is points else "all latents"
        table.append([f"{number} x {number}, {of}", *figures, published])
        if representation is points:
            shown = fit.posterior.predict_f(data.X), number
    report.table(
        f"3. pines: two chains of {draws} draws after as many (all latents: {cases[-1][2]})",
        [
            "cells", "s an effective sample", "warm-up counted", "ESS", "R-hat",
            "published (32 and 64)",
        ],
        table,
    )  # fmt: skip

    def draw(ax):
        law, number = shown
        intensity = np.exp(law.mean).reshape(number, number).T
        drawn = ax.imshow(intensity, origin="lower", extent=window.ravel(), cmap="cividis")
        ax.figure.colorbar(drawn, ax=ax, shrink=0.85)
        ax.plot(*saplings.T, ".", color="#FFFFFF", markersize=2)
        tidy(ax, "pines: saplings a square metre, median", "x [m]", "y [m]")
        ax.grid(visible=False)

    return [draw]


# 4. robust-max


def three_gaussians(number, rng):
    """Equally many points around the corners of a triangle; the classes overlap."""
    classes = np.repeat(np.arange(3.0), number // 3)
    angle = 2 * np.pi * classes / 3
    centres = 1.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return centres + rng.normal(size=centres.shape), classes


def robust_max(report, _, quick):
    rng = np.random.default_rng(0)
    rows, number, draws = (90, 10, 100) if quick else (750, 20, 1000)
    X, y = three_gaussians(rows, rng)
    X_test, y_test = three_gaussians(3000, rng)
    data = lgp.Data(X, y)
    kernel = lgp.RBF(1.0) + lgp.White(NUGGET)
    model = lgp.LatentGP(kernel, lgp.RobustMax(3))
    fit = gaussian(model, data, lgp.Inducing(number))
    slices = {"latents": "elliptical-slice", "coupling": "whitened"}
    chains = sampled(fit.model, data, points_of(fit), draws, **slices)
    side = np.linspace(-6, 6, 41)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    far = np.linalg.norm(grid, axis=1) > 4
    table, maps = [], {}
    for label, posterior in ((GAUSSIAN, fit.posterior), (CHAINS, chains.posterior)):
        p = posterior.predict(X_test).probabilities
        maps[label] = posterior.predict(grid).probabilities.max(axis=1)
        table.append(
            [
                label, np.mean(p.argmax(axis=1) != y_test), log_losses(y_test, p).mean(),
                p.max(axis=1).mean(), maps[label][far].mean(),
            ]
        )  # fmt: skip
    report.table(
        f"4. robust-max: {rows} rows, {number} points, 2 chains of {draws} draws, 3,000 held out",
        ["", "error", "log loss", "mean confidence", "more than 4 from the centre"],
        table,
    )
    summary = chains.diagnostics.summary
    white = chains.posterior.components.white
    white = white.reshape(len(white), 3, -1)
    correlation = np.corrcoef(white.reshape(len(white), -1).T)
    points = white.shape[2]
    between = [
        np.abs(correlation[a * points : (a + 1) * points, b * points : (b + 1) * points]).max()
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    off = white - white.mean(axis=0)
    skewness = np.mean(off**3, axis=0) / np.mean(off**2, axis=0) ** 1.5
    report.note(
        f"robust-max: R-hat {summary.r_hat:.3f}, ESS {summary.ess_bulk:.0f}. Largest correlation "
        f"of white values of two classes {max(between):.2f} (the Gaussian has none), largest "
        f"skewness {np.abs(skewness).max():.2f}. Published: a figure only; the free form is more "
        "conservative, its posterior correlated and not Gaussian."
    )

    def drawing(label):
        def draw(ax):
            values = maps[label].reshape(len(side), -1).T
            drawn = ax.contourf(side, side, values, np.linspace(1 / 3, 1, 11), cmap="cividis")
            ax.figure.colorbar(drawn, ax=ax, shrink=0.85, format="%.2f")
            for c, color in zip(range(3), ("#0072B2", "#D55E00", "#000000"), strict=True):
                ax.plot(*X[y == c].T, ".", color=color, markersize=1.5)
            tidy(ax, f"robust-max: confidence, {label}", "input 1", "input 2")

        return draw

    return [drawing(GAUSSIAN), drawing(CHAINS)]


# 5. mnist


def mnist(report, data_dir, quick):
    X, y = load(data_dir, "mnist")
    train, test = train_and_test(data_dir, "mnist")
    every, rows, number, draws = (600, 300, 20, 50) if quick else (len(train), 4000, 500, 400)
    train = np.random.default_rng(0).permutation(train)[:every]
    test = test[:500] if quick else test
    X = X / 255
    data = lgp.Data(X[train[:rows]], y[train[:rows]])
    model = lgp.LatentGP(lgp.RBF(8.0, 10.0), lgp.Softmax(10))
    learning = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(number), coupled=False),
        batch_size=min(rows, 1000),
        epochs=2 if quick else 20,
    )
    whole = lgp.fit(model, lgp.Data(X[train], y[train]), key=KEY, method=learning)
    print(f"  mnist: {len(train)} rows in {whole.diagnostics.seconds:.0f} s", flush=True)
    held, points = {"learn_hyperparameters": False}, points_of(whole)
    fit = gaussian(whole.model, data, points, **held)
    chains = sampled(whole.model, data, points, draws, warmup=draws // 2, **held)
    table, losses = [], {}
    of_all = f"{GAUSSIAN}, {len(train)} rows"
    for label, posterior in (
        (of_all, whole.posterior), (GAUSSIAN, fit.posterior), (CHAINS, chains.posterior)
    ):  # fmt: skip
        p = posterior.predict(X[test]).probabilities
        losses[label] = log_losses(y[test], p)
        table.append([label, np.mean(p.argmax(axis=1) == y[test]), -losses[label].mean()])
    table += [["published: Gaussian", 0.9804, -0.068], ["published: chains", 0.9804, -0.064]]
    report.table(
        f"5. mnist: {rows} rows (published: 60,000), {number} points, {len(test)} held out",
        ["", "accuracy", "log density"],
        table,
    )
    gain, error = paired(losses[GAUSSIAN] - losses[CHAINS])
    summary = chains.diagnostics.summary
    report.note(
        f"mnist: chains gain {gain:.4f} ± {error:.4f} nats a row (published: 0.004); 2 chains of "
        f"{draws} draws, R-hat {summary.r_hat:.3f}, ESS {summary.ess_bulk:.0f}, "
        f"{chains.diagnostics.seconds:.0f} s."
    )

    def draw(ax):
        order = np.argsort(losses[GAUSSIAN])
        for color, (label, values) in zip(COLORS, losses.items(), strict=False):
            ax.plot(np.arange(len(test)), np.cumsum(values[order]) / len(test), color=color,
                    label=label)  # fmt: skip
        tidy(ax, "mnist", "held-out rows, easiest first", "log loss up to there", legend=True)

    return [draw]


PARTS = {
    "image": image,
    "coal": coal,
    "tuning": tuning,
    "pines": pines,
    "robust-max": robust_max,
    "mnist": mnist,
}


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments.add_argument("--kernels", nargs="+", choices=KINDS, default=KINDS, help="of image")
    arguments.add_argument("--points", nargs="+", type=int, default=NUMBERS, help="of image")
    arguments.add_argument(
        "--choices", nargs="+", choices=CHOICES, default=CHOICES, help="of image"
    )
    arguments.add_argument("--draws", type=int, default=250, help="of image")
    arguments = arguments.parse_args()
    report = Report("sparse_chains", arguments)
    panels = []
    for part in arguments.parts:
        extra = {}
        if part == "image":
            extra = {"jobs": arguments.jobs, "kinds": arguments.kernels, "draws": arguments.draws}
            extra |= {"numbers": arguments.points, "choices": arguments.choices}
        panels += PARTS[part](report, arguments.data_dir, arguments.quick, **extra)
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    drawn = figure(4.6 * columns, 3.9 * rows)
    for ax, draw in zip(drawn.subplots(rows, columns, squeeze=False).ravel(), panels, strict=False):
        draw(ax)
    for ax in drawn.axes:
        if not ax.has_data():
            ax.remove()
    report.save(drawn)


if __name__ == "__main__":
    main()
