"""Long importance sampling of approximate evidences, for `test_against_quadrature.py`.

    PYTHONPATH=experiments python tests/support/integrated_reference.py

writes `integrated_reference.json`: means and standard deviations of the unconstrained
hyper-parameters, log integral and effective draws of each problem with 40 rows.
"""

import json
import sys
from pathlib import Path

import integrated_hyperparameters as experiment

ROWS, DRAWS = 40, 4000
PATH = Path(__file__).with_suffix(".json")


def main(names: list[str]) -> None:
    found = json.loads(PATH.read_text()) if PATH.exists() else {}
    for name, (model, data, method, priors) in experiment.problems(ROWS).items():
        if names and name not in names:
            continue
        problem = experiment.problem_of(model, data, priors=priors)
        mean, deviation, effective, log_integral = experiment.reference(method, problem, DRAWS)
        found[name] = {
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
            "effective": effective,
            "log_integral": log_integral,
        }
        PATH.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
