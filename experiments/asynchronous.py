"""Asynchronous training of a deep Gaussian process: time and error by the number of workers.

Cutajar, Bonilla, Michiardi & Filippone (2017), appendix F (arXiv:1610.04386): a parameter server
and 1, 5 and 10 workers on MNIST, which send gradients on random batches at the parameters they last
pulled. Published: time falls, less than linearly, and error rises with workers, as gradients are
stale.

Here the server is the calling process and workers are Ray actors of one thread each. All make the
same number of passes, after which held-out rows are scored. "seconds a pass" are those of the
second half of the steps, when all have compiled. Beside them the synchronous loop on all cores.
Where there are fewer cores than workers and a server, time cannot fall further, but staleness and
what it does to the error are those of as many workers. `--pause` lets a worker wait at each batch,
as if its processor were slower, so that processes do not compete for cores.

Not said and chosen here: 20,000 of the rows, two layers, 30 hidden functions, batches of 500, Adam
with 0.003, the last layer's posterior factorised, as published, and by natural gradients.
"""

import os
import time

import jax
import numpy as np

import latentgp as lgp
from common import COLORS, Report, class_scores, figure, load, parser, tidy
from latentgp.extensions.batches import asynchronous
from latentgp.extensions.batches.asynchronous import BatchReader

HEADS = [
    "last layer", "workers", "error, %", "NLPD", "bound a row", "seconds a pass", "mean staleness",
    "largest", "lost", "load",
]  # fmt: skip


class Paused(BatchReader):
    """A worker that takes longer."""

    pause = 0.0

    def __call__(self, request):
        time.sleep(self.pause)
        return super().__call__(request)


def run(last, workers, arguments, X, y):
    """A row of the table, and the bounds a row of the rounds with their numbers of passes."""
    hidden = lgp.Layer(lgp.RBF(np.sqrt(784)), 5 if arguments.quick else 30)
    model = lgp.DeepGP(lgp.RBF(np.sqrt(814)), lgp.Softmax(10), layers=[hidden])
    rows = 2000 if arguments.quick else 20_000
    method = lgp.RandomFeatureVI(
        features=20 if arguments.quick else arguments.features,
        last=last,
        batch_size=100 if arguments.quick else 500,
        epochs=arguments.passes,
        components=4,
        workers=workers,
    )
    seen = []  # steps and seconds

    def tell(progress):
        seen.append((progress.steps, time.perf_counter()))

    fit = lgp.fit(
        model, lgp.Data(X[:rows], y[:rows]), key=jax.random.key(0), method=method, callback=tell
    )
    steps, seconds = np.array(seen).T
    half = np.searchsorted(steps, 0.5 * steps[-1])
    rate = (steps[-1] - steps[half]) / (seconds[-1] - seconds[half])
    held_out = slice(60_000, 61_000 if arguments.quick else 70_000)
    parts = np.array_split(X[held_out], 10)
    probabilities = np.concatenate([fit.posterior.predict(part).probabilities for part in parts])
    scores = class_scores(y[held_out], probabilities)
    went = fit.diagnostics.finding("asynchrony")
    stale = (
        (None,) * 3 if went is None else (went.mean_staleness, went.largest_staleness, went.lost)
    )
    bounds = fit.history.bound / rows
    row = [last, workers or "none", 100 * scores["error"], scores["log loss"]]
    row += [np.mean(bounds[-len(bounds) // 4 :]), steps[-1] / arguments.passes / rate, *stale]
    return [*row, os.getloadavg()[0]], steps / steps[-1] * arguments.passes, bounds


def main():
    options = parser(__doc__)
    options.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2, 4])
    options.add_argument("--passes", type=int, default=6)
    options.add_argument("--features", type=int, default=100)
    kinds = ["factorised", "natural"]
    options.add_argument("--last", nargs="+", choices=kinds, default=kinds)
    options.add_argument("--pause", type=float, default=0.0, help="seconds a batch, of a worker")
    arguments = options.parse_args()
    if arguments.pause:
        Paused.pause = arguments.pause
        asynchronous.BatchReader = Paused
    report = Report("asynchronous", arguments)
    X, y = load(arguments.data_dir, "mnist")
    X = X / 255.0
    drawn = figure(4.5 * len(arguments.last), 3.4)
    table = []
    grid = drawn.subplots(1, len(arguments.last), squeeze=False)[0]
    for axes, last in zip(grid, arguments.last, strict=True):
        for color, workers in zip(COLORS, arguments.workers, strict=False):
            row, passes, bounds = run(last, workers, arguments, X, y)
            report.note(f"{last}, {workers} workers: {row[2]:.2f} %, {row[5]:.1f} s a pass")
            table.append(row)
            axes.plot(passes, bounds, color=color, label=f"{workers or 'no'} workers")
        tidy(axes, f"MNIST, last layer {last}", "passes over the rows", "bound a row, nats")
        axes.legend(fontsize=8)
    report.table(f"MNIST, {arguments.passes} passes", HEADS, table)
    report.save(drawn)


if __name__ == "__main__":
    main()
