"""The inference problem, prepared once by `fit` for every method alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Key

from latentgp.methods.options import FitOptions, SearchOptions
from latentgp.models import LatentGP
from latentgp.parameters.base import parameters
from latentgp.parameters.space import ParameterSpace
from latentgp.parameters.summary import summary
from latentgp.representations.summary import DataSummary
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.hashing import digest
from latentgp.runtime.processes import broadcast_from_first
from latentgp.runtime.progress import RunControl
from latentgp.setup.periods import better_periods, with_likely_periods
from latentgp.setup.priors import Scales, scales, space_of
from latentgp.setup.units import in_units_of_rows
from latentgp.typing import Array
from latentgp.validation import check_data, check_outputs_seen, check_streaming_prior

_SAMPLED_ROWS = 4_096


def checked_rows(
    model: LatentGP, rows: Data | MergedRows | RowSource
) -> tuple[RowSource | None, MergedRows]:
    """Where rows come from that are read in batches, or None; and the merged rows in memory.

    Raises:
        InputError: rows that the likelihood does not take.
    """
    source = None
    if isinstance(rows, RowSource):
        source = rows.checked(partial(check_data, model.likelihood))
        rows = source.sample(_SAMPLED_ROWS)
    if isinstance(rows, Data):
        check_data(model.likelihood, rows)
        rows = rows.merged_rows()
    return source, rows


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model and checked, merged rows, with how hyper-parameters are to be learned.

    Attributes:
        model: its hyper-parameters are where a search starts, or are used as they are.
        rows: the rows in memory, or a sample of those that are read, as given and merged.
        source: where rows come from that are read in batches; None if all are in `data`.
        key: random key.
        reason: why the method was chosen.
        options: those of `fit`.
        streaming_prior: summary of the data seen so far; None without any.
        control: callback, limit of time, progress line.
    """

    model: LatentGP
    rows: MergedRows
    source: RowSource | None
    key: Key[Array, ""]
    reason: str
    options: FitOptions
    streaming_prior: DataSummary | None
    control: RunControl

    def with_options(self, **changed: Any) -> "Problem":
        """The same problem with some other options."""
        options = dataclasses.replace(self.options, **changed)
        return dataclasses.replace(self, options=options)

    def from_first_process(self) -> "Problem":
        """With the model and the key of the first of several processes."""
        model, bits = broadcast_from_first((self.model, jax.random.key_data(self.key)))
        key = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(self.key))
        return dataclasses.replace(self, model=model, key=key)

    def checked(self) -> "Problem":
        """This problem, if its rows and the data seen so far fit the model.

        Raises:
            InputError: an output without any target; a summary of other latent functions.
        """
        if self.streaming_prior is None:
            check_outputs_seen(self.rows.merged)
            return self
        check_streaming_prior(self.streaming_prior, self.model.likelihood)
        # What it says is about f less the prior mean.
        means = (path for path in parameters(self.model) if path.startswith("mean."))
        return self.with_options(frozen=(*self.options.frozen, *means))

    def started(self) -> tuple["Problem", tuple[str, ...], tuple[str, ...]]:
        """Where searches begin, with sentences on what was moved there: warnings, and notes."""
        problem, moved = self._inside_supports()
        problem, units = problem._in_units_of_rows()
        problem, periods = problem._at_likely_periods()
        return problem, moved, (*units, *periods)

    def _inside_supports(self) -> tuple["Problem", tuple[str, ...]]:
        """With hyper-parameters moved into their priors' supports, and a sentence for each."""
        own = self.options
        if not (own.learn_hyperparameters and isinstance(own.priors, Mapping)):
            return self, ()
        space = ParameterSpace(self.model, frozen=own.frozen, priors=own.priors)
        model, moved = space.inside()
        return dataclasses.replace(self, model=jax.tree.map(np.asarray, model)), moved

    def _in_units_of_rows(self) -> tuple["Problem", tuple[str, ...]]:
        """With hyper-parameters at typical values where they are far from the units of rows."""
        if not self.options.learn_hyperparameters or self.streaming_prior is not None:
            return self, ()
        scale = self.scales(self.data)
        own = self.options.priors if isinstance(self.options.priors, Mapping) else ()
        model, said = in_units_of_rows(self.space(scale), scale, self.data, own)
        return dataclasses.replace(self, model=jax.tree.map(np.asarray, model)), said

    def _at_likely_periods(self) -> tuple["Problem", tuple[str, ...]]:
        """With learned periods at peaks of periodograms where these are clearly better; in words.

        Of rows that are read in batches a sample is looked at; a streaming update goes on.
        """
        if not self._learns_periods:
            return self, ()
        model, said = with_likely_periods(self.space(self.scales(self.data)), self.data)
        return dataclasses.replace(self, model=jax.tree.map(np.asarray, model)), said

    def _better_periods(self, model: LatentGP) -> tuple[str, ...]:
        """A sentence for each learned period beside which another one is much better."""
        if not self._learns_periods:
            return ()
        return better_periods(self.space(self.scales(self.data)), model, self.data)

    @property
    def _learns_periods(self) -> bool:
        learns = self.options.learn_hyperparameters and self.streaming_prior is None
        return learns and any(info.role == "period" for info in parameters(self.model).values())

    @property
    def data(self) -> Data:
        """The merged rows in memory."""
        return self.rows.merged

    @property
    def all_rows(self) -> RowSource:
        """Source of all rows, also of those in memory."""
        return self.source or RowsInMemory(self.data)

    @property
    def seconds(self) -> float:
        """Since the fit began."""
        return self.control.seconds

    def scales(self, data: Data) -> Scales:
        """Scales of some of the rows, and of the data seen so far."""
        return scales(self.model, data, self.streaming_prior)

    def space(self, scale: Scales) -> ParameterSpace:
        """The hyper-parameters that are learned, with their priors; none if they are fixed."""
        streaming = self.streaming_prior is not None
        # It refuses unknown paths also where nothing is learned.
        space = space_of(
            self.model, scale, self.options.priors, self.options.frozen, streaming=streaming
        )
        if self.options.learn_hyperparameters:
            return space
        return ParameterSpace(self.model, frozen=tuple(parameters(self.model)))

    def summarised(self, result: Any, given: Any) -> Any:
        """The `Fit` with a table of its hyper-parameters and their priors, its rows, and warnings.

        Args:
            result: the fit.
            given: data as `fit` was given them; rows from a source, or as sums, are not kept.
        """
        result = result.warned_before(self._better_periods(result.model))
        own = self.options
        priors = own.priors if isinstance(own.priors, Mapping) else {}
        space = self.space(self.scales(self.data))
        table = summary(result.model, space, given=priors)
        rows = self.rows if isinstance(given, Data | MergedRows) else None
        asked = SearchOptions(
            learn_hyperparameters=own.learn_hyperparameters, priors=own.priors, frozen=own.frozen
        )
        return dataclasses.replace(
            result, summary=table, rows=rows, asked=asked, priors=space.prior_of
        )

    def control_with(
        self, method: Any, settings_of: Any, space: ParameterSpace, **settings: Any
    ) -> RunControl:
        """Callback and limits, with a checkpoint that the same problem alone can resume from.

        Args:
            method: the method; its kind is compared.
            settings_of: what else must be the same, such as the algorithm.
            space: of hyper-parameters.
            settings: further ones, by the name that a refusal gives them.
        """
        if self.options.checkpoint is None:
            return self.control
        # NumPyro flattens a prior in the order of a set, another in every process: go by name.
        priors = [
            (prior_path, type(prior).__name__, name, np.asarray(getattr(prior, name)).tolist())
            for prior_path, prior in zip(space.prior_paths, space.priors, strict=True)
            for name in sorted(prior.arg_constraints)
        ]
        made_with = {
            "another kind of method": type(method).__name__,
            "another set of rows (or buffer)": self.all_rows.identity(),
            **settings,
            "another key": digest(jax.random.key_data(self.key)),
            "another model": digest(self.model),
            "another set of learned hyper-parameters": space.paths,
            "another prior": priors,
            "another method": digest(settings_of),
        }
        named = {name: f"{value}" for name, value in made_with.items()}
        return self.control._replace(checkpoint=Checkpoint(self.options.checkpoint, named))
