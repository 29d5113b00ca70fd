"""Log evidence that searches for hyper-parameters find: latentgp beside scikit-learn's restarts.

The tables of numbers of `baselines.py`, at most 400 rows, two splits each. All have an RBF with a
length-scale an input and Gaussian noise, and no priors: the greatest log evidence is the same for
all. scikit-learn starts once, and five times more at random between its bounds. Seconds are the
processor's, of a first fit in a process, compilation included.
"""

import argparse
import json
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import latentgp as lgp
from baselines import NUMBERS, split_of_set

MOST_ROWS, SPLITS, CLEARLY = 400, 2, 0.1
RESULTS = Path(__file__).parent / "results" / "modes.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=NUMBERS, default=NUMBERS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=2, metavar=("SET", "SPLIT"), help="what a process runs")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(compared(arguments.data_dir, arguments.one[0], int(arguments.one[1]))))
        return
    known = read(arguments.results)
    for name, seed in product(arguments.sets, range(SPLITS)):
        if (name, seed) not in known:
            call = [sys.executable, __file__, "--data-dir", arguments.data_dir]
            line = subprocess.check_output([*call, "--one", name, str(seed)], text=True)
            with arguments.results.open("a") as file:
                file.write(line)
    print(table(read(arguments.results)))


def compared(data_dir: Path, name: str, seed: int) -> dict:
    split = split_of_set(data_dir, name, seed, MOST_ROWS)
    X, y = split.X, split.y - split.y.mean()
    result = {"set": name, "split": seed, "rows": len(y), "inputs": X.shape[1]}
    started = process_time()
    fitted = lgp.GPRegressor(priors=None, random_state=0).fit(X, y)
    result["seconds"] = process_time() - started
    result["ours"] = fitted.posterior_.log_evidence.value
    result["evaluations"] = fitted.diagnostics_.evaluations
    weak = lgp.GPRegressor(random_state=0).fit(X, y)
    result["with priors"] = weak.posterior_.log_evidence.value
    kernel = ConstantKernel() * RBF(np.full(X.shape[1], X.shape[1] ** 0.5)) + WhiteKernel(0.1)
    started = process_time()
    theirs = GaussianProcessRegressor(kernel, n_restarts_optimizer=5, random_state=0).fit(X, y)
    result["their seconds"] = process_time() - started
    result["theirs"] = theirs.log_marginal_likelihood_value_
    return result


def read(path: Path) -> dict:
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {(line["set"], line["split"]): line for line in lines}


def table(known: dict) -> str:
    columns = ("rows", "inputs", "theirs", "ours", "with priors", "seconds", "their seconds")
    lines = ["| set, split | " + " | ".join(columns) + " |"]
    for (name, seed), line in known.items():
        cells = (f"{line[c]:.1f}" if isinstance(line[c], float) else str(line[c]) for c in columns)
        lines.append(f"| {name}, {seed} | " + " | ".join(cells) + " |")
    good = sum(line["ours"] >= line["theirs"] - CLEARLY for line in known.values())
    return "\n".join([*lines, f"No worse by {CLEARLY} nats: {good} of {len(known)}."])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
