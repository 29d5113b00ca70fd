"""Mixed models beside lme4 on its own sets: estimates, standard errors, variances, seconds.

    python groups.py FOLDER [SET...]

lme4 is R's, by Debian's package r-cran-lme4, which has to be installed. Linear models are by
restricted maximum likelihood, fixed effects integrated over; the others by Laplace's approximation
at the greatest likelihood, as lme4 has them. Tests are by Satterthwaite's degrees of freedom, and
of few rows by Kenward and Roger's, there by lmerTest. Seconds are of the processor, compilation
included.
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
}


def theirs(path: Path, own: MixedModel) -> list[list[str]]:
    """Lines of lme4."""
    script = HERE.parent / "peers" / "lme4" / "mixed_model.R"
    command = ["Rscript", script, path, own.formula, own.family, ",".join(own.factors)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(csv.reader(said.splitlines()))


def ours(rows: pd.DataFrame, own: MixedModel) -> list[list[str]]:
    """Lines of latentgp, with tests of fixed effects where the noise is Gaussian."""
    import latentgp as lgp

    rows = rows.astype(dict.fromkeys(own.factors, str))
    formula, settings = own.formula, {}
    if own.family == "binomial":
        settings = {"fixed_effects": "maximise", "method": lgp.Laplace(lgp.groups.SparseEffects())}
    if formula.startswith("cbind"):
        formula = "incidence" + formula[formula.index(" ~") :]
        settings |= {"side_columns": {"trials": "size"}}
    for name in own.factors:  # numbers are levels there
        formula = re.sub(rf"(?<=[~+] ){name}(?= |$)", f"C({name})", formula)
    model = lgp.TableModel.fit(rows, formula=formula, priors=None, **settings)
    lines = [["method", repr(model.estimator.method_), "", ""]]
    found = model.mixed_summary(degrees="normal")
    if own.family == "gaussian":
        lines += _tests(model, "satterthwaite")
        lines += _tests(model, "kenward-roger") if len(rows) <= 2_000 else []
    else:
        each = zip(found.names, found.estimate, found.standard_error, strict=True)
        lines += [["fixed", name, "", f"{e:.8g}", f"{s:.8g}"] for name, e, s in each]
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
    asked = parser.parse_args()
    for name in asked.sets:
        own = SETS[name]
        rows = pd.read_csv(asked.folder / "places_groups" / f"{name}.csv.gz")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            rows.to_csv(path, index=False)
            print(f"== {name}: {own.formula}")
            for line in theirs(path, own):
                print("lme4    ", *line, flush=True)
        begun = time.process_time()
        lines = ours(rows, own)
        print("latentgp", "seconds", f"{time.process_time() - begun:.3f}")
        for line in lines:
            print("latentgp", *line, flush=True)


if __name__ == "__main__":
    main()
