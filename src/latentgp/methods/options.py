"""Options of fits: each with its type, default and document in one place."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from numpyro.distributions import Distribution

from latentgp.runtime.progress import Callback

Hyperparameters = Literal["optimise", "integrate", "sample", "auto"]


@dataclass(kw_only=True, eq=False, repr=False)
class SearchOptions:
    """Options of `fit` and of the estimators.

    Args:
        hyperparameters: "optimise" takes the most probable ones, "integrate" averages over them by
            the method's evidence (`Integrated`), "sample" draws them by Markov chains, "auto"
            integrates where rows are few and else optimises; `TableModel` takes that by default.
        learn_hyperparameters: False keeps the values of the kernel and the likelihood; True treats
            them as `hyperparameters` says.
        priors: "weak" sets wide log-normal ones, scaled to the data, on length-scales and
            variances (in a stream around the model's values); a mapping such as
            `{"kernel.lengthscale": LogNormal(0.0, 1.0)}` changes them by path (None: no prior
            there); None means none. A hyper-parameter stays in the support of its prior; a start
            outside is moved into it, with a warning.
        frozen: paths (or their beginnings) of hyper-parameters that are not learned, such as
            `["kernel.period"]`.
        restarts: further runs of the search from random starts; the best of all is kept.
        max_evaluations: evaluations of the bound in each run on all rows; a fit in batches has
            epochs instead.
        max_seconds: seconds for the whole search, which ends with the best so far; a sampler makes
            its warm-up and some draws in any case. "auto" chooses what is likely to be done in that
            time, or in a minute if None.
        callback: called, in every process, with a `RunProgress` after every step; true ends the
            search or the sampling with what there is.
        verbose: 1 shows progress of what takes long: a line in a terminal, else one in ten seconds.
    """

    hyperparameters: Hyperparameters = "optimise"
    learn_hyperparameters: bool = True
    priors: Mapping[str, Distribution | None] | Literal["weak"] | None = "weak"
    frozen: Sequence[str] = ()
    restarts: int = 0
    max_evaluations: int = 200
    max_seconds: float | None = None
    callback: Callback | None = None
    verbose: int = 0

    @property
    def frozen_paths(self) -> tuple[str, ...]:
        """Paths that are frozen, of which one may stand alone."""
        return (self.frozen,) if isinstance(self.frozen, str) else tuple(self.frozen)


@dataclass(kw_only=True, eq=False, repr=False)
class FitOptions(SearchOptions):
    """Options of `fit` that methods read.

    Args:
        ...: as in `SearchOptions`.
        tolerance: nats a row by which an iteration must raise the bound for a run to go on;
            `Stochastic` has one of its own.
        checkpoint: a file kept up to date while learning or sampling, and resumed from if it is
            there; `max_evaluations`, `max_seconds`, and of `Stochastic` the epochs, tolerance and
            patience may then be others.
        input_names: names of the input columns, for warnings.
    """

    tolerance: float = 1e-6
    checkpoint: str | Path | None = None
    input_names: Sequence[str] | None = None

    # The smallest values, and advice where one is less.
    least: ClassVar = {
        "max_evaluations": (1, "learn_hyperparameters=False keeps the values that the model has"),
        "restarts": (0, "0 runs the search once"),
        "max_seconds": (0, "None sets no limit"),
    }


def sections(text: str) -> dict[str, dict[str, str]]:
    """Entries of the sections of a docstring, such as `Args`, by name, as they are written."""
    titled = re.findall(r"^(\w+):\n((?: {4}.*\n?|\n)+)", inspect.cleandoc(text), re.M)
    entry = re.compile(r"^    (\w+): .*(?:\n {5,}.*)*", re.M)
    return {title: {e[1]: e[0] for e in entry.finditer(body)} for title, body in titled}


def completed(text: str, kinds: Sequence[type]) -> str:
    """A docstring with entries of classes where it has `options: as in` one, or `...: as in` it."""
    text = inspect.cleandoc(text)
    while found := re.search(r"^    (?:options|\.\.\.): as in `(\w+)`\.", text, re.M):
        document = next(kind.__doc__ for kind in kinds if kind.__name__ == found[1])
        title = re.findall(r"^(\w+):$", text[: found.start()], re.M)[-1]
        known = sections(text)[title]
        inherited = sections(completed(document or "", kinds))[title].items()
        lines = "\n".join(entry for name, entry in inherited if name not in known)
        text = text[: found.start()] + lines + text[found.end() :]
    return text
