"""Mixed models beside lme4 on its own sets: estimates, standard errors, variances, seconds.

    python groups.py FOLDER [SET...] [--limit SECONDS]

lme4 is R's, by Debian's package r-cran-lme4, which has to be installed, and for ordered classes
r-cran-ordinal. Linear models are by restricted maximum likelihood, fixed effects integrated over;
the others by Laplace's approximation at the greatest likelihood, as R has them, with standard
errors given the variances, and of counts those by the curvature in all parameters too, which R has.
Tests are by Satterthwaite's degrees of freedom, and of few rows by Kenward and Roger's, there by
lmerTest.
Seconds are of the processor, compilation included.
"""

import argparse
import csv
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

HERE = Path(__file__).parent


class MixedModel(NamedTuple):
    """A set with its formula, there and here."""

    formula: str
    factors: tuple[str, ...]
    family: str = "gaussian"


SETS = {
    "sleepstudy": MixedModel("Reaction ~ Days + (1 + Days | Subject)", ("Subject",)),
    "Penicillin": MixedModel("diameter ~ 1 + (1 | plate) + (1 | sample)", ("plate", "sample")),
    "InstEval": MixedModel(
        "y ~ service + (1 | s) + (1 | d) + (1 | dept:service)", ("service", "s", "d", "dept")
    ),
    "cbpp": MixedModel(
        "cbind(incidence, size - incidence) ~ period + (1 | herd)", ("herd", "period"), "binomial"
    ),
    "VerbAgg": MixedModel(
        "r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)",
        ("r2", "Gender", "btype", "situ", "id", "item"),
        "binomial",
    ),
    "InstEval, ordered": MixedModel(
        "y ~ service + (1 | s) + (1 | d) + (1 | dept:service)",
        ("y", "service", "s", "d", "dept"),
        "ordinal",
    ),
}


def theirs(path: Path, own: MixedModel, limit: float) -> list[list[str]]:
    """Lines of R."""
    script = HERE.parent / "peers" / "lme4" / "mixed_model.R"
    command = ["Rscript", script, path, own.formula, own.family, ",".join(own.factors)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return [["no", "result", "in", f"{limit:g}", "seconds"]]
    return list(csv.reader(said.stdout.splitlines()))


def ours(rows: pd.DataFrame, own: MixedModel) -> list[list[str]]:
    """Lines of latentgp, with tests of fixed effects where the noise is Gaussian."""
    import latentgp as lgp

    target = own.formula.partition(" ~")[0]
    factors = [name for name in own.factors if own.family != "ordinal" or name != target]
    rows = rows.astype(dict.fromkeys(factors, str))
    formula, settings = own.formula, {}
    if own.family != "gaussian":
        settings = {"fixed_effects": "maximise", "method": lgp.Laplace(lgp.groups.SparseEffects())}
    if own.family == "ordinal":
        settings |= {"task": "ordinal"}
    if formula.startswith("cbind"):
        formula = "incidence" + formula[formula.index(" ~") :]
        settings |= {"side_columns": {"trials": "size"}}
    for name in factors:  # numbers are levels there
        formula = re.sub(rf"(?<=[~+] ){name}(?= |$)", f"C({name})", formula)
    begun = time.process_time()
    model = lgp.TableModel.fit(rows, formula=formula, priors=None, **settings)
    found = model.mixed_summary(degrees="normal")
    lines = [["seconds", "", "", f"{time.process_time() - begun:.3f}"]]
    lines += [["method", repr(model.estimator.method_), "", ""]]
    if own.family == "gaussian":
        lines += _tests(model, "satterthwaite")
        lines += _tests(model, "kenward-roger") if len(rows) <= 2_000 else []
    else:
        each = zip(found.names, found.estimate, found.standard_error, strict=True)
        lines += [["fixed", name, "", f"{e:.8g}", f"{s:.8g}"] for name, e, s in each]
        lines += _tests(model, "curvature") if own.family == "binomial" else []
    lines += _random(found.components)
    if found.residual is not None:
        lines.append(["random", "Residual", "", f"{found.residual:.8g}"])
    return lines


def _tests(model: Any, degrees: str) -> list[list[str]]:
    begun = time.process_time()
    found = model.effect_tests(degrees=degrees).coefficients()
    lines = [["tests", degrees, "seconds", f"{time.process_time() - begun:.3f}"]]
    each = zip(*found[:4], strict=True)
    return lines + [["fixed", n, "", f"{e:.8g}", f"{s:.8g}", f"{d:.6g}"] for n, e, s, d in each]


def _random(components: Any) -> list[list[str]]:
    lines = []
    for part in components:
        each = zip(part.effects, part.variance, strict=True)
        lines += [["random", part.group, name, f"{v:.8g}", f"{v**0.5:.8g}"] for name, v in each]
        below = np.tril_indices(len(part.effects), -1)
        lines += [["random", part.group, "corr", "", f"{c:.8g}"] for c in part.correlation[below]]
    return lines


def main() -> None:
    """Both of each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--limit", type=float, default=600, help="seconds of R (%(default)s)")
    asked = parser.parse_args()
    for name in asked.sets:
        own = SETS[name]
        rows = pd.read_csv(asked.folder / "places_groups" / f"{name.partition(',')[0]}.csv.gz")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            rows.to_csv(path, index=False)
            print(f"== {name}: {own.formula}")
            for line in theirs(path, own, asked.limit):
                print("R       ", *line, flush=True)
        for line in ours(rows, own):
            print("latentgp", *line, flush=True)


if __name__ == "__main__":
    main()
