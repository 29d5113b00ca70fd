"""Nearest neighbours: Matérn-3/2 ARD, each row given m of those before it.

Gaussian noise, and with Laplace's approximation classes (electricity) and counts (bikes).

Random 90/10 split, standardised. The time is that of the fit, hyper-parameters learned from the
given start; of ours compilation is in it. New inputs see as many rows as is each library's default
(five times m, and twice m), and as many as is the other's. With --inducing M (Gaussian noise) two
more of ours: neighbours of what M inducing points leave, and those points alone.
"""

import harness
from data import binary, counts, regression
from harness import OURS, Contestant

COLUMNS = (
    "cpu_seconds",
    "evaluations",
    "log_evidence",
    "rmse",
    "nlpd",
    "log_loss",
    "error",
    "coverage",
    "predict_seconds",
    "peak_MiB",
)
PEER = "gpboost"
LIKELIHOODS = {"electricity": "bernoulli", "bike_counts": "poisson"}
READERS = {"gaussian": regression, "bernoulli": binary, "poisson": counts}


def main() -> None:
    parser = harness.parser(__doc__, peers=(PEER,), repeats=0)
    parser.add_argument("--sets", nargs="+", default=["kin40k_std_split", "kin8nm"])
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--rows", type=int, help="to learn from; nine tenths unless given")
    parser.add_argument(
        "--predicted", type=int, nargs="+", help="rows that new inputs see; twice and five times m"
    )
    parser.add_argument(
        "--inducing", type=int, help="number of inducing points of two more of ours"
    )
    arguments = parser.parse_args()
    number = arguments.neighbours
    contestants = [
        Contestant(worker, {"predicted": predicted}, f"{worker}, {predicted} at new inputs")
        for worker in (OURS, PEER)
        for predicted in arguments.predicted or (2 * number, 5 * number)
    ]
    if arguments.inducing:
        both = {"predicted": 5 * number, "inducing": arguments.inducing}
        with_points = f"{OURS}, {arguments.inducing} inducing points"
        contestants += [
            Contestant(OURS, both, f"{with_points}, {5 * number} at new inputs"),
            Contestant(OURS, both | {"neighbours": 0}, with_points),
        ]
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            likelihood = LIKELIHOODS.get(name, "gaussian")
            split = READERS[likelihood](arguments.data_dir, name, arguments.rows)
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, m = {number}",
                "neighbours",
                split._asdict(),
                COLUMNS,
                {"neighbours": number, "likelihood": likelihood},
                contestants,
            )


if __name__ == "__main__":
    main()
