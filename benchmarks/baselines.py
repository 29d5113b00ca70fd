"""The estimators' defaults beside simple baselines and other defaults, on twenty small tables.

Held-out negative log predictive density (of numbers, with standard deviation one) or log loss (of
classes), in nats a row, and the seconds of processor of the fit. Five splits a set: four fifths of
the rows, at most 1,000, to learn from, and at most 2,000 of the others held out. The baselines are
scikit-learn's: Bayesian ridge or logistic regression, and the Gaussian process with one
length-scale for all inputs (of classes by Laplace's approximation, one against the rest).
`default` is what a user of the estimators gets; the other contestants are the priors and kernels
that it was chosen among. All see the same standardised inputs, without columns that are constant
among the training rows.

Every fit is a line of `--results`; what is there already is not run again.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from jax import numpy as jnp
from numpyro.distributions import (
    Distribution,
    LogNormal,
    MultivariateNormal,
    MultivariateStudentT,
    Normal,
    StudentT,
    TransformedDistribution,
    constraints,
)
from numpyro.distributions.transforms import ExpTransform
from sklearn import datasets
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression

import latentgp as lgp
from contestant import class_scores, gaussian_scores
from data import Split, load, regression_split_of, split_of
from latentgp.hyperparameters.base import parameter
from latentgp.surfaces.estimators.initial_model import median_distance

MOST_ROWS, MOST_TEST_ROWS, SPLITS = 1000, 2000, 5
CLOSE = 0.01  # nats a row that the default may lose to the best baseline
RESULTS = Path(__file__).parent / "results" / "baselines.jsonl"
FILES = {  # of those that are not scikit-learn's own
    "airfoil": "uci_airfoil",
    "co2": "co2_monthly",
    "wine white": "wine_white",
    "breast ljubljana": "ratsch_breast_cancer",
    "breast wisconsin": "breast_wisconsin",
    "german": "ratsch_german",
    "image": "ratsch_image",
    "pima": "ratsch_diabetis",
    "titanic": "ratsch_titanic",
    "usps 3 or 5": "usps_3v5",
}
BUNDLED: dict[str, Callable[..., Any]] = {
    "breast cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "wine": datasets.load_wine,
}
NUMBERS = (
    *("motorcycle", "jura", "diabetes", "boston", "energy", "co2", "concrete", "airfoil"),
    *("creep", "wine white"),
)
CLASSES = (
    *("wine", "breast ljubljana", "breast cancer", "breast wisconsin", "vehicle", "pima"),
    *("german", "usps 3 or 5", "titanic", "image"),
)

# Friedman's function of five inputs; the others have no effect. Outside the twenty.
MADE = {"friedman, 10 inputs": 10, "friedman, 40 inputs": 40}
MADE_ROWS = 200

Scores: TypeAlias = dict[str, float]
Options: TypeAlias = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument(
        "--sets", nargs="+", choices=(*NUMBERS, *CLASSES, *MADE), default=NUMBERS + CLASSES
    )
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS), help="contestants")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    known = read(arguments.results)
    for name, contestant in product(arguments.sets, arguments.only):
        for seed in range(arguments.splits):
            if (name, seed, contestant) not in known:
                split = split_of_set(arguments.data_dir, name, seed)
                result = {"set": name, "split": seed, "contestant": contestant}
                result |= CONTESTANTS[contestant](split, name in CLASSES)
                with arguments.results.open("a") as file:
                    print(json.dumps(result), file=file)
    print(table(read(arguments.results), arguments.sets, arguments.only))


def split_of_set(data_dir: Path, name: str, seed: int, most_rows: int = MOST_ROWS) -> Split:
    if name in MADE:
        X, y = datasets.make_friedman1(
            MADE_ROWS + MOST_TEST_ROWS, MADE[name], noise=1.0, random_state=seed
        )
        most_rows = MADE_ROWS
    elif name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
    else:
        X, y = load(data_dir, FILES.get(name, name))
    if y.ndim > 1:
        y = y[:, 0]  # cadmium, of seven metals
    there = np.isfinite(X).all(axis=1)
    X, y = X[there], y[there]
    rows = min(round(0.8 * len(y)), most_rows)
    if name in CLASSES:
        split = split_of(X, y, rows, MOST_TEST_ROWS, seed)
    else:
        split = regression_split_of(X, y, rows, seed)
    varies = np.ptp(split.X, axis=0) > 0
    return Split(
        split.X[:, varies],
        split.y,
        split.X_test[:MOST_TEST_ROWS, varies],
        split.y_test[:MOST_TEST_ROWS],
    )


def linear(split: Split, classes: bool) -> Scores:
    """Bayesian ridge, or logistic regression."""
    started = process_time()
    if classes:
        model = LogisticRegression(max_iter=10_000).fit(split.X, split.y)
        return of_classes(split, model.predict_proba(split.X_test), process_time() - started)
    model = BayesianRidge().fit(split.X, split.y)
    return of_numbers(split, *model.predict(split.X_test, True), process_time() - started)


def isotropic(split: Split, classes: bool) -> Scores:
    """scikit-learn's process, its defaults but for a variance and a noise to learn."""
    started = process_time()
    kernel = ConstantKernel() * RBF(split.X.shape[1] ** 0.5)
    if classes:
        model = GaussianProcessClassifier(kernel, random_state=0).fit(split.X, split.y)
        return of_classes(split, model.predict_proba(split.X_test), process_time() - started)
    model = GaussianProcessRegressor(kernel + WhiteKernel(0.1), random_state=0)
    model.fit(split.X, split.y)
    seconds = process_time() - started
    evidence = {"log_evidence": model.log_marginal_likelihood_value_}
    return of_numbers(split, *model.predict(split.X_test, return_std=True), seconds) | evidence


