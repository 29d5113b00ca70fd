"""Deep Gaussian processes of two layers: training time to the best peer's own held-out log density.

Random 90/10 splits, at most 2,000 rows held out; of the binary set the log loss, logit link.
latentgp by random features, the peers by as many inducing points a layer (Salimbeni & Deisenroth
2017): k-means points at first, learned as in their tutorials. Of latentgp and GPyTorch the hidden
layer has three functions, whose means are the inputs' first principal components, and the last
layer sees the inputs too. GPflux, whose layers do not, has its own architecture: as many functions
as inputs, whose means are the inputs; "narrow", three. Predictions are equal mixtures over draws of
the hidden layer. latentgp has weak priors and its own step sizes, the peers Adam: of 0.01 and 0.03
the better on kin8nm, "slower" and "faster" being the other; "given" starts at the values that all
have, without the search for a start. Columns as in `sparse_binary.py`.
"""

import argparse
from functools import partial

import harness
from data import binary, inducing_points, regression
from harness import OURS, Contestant

COLUMNS = (
    "times_faster",
    "times_first",
    "to_lowest_seconds",
    "start_seconds",
    "compile_seconds",
    "training_seconds",
    "training_cpu_seconds",
    "step_ms",
)
OF_REGRESSION = (*COLUMNS, "nlpd", "lowest_nlpd", "rmse", "peak_MiB")
OF_CLASSES = (*COLUMNS, "log_loss", "lowest_log_loss", "error", "peak_MiB")
SETS = ("kin8nm", "protein", "power", "eeg")
MOST_TEST_ROWS = 2_000
DEFAULT = (OURS, "gpytorch", "gpflux", "gpflux natural")
COMPONENTS = 16  # draws of the hidden layer in a prediction


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpytorch", "gpflux"), repeats=0)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15_000, help="latentgp's, at most")
    parser.add_argument("--deviation", type=float, default=0.01, help="of hidden q at the start")
    parser.add_argument("--contestants", nargs="+", default=DEFAULT)
    harness.add_training_arguments(
        parser, inducing=100, batch_size=200, learning_rate=0.01, max_seconds=60.0, natural=0.1
    )
    parser.set_defaults(evaluate_every=1.0)
    arguments = parser.parse_args()
    options = harness.training_options(arguments) | {
        "components": COMPONENTS,
        "hidden_deviation": arguments.deviation,
    }
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            classes = name == "eeg"
            split = (binary if classes else regression)(arguments.data_dir, name)
            split = split._replace(
                X_test=split.X_test[:MOST_TEST_ROWS], y_test=split.y_test[:MOST_TEST_ROWS]
            )
            arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
            score = "log_loss" if classes else "nlpd"
            epochs = arguments.steps * arguments.batch_size // len(split.y)
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, M = R = {arguments.inducing}: "
                f"seconds to the best peer's {score}",
                "deep_binary" if classes else "deep_regression",
                arrays,
                OF_CLASSES if classes else OF_REGRESSION,
                options,
                contestants(arguments, epochs),
                finish=partial(harness.note_time_to_best_peer, score=score),
                cold=False,
            )


def contestants(arguments: argparse.Namespace, epochs: int) -> list[Contestant]:
    """Those asked for. GPyTorch is in single precision as in its tutorial, GPflux in double."""
    width, natural = arguments.width, arguments.natural
    slower = arguments.learning_rate
    torch = {
        "width": width,
        "feed_inputs": True,
        "draws": 1,
        "precision": "single",
        "learning_rate": 3 * slower,
    }
    wide = {"width": 0, "learning_rate": slower}
    ours = {"features": arguments.inducing, "width": width, "epochs": epochs, "start": "shallow"}
    known = [
        Contestant(OURS, ours),
        Contestant(OURS, ours | {"start": "given"}, "latentgp given"),
        Contestant("gpytorch", torch),
        Contestant("gpytorch", torch | {"learning_rate": slower}, "gpytorch slower"),
        Contestant("gpytorch", torch | {"precision": "double"}, "gpytorch double"),
        Contestant("gpytorch", torch | {"draws": 3}, "gpytorch draws"),
        Contestant("gpflux", wide),
        Contestant("gpflux", wide | {"learning_rate": 3 * slower}, "gpflux faster"),
        Contestant("gpflux", wide | {"natural": natural}, "gpflux natural"),
        Contestant("gpflux", wide | {"width": width}, "gpflux narrow"),
        Contestant("gpflux", wide | {"width": width, "natural": natural}, "gpflux narrow natural"),
    ]
    asked = [c for c in known if str(c) in arguments.contestants]
    return [c for c in asked if c.worker == OURS or c.worker in arguments.peers]


if __name__ == "__main__":
    main()
