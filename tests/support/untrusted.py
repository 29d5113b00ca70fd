"""Reads mutated files one after another, in a process that limits of time and memory may end.

    python untrusted.py KIND FOLDER FIRST LAST

prints a line of JSON for every case: before it is read, and after.
"""

import json
import random
import resource
import signal
import sys
import warnings
from itertools import islice
from pathlib import Path

import jax

import latentgp as lgp
import mutations
from latentgp.surfaces.tables import read_table
from problems import BINARY, X, classification

SECONDS, BYTES = 20, 2 << 30
KEY = jax.random.key(0)
DATA = lgp.Data(X, BINARY)
SETTINGS = {
    "search": (
        classification(),
        DATA,
        {"method": lgp.VariationalInference(), "max_evaluations": 4},
    ),
    "batches": (
        classification(),
        DATA,
        {
            "method": lgp.Stochastic(
                lgp.VariationalInference(lgp.Inducing(points=X[:4] + 0.1)), batch_size=4, epochs=2
            )
        },
    ),
    "chains": (
        classification(),
        DATA,
        {"method": lgp.GibbsSampling(draws=4, warmup=2, chains=2)},
    ),
}


def fitted(kind, path):
    """A fit that goes on from a checkpoint, or begins one."""
    model, data, settings = SETTINGS[kind]
    return lgp.fit(model, data, key=KEY, checkpoint=path, **settings)


def read_rows(path):
    """Both readers of tables; an error of either is one."""
    try:
        read_table(path)
    finally:
        source = lgp.FileRows(path, target="y")
        source.sample(64)
        list(islice(source.epoch((0,), 16), 50))


READERS = {
    "model": lgp.load,
    "csv": read_rows,
    "parquet": read_rows,
    **{kind: lambda path, kind=kind: fitted(kind, path) for kind in SETTINGS},
}
STRUCTURED = {
    "model": [mutations.safetensors_changed, *[mutations.doctored_model] * 3],
    "csv": [mutations.csv_changed],
    "parquet": [mutations.footer_changed, mutations.rows_claimed, mutations.columns_changed],
    **{kind: [mutations.safetensors_changed, mutations.doctored_checkpoint] for kind in SETTINGS},
}


def mutation(kind, folder, case):
    """The mutated file of a case: its name and what is in it."""
    chance = random.Random(f"{kind} {case}")
    files = sorted(folder.iterdir())
    file = files[case % len(files)]
    content = file.read_bytes()
    changes = [mutations.bytes_changed, *STRUCTURED[kind]]
    change = changes[case // len(files) % len(changes)]
    return file.name, change(content, chance)


def outcome(kind, path):
    """What became of reading a file: "read", "refused", or what is wrong."""
    try:
        READERS[kind](path)
    except lgp.InputError as error:
        return "refused" if len(str(error).splitlines()) == 1 else f"{error!r}"[:300]
    except BaseException as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error}"[:300]
    return "read"


def main(kind, folder, first, last):
    warnings.simplefilter("ignore")
    if kind in SETTINGS:
        fitted(kind, folder / "checkpoint")
    READERS[kind](sorted(folder.iterdir())[0])  # imports and compiles
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    place = folder.parent / f"{kind}-mutated"
    place.mkdir(exist_ok=True)
    for case in range(first, last):
        name, content = mutation(kind, folder, case)
        path = place / name
        path.write_bytes(content)
        print(json.dumps({"case": case}), flush=True)
        signal.alarm(SECONDS)  # ends the process, also where it does not return to Python
        result = outcome(kind, path)
        signal.alarm(0)
        print(json.dumps({"case": case, "outcome": result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