def ours(options: Callable[[Split, bool], Options]) -> Callable[[Split, bool], Scores]:
    """An estimator with what some options say."""

    def run(split: Split, classes: bool) -> Scores:
        started = process_time()
        kind = lgp.GPClassifier if classes else lgp.GPRegressor
        fitted = kind(random_state=0, **options(split, classes)).fit(split.X, split.y)
        seconds = process_time() - started
        more = {
            "log_evidence": fitted.posterior_.log_evidence.value,
            "evaluations": fitted.diagnostics_.evaluations,
        }
        if classes:
            return of_classes(split, fitted.predict_proba(split.X_test), seconds) | more
        return of_numbers(split, *fitted.predict(split.X_test, return_std=True), seconds) | more

    return run


def of_classes(split: Split, probabilities: np.ndarray, seconds: float) -> Scores:
    scores = class_scores(split.y_test, probabilities)
    return {"loss": scores["log_loss"], "error": scores["error"], "seconds": seconds}


def of_numbers(split: Split, mean: np.ndarray, deviation: np.ndarray, seconds: float) -> Scores:
    scores = gaussian_scores(split.y_test, mean, deviation**2)
    return {"loss": scores["nlpd"], "error": scores["rmse"], "seconds": seconds}


class LinearInLengthscales(lgp.Kernel):
    """Linear functions whose slopes are measured in the length-scales of an RBF beside them."""

    rbf: lgp.RBF
    share: Any = parameter(constraints.positive, role="factor", default=0.3)

    def __call__(self, x: Any, z: Any) -> Any:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Any, Z: Any) -> Any:
        linear = (X / self.rbf.lengthscale) @ (Z / self.rbf.lengthscale).T
        return self.rbf.gram(X, Z) + self.share * self.rbf.variance * linear

    def diagonal(self, X: Any) -> Any:
        squared = jnp.sum((X / self.rbf.lengthscale) ** 2, axis=1)
        return self.rbf.diagonal(X) + self.share * self.rbf.variance * squared


Prior: TypeAlias = Callable[[int, float], Distribution]


def separate(longer: float = 1.0) -> Prior:
    """Each length-scale by itself, `longer` sqrt(D) give or take a factor of 5.7 (today's at 1)."""
    return lambda columns, typical: LogNormal(np.full(columns, np.log(longer * typical)), 3**0.5)


def shrunk(own: float, longer: float = 1.0) -> Prior:
    """In part the same for all inputs: logarithms with a deviation of sqrt(3), and their own."""

    def prior(columns: int, typical: float) -> Distribution:
        covariance = 3 + own**2 * np.eye(columns)
        centre = np.full(columns, np.log(longer * typical))
        return TransformedDistribution(MultivariateNormal(centre, covariance), ExpTransform())

    return prior


def adaptively_shrunk(own: float, degrees_of_freedom: float) -> Prior:
    """The same with Student's law: the more inputs differ, the less is one more worth."""

    def prior(columns: int, typical: float) -> Distribution:
        lower = np.linalg.cholesky(3 + own**2 * np.eye(columns))
        law = MultivariateStudentT(degrees_of_freedom, np.full(columns, np.log(typical)), lower)
        return TransformedDistribution(law, ExpTransform())

    return prior


