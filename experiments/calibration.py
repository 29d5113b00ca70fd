"""Simulation-based calibration of f: every likelihood under every method that can be used on it.

After Talts et al. (2018): latents are drawn from the prior (30 inputs on a line, length-scale 1,
variance 3), targets given them, and the posterior of each such data set, hyper-parameters as they
were, says where the true latents are. Exact posteriors hold them in 50, 90 and 95 % of their
central intervals, and their ranks are uniform. All methods are given the same data. Standard errors
are over replications, of which a sampler has fewer.

Besides picture and JSON file this writes `calibration.md`, the tables of the guide. A pair whose
ranks are in the folder already is not run again: remove them to start afresh.

`--kernels` runs kernels of structured inputs in place of likelihoods, with counts (Poisson): a
mixed model of six groups, 30 places on the globe, a map of 30 areas.

`--variances` runs hyper-parameters of a mixed model in place of latents, drawn from their priors.
"""

import sys
from pathlib import Path

import jax
import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, parser
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.testing.calibration import (
    LEVELS,
    Calibration,
    simulate_calibration,
    simulate_hyperparameter_calibration,
)

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from simulated import INPUTS, KERNELS, LIKELIHOODS, mixed_model, model_of

METHODS = {
    "exact": lgp.ExactGP(),
    "variational": lgp.VariationalInference(),
    "Laplace": lgp.Laplace(),
    "EP": lgp.ExpectationPropagation(),
    "augmented": lgp.AugmentedVI(),
    "Gibbs": lgp.GibbsSampling(chains=4, warmup=64, draws=16, thin=4),
    "NUTS": lgp.NUTS(chains=4, warmup=100, draws=16, thin=3),
    "mixture": lgp.BlackBoxVI(components=2),
    "flow": lgp.DensityApproximation(chains=4, draws=25),
}
CHAINS = lgp.NUTS(chains=4, warmup=200, draws=50)
OF_VARIANCES = {  # with the number of replications
    "Gaussian, integrated": (lgp.Gaussian(0.5), lgp.Integrated(lgp.ExactGP()), 200),
    "Gaussian, NUTS": (lgp.Gaussian(0.5), CHAINS, 24),
    "Poisson, Laplace integrated": (lgp.Poisson(), lgp.Integrated(lgp.Laplace()), 200),
    "Poisson, variational integrated": (
        lgp.Poisson(),
        lgp.Integrated(lgp.VariationalInference()),
        200,
    ),
}
FEWER = {"Gibbs": 50, "NUTS": 50, "mixture": 40, "flow": 40}  # replications; 200 of all others
LIMIT = 4  # standard errors, beyond which a difference is named
BINS = 10


def main():
    options = parser(__doc__, real_data=False)
    options.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    options.add_argument("--kernels", action="store_true", help="in place of likelihoods")
    options.add_argument("--variances", nargs="*", choices=OF_VARIANCES, help="in place of latents")
    arguments = options.parse_args()
    if arguments.variances is not None:
        variances(arguments)
        return
    report = Report("calibration", arguments)
    cases = KERNELS if arguments.kernels else LIKELIHOODS
    names, found = list(cases), {}
    for label in arguments.only:
        method = METHODS[label]
        number = FEWER.get(label, 200)
        for name in names:
            ranks = arguments.out / "calibration" / f"{name}-{label}.npz"
            result = calibrated(name, method, 10 if arguments.quick else number, ranks)
            if result is not None:
                found[name, label] = result
                print(name, label, *cells(result), flush=True)
    heads = ["likelihood", "method", *(f"{level:.0%}" for level in LEVELS), "is"]
    order = [(name, label) for name in names for label in METHODS if (name, label) in found]
    rows = [[*pair, *cells(found[pair])] for pair in order]
    report.table("coverage of true latents by central intervals, in %", heads, rows)
    tables = overview(found, names) + "\n" + markdown(heads, rows)
    (arguments.out / "calibration.md").write_text(tables)
    report.save(picture(found, names))


