"""Which chains `hyperparameters="sample"` should be: couplings by effective draws a second.

No published table: the figures decide a default of the library. Draws of each model from its prior,
hyper-parameters and latent functions sampled by four chains of each candidate; the smallest
effective sample size (bulk or tail) of all hyper-parameters and latent functions, by the seconds
of a whole fit, programs compiled beforehand, warm-up and search for the start counted. `first` is
a whole fit with compilation. NUTS, which takes minutes where these take seconds, is in
`benchmarks/chains.py`. All have one posterior: `off` is the largest difference of a
hyper-parameter's mean (on the unconstrained scale) from that of all candidates' draws whose R-hat
is below 1.05, in standard deviations.

A second table holds the hyper-parameters: `MCMC()` after warm-ups of several lengths, for rough,
smooth and five-dimensional functions of small and large amplitude. R-hat is the largest of all
keys, effective draws of the worst latent are a share of all draws, by the mean of keys, and a step
is an evaluation of the likelihood.
"""

import time

import jax
import numpy as np

import latentgp as lgp
from common import Report, figure, parser, tidy

CANDIDATES = {
    "sites": lambda size: lgp.MCMC(**size),
    "partial": lambda size: lgp.MCMC(coupling="partial", **size),
    "pseudo-marginal": lambda size: lgp.MCMC(coupling="pseudo-marginal", **size),
    "whitened": lambda size: lgp.MCMC(coupling="whitened", **size),
}
LIKELIHOODS = {
    "logistic": (lgp.Bernoulli(), 2.0),
    "Poisson": (lgp.Poisson(), 1.0),
    "Student-t": (lgp.StudentT(scale=0.3, degrees_of_freedom=4.0), 1.0),
    "ordinal": (lgp.Ordinal.of(4), 1.0),
    "volatility": (lgp.StochasticVolatility(), 1.0),
    "softmax": (lgp.Softmax(3), 2.0),
}
CASES = (  # likelihood, rows, inputs
    ("logistic", 200, 2),
    ("logistic", 200, 10),
    ("Poisson", 400, 1),
    ("Student-t", 200, 1),
    ("ordinal", 200, 2),
    ("volatility", 200, 1),
    ("softmax", 100, 2),
)
LONGEST = 60.0  # seconds of a first fit that is made again
WARMUPS = 50, 100, 250, 500, 1000
FUNCTIONS = (  # name, inputs, length-scale
    ("rough", 1, 0.02),
    ("smooth", 1, 0.3),
    ("of five inputs", 5, 0.18),
)


def drawn(
    likelihood: lgp.Likelihood, deviation: float, rows: int, inputs: int, lengthscale: float = 0.2
):
    """A model, and rows drawn from it."""
    X = np.random.default_rng(rows + inputs).uniform(size=(rows, inputs))
    kernel = lgp.RBF(np.full(inputs, lengthscale * inputs**0.75), deviation**2)
    model = lgp.LatentGP(kernel, likelihood)
    truth = lgp.sample_prior(
        model, lgp.Data(X, _placeholder(likelihood, rows)), key=jax.random.key(2), number=1,
        priors=None,
    )  # fmt: skip
    return model, lgp.Data(X, truth.y[0])


def _placeholder(likelihood: lgp.Likelihood, rows: int) -> np.ndarray:
    """Targets that the likelihood takes; without priors they do not count."""
    classes = 3 if isinstance(likelihood, lgp.Softmax) else 2
    return np.arange(rows) % classes + 0.0


def vectors(result: lgp.Fit) -> np.ndarray:
    """Logarithms of positive hyper-parameters, others as they are, shape (draws, P)."""
    columns = []
    for path, draws in result.posterior.hyperparameters.items():
        values = draws.reshape(-1, *draws.shape[2:]).reshape(draws.shape[0] * draws.shape[1], -1)
        columns.append(np.log(values) if np.all(values > 0) and "kernel" in path else values)
    return np.concatenate(columns, axis=1)