class HeavyTailed(Distribution):
    """Logarithms around their own mean, which is normal, by independent laws of Student."""

    arg_constraints: ClassVar = {"loc": constraints.real_vector, "scale": constraints.positive}
    support = constraints.independent(constraints.positive, 1)

    def __init__(self, loc: Any, scale: Any, *, validate_args: bool | None = None):
        self.loc, self.scale = loc, scale
        super().__init__((), np.shape(loc), validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        logarithm = jnp.log(value) - self.loc
        mean = jnp.mean(logarithm)
        of_mean = Normal(0.0, 3**0.5).log_prob(mean)
        own = jnp.sum(StudentT(3.0, 0.0, self.scale).log_prob(logarithm - mean))
        return of_mean + own - jnp.sum(jnp.log(value))


def heavy_tailed(scale: float) -> Prior:
    """Most length-scales are alike, and a few much longer."""
    return lambda columns, typical: HeavyTailed(np.full(columns, np.log(typical)), scale)


def of(
    prior: Prior | None, kind: Literal["", "linear", "slopes", "in lengthscales"] = ""
) -> Callable[[Split, bool], Options]:
    """An RBF with a length-scale an input, or without a prior one for all, and a linear part.

    A linear part has one variance of slopes, one an input with `slopes`, or is measured in
    length-scales.
    """

    def options(split: Split, classes: bool) -> Options:
        columns = split.X.shape[1]
        start = median_distance(split.X, None)
        variance = 4.0 if classes else 1.0
        rbf = lgp.RBF(start if prior is None else np.full(columns, start), variance)
        priors, path = {}, "kernel."
        kernel: lgp.Kernel = rbf
        slope = 0.3 * variance / columns
        if kind == "linear":
            kernel, path = rbf + lgp.Linear(slope), "kernel.parts[0]."
            priors = {"kernel.parts[1].variance": LogNormal(np.log(slope), 2.0)}
        elif kind == "slopes":
            kernel, path = rbf + lgp.Linear(np.full(columns, slope)), "kernel.parts[0]."
            law = MultivariateNormal(np.full(columns, np.log(slope)), 4 + np.eye(columns))
            priors = {"kernel.parts[1].variance": TransformedDistribution(law, ExpTransform())}
        elif kind == "in lengthscales":
            kernel, path = LinearInLengthscales(rbf), "kernel.rbf."
            priors = {"kernel.share": LogNormal(np.log(0.3), 2.0)}
        if prior is not None:
            priors[f"{path}lengthscale"] = prior(columns, columns**0.5)
        return {"kernel": kernel, "priors": priors}

    return options


CONTESTANTS: Mapping[str, Callable[[Split, bool], Scores]] = {
    "linear": linear,
    "isotropic": isotropic,
    "default": ours(lambda split, classes: {}),
} | {
    name: ours(options)
    for name, options in {
        "separate": of(separate()),
        "separate, longer": of(separate(np.exp(2**0.5))),
        "shrunk to 1": of(shrunk(1.0)),
        "shrunk to 0.5": of(shrunk(0.5)),
        "shrunk to 0.35": of(shrunk(0.35)),
        "shrunk adaptively": of(adaptively_shrunk(0.35, 4.0)),
        "shrunk, heavy tails": of(heavy_tailed(0.35)),
        "shrunk to 0.5, heavy tails": of(heavy_tailed(0.5)),
        "tied": of(None),
        "with linear": of(separate(), "linear"),
        "tied with linear": of(None, "linear"),
        "shrunk to 0.5 with linear": of(shrunk(0.5), "linear"),
        "shrunk to 0.5 with slopes": of(shrunk(0.5), "slopes"),
        "shrunk to 0.5 with own linear": of(shrunk(0.5), "in lengthscales"),
        "adaptively with linear": of(adaptively_shrunk(0.35, 4.0), "linear"),
    }.items()
}


def read(path: Path) -> dict[tuple[str, int, str], Scores]:
    """What was run, by set, split and contestant."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {(line["set"], line["split"], line["contestant"]): line for line in lines}


def table(
    known: Mapping[tuple[str, int, str], Scores], sets: Sequence[str], contestants: Sequence[str]
) -> str:
    """Mean losses over all splits; at the end what contestants that ran on all sets come to."""
    means = {
        (name, contestant): tuple(
            float(np.mean([run[column] for run in runs])) for column in ("loss", "seconds")
        )
        for name, contestant in product(sets, CONTESTANTS)
        if len(runs := [r for key, r in known.items() if key[::2] == (name, contestant)]) == SPLITS
    }
    best = {
        name: min(means[name, baseline][0] for baseline in ("linear", "isotropic")) for name in sets
    }
    names = [c for c in contestants if any((name, c) in means for name in sets)]
    lines = [["set", *names], ["---"] * (len(names) + 1)]
    for name in sets:
        pairs = [means.get((name, contestant)) for contestant in names]
        lines.append([name, *("" if pair is None else f"{pair[0]:.4f}" for pair in pairs)])
    good, average, time = ["within 0.01 of the better baseline"], ["mean"], ["seconds"]
    for contestant in names:
        pairs = [means.get((name, contestant)) for name in sets]
        if None in pairs:
            cells = ("", "", "")
        else:
            losses, seconds = np.transpose(pairs)
            limits = [best[name] + CLOSE for name in sets]
            close = int(np.sum(losses <= limits))
            cells = f"{close} of {len(sets)}", f"{losses.mean():.4f}", f"{seconds.mean():.1f}"
        for line, cell in zip((good, average, time), cells, strict=True):
            line.append(cell)
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, good, average, time])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
