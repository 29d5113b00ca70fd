"""Black-box variational inference with mixtures: small sets, seismic inversion, bimodal models.

Reproduces Bonilla, Krauth & Dezfouli (2019, "Generic inference in latent Gaussian process models",
JMLR 20), 9.3 and 9.8, and makes two tables that are not in the literature. By part:

- `small`: their Table 1. The claims: one full Gaussian through all rows (fg) is exact where the
  likelihood is Gaussian, or warped; diagonal components (mog1, mog2) have the same means and too
  small variances; fg is two orders of magnitude faster than HMC and one than elliptical slices.
- `seismic`: depths and velocities of four layers from travel times (eq. 43). The claim: fg closely
  matches long chains, with variances overestimated (figure only).
- `mixtures`: one to four full components against long chains, where the posterior is bimodal and
  where it is not.
- `estimators`: variance of gradients by draws, with and without control variates, and steps along
  them to a bound within half a nat of the best.

Chosen here: `small` has at most `--rows` rows to train on (as many as published from 1233 on, but
for concrete, which has 618) and `--splits` random splits, the inputs, and targets of regressions,
standardised; concrete stands for abalone (not at hand), warped as creep is; from 400 digits on the
usual method has sites that do not couple the classes; fg learns everything, mog1 and mog2 hold what
it has learned, so that what differs is the posterior. "SF" is inducing points over rows. SSE is
squared error over the variance of the held-out targets. Chains of the disasters hold what fg has
learned. `seismic` draws the truth from the published prior (113 sites over 10 length-scales, whose
layout is not printed). `mixtures` holds all hyper-parameters. A held-out size is signed there,
though only sizes are trained on: the data cannot tell f from -f. NLPD is nats a row; differences
are paired over data sets, which are draws of the model; "quantiles" is the largest difference of a
marginal distribution function of f, at the 5, 25, 50, 75 and 95 % quantiles of elliptical slices,
over rows and latents of the first data set. Seconds are of the processor, compilation included
unless said.
"""

import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from common import (
    COLORS,
    STYLES,
    Report,
    figure,
    load,
    median_distance,
    paired,
    parser,
    random_split,
    standardised,
    tidy,
)
from latentgp.extensions.black_box.mixtures.expectations import Expectations
from latentgp.likelihoods.base import Marginals
from latentgp.sites.gaussian import Rows
from seismic_forward import DEPTHS, DEVIATIONS, LAYERS, VELOCITIES

LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
NEAR = 0.5  # nats from the best bound


def timed(model, data, method, *, learn=False, seed=0):
    """A fit and its seconds of the processor."""
    began = time.process_time()
    key = jax.random.key(seed)
    fit = lgp.fit(model, data, key=key, method=method, learn_hyperparameters=learn)
    return fit, time.process_time() - began


def mog(components, representation):
    """Diagonal components, as published."""
    return lgp.BlackBoxVI(
        representation, components=components, covariance="diagonal", coordinates="values"
    )


# The small sets


def regression(name, likelihood, exact, published):
    """Standardised rows, as many as published or 0.6 of all; the method that is exact."""

    def make(data_dir, rows, seed):
        X, y = load(data_dir, name)
        train, test = random_split(len(y), min(rows, published, round(0.6 * len(y))), seed)
        inputs, held_out = standardised(X[train], X[test])
        targets, truth = standardised(y[train], y[test])
        return likelihood, exact, inputs, targets, held_out, truth

    return make


def cancer(data_dir, rows, seed):
    X, y = load(data_dir, "breast_wisconsin")
    known = np.isfinite(X).all(axis=1)
    X, y = X[known], y[known]
    train, test = random_split(len(y), min(rows, 300), seed)
    inputs, held_out = standardised(X[train], X[test])
    return lgp.Bernoulli(), lgp.ExpectationPropagation(), inputs, y[train], held_out, y[test]


def digits(data_dir, rows, seed):
    X, y = load(data_dir, "usps")
    kept = np.isin(y, (4, 7, 9))
    X, y = X[kept], np.searchsorted((4, 7, 9), y[kept]).astype(float)
    train, test = random_split(len(y), min(rows, 1233), seed)
    test = test[: min(2 * rows, 1232)]
    method = lgp.VariationalInference(coupled=len(train) < 400)  # more would take hours
    return lgp.Softmax(3), method, X[train], y[train], X[test], y[test]


