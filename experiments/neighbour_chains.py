"""Chains through nearest neighbours: which moves, and what they cost at some thousand rows.

No published table. `--parts moves`: draws of a model from its prior, whose latent functions are
sampled at these hyper-parameters, and with hyper-parameters, by `MCMC(Neighbours(20))` with each
candidate. `--parts data`: hours of bicycles and prices of electricity, chains of latent functions
and hyper-parameters beside Laplace's approximation by the same neighbours and chains through
inducing points. The smallest effective sample size (bulk or tail) of all hyper-parameters and
latent functions, by the seconds of a whole fit with compilation.
"""

import time

import jax
import numpy as np

import latentgp as lgp
from common import Report, figure, load, parser, random_split, standardised, tidy
from default_chains import drawn

NEIGHBOURS = lgp.Neighbours(20)
MOVES = {
    "sites, rotations": {"coupling": "sites"},
    "sites, Langevin": {"coupling": "sites", "latents": "langevin"},
    "whitened, rotations": {"coupling": "whitened"},
    "whitened, hmc": {"coupling": "whitened", "latents": "hmc"},
    "whitened, elliptical slices": {"coupling": "whitened", "latents": "elliptical-slice"},
}
JOINT = {
    "partial": {"coupling": "partial"},
    "sites": {"coupling": "sites"},
    "whitened": {"coupling": "whitened"},
    "interwoven": {"coupling": "interwoven"},
}
DATA = {"bike_counts": lgp.Poisson(), "electricity": lgp.Bernoulli()}
LIKELIHOODS = {"Poisson": (lgp.Poisson(), 1.0), "logistic": (lgp.Bernoulli(), 2.0)}


def fitted(model, data, method, seconds=None, **settings):
    began = time.perf_counter()
    result = lgp.fit(
        model, data, key=jax.random.key(0), method=method, max_seconds=seconds, **settings
    )
    return result, time.perf_counter() - began


def row_of(name, result, seconds):
    summary = result.posterior.summary
    print(name, seconds, summary, flush=True)
    return [name, seconds, summary.r_hat, summary.least, summary.least / seconds]


def moves(report, size, rows):
    """Latent functions alone, then with hyper-parameters."""
    heads = ["chains", "s", "R-hat", "effective", "a second"]
    for name, law in LIKELIHOODS.items():
        model, data = drawn(*law, rows, 2)
        table = []
        for candidate, settings in MOVES.items():
            method = lgp.MCMC(NEIGHBOURS, **settings, **size)
            found = fitted(model, data, method, learn_hyperparameters=False)
            table.append(row_of(candidate, *found))
        others = {"NUTS": lgp.NUTS(representation=NEIGHBOURS, **size)}
        if name == "logistic":
            others["Gibbs"] = lgp.GibbsSampling(NEIGHBOURS, **size)
        for candidate, method in others.items():
            found = fitted(model, data, method, learn_hyperparameters=False)
            table.append(row_of(candidate, *found))
        report.table(f"{name}, {rows} rows of 2, hyper-parameters held", heads, table)


def joint(report, size, rows):
    heads = ["chains", "s", "R-hat", "effective", "a second"]
    for name, law in LIKELIHOODS.items():
        model, data = drawn(*law, rows, 2)
        methods = {c: lgp.MCMC(NEIGHBOURS, **settings, **size) for c, settings in JOINT.items()}
        if name == "logistic":
            methods["Gibbs"] = lgp.GibbsSampling(NEIGHBOURS, **size)
        table = [row_of(c, *fitted(model, data, method)) for c, method in methods.items()]
        report.table(f"{name}, {rows} rows of 2, hyper-parameters sampled", heads, table)


def on_data(report, data_dir, size, rows, held, seconds):
    """Whole fits, and their densities of held-out targets."""
    for name, likelihood in DATA.items():
        X, y = load(data_dir, name)
        train, rest = random_split(len(y), rows, 0)
        test = np.random.default_rng(0).choice(rest, held, replace=False)
        inputs, elsewhere = standardised(X[train], X[test])
        data = lgp.Data(inputs, y[train])
        model = lgp.LatentGP(lgp.RBF(np.full(X.shape[1], 2.0)), likelihood, lgp.ConstantMean(0.0))
        methods = {
            "Laplace": lgp.Laplace(NEIGHBOURS),
            "MCMC": lgp.MCMC(NEIGHBOURS, repeats=2, **size),
        }
        if name == "electricity":
            methods["Gibbs"] = lgp.GibbsSampling(NEIGHBOURS, **size)
        methods["MCMC, 100 points"] = lgp.MCMC(lgp.Inducing(100), **size)
        table = []
        for candidate, method in methods.items():
            result, took = fitted(model, data, method, seconds)
            loss = -float(np.mean(result.posterior.predict(elsewhere).log_prob(y[test])))
            told = row_of(candidate, result, took)[2:4] if candidate != "Laplace" else ["", ""]
            table.append([candidate, took, *told, loss])
            print(table[-1], flush=True)
        heads = ["", "s", "R-hat", "effective", "log loss"]
        report.table(f"{name}, {rows} rows, {held} held out", heads, table)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--parts", nargs="+", default=["moves", "joint", "data"])
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--draws", type=int, default=500)
    options.add_argument("--seconds", type=float, default=900.0, help="limit of a fit to data")
    arguments = options.parse_args()
    report = Report("neighbour_chains", arguments)
    quick = arguments.quick
    draws = 50 if quick else arguments.draws
    size = {"chains": 4, "draws": draws, "warmup": draws}
    if "moves" in arguments.parts:
        moves(report, size, 60 if quick else 400)
    if "joint" in arguments.parts:
        joint(report, size, 60 if quick else 400)
    if "data" in arguments.parts:
        on_data(report, arguments.data_dir, size, 200 if quick else arguments.rows, 1000,
                arguments.seconds)  # fmt: skip
    canvas = figure(4.0, 2.0)
    tidy(canvas.subplots(), "", "", "")
    report.save(canvas)


if __name__ == "__main__":
    main()
