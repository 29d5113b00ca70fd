"""Writes docs/arena.md from the arena's results and the published scores.

Losses come first in every table. `FOLDER` is the folder of the arena, with the published files.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median

import matplotlib.pyplot as plt
import numpy as np

from common import RESULTS, read

OURS = "latentgp"
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
    parts += [srbench(folder), heaton(), classification(), survival(folder)]
    DOCS.joinpath("arena.md").write_text("\n".join(part for part in parts if part))


def srbench(folder: Path) -> str:
    published: dict[str, dict[str, float]] = defaultdict(dict)
    with (folder / "srbench" / "published.csv").open() as file:
        for row in csv.DictReader(file):
            if row["r2_test"] not in ("", "NA", "nan"):
                published[row["dataset"]][row["algorithm"]] = float(row["r2_test"])
    lines = by_set(read(RESULTS / "srbench.jsonl"))
    if not lines:
        return ""
    scores = {
        name: {**published[name], OURS: median(line["r2"] for line in of_set)}
        for name, of_set in lines.items()
    }
    ranks = {name: ranked(of_set) for name, of_set in scores.items()}
    systems = sorted(
        {system for of_set in scores.values() for system in of_set},
        key=lambda system: mean(r[system] for r in ranks.values() if system in r),
    )
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
         "{} {:.3f}".format(*max(published[name].items(), key=lambda pair: pair[1]))]
        for name in worst
    ]  # fmt: skip
    picture(
        "arena-srbench.png",
        "Mean rank on SRBench's sets",
        {system: mean(r[system] for r in ranks.values() if system in r) for system in systems},
    )
    return (
        f"## SRBench: {len(scores)} sets, {len(every)} fits\n\n"
        "La Cava et al. (2021): R2 of a quarter of the rows, median over seeds; published figures\n"
        "are medians of ten. Rank among 22 systems.\n\n"
        f"Worst ranks:\n\n{table(('set', 'rows', 'rank', 'R2', 'best'), lost)}\n"
        f"{table(heads, [row(system) for system in systems])}\n"
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
        {name: behind[name] for name in order},
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
    published: dict[str, dict[str, float]] = defaultdict(dict)
    with (folder / "survival" / "published.csv").open() as file:
        for row in csv.DictReader(file):
            if row["tune_measure"] == "harrell_c" and row["harrell_c"]:
                published[row["task_id"]][row["learner_id"]] = float(row["harrell_c"])
    scores = {
        name: {**published[name], OURS: mean(line["harrell_c"] for line in of_set)}
        for name, of_set in lines.items()
    }
    ranks = {name: ranked(of_set) for name, of_set in scores.items()}
    order = sorted(scores, key=lambda name: -ranks[name][OURS])
    rows = [
        [name, len(lines[name]), f"{ranks[name][OURS]:.0f} of {len(scores[name])}",
         f"{scores[name][OURS]:.3f}",
         "{} {:.3f}".format(*max(published[name].items(), key=lambda pair: pair[1]))]
        for name in order
    ]  # fmt: skip
    return (
        "## Survival\n\n"
        "Burk et al. (2024): Harrell's concordance, means over the folds that were run; published\n"
        f"figures are means over all folds.\n\n"
        f"{table(('set', 'folds', 'rank', 'concordance', 'best'), rows)}\n"
        f"Mean rank {mean(r[OURS] for r in ranks.values()):.1f}.\n"
    )


def by_set(lines: Sequence[Mapping]) -> dict[str, list]:
    found: dict[str, list] = defaultdict(list)
    for line in lines:
        found[line["set"]].append(line)
    return dict(found)


def ranked(scores: Mapping[str, float]) -> dict[str, float]:
    """Ranks from the highest score, rounded to three digits; equal ones share the mean rank."""
    values = {system: round(value, 3) for system, value in scores.items()}
    return {
        system: 1
        + sum(other > value for other in values.values())
        + (sum(other == value for other in values.values()) - 1) / 2
        for system, value in values.items()
    }


def table(heads: Sequence[str], rows: Table) -> str:
    """In Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def picture(name: str, title: str, values: Mapping[str, float]) -> None:
    """Horizontal bars, ours in another colour."""
    figure, axes = plt.subplots(figsize=(7, 0.25 * len(values) + 1))
    names = list(values)
    colours = ["tab:orange" if n == OURS or title.startswith("Log") else "tab:grey" for n in names]
    axes.barh(np.arange(len(names)), list(values.values()), color=colours)
    axes.set_yticks(np.arange(len(names)), names)
    axes.invert_yaxis()
    axes.set_title(title)
    figure.savefig(DOCS / "images" / name, dpi=100, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
