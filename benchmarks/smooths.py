"""Smooth terms beside mgcv: y ~ s(x0) + s(x1) + s(x2) + s(x3) of gamSim(1), normal and Poisson.

    python benchmarks/smooths.py --picture docs/images/smooths.png

    python benchmarks/smooths.py --noise

The latter has six further smooths of columns that are noise: the mean square of their effects over
that of a line's standard error, by each with and without what lets a variance be zero.

Both get the same rows. Of each it prints, as JSON: deviance of the fitted expectation, root mean
squared distances of the terms from those that made the rows and from mgcv's, mean standard errors
of the terms, and processor seconds. Terms are about their means over the rows.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness import HERE

TERMS = ("x0", "x1", "x2", "x3")
SCALE = {"gaussian": 1.0, "poisson": 0.1}  # by which gamSim multiplies the terms
FORMULA = "y ~ s(x0) + s(x1) + s(x2) + s(x3)"


def theirs(family: str, rows: int, seed: int, folder: Path) -> dict:
    """Rows, and what mgcv finds."""
    script = HERE / "peers" / "mgcv" / "additive.R"
    command = ["Rscript", script, family, str(rows), str(seed), folder]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = dict(line.split(",") for line in said.split("\n") if "," in line)
    fitted = pd.read_csv(folder / "fitted.csv")
    terms = fitted[list(TERMS)].to_numpy()
    errors = fitted[[f"error{d}" for d in range(4)]].to_numpy()
    return {"figures": figures, "terms": terms, "errors": errors, "f": fitted["f"].to_numpy()}


def ours(table: pd.DataFrame, family: str) -> dict:
    """What latentgp finds."""
    import latentgp as lgp
    from latentgp.kernels.parts import names_of_parts

    seconds, model = [], None
    for _ in range(2):
        begun = time.process_time()
        model = lgp.TableModel.fit(table, formula=FORMULA, likelihood=family, random_state=0)
        seconds.append(time.process_time() - begun)
    assert model is not None
    X, posterior = model.encoder.encode(table), model.estimator.posterior_
    unit = np.eye(len(names_of_parts(posterior.model.kernel)))
    terms, errors = [], []
    for number in range(1, 5):
        rows = np.column_stack([X, np.tile(unit[number], (len(X), 1))])
        mean, variance = posterior.marginals_of_parts(rows)
        terms.append(mean - mean.mean())
        errors.append(np.sqrt(variance))
    f = np.ravel(posterior.predict_f(X)[0])
    return {"terms": np.stack(terms, 1), "errors": np.stack(errors, 1), "f": f, "seconds": seconds}


def spreads(table: pd.DataFrame, family: str, names: list[str], **settings: object) -> np.ndarray:
    """Standard deviations over the rows of the terms of columns."""
    import latentgp as lgp
    from latentgp.kernels.parts import names_of_parts

    formula = "y ~ " + " + ".join(f"s({name})" for name in names)
    own = {"likelihood": family, "random_state": 0, **settings}
    model = lgp.TableModel.fit(table, formula=formula, **own)
    X, posterior = model.encoder.encode(table), model.estimator.posterior_
    unit = np.eye(len(names_of_parts(posterior.model.kernel)))[1:]
    each = (np.column_stack([X, np.tile(one, (len(X), 1))]) for one in unit)
    return np.array([np.std(posterior.marginals_of_parts(rows)[0]) for rows in each])


def noise(family: str, seed: int, rows: int = 200) -> dict:
    """Effects of six columns that say nothing, of latentgp and of mgcv."""
    generator = np.random.default_rng(seed)
    x, z = generator.uniform(size=(2, rows))
    f = 2 * (np.sin(6 * x) + z**2)
    table = pd.DataFrame({"x": x, "z": z})
    for k in range(6):
        table[f"n{k}"] = generator.normal(size=rows)
    normal = family == "gaussian"
    table["y"] = f + 0.5 * generator.normal(size=rows) if normal else generator.poisson(np.exp(f))
    square = (4.0 if normal else np.exp(f).mean()) * rows  # one over that of the standard error
    names = [name for name in table if name != "y"]
    found = {
        f"latentgp, priors={priors!r}": spreads(table, family, names, priors=priors)[2:]
        for priors in ("weak", None)
    }
    with tempfile.TemporaryDirectory() as folder:
        table.to_csv(Path(folder) / "rows.csv", index=False)
        script = HERE / "peers" / "mgcv" / "noise.R"
        command = ["Rscript", script, family, folder]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in said.strip().split("\n"):
        select, *values = line.split(",")
        found[f"mgcv, select={select}"] = np.array(values, float)
    return {name: (values**2 * square).round(2).tolist() for name, values in found.items()}


def deviance(y: np.ndarray, f: np.ndarray, family: str) -> float:
    """Of the expectation at f."""
    if family == "gaussian":
        return float(np.sum((y - f) ** 2))
    logs = np.where(y > 0, y * (np.log(np.maximum(y, 1)) - f), 0.0)
    return float(2 * np.sum(logs - y + np.exp(f)))


def figures(table: pd.DataFrame, one: dict, other: dict, family: str) -> dict:
    """Of both, side by side."""
    truth = table[[f"f{d}" for d in range(4)]].to_numpy()
    truth = SCALE[family] * (truth - truth.mean(axis=0))

    def distance(a: np.ndarray, b: np.ndarray) -> list[float]:
        return np.sqrt(np.mean((a - b) ** 2, axis=0)).round(4).tolist()

    y, both = table["y"].to_numpy(), {"latentgp": one, "mgcv": other}
    return {
        "family": family,
        "deviance": {name: deviance(y, own["f"], family) for name, own in both.items()},
        "terms from mgcv's": distance(one["terms"], other["terms"]),
        "terms from the truth": {name: distance(own["terms"], truth) for name, own in both.items()},
        "standard errors": {
            name: own["errors"].mean(axis=0).round(4).tolist() for name, own in both.items()
        },
        "seconds": {"latentgp": one["seconds"], "mgcv": float(other["figures"]["seconds"])},
        "of mgcv": other["figures"],
    }


def drawn(found: dict[str, tuple]) -> Figure:
    """Terms of both with bands of two standard errors, a row a family."""
    from latentgp.surfaces.evaluation.plots.drawing import BLUE, INK, ORANGE, tidy

    figure = Figure(figsize=(10, 2.6 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 4, squeeze=False)
    for line, (family, (table, one, other)) in zip(axes, found.items(), strict=True):
        for d, ax in enumerate(line):
            x = table[TERMS[d]].to_numpy()
            order = np.argsort(x)
            for own, color, name, style in (
                (other, ORANGE, "mgcv", "--"),
                (one, BLUE, "latentgp", "-"),
            ):
                mean, error = own["terms"][order, d], own["errors"][order, d]
                ends = mean - 2 * error, mean + 2 * error
                ax.fill_between(x[order], *ends, color=color, alpha=0.15, linewidth=0)
                ax.plot(x[order], mean, style, color=color, linewidth=1.6, label=name)
            ax.plot(x, np.full(len(x), ax.get_ylim()[0]), "|", color=INK, alpha=0.2, markersize=4)
            tidy(ax, TERMS[d], f"{family}: effect on f" if d == 0 else "")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def main() -> None:
    """Both families, on the same rows."""
    from latentgp.surfaces.evaluation.plots import save_figure

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--noise", action="store_true")
    asked = parser.parse_args()
    if asked.noise:
        for family in ("gaussian", "poisson"):
            each = [noise(family, seed) for seed in range(3)]
            for name in each[0]:
                values = np.array([own[name] for own in each])
                counts = {"mean": values.mean().round(2), "zeros": int((values < 1e-3).sum())}
                print(json.dumps({"family": family, "of": name, **counts}), flush=True)
        return
    found = {}
    for family in ("gaussian", "poisson"):
        with tempfile.TemporaryDirectory() as folder:
            other = theirs(family, asked.rows, asked.seed, Path(folder))
            table = pd.read_csv(Path(folder) / "rows.csv")
        one = ours(table, family)
        print(json.dumps(figures(table, one, other, family)), flush=True)
        found[family] = table, one, other
    if asked.picture is not None:
        print(save_figure(drawn(found), asked.picture))


if __name__ == "__main__":
    main()
