"""Writes docs/arena.md from the arena's results and the published scores.

Losses come first in every table. `FOLDER` is the folder of the arena, with the published files.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median

import matplotlib.pyplot as plt
import numpy as np

from categories import BY, TABLES
from common import RESULTS, read
from functions import FUNCTIONS
from latentgp.surfaces.cli.arena import OURS, mean_ranks, published, ranked
from m3 import smape
from places import PEER

DOCS = Path(__file__).parents[2] / "docs"
# MAE, RMSE, CRPS, interval score, coverage, minutes of eleven teams; None is not known here.
TEAMS: dict[str, tuple[float | None, ...]] = {
    "SPDE": (1.10, 1.53, 0.83, 8.85, 0.97, 120),
    "NNGP, conjugate": (1.21, 1.64, 0.85, 7.57, 0.95, 2),
    "LatticeKrig": (1.22, 1.68, 0.87, 7.55, 0.96, 28),
    "NNGP, response": (1.24, 1.68, 0.87, 7.50, 0.94, 43),
    "Periodic embedding": (1.29, 1.79, 0.91, 7.44, 0.93, 10),
    "MRA": (1.33, 1.85, 0.94, 8.00, 0.92, 16),
    "Partition": (1.41, 1.80, 1.02, 10.5, 0.86, None),
    "LAGP": (1.65, 2.08, 1.17, 10.8, 0.83, None),
    "Tapering": (1.87, 2.45, None, None, None, None),
    "FRK": (1.96, 2.44, None, None, None, None),
    "Predictive process": (2.15, 2.64, None, None, None, None),
}
# Negative log predictive densities: Hernández-Lobato & Adams (2015), Gal & Ghahramani (2016),
# Lakshminarayanan et al. (2017), Duan et al. (2020).
UCI = {
    "PBP": {"boston": 2.57, "concrete": 3.16, "energy": 2.04, "kin8nm": -0.90, "power": 2.84,
            "protein": 2.97},
    "dropout": {"boston": 2.46, "concrete": 3.04, "energy": 1.99, "kin8nm": -0.95, "power": 2.80,
                "protein": 2.89},
    "deep ensembles": {"boston": 2.41, "concrete": 3.06, "energy": 1.38, "kin8nm": -1.20,
                       "power": 2.79, "protein": 2.83},
    "NGBoost's": {"boston": 2.43, "concrete": 3.04, "energy": 0.60, "kin8nm": -0.49, "power": 2.79,
                  "protein": 2.81},
}  # fmt: skip
Table = Sequence[Sequence[object]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("folder", type=Path)
    folder = arguments.parse_args().folder
    parts = [
        "# Arena: other people's tables\n\n"
        "Tables that others published, with their data, splits and scores, and latentgp among\n"
        "them by default settings, losses first. `benchmarks/arena/` has a script a table, and\n"
        "`benchmarks/results/arena/` a line a fit; seconds are those of two busy cores.\n"
    ]
    parts += [
        m3(folder), categories(folder), duqling(), uci(), classification(), survival(folder),
        srbench(folder), heaton(), places(),
    ]  # fmt: skip
    DOCS.joinpath("arena.md").write_text("\n".join(part for part in parts if part))


def srbench(folder: Path) -> str:
    others = published(folder / "srbench")
    lines = by_set(read(RESULTS / "srbench.jsonl"))
    if not lines:
        return ""
    scores = {
        name: {**others[name], OURS: median(line["r2"] for line in of_set)}
        for name, of_set in lines.items()
    }
    ranks = {name: ranked(of_set) for name, of_set in scores.items()}
    by_rank = mean_ranks(scores)
    plain = [name for name in scores if "fri_" not in name]

    def row(system: str) -> list[object]:
        known = [name for name in scores if system in scores[name]]
        some = [name for name in plain if system in scores[name]]
        return [
            system,
            f"{mean(ranks[name][system] for name in known):.1f}",
            f"{median(scores[name][system] for name in known):.3f}",
            f"{mean(ranks[name][system] for name in some):.1f}",
            f"{median(scores[name][system] for name in some):.3f}",
        ]

    heads = "system", "mean rank", "median R2", "rank without Friedman's", "R2 without Friedman's"
    seconds = sum(line["seconds"] for of_set in lines.values() for line in of_set)
    every = [line for of_set in lines.values() for line in of_set]
    covered = [mean(line["coverage"] for line in of_set) for of_set in lines.values()]
    worst = sorted(scores, key=lambda name: -ranks[name][OURS])[:8]
    lost = [
        [name, lines[name][0]["rows"], f"{ranks[name][OURS]:.0f}", f"{scores[name][OURS]:.3f}",
         "{} {:.3f}".format(*max(others[name].items(), key=lambda pair: pair[1]))]
        for name in worst
    ]  # fmt: skip
    picture("arena-srbench.png", "Mean rank on SRBench's sets", by_rank)
    return (
        f"## SRBench: {len(scores)} sets, {len(every)} fits\n\n"
        "La Cava et al. (2021): R2 of a quarter of the rows, median over seeds; published figures\n"
        "are medians of ten. Rank among 22 systems.\n\n"
        f"Worst ranks:\n\n{table(('set', 'rows', 'rank', 'R2', 'best'), lost)}\n"
        f"{table(heads, [row(system) for system in by_rank])}\n"
        f"95 % intervals hold {100 * mean(covered):.1f} % on average, and under 88 % on "
        f"{sum(share < 0.88 for share in covered)} of {len(covered)} sets.\n"
        f"All fits and predictions took {seconds / 60:.0f} minutes.\n\n"
        "![Mean ranks](images/arena-srbench.png)\n"
    )


def heaton() -> str:
    lines = read(RESULTS / "heaton.jsonl")
    if not lines:
        return ""
    own = lines[-1]
    figures = {
        **TEAMS,
        OURS: (
            *(own[name] for name in ("mae", "rmse", "crps", "interval", "coverage")),
            (own["fit_seconds"] + own["predict_seconds"]) / 60,
        ),
    }
    order = sorted(figures, key=lambda name: figures[name][1])
    rows = [
        [name, *("" if value is None else f"{value:.2f}" for value in figures[name])]
        for name in order
    ]
    heads = "team", "MAE", "RMSE", "CRPS", "interval score", "coverage", "minutes"
    picture("arena-heaton.png", "RMSE on satellite temperatures", {n: figures[n][1] for n in order})
    return (
        "## Satellite temperatures\n\n"
        "Heaton et al. (2019): 105,569 places to learn from, 42,740 in gaps. The teams' figures\n"
        "are quoted at second hand from their table 3, minutes on other machines.\n\n"
        f"{table(heads, rows)}\n"
        f"Chosen: `{own['model']}`; {own['reason']}.\n\n"
        "![RMSE](images/arena-heaton.png)\n"
    )


def places() -> str:
    lines = by_set(read(RESULTS / "places.jsonl"))
    if not lines:
        return ""
    own = {name: {line["by"]: line for line in of_set} for name, of_set in lines.items()}
    behind = {
        name: found[OURS]["crps"] / found[PEER]["crps"]
        for name, found in own.items()
        if OURS in found and PEER in found
    }
    order = sorted(behind, key=lambda name: -behind[name])
    rows, said = [], []
    for name in order:
        of_set = sorted(own[name].values(), key=lambda line: line["crps"])
        rows += [
            [name, f"{line['rows']:,}", line["by"],
             *(f"{line[key]:.3f}" for key in ("crps", "rmse", "coverage", "interval")),
             f"{line['fit_seconds']:.0f}", f"{line['predict_seconds']:.0f}"]
            for line in of_set
        ]  # fmt: skip
        said += [f"- {name}, {x['by']}: `{x['model']}`" for x in of_set]
        said += [f"  {x['reason']}." for x in of_set if x["by"] == OURS]
    heads = ("set", "rows", "system", "CRPS", "RMSE", "coverage", "interval score", "fit [s]",
             "predict [s]")  # fmt: skip
    machine = own[order[0]][PEER]["machine"].partition(", load")[0]
    versions = {line["by"]: line["version"] for found in own.values() for line in found.values()}
    return (
        "## Places and times\n\n"
        + prose(
            "Temperatures of floats at 100 dbar (argo2016), wind speeds at sea (jason3) of GpGp, a "
            "tenth held out at random by a fixed seed; canopy heights (BCEF) of spNNGP, its own "
            f"{own['BCEF'][PEER]['held_out']:,} rows held out. No split of these rows was "
            "published. `latentgp` is `TableModel.fit(frame, target)`, which knows longitude and "
            "latitude by name; the formula is `FCH ~ PTC + gp(x, y)`, through inducing points; "
            "`x and y alone` is a Matérn 3/2 without tree cover, by neighbours. GPBoost's model is "
            "a Matérn 3/2 by Vecchia's approximation with 20 neighbours, of chords of the globe "
            "and of time with a range of its own; tree cover has a linear effect. One core, "
            "others busy; compilation is in our seconds. latentgp "
            f"{versions[OURS]} and GPBoost {versions[PEER]}, {machine}."
        )
        + f"{table(heads, rows)}\n"
        + prose(
            "On BCEF tree cover is one more input of the default's kernel. On argo2016 and jason3 "
            "it is of one distance on the globe and in time, its family chosen by evidence."
        )
        + "Covariances of GPBoost are noise variance, variance and ranges, then effects:\n\n"
        + "\n".join(said)
        + "\n"
    )


def classification() -> str:
    lines = read(RESULTS / "classification.jsonl")
    losses: dict[str, dict[str, float]] = defaultdict(dict)
    for name, of_set in by_set(lines).items():
        for system in {line["by"] for line in of_set}:
            losses[name][system] = mean(x["log_loss"] for x in of_set if x["by"] == system)
    whole = {name: own for name, own in losses.items() if OURS in own and len(own) > 1}
    if not whole:
        return ""
    systems = [OURS, *sorted({s for own in whole.values() for s in own} - {OURS})]
    behind = {
        name: own[OURS] - min(v for s, v in own.items() if s != OURS) for name, own in whole.items()
    }
    order = sorted(whole, key=lambda name: -behind[name])
    rows = [
        [name, *(f"{whole[name][s]:.3f}" if s in whole[name] else "" for s in systems),
         f"{behind[name]:+.3f}"]
        for name in order
    ]  # fmt: skip
    picture(
        "arena-classification.png",
        "Log loss less that of the best peer",
        behind,
        order,
        own=order,
    )
    near = sum(value <= 0.01 for value in behind.values())
    return (
        "## Classification\n\n"
        "At most 2,000 rows, a quarter held out; peers are scikit-learn's, the support vector\n"
        "machine by cross-validation and calibrated. Log loss in nats, and that less the best\n"
        f"peer's.\n\n{table(('set', *systems, 'behind'), rows)}\n"
        f"Within 0.01 of the best peer, or ahead, on {near} of {len(whole)} sets.\n\n"
        "![Log loss less that of the best peer](images/arena-classification.png)\n"
    )


def survival(folder: Path) -> str:
    lines = by_set(read(RESULTS / "survival.jsonl"))
    if not lines:
        return ""
    others: dict[str, dict[str, float]] = defaultdict(dict)
    with (folder / "survival" / "published.csv").open() as file:
        for row in csv.DictReader(file):
            if "harrell_c" in row["tune_measure"] and row["harrell_c"]:
                others[row["task_id"]][row["learner_id"]] = float(row["harrell_c"])
    scores = {
        name: {**others[name], OURS: mean(line["harrell_c"] for line in of_set)}
        for name, of_set in lines.items()
    }
    ranks = {name: ranked(of_set) for name, of_set in scores.items()}
    order = sorted(scores, key=lambda name: -ranks[name][OURS])
    rows = [
        [name, lines[name][0]["rows"], len(lines[name]),
         f"{ranks[name][OURS]:g} of {len(scores[name])}", f"{scores[name][OURS]:.3f}",
         "{} {:.3f}".format(*max(others[name].items(), key=lambda pair: pair[1])),
         f"{mean(line['seconds'] for line in lines[name]):.0f}"]
        for name in order
    ]  # fmt: skip
    picture("arena-survival.png", "Mean rank by Harrell's concordance", mean_ranks(scores))
    names = {path.stem for path in (folder / "survival").glob("*.csv") if "." not in path.stem}
    left = ", ".join(sorted(names - {*scores, "published"}))
    return (
        f"## Survival: {len(scores)} of {len(names) - 1} sets\n\n"
        "Burk et al. (2024): Harrell's concordance, means over the folds that were run; published\n"
        "figures are means over all folds. The law of times is chosen by evidence (decision\n"
        "0141).\n\n"
        f"{table(('set', 'rows', 'folds', 'rank', 'concordance', 'best', 'seconds'), rows)}\n"
        f"Mean rank {mean(r[OURS] for r in ranks.values()):.1f}."
        + (f" Not run, {left}: no folds in the folder, or not yet." if left else "")
        + "\n\n![Mean ranks](images/arena-survival.png)\n"
    )


def m3(folder: Path) -> str:
    lines = {line["set"]: line for line in read(RESULTS / "m3.jsonl")}
    if not lines:
        return ""
    with gzip.open(folder / "m3" / "m3.json.gz", "rt") as file:
        series = [x for x in json.load(file) if x["id"] in lines]
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, one, error in m3_errors(folder, series):
        errors[name][one["period"]].append(error)
    for line in lines.values():
        errors[OURS][line["period"]].append(line["smape"])
    periods = {name: len(own) for name, own in errors[OURS].items()}
    whole = {
        name: mean(value for values in own.values() for value in values)
        for name, own in errors.items()
        if {period: len(values) for period, values in own.items()} == periods
    }
    order = sorted(whole, key=whole.__getitem__)
    rows = [
        [name, f"{whole[name]:.2f}", *(f"{mean(errors[name][period]):.2f}" for period in periods)]
        for name in order
    ]
    heads = "method", "all", *(f"{period.lower()}, {n}" for period, n in periods.items())
    held = ", ".join(
        f"{100 * mean(x['coverage'] for x in lines.values() if x['period'] == period):.0f} % "
        f"({period.lower()})"
        for period in periods
    )
    picture("arena-m3.png", "sMAPE on series of the M3 competition, percent", whole, order)
    with np.load(folder / "m3" / "forecasts.npz") as file:
        number = len(file["ids"])
    return (
        f"## M3 competition: {len(lines)} of {number} series\n\n"
        + prose(
            "Makridakis & Hibon (2000): symmetric mean absolute percentage error, mean over "
            "series, beside the methods that forecast all periods, on the same series. Ours "
            'is `TableModel.fit(frame, "value", time="date")`: a level, a trend and seasons by '
            "evidence. Yearly, quarterly and monthly series have dates, of a first year made up. "
            "Hyper-parameters of at most twenty rows each are averaged over (decision 0139)."
        )
        + f"{table(heads, rows)}\n"
        + prose(
            f"Rank {order.index(OURS) + 1} of {len(order)}. Its 95 % intervals hold {held}. A "
            f"series takes {mean(line['seconds'] for line in lines.values()):.2f} s."
        )
        + "![sMAPE](images/arena-m3.png)\n"
    )


def m3_errors(folder: Path, series: Sequence[Mapping]) -> Iterator[tuple[str, Mapping, float]]:
    """Method, series and error of each published forecast."""
    with np.load(folder / "m3" / "forecasts.npz") as file:
        place = {name: row for row, name in enumerate(file["ids"])}
        methods = {name: file[name] for name in file.files if name != "ids"}
    for name, forecasts in methods.items():
        for one in series:
            if len(forecasts) == len(place):
                row = forecasts[place[one["id"]], : one["h"]]
                yield name, one, smape(row, np.array(one["xx"]))


def categories(folder: Path) -> str:
    lines = read(RESULTS / "categories.jsonl")
    if not lines:
        return ""
    rows, said, behind = [], [], {}
    for name in TABLES:
        folds = sorted({line["seed"] for line in lines if line["set"] == name})
        scores = {}
        for path in (folder / "categories").glob(f"res_{name}_*.csv"):
            with path.open() as file:
                found = list(csv.DictReader(file))
            if "error" in found[0] and len(found) == 5:
                known = {int(row["experiment"]): row for row in found}
                scores[path.stem.removeprefix(f"res_{name}_")] = [
                    *(mean(float(known[fold][key]) for fold in folds) for key in ("error", "time")),
                    len(folds),
                ]
        for by in BY:
            own = [line for line in lines if line["set"] == name and line["by"] == by]
            if own:
                means = (mean(line[key] for line in own) for key in ("mse", "seconds"))
                scores[by] = [*means, len(own)]
                held = mean(line["coverage"] for line in own)
                said.append(
                    f"On {name} `{by}` learned from {own[0]['rows']:,} rows; its 95 % intervals "
                    f"hold {100 * held:.1f} %."
                )
        best = min(error for error, *_ in scores.values())
        behind |= {f"{name}: {system}": own[0] / best for system, own in scores.items()}
        rows += [
            [name, number, system, f"{error:.4f}", f"{seconds:.0f}"]
            for system, (error, seconds, number) in sorted(scores.items(), key=lambda p: p[1][0])
        ]
    order = sorted(behind, key=lambda name: (name.partition(":")[0], behind[name]))
    ours = [name for name in order if name.partition(": ")[2] in BY]
    title = "Mean squared error, of that of the best method"
    picture("arena-categories.png", title, behind, order, own=ours)
    return (
        "## Categories of thousands of levels\n\n"
        + prose(
            "Sigrist (2023): mean squared error of folds, as given. `wages` has 4,696 persons, "
            "`imdb` 38,190 directors. `latentgp` is a `TableModel` of text columns by "
            "default settings. All have an effect for each level; of persons a slope in time too "
            "where it is beside boosted trees or a smooth function by name. Seconds of others are "
            "theirs."
        )
        + f"{table(('table', 'folds', 'method', 'mean squared error', 'seconds'), rows)}\n"
        + prose(" ".join(said))
        + "![Mean squared error, of that of the best method](images/arena-categories.png)\n"
    )


def duqling() -> str:
    every = read(RESULTS / "duqling.jsonl")
    lines = by_set(every)
    if not lines:
        return ""
    left = {name: mean(x["unexplained"] for x in own) for name, own in lines.items()}
    held = {name: mean(x["coverage"] for x in own) for name, own in lines.items()}
    order = sorted(left, key=lambda name: -left[name])
    rows = [
        [name, FUNCTIONS[name][0], f"{left[name]:.2g}", f"{held[name]:.3f}",
         f"{mean(x['seconds'] for x in lines[name]):.0f}"]
        for name in order
    ]  # fmt: skip
    failed = by_set(read(RESULTS / "duqling.jsonl", failed=True))
    low = [name for name in order if held[name] < 0.85]
    named = f" ({', '.join(low)})" if low else ""
    title = "Share of variance left unexplained, 1,000 rows"
    picture("arena-duqling.png", title, left, order, own=order, log=True)
    none = (
        f'**No model at all** of {len(failed)}, {", ".join(failed)}: the fit ends with "{reason}"'
        for reason in {x["failure"].partition(": ")[2] for own in failed.values() for x in own}
    )
    return (
        f"## Test functions: {len(lines)} of duqling's 60\n\n"
        + prose(
            "Rumsey et al. (2025): Latin hypercubes of 1,000 inputs, no noise, 10,000 others. "
            f"{len(FUNCTIONS)} of the sixty are in `benchmarks/arena/functions.py`; constants, "
            "functions with random or tabulated coefficients, and those whose formula is in no "
            "publication are not."
        )
        + "".join(map(prose, none))
        + f"{table(('function', 'inputs', 'unexplained', 'coverage', 'seconds'), rows)}\n"
        + prose(
            f"Median {median(left.values()):.2g}; laGP's, over all sixty and quoted at second "
            f"hand, 0.0035. 95 % intervals hold {100 * mean(held.values()):.1f} % on average, "
            f"under 85 % of {len(low)} functions{named}; laGP's "
            f"92.5 %, and nine. Median {median(x['seconds'] for x in every):.0f} s a function; "
            "laGP's 101 s."
        )
        + "![Unexplained variance](images/arena-duqling.png)\n"
    )


def uci() -> str:
    lines = read(RESULTS / "uci.jsonl")
    if not lines:
        return ""
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    splits = {}
    for name, of_set in by_set(lines).items():
        own = {x["seed"] for x in of_set if x["by"] == OURS}
        splits[name] = len(own)
        for system in {x["by"] for x in of_set}:
            some = [x for x in of_set if x["by"] == system and x["seed"] in own]
            if own and {x["seed"] for x in some} == own:
                found[name][system] = {
                    key: mean(x[key] for x in some)
                    for key in ("rows", "nlpd", "rmse", "coverage", "seconds")
                }
    behind = {
        name: own[OURS]["nlpd"] - min(x["nlpd"] for s, x in own.items() if s != OURS)
        for name, own in found.items()
        if len(own) > 1
    }
    order = sorted(behind, key=lambda name: -behind[name])
    rows = [
        [name if system == OURS else "", splits[name] if system == OURS else "", system,
         *(f"{x[key]:.3f}" for key in ("nlpd", "rmse", "coverage")), f"{x['seconds']:.1f}"]
        for name in order
        for system, x in sorted(found[name].items(), key=lambda pair: pair[0] != OURS)
    ]  # fmt: skip
    heads = "set", "splits", "system", "NLPD", "RMSE", "coverage", "seconds"
    others = [
        [name, f"{found[name][OURS]['nlpd']:.2f}", *(f"{x[name]:.2f}" for x in UCI.values())]
        for name in order
        if name in UCI["PBP"]
    ]
    picture(
        "arena-uci.png", "NLPD less that of the better of LightGBM and NGBoost, nats",
        {name: max(min(behind[name], 2), -2) for name in order}, own=order,
    )  # fmt: skip
    return (
        f"## UCI: {len(order)} tables, {len(lines)} fits\n\n"
        + prose(
            "Negative log predictive density and root mean square error in the units of y. Splits "
            "are those of Hernández-Lobato & Adams (2015), drawn where these are not at hand "
            "(wine_white); `gap` holds out the middle third along an input (Foong et al. 2019). "
            "LightGBM has a constant spread and conformal intervals, of five-fold residuals. The "
            "sets naval, yacht and red wine are not here."
        )
        + f"{table(heads, rows)}\n"
        + prose("Published NLPD, means of twenty splits, quoted at second hand:")
        + f"{table(('set', OURS, *UCI), others)}\n"
        + prose(
            "Bars are cut at two nats. The best of seven Bayesian networks has 7.6 on the "
            "gaps of energy (quoted at second hand)."
        )
        + "![NLPD less that of the better peer](images/arena-uci.png)\n"
    )


def by_set(lines: Sequence[Mapping]) -> dict[str, list]:
    found: dict[str, list] = defaultdict(list)
    for line in lines:
        found[line["set"]].append(line)
    return dict(found)


def prose(text: str) -> str:
    """A paragraph."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n\n"


def table(heads: Sequence[str], rows: Table) -> str:
    """In Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def picture(
    name: str,
    title: str,
    values: Mapping[str, float],
    order: Sequence[str] = (),
    *,
    own: Sequence[str] = (),
    log: bool = False,
) -> None:
    """Horizontal bars, ours in another colour."""
    figure, axes = plt.subplots(figsize=(7, 0.25 * len(values) + 1))
    names = list(order) or list(values)
    colours = ["tab:orange" if n == OURS or n in own else "tab:grey" for n in names]
    axes.barh(np.arange(len(names)), [values[n] for n in names], color=colours)
    if log:
        axes.set_xscale("log")
    axes.set_yticks(np.arange(len(names)), names)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_title(title)
    figure.savefig(DOCS / "images" / name, dpi=100, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
