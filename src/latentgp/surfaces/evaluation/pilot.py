"""Pilot: which representations are tried on a table, on how many rows, and what that advises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from latentgp.errors import InputError
from latentgp.extensions import offers
from latentgp.representations import Dense, Inducing, Representation

if TYPE_CHECKING:
    from latentgp.surfaces.evaluation.comparison import ComparisonRow

_SEARCH, _END = 0.35, 2.0  # of a fit's share of the budget: its search, and when it is given up


class Candidate(NamedTuple):
    """A representation that the pilot tries."""

    representation: Representation
    # of the whole table for which it comes into question; None for any number
    most_rows: int | None = None
    of_any_likelihood: bool = True  # whether it is for others than Gaussian noise


# The cheap ones first: what they leave of the budget is for the others.
REPRESENTATIONS: dict[str, Candidate] = {
    "inducing-200": Candidate(Inducing(200)),
    "inducing-500": Candidate(Inducing(500)),
    "dense": Candidate(Dense(), most_rows=4_000),
}
for _candidates in offers("pilot"):
    REPRESENTATIONS |= {name: Candidate(*own) for name, own in _candidates().items()}
# Rows to a second of the budget; a latent given its neighbours takes solves.
_GAUSSIAN_ROWS, _OTHER_ROWS = 100, 14


class Share(NamedTuple):
    """Seconds for one fit of a pilot."""

    search: float  # after which the search for hyper-parameters ends, with the best so far
    end: float  # after which the fit is given up


def share(left: float, fits: int) -> Share:
    """The next fit's share of the seconds that are left for so many."""
    own = max(left, 0.0) / fits
    return Share(max(_SEARCH * own, 1.0), max(_END * own, 10.0))


def candidates(
    names: Sequence[str] | Literal["usual"], rows: int, *, gaussian: bool = True
) -> tuple[dict[str, Representation], list[str]]:
    """The representations to be tried, and notes on those that are left out.

    Raises:
        InputError: no such name, or none that so many rows and the likelihoods leave.
    """
    names = tuple(REPRESENTATIONS) if names == "usual" else tuple(names)
    if unknown := [name for name in names if name not in REPRESENTATIONS]:
        known = ", ".join(REPRESENTATIONS)
        raise InputError(f"there is no representation {unknown[0]!r}: name some of {known}")
    tried, notes = {}, []
    for name in names:
        representation, most, of_any = REPRESENTATIONS[name]
        if most is not None and rows > most:
            notes.append(f"{name} is left out: of {rows} rows it is too slow, {most} are the most.")
        elif not (gaussian or of_any):
            notes.append(f"{name} is left out: it is for Gaussian noise.")
        else:
            tried[name] = representation
    if not tried:
        raise InputError(f"{notes[0][:-1]}; name others of {', '.join(REPRESENTATIONS)}")
    return tried, notes


def is_gaussian(likelihoods: Sequence[str], task: str) -> bool:
    """Whether all likelihoods are of Gaussian noise."""
    usual = "gaussian" if task == "regression" else ""
    return all((name if name != "auto" else usual) == "gaussian" for name in likelihoods)


def rows_within(budget: float, *, gaussian: bool) -> int:
    """Number of rows of a pilot, held-out ones included; InputError without time."""
    if not budget > 0:
        raise InputError(f"budget must be a positive number of seconds, got {budget}: try 120")
    return round(budget * (_GAUSSIAN_ROWS if gaussian else _OTHER_ROWS))


def sampled(rows: int, most: int) -> list[str]:
    """A note on the part of the rows that a pilot has, if it has not all."""
    said = (
        f"These are {most} of {rows} rows, drawn at random, to keep to the budget. On all, "
        f"inducing points and neighbours take some {rows / most:.2g} times as long, compilation "
        "left out; the more rows, the better neighbours do beside inducing points."
    )
    return [said] if rows > most else []


def cut_short(rows: Sequence["ComparisonRow"]) -> list[str]:
    """A note if searches for hyper-parameters had too little time, or there was no fit in it."""
    names = [row.name for row in rows if np.isnan(row.nlpd) or "max_seconds" in row.note]
    said = f"The time was over before {', '.join(names)} had been learned"
    return [f"{said}: a larger --budget can change the order."] if names else []


def advice(rows: Sequence["ComparisonRow"], code: dict[str, str]) -> str:
    """A sentence that says which contender to take, best first, and the line of Python for it.

    It is the fastest fit of those no more than two standard errors behind the best.
    """
    fitted, best = [row for row in rows if not np.isnan(row.nlpd)], rows[0]
    if not fitted:
        return "No representation could be fitted; the notes say why."
    close = [row for row in fitted if row.nlpd - best.nlpd <= 2 * row.standard_error]
    taken = min(close or fitted[:1], key=lambda row: row.seconds)
    behind = taken.nlpd - best.nlpd
    why = "it has the best score and no other within two standard errors of it is faster"
    if taken != best:
        why = (
            f"it is the fastest of {len(close)} within two standard errors of the best, {best.name}"
            f" ({behind:.3f} ± {taken.standard_error:.3f} nats behind)"
        )
    return f"Take {taken.name}: {why}. {code[taken.name]}"


def line_of_python(target: str, representation: Representation, **settings: str) -> str:
    """The call that fits a whole table through a representation; settings of "auto" unsaid.

    Example:
        >>> line_of_python("price", Dense(), likelihood="auto", method="laplace")
        "lgp.TableModel.fit(frame, 'price', method='laplace', representation=lgp.Dense())"
    """
    said = [f"{name}={value!r}" for name, value in settings.items() if value != "auto"]
    own = re.sub(r"\b(?=[A-Z]\w*\()", "lgp.", str(representation))
    arguments = ["frame", repr(target), *said, f"representation={own}"]
    return f"lgp.TableModel.fit({', '.join(arguments)})"
