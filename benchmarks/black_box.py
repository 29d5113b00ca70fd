"""Gaussian posteriors from draws or values of log p(y given f): seconds to near the best bound.

Dense, hyper-parameters held, binary classes (logit) and counts (Poisson). The bound is evaluated by
quadrature, outside of the time; `seconds` are to `--within` nats of the best that any contestant
reached, without compilation. Ours by fixed nodes and by the score function, values alone, and by
reparameterised draws; GPflow's `VGP` with a Monte Carlo likelihood, by natural gradients and by
Adam; NumPyro's SVI with a full and a low-rank Gaussian of the white latents, by Adam at two
learning rates.
"""

import harness
from data import binary, counts
from harness import OURS, Contestant

COLUMNS = ("compile_seconds", "training_seconds", "minus_bound", "step_ms", "peak_MiB")
SETS = {"ratsch_banana": ("logit", binary), "bike_counts": ("poisson", counts)}


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpflow", "numpyro"), repeats=0)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--size", type=int, default=1000, help="rows")
    parser.add_argument("--within", type=float, default=0.5, help="nats (%(default)s)")
    parser.add_argument("--max-seconds", type=float, default=120.0, help="of a fit")
    parser.add_argument("--samples", type=int, default=100, help="draws a row and step")
    arguments = parser.parse_args()

    def finish(runs: harness.Runs) -> None:
        known = [p["minus_bound"] for results in runs.values() for r in results for p in r["trace"]]
        for results in runs.values():
            for result in results:
                target = min(known) + arguments.within
                result["seconds"] = harness.seconds_to(result, "minus_bound", target)

    with harness.Session(arguments) as session:
        for name in arguments.sets:
            likelihood, read = SETS[name]
            split = read(arguments.data_dir, name, arguments.size)
            options = {
                "likelihood": likelihood,
                "samples": arguments.samples,
                "max_seconds": arguments.max_seconds,
                "evaluate_every": 2.0,
                "most_steps": 1280,
            }
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, {likelihood}",
                "black_box",
                split._asdict(),
                COLUMNS,
                options,
                contestants(),
                finish=finish,
                cold=False,
            )


def contestants() -> list[Contestant]:
    ours = [
        Contestant(OURS, {"estimator": estimator}, f"{OURS}, {estimator}")
        for estimator in ("quadrature", "score", "reparameterised")
    ]
    gpflow = [
        Contestant("gpflow", {"natural": 0.1, "learning_rate": 0.01}, "gpflow, natural 0.1"),
        Contestant("gpflow", {"natural": 0.0, "learning_rate": 0.01}, "gpflow, Adam 0.01"),
    ]
    numpyro = [
        Contestant("numpyro", {"guide": guide, "learning_rate": rate}, f"numpyro, {guide}, {rate}")
        for guide in ("AutoMultivariateNormal", "AutoLowRankMultivariateNormal")
        for rate in (0.01, 0.03)
    ]
    return ours + gpflow + numpyro


if __name__ == "__main__":
    main()
