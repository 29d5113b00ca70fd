"""Draws of the latents at fixed hyper-parameters: our samplers, BlackJAX's and NumPyro's NUTS.

Boston, all 506 rows, Student's noise of 3 degrees of freedom and scale 0.3; with a logit link 250
rows of the breast cancer set, the diabetes set (768) and german (1,000). RBF kernel of variance 1
and length-scale sqrt(D), inputs and targets standardised. NUTS and MCLMC work on white latents.
`median s` are seconds for 100 effective samples of the latent that has the fewest, from the time of
the draws alone: `ess_min_per_s_warm` counts the warm-up too, compilation is a column of its own.
Effective samples are ArviZ's bulk ESS over all f at the rows; `largest_z` is that of the
differences of the posterior means from the first contestant's, in Monte Carlo standard errors (of
some hundred z a largest of 3 to 4 is chance). A draw of BlackJAX's cheap moves is the last of
several, as it is of ours. `--warmup` holds for all but `MCMC()`, which has a default of its own.
"""

import numpy as np

import harness
from data import binary, regression
from harness import OURS, Contestant
from latentgp.posteriors.arviz_versions import import_arviz

COLUMNS = (
    "ess_min_per_s",
    "ess_min_per_s_warm",
    "ess_median_per_s",
    "largest_z",
    "r_hat_max",
    "ess_min_per_draw",
    "steps_a_draw",
    "draws_seconds",
    "warmup_seconds",
    "compile_seconds",
    "start_seconds",
    "peak_MiB",
)
ENOUGH = 100  # effective samples
LOGIT = {"likelihood": "logit"}
CASES = {
    "boston": ("boston", 506, {"likelihood": "student", "scale": 0.3, "degrees_of_freedom": 3.0}),
    "breast cancer": ("ratsch_breast_cancer", 250, LOGIT),
    "diabetis": ("ratsch_diabetis", 768, LOGIT),
    "german": ("ratsch_german", 1000, LOGIT),
}
OF_OURS = {
    "Langevin": {"latents": "langevin"},
    "sites": {"warmup": None},  # as many sweeps as `MCMC()` makes
    "auxiliary gradient": {"latents": "auxiliary-gradient", "coupling": "whitened"},
    "Gibbs": None,
}
OF_BLACKJAX = {
    "auxiliary gradient": {"repeats": 5},
    "elliptical slice": {"repeats": 5},
    "MCLMC": {"repeats": 5},
    "NUTS": {},
}


def main() -> None:
    parser = harness.parser(__doc__, peers=("blackjax", "numpyro"), repeats=0)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--ours", nargs="+", default=list(OF_OURS))
    parser.add_argument("--blackjax", nargs="*", default=list(OF_BLACKJAX))
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=1000, help="of each chain")
    parser.add_argument("--warmup", type=int, default=500, help="of each chain")
    parser.add_argument(
        "--chain-methods", nargs="+", default=["vectorized"], help="how NumPyro runs its chains"
    )
    arguments = parser.parse_args()
    options = {name: getattr(arguments, name) for name in ("chains", "draws", "warmup")}
    contestants = [
        Contestant(OURS, {"settings": OF_OURS[name]}, f"{OURS} {name}") for name in arguments.ours
    ]
    contestants += [
        Contestant("blackjax", {"sampler": name, **OF_BLACKJAX[name]}, f"blackjax {name}")
        for name in arguments.blackjax
    ]
    contestants += [
        Contestant("numpyro", {"chain_method": method}, f"numpyro NUTS, {method}")
        for method in arguments.chain_methods
    ]
    with harness.Session(arguments) as session:
        for name in arguments.cases:
            stored, rows, likelihood = CASES[name]
            read = regression if likelihood["likelihood"] == "student" else binary
            split = read(arguments.data_dir, stored, rows)
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, {likelihood['likelihood']}: "
                f"seconds for {ENOUGH} effective samples",
                "sampling",
                split._asdict(),
                COLUMNS,
                options | likelihood,
                contestants,
                ard=False,
                finish=finish,
                cold=False,
            )


def finish(runs: harness.Runs) -> None:
    moments = {name: [assess(result) for result in results] for name, results in runs.items()}
    first = next(iter(moments.values()))
    for name, results in runs.items():
        for result, own, base in zip(results, moments[name], first, strict=True):
            (mean, error), (base_mean, base_error) = own, base
            if len(mean) != len(base_mean):  # rows that are kept differ
                continue
            if own is not base:
                z = (mean - base_mean) / np.hypot(error, base_error)
                result["largest_z"] = float(np.max(np.abs(z)))


def assess(result: dict) -> tuple[np.ndarray, np.ndarray]:
    """Add effective samples to a result; means of f and their Monte Carlo errors."""
    arviz = import_arviz()
    draws = arviz.convert_to_dataset({"f": np.load(result["draws"])})
    effective = arviz.ess(draws, method="bulk")["f"].values
    rates = effective / result["draws_seconds"]
    result |= {
        "seconds": ENOUGH / rates.min(),
        "ess_min_per_s": rates.min(),
        "ess_min_per_s_warm": effective.min()
        / (result["draws_seconds"] + result["warmup_seconds"]),
        "ess_median_per_s": float(np.median(rates)),
        "ess_min_per_draw": effective.min() / draws["f"][..., 0].size,
        "r_hat_max": float(arviz.rhat(draws)["f"].max()),
    }
    return draws["f"].values.mean(axis=(0, 1)), arviz.mcse(draws)["f"].values


if __name__ == "__main__":
    main()
