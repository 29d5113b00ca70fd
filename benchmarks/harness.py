"""Runs contestants in turn on the same problem and prints what each took and how well it did.

Every contestant is a process of its own: `ours.py` in this environment, a peer's `run.py` in
`.environments/<peer>`, which is made from the peer's `requirements.txt` when first needed. The
processes stay alive, so that after a first, cold run (compilation included) the rest are warm.
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Self, TypeAlias

import numpy as np

HERE = Path(__file__).resolve().parent
OURS = "latentgp"
OWN = {"augmented": "AugmentedVI", "variational": "VariationalInference"}
PEERS = (
    "scikit_learn",
    "gpytorch",
    "gpflow",
    "gpflux",
    "gpjax",
    "gpy",
    "numpyro",
    "blackjax",
    "gpboost",
    "tinygp",
    "celerite2",
)
ENVIRONMENTS = HERE / ".environments"
MOST_OWN_SECONDS = 300.0

Runs: TypeAlias = dict[str, list[dict[str, Any]]]  # results by contestant, the cold one first


@dataclass(frozen=True)
class Contestant:
    worker: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.worker


class Worker:
    """A contestant's process: one JSON line in a job, one out a result."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        script = HERE / "ours.py" if name == OURS else HERE / "peers" / name / "run.py"
        python = Path(sys.executable) if name == OURS else environment(name)
        # Ours may be another copy than the installed one; a peer sees its own environment alone.
        own = os.environ.get("PYTHONPATH") if name == OURS else None
        reading, writing = os.pipe()
        started = perf_counter()
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [python, script, str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), own]))},
                text=True,
            )
        os.close(writing)
        self._replies = os.fdopen(reading)
        self._log = log
        self.versions: dict[str, str] = self._reply()["versions"]
        self.start_seconds = perf_counter() - started

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return self._reply()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._replies.close()

    def _reply(self) -> dict[str, Any]:
        line = self._replies.readline()
        if not line:
            raise RuntimeError(f"{self.name} died:\n{self._log.read_text()[-2000:]}")
        return json.loads(line)