# A warped target is Gaussian given f, so that a whole step of this method is exact.
WARPED = lgp.VariationalInference(step_size=1.0)
SETS = {
    "boston": regression("boston", lgp.Gaussian(0.1), lgp.ExactGP(), 300),
    "creep": regression("creep", lgp.WarpedGaussian(noise_variance=0.1), WARPED, 800),
    "concrete": regression("concrete", lgp.WarpedGaussian(noise_variance=0.1), WARPED, 1000),
    "cancer": cancer,
    "usps": digits,
}


def scored(fit, X, y):
    """Standardised squared error or error rate, NLPD, mean standard deviation of f."""
    law = fit.posterior.predict(X)
    deviation = np.sqrt(fit.posterior.predict_f(X).variance).mean()
    likelihood = fit.model.likelihood
    if likelihood.targets == "class":
        error = np.mean(law.probabilities.argmax(axis=1) != y)
    else:
        error = np.mean((law.mean - y) ** 2) / y.var()
    return float(error), float(-law.log_prob(y).mean()), float(deviation)


def small(report, arguments):
    factors = (0.25, 1.0) if arguments.quick else arguments.factors
    rows = 60 if arguments.quick else arguments.rows
    heads = "SF", "error or SSE", "NLPD", "less that of the first", "mean sd of f", "of the first's"
    heads = ["", *heads, "bound", "seconds"]
    drawn = {}
    for name in arguments.sets[: 2 if arguments.quick else None]:
        if name == "disasters":
            continue
        tables = []
        for seed in range(arguments.splits):
            split = SETS[name](arguments.data_dir, rows, seed)
            tables.append(one_split(split, factors))
            print(f"  {name}, split {seed}: {sum(row[-1] for row in tables[-1]):.0f} s", flush=True)
        labels = [row[:2] for row in tables[0]]
        values = np.array([[row[2:] for row in table] for table in tables])  # splits, fits, scores
        nlpd = values[..., 1] - values[:, :1, 1]
        ratio = (values[..., 2] / values[:, :1, 2]).mean(axis=0)
        means = values.mean(axis=0)
        table = [
            [*label, own[0], own[1], spread(nlpd[:, i]), own[2], ratio[i], own[3], own[4]]
            for i, (label, own) in enumerate(zip(labels, means, strict=True))
        ]
        known, held_out = len(split[3]), len(split[5])
        report.table(
            f"{name}: {known} rows, {held_out} held out, {len(tables)} splits", heads, table
        )
        drawn[name] = table
    if "disasters" in arguments.sets:
        drawn["disasters"] = disasters(report, arguments, rows, factors)
    return drawn


def one_split(split, factors):
    """Scores of the exact or usual method, and of fg, mog1 and mog2 by points over rows."""
    likelihood, exact, X, y, held_out, truth = split
    model = lgp.LatentGP(lgp.RBF(median_distance(X), 1.0), likelihood)
    data, table = lgp.Data(X, y), []

    def score(label, factor, start, method, *, learn=False):
        fit, seconds = timed(start, data, method, learn=learn)
        scores, bound = scored(fit, held_out, truth), evidence(fit)
        table.append([label, factor, *scores, bound, seconds])
        told = f"NLPD {scores[1]:.4f}, bound {bound:.3f}, {seconds:.0f} s"
        print(f"    {label}, {factor}: {told}", flush=True)
        return fit.model

    score(type(exact).__name__, 1.0, model, exact, learn=True)
    for factor in factors:
        representation = lgp.Dense() if factor == 1 else lgp.Inducing(round(factor * len(y)))
        learned = score("fg", factor, model, lgp.BlackBoxVI(representation), learn=True)
        for components in (1, 2):
            score(f"mog{components}", factor, learned, mog(components, representation))
    return table


def spread(differences):
    """Mean over splits and its standard error, where there are several."""
    if len(differences) == 1:
        return float(differences[0])
    return "{:+.4f} ± {:.4f}".format(*paired(differences))


def evidence(fit):
    """In nats; where the entropy of a mixture is bounded, with that by draws."""
    terms = fit.diagnostics.finding("terms")
    return getattr(terms, "bound_by_draws", None) or fit.posterior.log_evidence.value


