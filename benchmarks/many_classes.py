"""Many classes, 2,000 rows: `GPClassifier` with its defaults beside a support vector machine.

The first fit of a process, compilation included, with the seconds of its processor beside those of
the clock. `letters` and `land` are made here (`class_tables.py`). The support vector machine has
Platt scaling, scikit-learn's defaults or C and gamma tuned by three-fold cross-validation. The
softmax is what `GPClassifier` takes for fewer than ten classes. All other rows are held out, at
most 5,000.
"""

import argparse

import class_tables
import harness
from data import Split, multiclass, split_of
from harness import OURS, Contestant

MADE = {"letters": class_tables.letters, "land": class_tables.land}
SETS = (*MADE, "usps", "shuttle", "mnist", "segment", "vehicle", "glass", "wine")
ROWS = {"segment": 1617, "vehicle": 592, "glass": 150, "wine": 125}  # seven tenths of small ones
MOST_ROWS, MOST_TEST_ROWS = 2000, 5000
COLUMNS = ("cpu_seconds", "log_loss", "error", "calibration_error", "evaluations", "peak_MiB")
SVM = "scikit_learn"
CONTESTANTS = (
    Contestant(OURS, {}, OURS),
    Contestant(OURS, {"likelihood": "softmax"}, f"{OURS}, softmax"),
    Contestant(OURS, {"likelihood": "least-squares"}, f"{OURS}, least squares"),
    Contestant(SVM, {"tuned": False}, "support vectors"),
    Contestant(SVM, {"tuned": True}, "support vectors, tuned"),
)


def main() -> None:
    parser = harness.parser(__doc__, peers=(SVM,), repeats=0)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS[:4])
    parser.add_argument("--only", nargs="+", choices=[str(c) for c in CONTESTANTS])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chosen = [c for c in CONTESTANTS if arguments.only is None or str(c) in arguments.only]
    for name in arguments.sets:
        split = load(arguments, name)
        for contestant in chosen:  # a process for each: nothing is compiled yet
            with harness.Session(arguments) as session:
                session.compare(
                    f"{name}, {len(split.y)} x {split.X.shape[1]}, K = {int(split.y.max()) + 1}",
                    "classifier",
                    split._asdict(),
                    COLUMNS,
                    contestants=[contestant],
                )


def load(arguments: argparse.Namespace, name: str) -> Split:
    if name in MADE:
        X, y = MADE[name](MOST_ROWS + MOST_TEST_ROWS, arguments.seed)
        return split_of(X, y, MOST_ROWS, MOST_TEST_ROWS, arguments.seed)
    rows = ROWS.get(name, MOST_ROWS)
    return multiclass(arguments.data_dir, name, rows, MOST_TEST_ROWS, arguments.seed)


if __name__ == "__main__":
    main()
