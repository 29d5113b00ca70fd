"""What the experiments share: arguments, data, splits, scores, tables, pictures.

Every script on real data takes `--data-dir` (the folder of the .npz files), and all take `--out`
(where a picture and a JSON file of the figures go) and `--quick` (a reduced run, to see that
everything works).
"""

import argparse
import datetime
import json
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import latentgp as lgp
from latentgp import metrics
from latentgp.surfaces.evaluation.plots import save_figure

# Okabe & Ito (2008), then greys; line styles tell curves apart without colour.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E6E6E", "#000000")
STYLES = ("-", "--", "-.", ":", "-", "--", "-.", ":")

# A fit's warnings (too few inducing points, say) are expected where settings are prescribed.
warnings.simplefilter("ignore", UserWarning)


def parser(doc: str, *, real_data: bool = True) -> argparse.ArgumentParser:
    """The arguments that every experiment takes."""
    result = argparse.ArgumentParser(description=doc.partition("\n")[0])
    if real_data:
        result.add_argument("--data-dir", type=Path, required=True, help="folder of the .npz files")
    result.add_argument("--out", type=Path, default=Path("experiment-results"))
    result.add_argument("--quick", action="store_true", help="a reduced run of about a minute")
    result.add_argument("--jobs", type=int, default=1, help="parts that run at once, where some do")
    return result


class Report:
    """Prints tables as they come and keeps them for the JSON file."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name, self.folder = name, arguments.out
        self.content: dict[str, Any] = {
            "experiment": name,
            "machine": machine(),
            "arguments": {key: str(value) for key, value in vars(arguments).items()},
        }
        for key, value in self.content["machine"].items():
            print(f"{key}: {value}")
        print(f"arguments: {self.content['arguments']}", flush=True)

    def table(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table in plain text and keep it."""
        self.content[title] = [dict(zip(heads, row, strict=True)) for row in rows]
        cells = [list(heads), *([text(cell) for cell in row] for row in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
        print(f"\n{title}")
        for row in cells:
            first = row[0].ljust(widths[0])
            rest = [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
            print("  ".join([first, *rest]), flush=True)

    def note(self, sentence: str) -> None:
        """Print a sentence and keep it."""
        self.content.setdefault("notes", []).append(sentence)
        print(sentence, flush=True)

    def save(self, figure: Figure) -> None:
        """Write picture and figures."""
        picture = save_figure(figure, self.folder / f"{self.name}.png", dots_per_inch=110)
        numbers = self.folder / f"{self.name}.json"
        numbers.write_text(json.dumps(self.content, indent=1, default=_plain))
        print(f"\nwritten: {picture}, {numbers}")


def at_once(tasks: Sequence[Callable[[], Any]], jobs: int) -> list[Any]:
    """What the tasks give, in their order, so many in threads at a time, in double precision.

    Tasks that share a program share its compilation once one of them has it.
    """

    def alone(task: Callable[[], Any]) -> Any:
        with jax.enable_x64(True):
            return task()

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(alone, tasks))


def machine() -> dict[str, str]:
    """Where and when."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(": ")[1] for line in lines if line.startswith("model name")), cpu)
    return {
        "date": datetime.datetime.now().isoformat(timespec="minutes"),
        "cpu": f"{cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "software": f"Python {platform.python_version()}, JAX {jax.__version__}, "
        f"latentgp {lgp.__version__}, float64",
    }


def load(data_dir: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, D) and targets (N,) of a data set, in the file's units."""
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(float), file["y"].astype(float)


def train_and_test(data_dir: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows held out, as the data set has them."""
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as file:
        return np.flatnonzero(file["train_mask"]), np.flatnonzero(~file["train_mask"])


def standardised(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Arrays with the training rows' mean and standard deviation taken out of all."""
    centre, spread = train.mean(axis=0), train.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return [(values - centre) / spread for values in (train, *others)]


def folds(rows: int, number: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and rows held out, of each fold of a seeded permutation.

    Folds are equally large, so that one compilation serves all; the few rows that are left over
    are trained on in every fold.
    """
    order = np.random.default_rng(seed).permutation(rows)
    for held_out in order[: rows // number * number].reshape(number, -1):
        yield np.setdiff1d(order, held_out), np.sort(held_out)


def random_split(rows: int, train: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """So many rows to train on, drawn at random, and the others."""
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[:train]), np.sort(order[train:])


def median_distance(X: np.ndarray) -> float:
    """Median distance between two of (at most 1,000) rows."""
    from scipy.spatial.distance import pdist

    return float(np.median(pdist(X[:: -(-len(X) // 1000)])))


def fit_fixed(model: lgp.LatentGP, X: np.ndarray, y: np.ndarray, method: lgp.Method, **settings):
    """A fit with the hyper-parameters as they are."""
    return lgp.fit(
        model,
        lgp.Data(X, y),
        key=jax.random.key(0),
        method=method,
        learn_hyperparameters=False,
        **settings,
    )


def class_scores(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Error, log loss and expected calibration error of class probabilities (N, K)."""
    return {
        "error": float(np.mean(probabilities.argmax(axis=1) != labels)),
        "log loss": metrics.log_loss(labels, probabilities),
        "ECE": metrics.expected_calibration_error(labels, probabilities),
    }


def log_losses(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Minus log probability of each row's class, in nats, shape (N,)."""
    given = probabilities[np.arange(len(labels)), labels.astype(int)]
    return -np.log(np.maximum(given, np.finfo(float).tiny))


def paired(differences: np.ndarray) -> tuple[float, float]:
    """Mean of differences, one a row, and its standard error."""
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def figure(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def tidy(ax: Any, title: str, x: str, y: str, *, legend: bool = False, **placement: Any) -> None:
    """Title, labels, a light grid, and the legend where asked for."""
    ax.set_title(title, fontsize=10)
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)
    ax.grid(visible=True, color="#E4E4E4", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    if legend:
        ax.legend(fontsize=8, framealpha=0.9, edgecolor="none", **placement)


def text(cell: Any) -> str:
    """A table's cell."""
    if cell is None:
        return "-"
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, float | np.floating):
        return f"{cell:.1f}" if abs(cell) >= 10_000 else f"{cell:.4g}"
    return str(cell)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