def disasters(report, arguments, rows, factors):
    """The log intensity against chains, and how long these take."""
    X, y = load(arguments.data_dir, "coal_mining")
    bins = 4 if rows < 811 else 1
    X = X[: 811 // bins * bins].reshape(-1, bins).mean(axis=1)[:, None]
    data = lgp.Data(X, y[: 811 // bins * bins].reshape(-1, bins).sum(axis=1))
    start = lgp.LatentGP(
        lgp.RBF(np.ptp(X) / 10, 1.0), lgp.Poisson(), lgp.ConstantMean(np.log(data.y.mean()))
    )
    fits = {}
    for factor in factors:
        size = round(factor * len(X))
        representation = lgp.Dense() if factor == 1 else lgp.Inducing(size)
        timed(start, data, lgp.BlackBoxVI(representation), learn=True)  # compiles
        fits["fg", factor] = timed(start, data, lgp.BlackBoxVI(representation), learn=True)
        for components in (1, 2):
            model = fits["fg", factor][0].model
            fits[f"mog{components}", factor] = timed(model, data, mog(components, representation))
    held = fits["fg", 1.0][0].model
    draws = 100 if arguments.quick else 500
    chains = {
        "HMC": lgp.HMC(chains=2, draws=draws, warmup=draws),
        "elliptical slice": lgp.EllipticalSlice(chains=2, draws=draws, warmup=10 * draws, thin=20),
    }
    table = []
    for label, method in chains.items():
        timed(held, data, method)  # compiles
        fits[label, 1.0] = timed(held, data, method)
    truth = fits["HMC", 1.0][0].posterior.predict_f(X)
    quickest = fits["fg", 1.0][1]
    for (label, factor), (fit, seconds) in fits.items():
        f, summary = fit.posterior.predict_f(X), getattr(fit.diagnostics, "summary", None)
        table.append([
            label, factor, np.abs(f.mean - truth.mean).mean() / np.sqrt(truth.variance).mean(),
            np.mean(np.sqrt(f.variance / truth.variance)), summary and summary.r_hat,
            summary and summary.ess_bulk, seconds,
            summary and seconds * 100 / summary.ess_bulk / quickest,
        ])  # fmt: skip
    report.table(
        f"disasters: {len(X)} bins, log intensity against HMC; programs compiled",
        [
            "", "SF", "|mean difference| in sd", "ratio of sd", "R-hat", "effective", "seconds",
            "100 effective draws, in fits of fg",
        ],
        table,
    )  # fmt: skip
    return table


# Seismic inversion

PRIOR_MEANS = np.array(DEPTHS + VELOCITIES)
PRIOR_DEVIATIONS = np.array([0.15 * depth for depth in DEPTHS] + [0.1 * v for v in VELOCITIES])


class SeismicInversion(lgp.Likelihood):
    """Two-way times to interfaces, each given that above; latents are depths, then velocities."""

    latent_size = 2 * LAYERS
    output_shape = (LAYERS,)

    def log_prob(self, y, f, side):
        above = jnp.concatenate([jnp.zeros(1, y.dtype), y[:-1]])
        expected = above + 2 * jnp.diff(f[:LAYERS], prepend=0.0) / f[LAYERS:]
        z = (y - expected) / np.array(DEVIATIONS)
        return -0.5 * jnp.sum(z**2 + np.log(2 * np.pi * np.array(DEVIATIONS) ** 2))


def earth(sites, seed=0):
    """A model with the published prior, and times, depths and velocities drawn from it."""
    X = np.linspace(0, 10, sites)[:, None]
    kernel = lgp.PerLatent(*(lgp.RBF(1.0, deviation**2) for deviation in PRIOR_DEVIATIONS))
    mean = lgp.PerLatentMean(*(lgp.ConstantMean(value) for value in PRIOR_MEANS))
    rng = np.random.default_rng(seed)
    f = PRIOR_MEANS + PRIOR_DEVIATIONS * drawn_functions(X, 1.0, 2 * LAYERS, rng)
    layers = 2 * np.diff(f[:, :LAYERS], prepend=0.0, axis=1) / f[:, LAYERS:]
    y = np.cumsum(layers + np.array(DEVIATIONS) * rng.normal(size=layers.shape), axis=1)
    return lgp.LatentGP(kernel, SeismicInversion(), mean), X, f, y


def drawn_functions(X, lengthscale, number, rng):
    """Draws of functions with unit variance, shape (N, number)."""
    apart = np.sum(((X[:, None] - X) / lengthscale) ** 2, axis=2)
    lower = np.linalg.cholesky(np.exp(-0.5 * apart) + 1e-8 * np.eye(len(X)))
    return lower @ rng.normal(size=(len(X), number))


def seismic(report, arguments):
    model, X, f, y = earth(20 if arguments.quick else 113)
    data, fits = lgp.Data(X, y), {}
    start = np.broadcast_to(PRIOR_MEANS, (1, *f.shape))
    fg = lgp.BlackBoxVI(start_variance=1e-3, start_means=start)
    draws = 100 if arguments.quick else 500
    fits["chains"] = timed(model, data, lgp.NUTS(chains=2, draws=draws, warmup=300))
    fits["fg"] = timed(model, data, fg)
    fits["default"] = timed(model, data, "auto")
    # The program reads tens of thousands of lines a call, so fewer sites are enough for it.
    few, X_few, _, y_few = earth(8)
    program = lgp.ExternalProgram(
        [sys.executable, str(Path(__file__).with_name("seismic_forward.py"))]
    )
    external = lgp.ExternalLikelihood(program, 2 * LAYERS, outputs=LAYERS)
    few_start = np.broadcast_to(PRIOR_MEANS, (1, len(X_few), 2 * LAYERS))
    method = lgp.BlackBoxVI(start_variance=1e-3, start_means=few_start)
    apart = lgp.LatentGP(few.kernel, external, few.mean)
    rows = lgp.Data(X_few, y_few)
    (inside, _), (outside, seconds) = timed(few, rows, method), timed(apart, rows, method)
    difference = np.abs(
        inside.posterior.predict_f(X_few).mean - outside.posterior.predict_f(X_few).mean
    )
    report.note(
        f"The forward model as a program, 8 sites: {outside.model.likelihood.calls.calls} calls of "
        f"it, {outside.model.likelihood.calls.values} values, {seconds:.1f} s; means differ from "
        f"those of the JAX likelihood by at most {np.max(difference / PRIOR_DEVIATIONS):.2g} prior "
        "standard deviations."
    )
    truth = fits["chains"][0].posterior.predict_f(X)
    found = fits["fg"][0].posterior.predict_f(X)
    coupled = fits["default"][0].posterior.predict_f(X)
    deviation, own, tied = (np.sqrt(law.variance) for law in (truth, found, coupled))
    names = [f"{what} {i + 1}" for what in ("depth", "velocity") for i in range(LAYERS)]
    table = []
    for q, name in enumerate(names):
        prior = PRIOR_DEVIATIONS[q]
        table.append([
            name, np.sqrt(np.mean((truth.mean[:, q] - f[:, q]) ** 2)) / prior,
            np.sqrt(np.mean((found.mean[:, q] - f[:, q]) ** 2)) / prior,
            np.mean(np.abs(found.mean[:, q] - truth.mean[:, q]) / deviation[:, q]),
            deviation[:, q].mean() / prior, own[:, q].mean() / prior,
            np.mean(own[:, q] / deviation[:, q]),
            np.mean(np.abs(coupled.mean[:, q] - truth.mean[:, q]) / deviation[:, q]),
            np.mean(tied[:, q] / deviation[:, q]),
        ])  # fmt: skip
    summary = fits["chains"][0].diagnostics.summary
    report.table(
        f"seismic inversion, {len(X)} sites; NUTS {fits['chains'][1]:.0f} s, R-hat "
        f"{summary.r_hat:.3f}, effective {summary.ess_bulk:.0f}; fg {fits['fg'][1]:.0f} s, the "
        f"default, {fits['default'][0].diagnostics.reason}, {fits['default'][1]:.0f} s; errors "
        "and deviations in prior standard deviations",
        [
            "", "error of chains", "error of fg", "|means apart| in sd", "sd of chains",
            "sd of fg", "ratio of sd", "default, |means apart|", "default, ratio of sd",
        ],
        table,
    )  # fmt: skip
    return X[:, 0], f, truth, found


# Mixtures


class Sizes(lgp.Likelihood):
    """Of f + noise the size alone, or itself where `signed` is 1."""

    side_information = ("signed",)
    deviation: float = eqx.field(static=True, default=0.3)

    def log_prob(self, y, f, side):
        z = jnp.stack([y - f[0], y + f[0]]) / self.deviation
        logs = -0.5 * (z**2 + jnp.log(2 * jnp.pi * self.deviation**2))
        return jnp.where(side["signed"] > 0, logs[0], jax.scipy.special.logsumexp(logs))


def drawn_rows(likelihood, scale, draw, latents=1, rows=60):
    """A model, rows drawn from it, and as many held out."""

    def make(seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0, 5, (2 * rows, 1))
        f = scale * drawn_functions(X, 1.0, latents, rng)
        y = draw(f, rng)
        model = lgp.LatentGP(lgp.RBF(1.0, scale**2), likelihood)
        train, test = slice(rows), slice(rows, None)
        return model, lgp.Data(X[train], y[train]), X[test], y[test], {}

    return make


def sizes(seed):
    make = drawn_rows(Sizes(), 1.0, lambda f, rng: f[:, 0] + 0.3 * rng.normal(size=len(f)), rows=40)
    model, data, X, y, _ = make(seed)
    data = lgp.Data(data.X, np.abs(data.y), signed=np.zeros(len(data.y)))
    return model, data, X, y, {"signed": np.ones(len(y))}


NETWORK = lgp.GPRegressionNetwork(np.zeros((2, 1)), noise_variance=0.05)
MODELS = {  # name: how to make it, data sets
    "sizes of a signal (bimodal)": (sizes, 20),
    "regression network": (
        drawn_rows(
            NETWORK, 1.0, lambda f, r: f[:, 1:] * f[:, :1] + r.normal(0, 0.05**0.5, (len(f), 2)),
            latents=3, rows=40,
        ),
        8,
    ),
    "robust-max": (
        drawn_rows(lgp.RobustMax(3), 1.0, lambda f, r: f.argmax(axis=1) + 0.0, latents=3), 8,
    ),
    "logistic": (
        drawn_rows(
            lgp.Bernoulli(), 2.0,
            lambda f, r: (r.uniform(size=len(f)) < 1 / (1 + np.exp(-f[:, 0]))) + 0.0,
        ),
        8,
    ),
    "Poisson": (drawn_rows(lgp.Poisson(), 1.0, lambda f, r: r.poisson(np.exp(f[:, 0])) + 0.0), 8),
    "Student-t": (
        drawn_rows(
            lgp.StudentT(scale=0.3, degrees_of_freedom=4.0), 1.0,
            lambda f, r: f[:, 0] + 0.3 * r.standard_t(4, size=len(f)),
        ),
        8,
    ),
}  # fmt: skip


def mixtures(report, arguments):
    most = (1, 2) if arguments.quick else (1, 2, 3, 4)
    rows, shown = [], None
    for name, (make, sets) in MODELS.items():
        if arguments.quick and name not in list(MODELS)[:1]:
            continue
        losses = {components: [] for components in most}
        bounds = {components: [] for components in most}
        spent, first = dict.fromkeys(most, 0.0), {}
        for seed in range(3 if arguments.quick else sets):
            model, data, X, y, side = make(seed)
            for components in most:
                fit, seconds = timed(model, data, lgp.BlackBoxVI(components=components), seed=seed)
                first.setdefault(components, fit)
                losses[components].append(-fit.posterior.predict(X, **side).log_prob(y).mean())
                bounds[components].append(fit.diagnostics.finding("terms").bound_by_draws)
                spent[components] += seconds
        model, data, X, _, _ = make(0)
        draws = 100 if arguments.quick else 1000
        chains, seconds = timed(model, data, lgp.EllipticalSlice(draws=draws, warmup=2000, thin=20))
        truth = chains.posterior.sample_f(X, key=jax.random.key(1), number=4000)
        truth = truth.reshape(len(truth), -1)
        if isinstance(model.likelihood, Sizes):  # f and -f are alike, which chains need not find
            truth = np.concatenate([truth, -truth])
        shown = shown or (make(0), first, truth)
        summary = chains.diagnostics.summary
        for components in most:
            own = first[components].posterior.sample_f(X, key=jax.random.key(2), number=4000)
            gain = np.array(losses[components]) - np.array(losses[1])
            rows.append([
                f"{name}, K = {components}", np.mean(bounds[components]),
                np.mean(losses[components]), *paired(gain),
                largest_gap(own.reshape(len(own), -1), truth), spent[components] / len(gain),
            ])  # fmt: skip
        report.note(
            f"{name}: chains {seconds:.0f} s, R-hat {summary.r_hat:.3f}, effective "
            f"{summary.ess_bulk:.0f}."
        )
    report.table(
        "mixtures of full Gaussians, means of data sets; bound with the entropy by draws",
        ["", "bound", "NLPD", "minus K = 1", "s.e.", "quantiles", "seconds a fit"],
        rows,
    )
    return shown


def largest_gap(own, truth):
    """Of marginal distribution functions, at quantiles of the truth; draws in rows."""
    at = np.quantile(truth, LEVELS, axis=0)
    return max(
        np.abs((own < row).mean(axis=0) - p).max() for row, p in zip(at, LEVELS, strict=True)
    )


# Estimators of gradients

ESTIMATORS = {
    "score": ("score", False),
    "score, control": ("score", True),
    "reparameterised": ("reparameterised", True),
}


def estimators(report, arguments):
    repeats = 10 if arguments.quick else 100
    rows = []
    for name in ("logistic", "Poisson", "regression network"):
        model, data, *_ = MODELS[name][0](0)
        fit, _ = timed(model, data, lgp.BlackBoxVI())
        f = fit.posterior.predict_f(data.X)
        exact = fit.diagnostics.finding("terms")
        at = Marginals(*(np.reshape(part, (data.size, -1)) for part in f))
        for label, (estimator, control) in ESTIMATORS.items():
            variances = [
                variance(
                    model.likelihood, data, at, Expectations(estimator, size, control), repeats
                )
                for size in (10, 100, 1000)
            ]
            rows.append([f"{name}, {label}", *(v for pair in variances for v in pair)])
        report.note(f"{name}: best bound {exact.bound:.3f} nats.")
    report.table(
        "variance of the derivative of a row's E log p(y | f) in its mean, and its variance (times "
        "v and v^2), mean over rows, by draws",
        ["", "10", "10, in v", "100", "100, in v", "1000", "1000, in v"],
        rows,
    )
    steps_needed(report, arguments)
    return rows


def variance(likelihood, data, at, expectations, repeats):
    """Mean over rows and latents of the variance of an estimated derivative, without units."""
    with jax.enable_x64(True):
        rows = Rows(jnp.asarray(data.y), None, {})
        marginals = Marginals(*map(jnp.asarray, at))
        keys = jax.random.split(jax.random.key(0), repeats)
        run = jax.jit(lambda key: expectations(likelihood, rows, marginals, key))
        found = [run(key) for key in keys]
    in_mean, in_variance = (
        np.stack([np.asarray(getattr(one, part)) for one in found])
        for part in ("in_mean", "in_variance")
    )
    return (
        float(np.mean(in_mean.var(axis=0, ddof=1) * at.variance)),
        float(np.mean(in_variance.var(axis=0, ddof=1) * at.variance**2)),
    )


def steps_needed(report, arguments):
    """Steps along estimated slopes until the bound is near that by quadrature."""
    tried = (20, 100) if arguments.quick else (20, 40, 80, 160, 320, 640)
    rows = []
    for name in ("logistic", "Poisson"):
        model, data, *_ = MODELS[name][0](0)
        best = timed(model, data, lgp.BlackBoxVI())[0].diagnostics.finding("terms").bound
        for label, (estimator, control) in ESTIMATORS.items():
            for size in (10, 100):
                for delay in (1.0, 10.0):
                    settings = {"samples": size, "control_variates": control, "delay": delay}
                    below, needed = [], None
                    for steps in tried:
                        method = lgp.BlackBoxVI(estimator=estimator, steps=steps, **settings)
                        fit, _ = timed(model, data, method)
                        below.append(best - exact_bound(fit, data))
                        if below[-1] < NEAR:
                            needed = steps
                            break
                    rows.append([f"{name}, {label}, {size} draws", delay, needed, below[-1]])
    report.table(
        f"steps until the bound is within {NEAR} nats of the best (- : more than {tried[-1]})",
        ["", "delay", "steps", "nats below at the end"],
        rows,
    )


def exact_bound(fit, data):
    """The bound of one Gaussian, by quadrature."""
    f = fit.posterior.predict_f(data.X)
    at = Marginals(*(np.reshape(part, (data.size, -1)) for part in f))
    with jax.enable_x64(True):
        expected = fit.model.likelihood.expected_log_prob(jnp.asarray(data.y), at, {})
        return float(jnp.sum(expected) - jnp.sum(fit.posterior.latent.kl))


def main():
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=200, help="to train on, at most")
    options.add_argument(
        "--factors", nargs="+", type=float, default=[0.1, 0.25, 0.5, 1.0], help="SF; 1.0 among them"
    )
    every = [*SETS, "disasters"]
    options.add_argument("--sets", nargs="+", choices=every, default=every, help="of `small`")
    options.add_argument("--splits", type=int, default=1, help="random splits of `small`")
    options.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = options.parse_args()
    report = Report("_".join(["black_box", *arguments.parts]), arguments)
    drawn = figure(13, 3.9 * len(arguments.parts))
    bands = np.ravel(drawn.subfigures(len(arguments.parts), 1))
    for band, part in zip(bands, arguments.parts, strict=True):
        of_part, picture = PARTS[part]
        picture(band, of_part(report, arguments))
    report.note(
        "Published: figures only; fg exact where the likelihood is Gaussian, mog1 and mog2 "
        "underestimate variances, fg two orders of magnitude faster than HMC and one than "
        "elliptical slices; seismic: fg like chains, variances overestimated."
    )
    report.save(drawn)


def of_small(band, tables):
    axes = band.subplots(1, len(tables), squeeze=False)[0]
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        for label, color, style in zip(("fg", "mog1", "mog2"), COLORS, STYLES, strict=False):
            rows = [row for row in table if row[0] == label]
            values = [row[3] for row in rows]
            ax.plot([row[1] for row in rows], values, style, marker="o", color=color, label=label)
        ax.axhline(1.0 if name == "disasters" else table[0][3], color="#262626", linewidth=0.8)
        what = "ratio of sd to HMC" if name == "disasters" else "NLPD (line: exact or usual)"
        tidy(ax, name, "points over rows", what, legend=ax is axes[0])


def of_seismic(band, result):
    x, f, truth, found = result
    for ax, latents, what in zip(
        band.subplots(1, 2), (slice(LAYERS), slice(LAYERS, None)), ("depth [m]", "velocity [m/s]"),
        strict=True,
    ):  # fmt: skip
        for law, label, color, style in zip(
            (truth, found), ("NUTS, 95 %", "fg, 95 %"), COLORS, STYLES, strict=False
        ):
            mean, spread = law.mean[:, latents], 1.96 * np.sqrt(law.variance[:, latents])
            for q in range(LAYERS):
                ends = mean[:, q] - spread[:, q], mean[:, q] + spread[:, q]
                ax.fill_between(x, *ends, color=color, alpha=0.25, linewidth=0)
                ax.plot(x, mean[:, q], style, color=color, label=None if q else label)
        ax.plot(x, f[:, latents], ":", color="#262626", linewidth=0.8)
        tidy(ax, f"{what}; dotted: truth", "site, in length-scales", what, legend=True)


def of_mixtures(band, result):
    (_, data, X, y, _), fits, truth = result
    order = np.argsort(X[:, 0])
    axes = band.subplots(1, 3, sharey=True)
    drawn = {f"K = {k}": fits[k].posterior for k in (1, 2)}
    for ax, (label, posterior) in zip(axes, drawn.items(), strict=False):
        draws = posterior.sample_f(X, key=jax.random.key(3), number=40)
        ax.plot(X[order], draws[:, order].T, color=COLORS[0], alpha=0.2)
        tidy(ax, f"{label}: draws", "x", "f")
    axes[2].plot(X[order], truth[:: len(truth) // 40][:, order].T, color=COLORS[1], alpha=0.2)
    tidy(axes[2], "elliptical slices: draws", "x", "f")
    for ax in axes:
        ax.plot(data.X, data.y, "+", color="#262626", markersize=5)
        ax.plot(X, y, ".", color="#6E6E6E", markersize=4)


def of_estimators(band, rows):
    axes = band.subplots(1, 3, sharey=True)
    for ax, start in zip(axes, range(0, len(rows), len(ESTIMATORS)), strict=True):
        for row, color, style in zip(rows[start:], COLORS, STYLES, strict=False):
            if row[0].startswith(name := rows[start][0].partition(",")[0]):
                label = row[0].partition(", ")[2]
                ax.loglog((10, 100, 1000), row[1::2], style, color=color, label=label)
        tidy(ax, name, "draws", "variance of the derivative", legend=ax is axes[0])


PARTS = {
    "small": (small, of_small),
    "seismic": (seismic, of_seismic),
    "mixtures": (mixtures, of_mixtures),
    "estimators": (estimators, of_estimators),
}

if __name__ == "__main__":
    main()