def environment(peer: str) -> Path:
    """The peer's Python, in an environment that holds exactly what its requirements ask for."""
    requirements = HERE / "peers" / peer / "requirements.txt"
    folder = ENVIRONMENTS / peer
    installed = folder / "installed.txt"
    python = folder / "bin" / "python"
    if not installed.exists() or installed.read_text() != requirements.read_text():
        print(f"installing {peer} in {folder} ...", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        installed.write_text(requirements.read_text())
    return python


class Session:
    """The workers of one benchmark, and what they measured."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._repeats: int = arguments.repeats
        self._json: Path | None = arguments.json
        self._folder = tempfile.TemporaryDirectory(prefix="benchmark-")
        ours = [] if arguments.peers_only else [OURS]
        self._workers: dict[str, Worker] = {}
        for name in [*ours, *arguments.peers]:
            self._workers[name] = Worker(name, Path(self._folder.name, f"{name}.log"))
        self._report = {
            "machine": machine(),
            "versions": {name: worker.versions for name, worker in self._workers.items()},
            "cases": [],
        }

    def __enter__(self) -> Self:
        for key, value in self._report["machine"].items():
            print(f"{key}: {value}")
        for worker in self._workers.values():
            versions = ", ".join(f"{key} {value}" for key, value in worker.versions.items())
            print(f"{worker.name}: {versions}; starts in {worker.start_seconds:.1f} s")
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()
        self._folder.cleanup()
        self._write()

    def _write(self) -> None:
        """What is known so far: a benchmark that is stopped loses no run that ended."""
        if self._json:
            self._json.write_text(json.dumps(self._report, indent=1))

    def compare(
        self,
        title: str,
        task: str,
        arrays: Mapping[str, np.ndarray],
        columns: Sequence[str],
        options: Mapping[str, Any] | None = None,
        contestants: Sequence[Contestant] = (),
        ard: bool = True,
        finish: Callable[[Runs], None] | None = None,
        cold: bool = True,
    ) -> None:
        """Run the contestants in turn (default: one a worker), then print their table.

        A contestant that fails is run no more, and its row says why. `finish` is given the runs
        of those that did not, to add what takes several contestants' results to know. `cold` says
        whether the seconds of the first run hold what later runs are spared, as compilation.
        """
        folder = Path(self._folder.name, f"case-{len(self._report['cases'])}")
        folder.mkdir()
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        job = {"task": task, "folder": str(folder)} | start(arrays["X"].shape[1], ard)
        entrants = [c for c in contestants if c.worker in self._workers]
        entrants = entrants or [Contestant(name) for name in self._workers]
        runs: Runs = {str(c): [] for c in entrants}
        case = {"title": title, "task": task, "options": options, "runs": runs}
        self._report["cases"].append(case)
        for repeat in range(1 + self._repeats):
            for contestant in entrants:
                done = runs[str(contestant)]
                if done and "failure" in done[-1]:
                    continue
                print(f"  {title}: {contestant}, run {repeat}", file=sys.stderr)
                job["options"] = {**(options or {}), **contestant.options}
                worker = self._workers[contestant.worker]
                done.append({"start_seconds": worker.start_seconds} | worker.run(job))
                figures = (f"{c} {number(done[-1].get(c))}" for c in columns if c in done[-1])
                print(f"    {', '.join(figures)}", file=sys.stderr)
                self._write()
        if finish:
            finish({name: done for name, done in runs.items() if "failure" not in done[-1]})
        print(f"\n{title}\n{table(runs, columns, cold)}", flush=True)


def parser(
    description: str, peers: Sequence[str], repeats: int, *, real_data: bool = True
) -> argparse.ArgumentParser:
    """The arguments that every benchmark takes."""
    result = argparse.ArgumentParser(description=description.partition("\n")[0])
    if real_data:
        result.add_argument("--data-dir", type=Path, required=True, help="folder of the .npz files")
    result.add_argument("--peers", nargs="*", choices=PEERS, default=peers)
    result.add_argument("--peers-only", action="store_true", help="leave latentgp out")
    result.add_argument(
        "--repeats", type=int, default=repeats, help="warm runs after the first (%(default)s)"
    )
    result.add_argument("--json", type=Path, help="write every run's figures to this file")
    return result


def add_training_arguments(
    result: argparse.ArgumentParser,
    *,
    inducing: int,
    batch_size: int,
    learning_rate: float,
    max_seconds: float,
    natural: float | None = None,
) -> None:
    """Those of the benchmarks whose peers take mini-batch steps against the clock."""
    result.add_argument("--inducing", type=int, default=inducing)
    result.add_argument("--batch-size", type=int, default=batch_size)
    result.add_argument("--learning-rate", type=float, default=learning_rate, help="Adam's")
    result.add_argument("--max-seconds", type=float, default=max_seconds)
    result.add_argument(
        "--evaluate-every", type=float, default=0.25, help="seconds of training, at most"
    )
    if natural is not None:
        result.add_argument(
            "--natural", type=float, default=natural, help="natural gradients' step; 0: Adam only"
        )
        result.add_argument("--learn-inducing", action="store_true", help="the peers do")


def own_methods() -> list[Contestant]:
    """Ours by each of `OWN`, labelled with its name."""
    return [stops_by_itself(method, f"{OURS} {name}") for name, method in OWN.items()]


def stops_by_itself(method: str, label: str = OURS) -> Contestant:
    """One of ours, which the peers' time limit does not cut short."""
    return Contestant(OURS, {"method": method, "max_seconds": MOST_OWN_SECONDS}, label)


def training_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What of these a worker is told."""
    names = ("batch_size", "learning_rate", "max_seconds", "evaluate_every", "learn_inducing")
    return {name: value for name, value in vars(arguments).items() if name in names}


def with_and_without_natural(
    worker: str, natural: float, options: Mapping[str, Any] | None = None, label: str = ""
) -> list[Contestant]:
    """A peer with Adam on everything, and one with natural gradients for q."""
    options, name = options or {}, f"{worker} {label}".strip()
    both = [Contestant(worker, options, f"{name}, Adam")]
    if natural:
        both.append(Contestant(worker, {**options, "natural": natural}, f"{name}, natural"))
    return both


def start(n_inputs: int, ard: bool) -> dict[str, Any]:
    """Where every contestant's hyper-parameters start, on standardised data."""
    return {
        "lengthscale": [n_inputs**0.5] * (n_inputs if ard else 1),
        "variance": 1.0,
        "noise_variance": 0.1,  # regression only
    }


def machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(": ")[1] for line in lines if line.startswith("model name")), cpu)
    return {
        "date": datetime.datetime.now().isoformat(timespec="minutes"),
        "cpu": f"{cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "threads": os.environ.get("OMP_NUM_THREADS", "each library's own default"),
    }


