"""Places and times: floats of the ocean, winds at sea, heights of a forest, beside GPBoost.

Sources: `argo2016` (temperatures at 100 dbar) and `jason3` (wind speeds) of GpGp (Guinness 2018),
`BCEF` (canopy heights and tree cover) of spNNGP (Finley, Datta & Banerjee 2022), with its own rows
held out; of the others a tenth is, drawn by seed. `latentgp` is `TableModel.fit(frame, target)`:
longitude and latitude are known by name, on the globe. GPBoost's is Vecchia's approximation with 20
neighbours of a Matérn 3/2: of places and times with a range each, chords of the globe in place of
degrees, tree cover with a linear effect. Of BCEF `latentgp, formula` has that effect and inducing
points, `latentgp, x and y alone` a Matérn 3/2 by neighbours. All learn from the same rows, on as
many cores as they may.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import latentgp as lgp
from common import Results, crps_of_normal, of_intervals, parser

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Worker, machine, start

PEER, FORMULA, PLANE = "GPBoost", "latentgp, formula", "latentgp, globe=False"
ALONE = "latentgp, x and y alone"


class Places(NamedTuple):
    """Columns of a table, and what its model by formula is."""

    target: str
    where: tuple[str, str]
    time: str | None = None
    covariates: tuple[str, ...] = ()
    held_out: str | None = None  # a column that is one of rows held out; None draws a tenth
    formula: str | None = None


TABLES = {
    "argo2016": Places("temp100", ("lon", "lat"), "day"),
    "jason3": Places("windspeed", ("lon", "lat"), "time"),
    "BCEF": Places("FCH", ("x", "y"), None, ("PTC",), "holdout", "FCH ~ PTC + gp(x, y)"),
}


def jobs(seeds: int) -> list[tuple[str, int, str]]:
    """Set, seed and system of each fit; rows that are given are held out once."""
    return [
        (name, seed, by)
        for name, own in TABLES.items()
        for seed in range(1 if own.held_out else seeds)
        for by in ("latentgp", *((FORMULA, ALONE) if own.formula else (PLANE,)), PEER)
    ]


def split(
    folder: Path, name: str, seed: int, most: int | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn from and rows held out, of the columns that a model takes."""
    own, table = TABLES[name], pd.read_csv(folder / f"{name}.csv.gz")
    generator = np.random.default_rng(seed)
    if own.held_out is None:
        out = generator.permutation(len(table)) < len(table) // 10
    else:
        out = table[own.held_out].to_numpy() == 1
    columns = [*own.where, *([own.time] if own.time else ()), *own.covariates, own.target]
    train, test = table.loc[~out, columns], table.loc[out, columns]
    some = slice(None) if most is None else np.sort(generator.permutation(len(train))[:most])
    return train.iloc[some], test


def coordinates(own: Places, frame: pd.DataFrame) -> np.ndarray:
    """Times, places and covariates as GPBoost reads them; degrees as points of the unit sphere."""
    places = frame[list(own.where)].to_numpy()
    if own.where == ("lon", "lat"):
        lon, lat = np.deg2rad(places).T
        places = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)
    first = [] if own.time is None else [frame[own.time].to_numpy()]
    return np.column_stack([*first, places, frame[list(own.covariates)].to_numpy()])


@functools.cache
def _worker() -> tuple[Worker, Path]:
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    return Worker("gpboost", folder / "log"), folder


def by_peer(own: Places, train: pd.DataFrame, test: pd.DataFrame) -> dict:
    """Seconds and covariance parameters; `moments` is of held-out rows."""
    worker, folder = _worker()
    job = Path(tempfile.mkdtemp(dir=folder))
    np.save(job / "X.npy", coordinates(own, train))
    np.save(job / "X_test.npy", coordinates(own, test))
    np.save(job / "y.npy", train[own.target].to_numpy(float))
    np.save(job / "y_test.npy", test[own.target].to_numpy(float))
    options = {"time": own.time is not None, "covariates": len(own.covariates), "neighbours": 20}
    reply = worker.run(
        {"task": "places", "folder": str(job), "options": options} | start(2, ard=False)
    )
    if "failure" in reply:
        raise RuntimeError(f"{PEER}: {reply['failure']}")
    mean, std = np.load(job / "predicted.npy")
    kept = {name: reply[name] for name in ("fit_seconds", "predict_seconds", "model")}
    frame = pd.DataFrame(
        {"mean": mean, "std": std, "lower": mean - 1.96 * std, "upper": mean + 1.96 * std}
    )
    return kept | {"version": worker.versions["gpboost"], "moments": frame}


def by_table(own: Places, train: pd.DataFrame, test: pd.DataFrame, seed: int, by: str) -> dict:
    """The same of a model of the table."""
    asked: Any = {"formula": own.formula} if by == FORMULA else {"target": own.target}
    asked |= {"globe": False} if by == PLANE else {}
    asked |= {"kernel": "matern32", "leave_out": own.covariates} if by == ALONE else {}
    started = time.perf_counter()
    model = lgp.TableModel.fit(train, random_state=seed, **asked)
    fitted = time.perf_counter()
    moments = model.predict(test)
    return {
        "fit_seconds": fitted - started,
        "predict_seconds": time.perf_counter() - fitted,
        "model": str(model.estimator.model_),
        "reason": model.estimator.method_reason_,
        "version": lgp.__version__,
        "moments": moments,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, help="to learn from at most; all without it")
    options = arguments.parse_args()
    cpu = machine()["cpu"]

    def fit(name: str, seed: int, by: str) -> dict:
        own = TABLES[name]
        train, test = split(options.folder, name, seed, options.rows)
        found = by_peer(own, train, test) if by == PEER else by_table(own, train, test, seed, by)
        y, moments = test[own.target].to_numpy(float), found.pop("moments")
        mean, std, lower, upper = (moments[n].to_numpy() for n in ("mean", "std", "lower", "upper"))
        return {
            "rows": len(train),
            "held_out": len(test),
            "crps": crps_of_normal(y, mean, std),
            "rmse": np.sqrt(np.mean((y - mean) ** 2)),
            **of_intervals(y, lower, upper),
            **found,
            "machine": cpu,
        }

    wanted = options.sets or list(TABLES)
    Results("places", options.out).fill((j for j in jobs(options.seeds) if j[0] in wanted), fit)


if __name__ == "__main__":
    main()