def held(report: Report, names: list[str], rows: int, keys: int) -> None:
    """Chains of latent functions alone, after warm-ups of several lengths."""
    for name in names:
        table = []
        for kind, inputs, lengthscale in FUNCTIONS:
            for deviation in (1.0, 2.0) if name == "Poisson" else (0.5, 3.0):
                model, data = drawn(LIKELIHOODS[name][0], deviation, rows, inputs, lengthscale)
                for warmup in WARMUPS:
                    method, found = lgp.MCMC(draws=500, warmup=warmup), []
                    for key in range(keys):
                        given = {"method": method, "learn_hyperparameters": False}
                        result = lgp.fit(model, data, key=jax.random.key(key), **given)
                        summary, own = result.posterior.summary, result.posterior.statistics
                        steps = float(np.mean(own["n_steps"]))
                        shares = summary.ess_bulk / 2000, summary.ess_tail / 2000
                        acceptance = result.diagnostics.acceptance
                        found.append((summary.r_hat, *shares, acceptance, steps))
                    means, worst = np.mean(found, axis=0), np.max(found, axis=0)[0]
                    rate = min(means[1:3]) / means[4]
                    table.append([f"{kind}, {deviation}", warmup, worst, *means[1:], rate])
        heads = ["function, amplitude", "warm-up", "R-hat", "bulk", "tail", "accepted", "steps"]
        report.table(f"{name}, {rows} rows, held", [*heads, "a step"], table)


def main() -> None:
    options = parser(__doc__, real_data=False)
    options.add_argument("--only", nargs="+", choices=LIKELIHOODS, default=list(LIKELIHOODS))
    arguments = options.parse_args()
    report = Report("default_chains", arguments)
    size = {"chains": 4, "draws": 500, "warmup": 500}
    cases = CASES
    if arguments.quick:
        size, cases = {"chains": 4, "draws": 100, "warmup": 100}, (("Poisson", 30, 1),)
    pictures = {}
    for name, rows, inputs in cases:
        if name not in arguments.only:
            continue
        model, data = drawn(*LIKELIHOODS[name], rows, inputs)
        figures, draws = {}, {}
        for candidate, make in CANDIDATES.items():
            seconds = []
            for repeat in range(2):
                began = time.perf_counter()
                result = lgp.fit(model, data, key=jax.random.key(repeat), method=make(size))
                seconds.append(time.perf_counter() - began)
                if seconds[0] > LONGEST:
                    break
            summary = result.posterior.summary
            least = summary.least
            figures[candidate] = [*(seconds[0], seconds[-1]), summary.r_hat, least]
            draws[candidate] = vectors(result)
        trusted = [draws[c] for c, (_, _, r_hat, _) in figures.items() if r_hat < 1.05]
        pool = np.concatenate(trusted or list(draws.values()))
        table = []
        for candidate, (first, again, r_hat, least) in figures.items():
            off = np.max(np.abs(draws[candidate].mean(axis=0) - pool.mean(axis=0)) / pool.std(0))
            table.append([candidate, first, again, r_hat, least, least / again, float(off)])
        title = f"{name}, {rows} rows of {inputs}"
        heads = ["chains", "first s", "s", "R-hat", "effective", "a second", "off"]
        report.table(title, heads, table)
        pictures[title] = {row[0]: row[5] for row in table}
    for rows, keys in ((30, 1),) if arguments.quick else ((100, 2), (400, 2)):
        held(report, arguments.only, rows, keys)
    draw(report, pictures)


def draw(report: Report, pictures: dict[str, dict[str, float]]) -> None:
    canvas = figure(8.0, 1.2 + 0.9 * len(pictures))
    ax = canvas.subplots()
    markers = dict(zip(CANDIDATES, "os^v", strict=True))
    for place, found in enumerate(pictures.values()):
        for candidate, rate in found.items():
            label = candidate if place == 0 else None
            ax.plot(rate, place, markers[candidate], markersize=7, label=label)
        ax.set_prop_cycle(None)
    ax.set_xscale("log")
    ax.set_yticks(range(len(pictures)), list(pictures))
    ax.set_ylim(len(pictures) - 0.5, -0.5)
    place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    tidy(ax, "", "effective draws of the worst quantity a second", "", legend=True, **place)
    report.save(canvas)


if __name__ == "__main__":
    main()
