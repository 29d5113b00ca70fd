"""A linear mixed model, y ~ x + (1 + x | g), beside restricted maximum likelihood of statsmodels.

Groups with correlated intercepts and slopes; both get the same rows. Printed as JSON: seconds of
the first and of a second fit, fixed effects with their standard errors, the covariance of
intercepts and slopes, and the noise variance, of both. Variances have no priors here.

    python mixed_models.py --sizes 10000x1000 100000x10000 1000000x100000 2000000x1000000

fits y ~ x + (1 | g) + (1 | h) to so many rows of so many groups g, crossed with 20 groups h or as
many as a third number says (0: without them), each size in a process of its own: wall and processor
seconds with compilation, evaluations of the evidence, the most memory in GB (that of imports and of
the table included), and estimates.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from harness import HERE, environment


def drawn(rows: int, groups: int) -> pd.DataFrame:
    """Rows of groups of equal law."""
    generator = np.random.default_rng(0)
    effects = generator.multivariate_normal([0, 0], [[0.5, 0.15], [0.15, 0.2]], size=groups)
    g, x = generator.integers(0, groups, rows), generator.normal(size=rows)
    y = 1.0 + 0.5 * x + effects[g, 0] + effects[g, 1] * x + 0.7 * generator.normal(size=rows)
    return pd.DataFrame({"y": y, "x": x, "g": [f"group {number}" for number in g]})


def ours(table: pd.DataFrame) -> dict:
    """Figures of latentgp."""
    import latentgp as lgp

    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        model = lgp.TableModel.fit(table, formula="y ~ x + (1 + x | g)", priors=None)
        seconds.append(time.perf_counter() - begun)
    found = model.coefficients()
    fitted = model.estimator.model_
    slopes = fitted.kernel.parts[1].parts[0].kernel
    return {
        "seconds": seconds[0],
        "second": seconds[1],
        "method": repr(model.estimator.method_),
        "estimate": found.estimate.tolist(),
        "standard_error": found.standard_error.tolist(),
        "covariance": np.asarray(slopes.covariance()).tolist(),
        "noise_variance": float(fitted.likelihood.noise_variance),
    }


def of_size(rows: int, groups: int, others: int = 20) -> dict:
    """Figures of two crossed groupings and a slope; of one where there are no `others`."""
    import latentgp as lgp

    generator = np.random.default_rng(0)
    g, h = generator.integers(0, groups, rows), generator.integers(0, max(1, others), rows)
    f = 0.7 * generator.normal(size=groups)[g] + 0.5 * generator.normal(size=max(1, others))[h]
    x = generator.normal(size=rows)
    y = 1.0 + 0.5 * x + f + 0.7 * generator.normal(size=rows)
    table = pd.DataFrame({"y": y, "x": x, "g": g, "h": h})
    before, begun = time.process_time(), time.perf_counter()
    formula = "y ~ x + (1 | g)" + " + (1 | h)" * (others > 0)
    model = lgp.TableModel.fit(table, formula=formula, priors=None)
    seconds = time.perf_counter() - begun
    found = model.mixed_summary(degrees="normal")
    return {
        "rows": rows,
        "levels": len(np.unique(g)),
        "seconds": seconds,
        "processor": time.process_time() - before,
        "evaluations": len(model.estimator.history_.bound),
        "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "slope": [found.estimate[1], found.standard_error[1]],
        "variances": [*(float(own.variance[0]) for own in found.components), found.residual],
        "method": repr(model.estimator.method_),
    }


def main() -> None:
    """Both, on the same rows; or sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", metavar="ROWSxGROUPS[xOTHERS]")
    parser.add_argument("--size", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=100)
    asked = parser.parse_args()
    if asked.size:
        print(json.dumps(of_size(*map(int, asked.size.split("x")))))
        return
    for size in asked.sizes or ():
        subprocess.run([sys.executable, __file__, "--size", size], check=True)
    if asked.sizes:
        return
    table = drawn(asked.rows, asked.groups)
    print(json.dumps({"latentgp": ours(table)}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        table.to_parquet(path)
        script = HERE / "peers" / "statsmodels" / "mixed_model.py"
        command = [environment("statsmodels"), script, path]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(json.dumps({"statsmodels": json.loads(said)}))


if __name__ == "__main__":
    main()
