"""The loop around evaluations: progress, stopping, callbacks, checkpoints, resumption.

Hyper-parameters are searched by SciPy's L-BFGS-B, which is deterministic: given the values and
gradients of past evaluations it asks for the same next point. So a checkpoint is the list of
evaluations; to resume, the search is replayed from the list at no cost and goes on from its end
exactly as it would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from latentgp.errors import InputError
from latentgp.runtime.mesh import gather
from latentgp.runtime.progress import Resumable, Run, RunControl, RunProgress
from latentgp.sites.coupled import sites_of
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import HyperVector


class Record(NamedTuple):
    """One evaluation of the bound, as the history keeps it."""

    vector: HyperVector
    value: float
    bound: float
    gradient: HyperVector
    seconds: float
    restart: int


def enough_of(limit: int) -> str:
    """Why a run with so many evaluations ends."""
    return f"max_evaluations={limit} were made"


class EndRun(Exception):
    """Raised inside a run at its limit of evaluations."""


class EndFit(Exception):
    """Raised inside a run when a callback or a limit asks for the end of the whole search."""


class Search(Resumable[Any]):
    """Keeps the history of evaluations; shows it, saves it, and stops the search.

    With it is saved where the next evaluation starts, a named tuple of arrays: sites, or what else
    is profiled out. `max_evaluations` is of each run on all rows.
    """

    def __init__(self, *, max_evaluations: int, control: RunControl):
        self.max_evaluations = max_evaluations
        self.control, self.run = control, Run(control, self)
        self.run.begins("learning hyper-parameters")
        self.records: list[Record] = []
        self._replayed = self._recalled = 0
        self._since: dict[int, int] = {}  # from which record on those of a run can be compared
        self._limit = max_evaluations  # of the run that is on

    def recall(
        self, fields: tuple[str, ...] = GaussianSites._fields, make: Callable[..., Any] = sites_of
    ) -> Any:
        """The checkpoint's sites, or what `make` makes of its fields; None without a checkpoint."""
        self._kept = fields, make
        return self.run.resumed()

    def from_tensors(self, stored: dict[str, np.ndarray]) -> Any:
        fields, make = self._kept
        columns = [stored[name] for name in Record._fields]
        kept = make(*(stored[f"kept.{name}"] for name in fields))
        self.records = [
            Record(v, float(f), float(b), g, float(s), int(r))
            for v, f, b, g, s, r in zip(*columns, strict=True)
        ]
        self._recalled = len(self.records)
        return kept

    def to_tensors(self, state: Any) -> dict[str, np.ndarray]:
        if len(self.records) == self._recalled:
            return {}
        columns = {
            name: np.stack([np.asarray(getattr(r, name), np.float64) for r in self.records])
            for name in Record._fields
        }
        return columns | {f"kept.{name}": a for name, a in gather(state)._asdict().items()}

    def fitting(self, kept: Any, like: Any) -> Any:
        """Saved arrays; InputError if they have shapes or types that no search has written."""
        kinds = [[(a.shape, a.dtype) for a in jax.tree.leaves(tree)] for tree in (kept, like)]
        if kinds[0] != kinds[1]:
            raise self.control.checkpoint.unreadable("its sites are of other shapes or types")
        return kept

    def has_reached(self, run: int) -> bool:
        """Whether evaluations of this run, or of a later one, are known."""
        return any(record.restart >= run for record in self.records)

    def next_replayed(self, run: int) -> HyperVector | None:
        """Where a resumed run's next evaluation was made; None if it is a new one."""
        record = self.records[self._replayed] if self._replayed < len(self.records) else None
        return None if record is None or record.restart != run else record.vector

    def replay(self, vector: HyperVector, run: int, at_most: int | None = None) -> Record | None:
        """The next evaluation of a resumed run, if it has been made already.

        `at_most` is the run's limit where that is not `max_evaluations` (which may be others when a
        search is resumed).

        Raises:
            EndRun: the run has made all its evaluations.
            InputError: the checkpoint's next evaluation was made elsewhere.
        """
        limit = self._limit = at_most or self.max_evaluations
        if at_most and self._made(run, self._replayed) >= at_most:
            raise EndRun(enough_of(limit))  # known ones are of its next turn
        if self._replayed < len(self.records):
            record = self.records[self._replayed]
            if record.restart == run and np.array_equal(record.vector, vector):
                self._replayed += 1
                return record
            if record.restart == run or self._made(run) < limit:
                raise InputError(
                    f"The search deviates from the checkpoint {self.control.checkpoint.path} "
                    "(another version of a library, or another machine?); remove it to start "
                    "afresh."
                )
        if self._made(run) >= limit:
            raise EndRun(enough_of(limit))
        return None

    def _made(self, run: int, among: int | None = None) -> int:
        return sum(record.restart == run for record in self.records[:among])

    def report(self, record: Record, kept: Any) -> Record:
        """Keep an evaluation, and what to save with it; raises EndFit if the search ends here."""
        record = record._replace(seconds=self.run.seconds)
        self.records.append(record)
        self._replayed += 1
        run = record.restart
        stage = f" in restart {run}" if run > 0 else " in a first run" if run < 0 else ""
        values = {"bound": record.bound, "best": self.best(run).bound}
        step = RunProgress(
            f"learning hyper-parameters{stage}",
            self._made(run),
            self._limit,
            unit="evaluation",
            at_most=True,
            values=partial(dict, values),
            details={"evaluations": len(self.records), "restart": run},
        )
        reason = self.run.made(step, kept)
        if reason is not None:
            raise EndFit(reason)
        return record

    def began_anew(self, run: int) -> None:
        """From here on the run's evaluations are of another bound than those before."""
        self._since[run] = self._replayed

    def rise(self, run: int) -> float:
        """Nats that a run has risen by since it began anew."""
        return self.best(run).value - self.records[self._since[run]].value

    def best(self, run: int | None = None) -> Record:
        """The evaluation with the greatest value: of one run, or of all on all rows.

        A fit that ended before any such run has only the run on thinned rows to offer. Of a run
        that began anew only evaluations since then are compared, if there are any.
        """
        made = self.records[: self._replayed] or self.records
        since = {
            own: first
            for own, first in self._since.items()
            if any(record.restart == own for record in made[first:])
        }
        known = [r for index, r in enumerate(made) if index >= since.get(r.restart, 0)]
        candidates = [r for r in known if (r.restart >= 0 if run is None else r.restart == run)]
        return max(candidates or known, key=lambda record: record.value)