def variances(arguments):
    """Ranks of variances and correlations, kept in files as those of latents are."""
    rows = []
    for name in arguments.variances or OF_VARIANCES:
        likelihood, method, number = OF_VARIANCES[name]
        file = arguments.out / "calibration" / f"{name}.npz"
        if not file.exists():
            model, X, laws = mixed_model(likelihood)
            number = 10 if arguments.quick else number
            ranks = simulate_hyperparameter_calibration(
                method, model, X, laws, key=jax.random.key(1), replications=number
            )
            file.parent.mkdir(parents=True, exist_ok=True)
            own = {path: result.below for path, result in ranks.items()}
            np.savez(file, converged=next(iter(ranks.values())).converged, **own)
        with np.load(file) as kept:
            ranks = {p: Calibration(kept[p], kept["converged"]) for p in kept if p != "converged"}
        for path, result in ranks.items():
            rows.append([name, path, *cells(result)])
            print(*rows[-1], flush=True)
    heads = [
        "likelihood and method",
        "hyper-parameter",
        *(f"{level:.0%}" for level in LEVELS),
        "is",
    ]
    (arguments.out / "calibration-of-variances.md").write_text(markdown(heads, rows))


def calibrated(name, method, replications, file):
    """Ranks of a pair, None where the method cannot be used on the likelihood."""
    if file.exists():
        with np.load(file) as kept:
            return Calibration(kept["below"], kept["converged"])
    likelihood, side = LIKELIHOODS.get(name, (lgp.Poisson(), {}))
    kernel, inputs = KERNELS.get(name, (model_of(likelihood).kernel, INPUTS))
    model = lgp.LatentGP(kernel, likelihood)
    if not is_usable(method, model):
        return None
    result = simulate_calibration(
        method,
        model,
        inputs,
        key=jax.random.key(1),
        replications=replications,
        side_information=side,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **result._asdict())
    return result


def is_usable(method, model):
    """Whether a method takes a model, hyper-parameters held."""
    try:
        method.needs.check(type(method).__name__, likelihood=model.likelihood)
        if method.makes_sites:
            method.algorithm(model)
        elif isinstance(method, SamplingMethod):
            method.check(model, False)
    except lgp.InputError:
        return False
    return True


def cells(result):
    """Coverages in per cent with standard errors, and what is wrong with them."""
    shares, errors = (100 * values for values in result.coverage())
    return [*(f"{s:.1f} ± {e:.1f}" for s, e in zip(shares, errors, strict=True)), says(result)]


def says(result):
    """In words, what differs from uniform by more than the limit."""
    shares, errors = result.coverage()
    errors = np.where(errors > 0, errors, 1 / len(result.known))
    off = (shares - np.array(LEVELS)) / errors
    centre = result.known.mean(axis=(1, 2))
    bias = (centre.mean() - 0.5) / (centre.std(ddof=1) / np.sqrt(len(centre)))
    words = []
    if off.min() < -LIMIT:
        words.append("too narrow")
    if off.max() > LIMIT:
        words.append("too wide")
    if abs(bias) > LIMIT:
        words.append("too low" if bias > 0 else "too high")
    if result.failed:
        words.append(f"{result.failed:.1%} failed")
    return ", ".join(words)


def overview(found, names):
    """Coverage of 90 % intervals, a row a likelihood or kernel and a column a method."""
    rows = []
    for name in names:
        row = [name]
        for label in METHODS:
            result = found.get((name, label))
            if result is None:
                row.append("")
                continue
            share, error = (100 * values[1] for values in result.coverage())
            row.append(f"{share:.1f} ± {error:.1f}")
            if abs(share - 90) > LIMIT * error:
                row[-1] = f"**{row[-1]}**"
        rows.append(row)
    return markdown(["90 % intervals hold", *METHODS], rows)


def markdown(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def picture(found, names):
    """Rank histograms; the band is what uniform ranks would keep to within two standard errors."""
    drawn = figure(1.3 * len(METHODS) + 1.6, 0.62 * len(names) + 0.5)
    axes = drawn.subplots(len(names), len(METHODS), sharex=True, sharey=True)
    edges = np.linspace(0, 1, BINS + 1)
    for row, name in zip(axes, names, strict=True):
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        for ax, label in zip(row, METHODS, strict=True):
            ax.set(xticks=[], yticks=[], ylim=(0, 2.2))
            ax.spines[:].set_visible(False)
            result = found.get((name, label))
            if result is None:
                continue
            share, error = (BINS * values for values in result.histogram(BINS))
            band = np.append(2 * error, 2 * error[-1])
            ax.fill_between(edges, 1 - band, 1 + band, step="post", color="#C8C8C8", linewidth=0)
            color = COLORS[1] if says(result) else COLORS[0]
            ax.stairs(share, edges, color=color, linewidth=1.2)
    for ax, label in zip(axes[0], METHODS, strict=True):
        ax.set_title(label, fontsize=9)
    return drawn


if __name__ == "__main__":
    main()
