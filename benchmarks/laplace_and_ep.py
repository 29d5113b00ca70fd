"""Laplace's approximation and expectation propagation for binary classes, one coefficient a row.

Laplace with the logit link against scikit-learn, with the probit link against GPy; expectation
propagation with the probit link against GPy, whose sites are updated in turn, as by default, or
all at once, until their mean squared change is below its default of 1e-6.

First the evidence and its gradient at the start of the hyper-parameters, sites from nothing:
`evidence_difference` is in nats from the first row, `gradient_difference` relative to its gradient
(in logarithms of the parameters), `mean_difference` the largest of the posterior means of f at the
rows. Then the whole fit by L-BFGS: `median s` are seconds to `--within` nats of the best evidence
that any contestant found by the same approximation, without compilation; `training_seconds` until
it stopped by itself, or at `--max-seconds`. GPy's EP finds new sites in each evaluation ("nested"),
or holds them through each of ten fits ("alternated", its default; only its evidences from sites of
their own count). One length-scale unless `--ard`.
"""

from typing import Any

import numpy as np

import harness
from data import binary
from harness import OURS, Contestant

EVIDENCE_COLUMNS = (
    "log_evidence",
    "evidence_difference",
    "gradient_difference",
    "mean_difference",
    "peak_MiB",
)
FIT_COLUMNS = (
    "compile_seconds",
    "training_seconds",
    "evaluations",
    "log_evidence",
    "peak_MiB",
)


def main() -> None:
    parser = harness.parser(__doc__, peers=("scikit_learn", "gpy"), repeats=1)
    parser.add_argument("--sets", nargs="+", default=["ratsch_banana", "ratsch_image"])
    parser.add_argument("--size", type=int, default=1000, help="training rows")
    parser.add_argument("--ard", action="store_true", help="a length-scale for every input")
    parser.add_argument("--within", type=float, default=0.01, help="nats (%(default)s)")
    parser.add_argument("--max-seconds", type=float, default=300.0, help="of a fit")
    arguments = parser.parse_args()

    def finish(runs: harness.Runs) -> None:
        best = max(run["log_evidence"] for results in runs.values() for run in results)
        for results in runs.values():
            for result in results:
                target = arguments.within - best
                result["seconds"] = harness.seconds_to(result, "minus_log_evidence", target)

    with harness.Session(arguments) as session:
        for name in arguments.sets:
            split = binary(arguments.data_dir, name, arguments.size)
            for method, link, evidence, fit in cases():
                title = f"{name}, {len(split.y)} x {split.X.shape[1]}, {method}, {link}"
                options = {"method": method, "link": link, "max_seconds": arguments.max_seconds}
                shared = {"arrays": split._asdict(), "options": options, "ard": arguments.ard}
                session.compare(
                    f"{title}: evidence and gradient",
                    "binary_evidence",
                    columns=EVIDENCE_COLUMNS,
                    contestants=evidence,
                    finish=compare_answers,
                    **shared,
                )
                session.compare(
                    f"{title}: seconds to {arguments.within} nats of the best evidence",
                    "binary_fit",
                    columns=FIT_COLUMNS,
                    contestants=fit,
                    finish=finish,
                    cold=False,
                    **shared,
                )


def cases() -> list[tuple[str, str, list[Contestant], list[Contestant]]]:
    """Method, link, and who computes the evidence and who fits."""
    ours, sklearn, gpy = Contestant(OURS), Contestant("scikit_learn"), Contestant("gpy")
    at_once = {"parallel_updates": True}
    evidence = [ours, gpy_ep("in turn"), gpy_ep("at once", **at_once)]
    fits = [
        ours,
        gpy_ep("in turn, alternated"),
        gpy_ep("in turn, nested", ep_mode="nested"),
        gpy_ep("at once, nested", ep_mode="nested", **at_once),
    ]
    return [
        ("Laplace", "logit", [ours, sklearn], [ours, sklearn]),
        ("Laplace", "probit", [ours, gpy], [ours, gpy]),
        ("ExpectationPropagation", "probit", evidence, fits),
    ]


def gpy_ep(label: str, **settings: Any) -> Contestant:
    return Contestant("gpy", {"settings": settings}, f"gpy {label}")


def compare_answers(runs: harness.Runs) -> None:
    """How far everyone's are from the first contestant's."""
    base = next(iter(runs.values()))
    for results in runs.values():
        for result, first in zip(results, base, strict=True):
            gradient, own = np.array(first["gradient"]), np.array(result["gradient"])
            means = np.load(first["mean_of_f"]), np.load(result["mean_of_f"])
            result |= {
                "evidence_difference": result["log_evidence"] - first["log_evidence"],
                "gradient_difference": np.linalg.norm(own - gradient) / np.linalg.norm(gradient),
                "mean_difference": np.max(np.abs(means[1] - means[0])),
            }


if __name__ == "__main__":
    main()
