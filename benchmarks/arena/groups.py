"""Mixed models beside lme4 on its own sets: estimates, standard errors, variances, seconds.

    python groups.py FOLDER [SET...] [--limit SECONDS]

lme4 is R's, by Debian's package r-cran-lme4, which has to be installed, and for ordered classes
r-cran-ordinal. Linear models are by restricted maximum likelihood, fixed effects integrated over;
the others by Laplace's approximation at the greatest likelihood, as R has them. Seconds are of the
processor, compilation included.
"""

import argparse
import csv
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from latentgp.hyperparameters.base import parameter

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


def linear(rows: pd.DataFrame, own: MixedModel) -> list[list[str]]:
    """Lines of latentgp of a linear model."""
    import latentgp as lgp

    rows = rows.astype(dict.fromkeys(own.factors, str))
    model = lgp.TableModel.fit(rows, formula=own.formula, priors=None)
    found = model.mixed_summary()
    lines = [["method", repr(model.estimator.method_), "", ""]]
    each = zip(found.names, found.estimate, found.standard_error, strict=True)
    lines += [["fixed", name, "", f"{e:.8g}", f"{s:.8g}"] for name, e, s in each]
    lines += _random(found.components)
    return [*lines, ["random", "Residual", "", f"{found.residual:.8g}"]]


def _random(components: Any) -> list[list[str]]:
    lines = []
    for part in components:
        each = zip(part.effects, part.variance, strict=True)
        lines += [["random", part.group, name, f"{v:.8g}", f"{v**0.5:.8g}"] for name, v in each]
        below = np.tril_indices(len(part.effects), -1)
        lines += [["random", part.group, "corr", "", f"{c:.8g}"] for c in part.correlation[below]]
    return lines


def others(rows: pd.DataFrame, own: MixedModel) -> list[list[str]]:
    """Lines of latentgp of other targets, by the greatest likelihood of all parameters."""
    import jax

    import latentgp as lgp
    from latentgp.kernels import FixedEffects, SameGroup

    class Level(lgp.Mean):
        """A linear mean of the columns after those of groups."""

        slope: Any = parameter()

        def __call__(self, X: Any) -> Any:
            return (X[:, -self.slope.shape[0] :] @ self.slope)[:, None]

    terms = [term.strip() for term in own.formula.split("~")[1].split("+")]
    groups = [term.strip("()").split("|")[1].strip() for term in terms if "|" in term]
    fixed = [term for term in terms if "|" not in term]
    factors = {name: str for name in fixed if name in own.factors}
    design = pd.get_dummies(rows[fixed].astype(factors), drop_first=True, dtype=float)
    if own.family != "ordinal":
        design.insert(0, "(Intercept)", 1.0)
    codes = [rows.groupby(name.split(":")).ngroup() for name in groups]
    X = np.column_stack([*codes, design]).astype(float)
    if "incidence" in rows:
        data = lgp.Data(X, rows["incidence"], trials=rows["size"])
        likelihood = lgp.Binomial()
    elif own.family == "ordinal":
        data = lgp.Data(X, rows["y"] - 1)
        likelihood = lgp.Ordinal.of(5, np.bincount(rows["y"] - 1))
    else:
        data, likelihood = lgp.Data(X, rows["r2"] == "Y"), lgp.Bernoulli()
    each = [lgp.Constant() * SameGroup().on(place) for place in range(len(groups))]
    kernel, width = sum(each[1:], start=each[0]), design.shape[1]
    settings = {"key": jax.random.key(0), "method": lgp.Laplace(lgp.groups.SparseEffects())}
    model = lgp.LatentGP(kernel, likelihood, Level(np.zeros(width)))
    fit = lgp.fit(model, data, priors=None, **settings)
    kernel, slope = fit.model.kernel, np.asarray(fit.model.mean.slope)
    likelihood = fit.model.likelihood
    # Standard errors at these variances.
    vague = FixedEffects(np.full(width, 1e6)).on(*range(len(groups), X.shape[1]))
    model = lgp.LatentGP(vague + kernel, likelihood)
    at = lgp.fit(model, data, learn_hyperparameters=False, **settings)
    error = at.posterior.coefficients().standard_error
    lines = [["method", repr(fit.diagnostics.method), "", ""]]
    cuts = np.asarray(getattr(likelihood, "thresholds", ()))
    lines += [["fixed", f"{k}|{k + 1}", "", f"{cut:.8g}"] for k, cut in enumerate(cuts, 1)]
    names = zip(design.columns, slope, error, strict=True)
    lines += [["fixed", name, "", f"{e:.8g}", f"{s:.8g}"] for name, e, s in names]
    found = lgp.groups.mixed_summary(fit.posterior, [*groups, *design.columns])
    return [*lines, *_random(found.components)]


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
        begun = time.process_time()
        lines = (linear if own.family == "gaussian" else others)(rows, own)
        print("latentgp", "seconds", f"{time.process_time() - begun:.3f}")
        for line in lines:
            print("latentgp", *line, flush=True)


if __name__ == "__main__":
    main()