def table(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], columns: Sequence[str], cold: bool = True
) -> str:
    """Plain text, a row a contestant.

    `first` is the cold run and `median` that of the warm ones, in seconds, or of all where none is
    cold; the ratios are to the table's first contestant, so above 1 means slower than it. Other
    columns are medians over all runs, a dash where a contestant has no such figure.
    """
    heads = ["", *(["first s", "ratio"] if cold else []), "median s", "ratio", *columns]
    rows = [heads]
    base: tuple[float | None, ...] | None = None
    for contestant, results in runs.items():
        if "failure" in results[-1]:
            rows.append([contestant, results[-1]["failure"]])
            continue
        seconds = [result["seconds"] for result in results]
        times = (seconds[0], median(seconds[1:])) if cold else (median(seconds),)
        base = base or times
        cells = [contestant]
        for time, reference in zip(times, base, strict=True):
            cells += [number(time), number(time / reference if time and reference else None)]
        cells += [number(median([result.get(name) for result in results])) for name in columns]
        rows.append(cells)
    complete = [row for row in rows if len(row) == len(heads)]
    widths = [max(len(row[i]) for row in complete) for i in range(len(heads))]
    widths[0] = max(len(row[0]) for row in rows)
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=False)]
        )
        for row in rows
    )


def seconds_to(result: Mapping[str, Any], score: str, target: float) -> float | None:
    """Training time until a score was first as low as the target; None if it never was."""
    reached = (p["training_seconds"] for p in result["trace"] if p[score] <= target)
    return next(reached, None)


def note_time_to(result: dict[str, Any], score: str, target: float) -> None:
    """A training run's `seconds` are those to the target; its lowest score goes in a column."""
    result["seconds"] = seconds_to(result, score, target)
    result[f"lowest_{score}"] = min(point[score] for point in result["trace"])


def note_time_to_best_peer(runs: Runs, score: str = "log_loss") -> None:
    """Everyone's time to the best of the peers' last scores, turn by turn.

    And to the lowest that any of them was seen at: who learns too long ends above it. The time of
    the peer whose score it is, over a run's own, is its `times_faster`; that of whichever peer was
    there first, its `times_first`. Both are 0 for a run that did not get there.
    """
    for turn in zip(*runs.values(), strict=True):
        named = dict(zip(runs, turn, strict=True))
        peers = [run for name, run in named.items() if not name.startswith(OURS)]
        peers = [run for run in peers if math.isfinite(run[score])]
        best = min(peers, key=lambda run: run[score], default={score: float("-inf")})
        seen = (point[score] for run in peers for point in run["trace"])
        lowest = min(filter(math.isfinite, seen), default=float("-inf"))
        for run in turn:
            note_time_to(run, score, best[score])
            run["to_lowest_seconds"] = seconds_to(run, score, lowest)
        if peers:
            first = min(run["seconds"] for run in peers if run["seconds"] is not None)
            for run in turn:
                own = float("inf") if run["seconds"] is None else run["seconds"]
                run["times_faster"], run["times_first"] = best["seconds"] / own, first / own


def median(values: Sequence[float | None]) -> float | None:
    """None, of a run that did not get there, and NaN count as more than any number."""
    known = [float("inf") if v is None or math.isnan(v) else v for v in values]
    middle = statistics.median(known) if known else float("inf")
    return middle if middle < float("inf") else None


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 10_000 else f"{value:.5g}"
