"""Very many classes: steps that look at some of them, and at all.

`Stochastic(AugmentedVI(Inducing(M)), classes=S)` with the logistic-softmax draws S of K classes a
step and holds the others' terms. Made here: N rows of two inputs whose classes are regions around
random centres, a tenth of the labels drawn anew. Time a step, compilation and the first round left
out (nan where it is all there is), and the held-out log loss after as many epochs; hyper-parameters
fixed at a length-scale of 0.5 and a variance of 4 unless `--learn-hyperparameters`. Chance is log
K, and no prediction can be better than `least`, where the regions are known.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import harness
import latentgp as lgp

MOST_TEST_ROWS = 5_000


def rows(
    number: int, classes: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Inputs, labels, and the log loss of one who knows the regions, in nats a row."""
    centres = generator.uniform(-3, 3, (classes, 2))
    X = generator.uniform(-3, 3, (number, 2))
    labels = np.argmin(((X[:, None] - centres) ** 2).sum(axis=2), axis=1)
    anew = generator.uniform(size=number) < 0.1
    right = 0.9 + 0.1 / classes
    wrong = 0.1 / classes
    least = -(right * np.log(right) + (classes - 1) * wrong * np.log(wrong))
    return X, np.where(anew, generator.integers(classes, size=number), labels), float(least)


def measure(
    split: tuple[np.ndarray, ...], K: int, drawn: int, arguments: argparse.Namespace
) -> dict[str, float]:
    """One fit: `drawn` classes a step, all of them where that is K."""
    X, y, X_test, y_test = split
    points = X[np.random.default_rng(1).choice(len(X), arguments.inducing, replace=False)]
    method = lgp.Stochastic(
        lgp.AugmentedVI(lgp.Inducing(points=points)),
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        classes=None if drawn == K else drawn,
        tolerance=0.0,
        patience=10_000,
    )
    model = lgp.LatentGP(lgp.RBF(lengthscale=[0.5, 0.5], variance=4.0), lgp.LogisticSoftmax(K))
    rounds = []
    started = time.perf_counter()
    result = lgp.fit(
        model,
        lgp.Data(X, y.astype(float)),
        key=jax.random.key(0),
        method=method,
        learn_hyperparameters=arguments.learn_hyperparameters,
        callback=lambda progress: rounds.append((progress.steps, time.perf_counter())),
    )
    whole = time.perf_counter() - started
    (first, begun), (last, ended) = rounds[0], rounds[-1]
    probabilities = result.posterior.predict(X_test).probabilities
    return {
        "classes": K,
        "drawn": drawn,
        "step ms": 1e3 * (ended - begun) / (last - first) if last > first else float("nan"),
        "steps": last,
        "fit s": whole,
        "log loss": lgp.metrics.log_loss(y_test, probabilities),
        "error": float(np.mean(probabilities.argmax(axis=1) != y_test)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--drawn", type=int, nargs="+", default=[20, 8], help="classes a step")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--learn-hyperparameters", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for key, value in harness.machine().items():
        print(f"{key}: {value}")
    generator = np.random.default_rng(0)
    K = arguments.classes
    X, y, least = rows(arguments.rows + MOST_TEST_ROWS, K, generator)
    split = X[: arguments.rows], y[: arguments.rows], X[arguments.rows :], y[arguments.rows :]
    print(f"chance {np.log(K):.4g}, least {least:.4g} nats a row")
    found = []
    for drawn in arguments.drawn:
        found.append(measure(split, K, drawn, arguments))
        print(", ".join(f"{name} {value:.4g}" for name, value in found[-1].items()), flush=True)
    if arguments.json:
        report = {"machine": harness.machine(), "least": least, "runs": found}
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
