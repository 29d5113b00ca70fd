"""Time series: the log evidence and its gradient by `Markov`, and a million binary rows.

Irregular times, a smooth function and noise; the value alone, and with the derivatives in
length-scale, variance and noise variance, beside tinygp's quasiseparable solver and celerite2
(values with Matérn-3/2 alone, which it approximates: its log evidence is a few nats off). Ours is
`latentgp.log_evidence`; "filter alone" is that of rows in lanes already, sites given. `--binary
ROWS` fits a logistic series by `AugmentedVI(Markov())` instead, each fit in a process of its own,
compilation counted.
"""

import json
import subprocess
import sys
import time

import numpy as np

import harness

COLUMNS = ("log_evidence", "peak_MiB")
KERNELS = {"matern32": "Matérn 3/2", "matern52": "Matérn 5/2"}


def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted irregular times and a smooth function of them, shape (N,)."""
    generator = np.random.default_rng(0)
    t = 0.1 * np.cumsum(generator.exponential(size=number))
    return t, np.sin(t)


def evidences(session: harness.Session, number: int) -> None:
    """Ours and the peers' values, and values with gradients."""
    t, f = rows(number)
    y = f + 0.3 * np.random.default_rng(1).normal(size=number)
    for kernel, name in KERNELS.items():
        for gradient in (False, True):
            ours = [
                harness.Contestant(harness.OURS),
                harness.Contestant(harness.OURS, {"filter": True}, "latentgp, filter alone"),
            ]
            peers = ["tinygp"] if gradient or kernel != "matern32" else ["tinygp", "celerite2"]
            session.compare(
                f"{name}, {number} rows, {'value and gradient' if gradient else 'value'}",
                "series_evidence",
                {"X": t[:, None], "y": y},
                COLUMNS,
                {"kernel": kernel, "gradient": gradient},
                [*ours, *map(harness.Contestant, peers)],
            )


def binary(number: int, learned: bool) -> None:
    """One fit of a logistic series; prints its figures."""
    import resource

    import jax

    import latentgp as lgp

    t, f = rows(number)
    y = (np.random.default_rng(1).uniform(size=number) < 1 / (1 + np.exp(-2 * f))).astype(float)

    def resident() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    model = lgp.LatentGP(lgp.Matern32(1.0, variance=4.0), lgp.Bernoulli())
    before, begun = resident(), time.perf_counter()
    fit = lgp.fit(
        model,
        lgp.Data(t, y),
        key=jax.random.key(0),
        method=lgp.AugmentedVI(lgp.Markov()),
        learn_hyperparameters=learned,
    )
    found = {
        "rows": number,
        "learned": learned,
        "seconds": time.perf_counter() - begun,
        "bound": float(fit.posterior.log_evidence),
        "evaluations": fit.diagnostics.evaluations,
        "verdict": fit.diagnostics.verdict,
        "kernel": str(fit.model.kernel),
        "peak_MiB": resident() - before,
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = harness.parser(__doc__, peers=("tinygp", "celerite2"), repeats=5, real_data=False)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--binary", type=int, metavar="ROWS", help="fit a logistic series instead")
    arguments = parser.parse_args()
    if arguments.binary:
        for learned in ("", "learned"):
            command = [sys.executable, __file__, "--worker", str(arguments.binary), learned]
            reply = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            print(reply.splitlines()[-1], flush=True)
        return
    with harness.Session(arguments) as session:
        for number in arguments.sizes:
            evidences(session, number)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        binary(int(sys.argv[2]), bool(sys.argv[3]))
    else:
        main()
