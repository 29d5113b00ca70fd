"""How a pass over the rows scales: time and memory with N, and time over processes of one core.

One epoch of `Stochastic` from Parquet files of 28 inputs, hyper-parameters fixed unless
`--learn-hyperparameters`, compilation left out: the first of at least two rounds is not counted.
Every N is a process of its own, held to one core. Strong scaling: the same rows by one process on
one core, and by two that talk through gloo, on a core each; what the machine allows is told by two
that do not talk, each with half of the rows. The three in turn, and the median of each, with each
size of batches: the messages of an epoch are as many as its batches.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import synthetic

INDUCING = 200


def worker(
    folder: str, batch: str, learn: str, cores: str, port: str, processes: str, process: str
) -> None:
    """One pass; prints its seconds and the most memory that was resident."""
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    import resource

    import jax

    import latentgp as lgp

    if int(processes) > 1:
        lgp.join_processes(f"127.0.0.1:{port}", int(processes), int(process))
    names = [f"x{column:02}" for column in range(synthetic.INPUTS)]
    rows = lgp.FileRows(folder, target=synthetic.TARGET, inputs=names)
    Z, _ = synthetic.rows(INDUCING, seed=99)
    model = lgp.LatentGP(
        lgp.RBF(lengthscale=np.full(synthetic.INPUTS, 5.0), variance=4.0), lgp.Bernoulli()
    )
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(points=Z.astype(float))),
        batch_size=int(batch),
        epochs=1,
        tolerance=0.0,
        patience=10_000,
    )
    rounds = []
    devices = jax.devices() if int(processes) > 1 else None
    lgp.fit(
        model,
        rows,
        key=jax.random.key(0),
        method=method,
        learn_hyperparameters=bool(int(learn)),
        callback=lambda progress: rounds.append((progress.steps, time.perf_counter())),
        devices=devices,
    )
    if len(rounds) < 2:
        raise SystemExit("one round is all: ask for more --rows or a smaller --batch-size")
    (first, begun), (last, ended) = rounds[0], rounds[-1]
    found = {
        "seconds": (ended - begun) * rounds[-1][0] / (last - first),
        "steps": last,
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(found), flush=True)


def run(
    folder: Path, batch: int, learn: bool, cores: list[str], talking: bool = True
) -> dict[str, float]:
    """As many processes as lists of cores; what the slowest says."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, __file__, "--worker", folder),
                *map(str, (batch, int(learn), own, port, len(cores) if talking else 1, i)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, own in enumerate(cores)
    ]
    replies = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a process failed; what it said stands above")
    return max(
        (json.loads(reply.splitlines()[-1]) for reply in replies), key=lambda said: said["seconds"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of picture and figures")
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 500_000, 10**6, 2 * 10**6])
    parser.add_argument("--batch-size", type=int, default=8_000)
    parser.add_argument("--strong-batch-sizes", type=int, nargs="+", default=[8_000, 32_000])
    parser.add_argument("--learn-hyperparameters", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="of strong scaling")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    learn = arguments.learn_hyperparameters
    with tempfile.TemporaryDirectory() as scratch:
        passes = []
        for number in arguments.rows:
            folder = Path(scratch, str(number))
            synthetic.write(folder, number)
            passes.append({"rows": number} | run(folder, arguments.batch_size, learn, ["0"]))
            print(passes[-1], flush=True)
        half = Path(scratch, "half")
        synthetic.write(half, arguments.rows[-1] // 2)
        turns = []
        for _ in range(arguments.repeats):
            for batch in arguments.strong_batch_sizes:
                turns.append(
                    {
                        "batch": batch,
                        "one process": run(folder, batch, learn, ["0"])["seconds"],
                        "two": run(folder, batch, learn, ["0", "1"])["seconds"],
                        "two that do not talk": run(half, batch // 2, learn, ["0", "1"], False)[
                            "seconds"
                        ],
                    }
                )
                print(turns[-1], flush=True)
    N, seconds, memory = (
        np.array([p[name] for p in passes]) for name in ("rows", "seconds", "peak MiB")
    )
    slope = float(np.polyfit(np.log(N), np.log(seconds), 1)[0])
    report = {
        "passes": passes,
        "log-log slope of time": slope,
        "MiB a million rows": float(np.polyfit(N / 1e6, memory, 1)[0]),
        "strong scaling": [
            strong_scaling([turn for turn in turns if turn["batch"] == batch])
            for batch in arguments.strong_batch_sizes
        ],
    }
    print(json.dumps(report, indent=1))
    (arguments.out / "scaling.json").write_text(json.dumps(report, indent=1))
    picture(N, seconds, memory, slope, arguments.out / "scaling.png")


def strong_scaling(turns: list[dict[str, float]]) -> dict[str, float]:
    """Medians of turns with one size of batches, seconds, and their ratios."""
    medians = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    return medians | {
        "times": medians["one process"] / medians["two"],
        "the machine's own": medians["one process"] / medians["two that do not talk"],
    }


def picture(
    N: np.ndarray, seconds: np.ndarray, memory: np.ndarray, slope: float, path: Path
) -> None:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8.5, 3.4), layout="constrained")
    left, right = drawn.subplots(1, 2)
    left.loglog(N, seconds, "o-", color="#0072B2")
    left.set_yticks(seconds, [f"{value:.1f}" for value in seconds])
    left.set_title(f"one pass: time ~ N^{slope:.2f}", fontsize=10)
    left.set_ylabel("seconds")
    right.semilogx(N, memory, "o-", color="#D55E00")
    right.set_ylim(0, 1.2 * memory.max())
    right.set_title("most memory resident", fontsize=10)
    right.set_ylabel("MiB")
    for ax in (left, right):
        ax.minorticks_off()
        ax.set_xticks(N, [f"{rows / 1e6:g}" for rows in N])
        ax.set_xlabel("rows N, millions")
        ax.grid(visible=True, color="#E4E4E4")
        ax.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=110)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main()
