"""The inference problem, prepared once by `fit` for every method alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Key

from latentgp.extensions import offers
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.hyperparameters.summary import summary
from latentgp.kernels import has_effects
from latentgp.methods.options import FitOptions, SearchOptions
from latentgp.models import LatentGP
from latentgp.representations.summary import DataSummary
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.hashing import digest
from latentgp.runtime.processes import broadcast_from_first
from latentgp.runtime.progress import RunControl
from latentgp.setup.periods import better_periods, with_likely_periods
from latentgp.setup.priors import Scales, grid_width, scales, search_bounds, space_of
from latentgp.setup.units import in_units_of_rows
from latentgp.typing import Array, HyperVector
from latentgp.validation import check_data, check_outputs_seen, check_streaming_prior

_SAMPLED_ROWS = 4_096


def checked_rows(
    model: LatentGP, rows: Data | MergedRows | RowSource
) -> tuple[RowSource | None, MergedRows]:
    """Source of rows that are read in batches, or None; merged rows in memory, or InputError."""
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

    Scales and space are made once, when they are first read. They belong to the model and the
    options: a problem with others, by `dataclasses.replace`, makes its own.
    """

    model: LatentGP  # its hyper-parameters are where a search starts, or are used as they are
    rows: MergedRows  # the rows in memory, or a sample of those that are read, as given and merged
    # where rows come from that are read in batches; None if all are in `data`
    source: RowSource | None
    key: Key[Array, ""]
    reason: str  # why the method was chosen
    options: FitOptions  # those of `fit`
    streaming_prior: DataSummary | None  # summary of the data seen so far; None without any
    control: RunControl  # callback, limit of time, progress line

    def with_options(self, **changed: Any) -> "Problem":
        """The same problem with some other options."""
        options = dataclasses.replace(self.options, **changed)
        return dataclasses.replace(self, options=options)

    def from_first_process(self) -> "Problem":
        """With the model and the key of the first of several processes."""
        if jax.process_count() == 1:
            return self
        model, bits = broadcast_from_first((self.model, jax.random.key_data(self.key)))
        key = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(self.key))
        return dataclasses.replace(self, model=model, key=key)

    def checked(self) -> "Problem":
        """This problem; InputError for an output without targets or a summary of other latents."""
        if self.streaming_prior is None:
            check_outputs_seen(self.rows.merged)
            return self
        check_streaming_prior(self.streaming_prior, self.model.likelihood)
        # What it says is about f less the prior mean.
        means = (path for path in parameters(self.model) if path.startswith("mean."))
        return self.with_options(frozen=(*self.options.frozen, *means))

    def started(self) -> tuple["Problem", tuple[str, ...], tuple[str, ...]]:
        """Where searches begin, with sentences on what was moved there: warnings, and notes.

        Hyper-parameters are inside the supports of the user's priors, in the units of the rows, and
        periods at peaks of periodograms, by a sample of rows that are read in batches. A streaming
        update goes on from where it is.
        """
        own = self.options
        given = own.priors if isinstance(own.priors, Mapping) else {}
        if not own.learn_hyperparameters:
            return self, (), ()
        start = dataclasses.replace(self, model=jax.tree.map(np.asarray, self.model))
        moved: tuple[str, ...] = ()
        if given:
            space = ParameterSpace(start.model, frozen=own.frozen, priors=given)
            model, moved = space.inside()
            start = start._from(model)
        if self.streaming_prior is not None:
            return start, moved, ()
        model, units = in_units_of_rows(start.space, start.scales, self.data, given)
        start = start._from(model)
        model, periods = with_likely_periods(start.space, self.data)
        begun = start._from(model)
        of_effects = offers("what rows leave open") if has_effects(model.kernel) else ()
        groups = [s for offer in of_effects for s in offer(begun.model, self.data, own.input_names)]
        return begun, moved, (*units, *periods, *begun._about_rounding(), *groups)

    def _about_rounding(self) -> list[str]:
        width = self.scales.grid_width
        noisy = any(info.role == "noise_variance" for info in self.space.known.values())
        if not (width and noisy and self.model.likelihood.is_location):
            return []
        return [
            f"Rows repeat, and targets are multiples of {width:.4g} apart: noise is at least that "
            f"of rounding, a variance of {width**2 / 12:.3g}."
        ]

    def _from(self, model: LatentGP) -> "Problem":
        """This problem from another model on; itself where the model is its own."""
        if model is self.model:
            return self
        return dataclasses.replace(self, model=jax.tree.map(np.asarray, model))

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

    @cached_property
    def scales(self) -> Scales:
        """Scales of the rows in memory, and of the data seen so far."""
        return self.scales_of(self.data)

    @cached_property
    def space(self) -> ParameterSpace:
        """The hyper-parameters that are learned, with their priors; none if they are fixed."""
        return self.space_at(self.scales)

    def bounds(self, *, allows_little_noise: bool = True) -> tuple[HyperVector, HyperVector]:
        """Bounds of the search, see `search_bounds`."""
        return search_bounds(self.space, self.scales, allows_little_noise=allows_little_noise)

    def scales_of(self, data: Data) -> Scales:
        """Scales of other rows, and of the data seen so far; targets have the grid of all rows.

        Weights of a sample say how many rows it stands for, not how often its rows repeat.
        """
        width = 0.0 if self.source is not None else grid_width(self.data)
        found = scales(self.model, data, self.streaming_prior)
        return found._replace(grid_width=width)

    def space_at(self, scale: Scales) -> ParameterSpace:
        """The space for other rows, of other scales."""
        streaming = self.streaming_prior is not None
        # It refuses unknown paths also where nothing is learned.
        space = space_of(
            self.model, scale, self.options.priors, self.options.frozen, streaming=streaming
        )
        if self.options.learn_hyperparameters:
            return space
        return ParameterSpace(self.model, frozen=tuple(space.known), known=space.known)

    def summarised(self, result: Any, given: Any) -> Any:
        """The `Fit` with a table of its hyper-parameters and their priors, its rows, and warnings.

        Rows are not kept where they were `given` as a source or as sums.
        """
        if self.streaming_prior is None:
            result = result.warned_before(better_periods(self.space, result.model, self.data))
        own = self.options
        priors = own.priors if isinstance(own.priors, Mapping) else {}
        table = summary(result.model, self.space, given=priors)
        rows = self.rows if isinstance(given, Data | MergedRows) else None
        asked = SearchOptions(
            learn_hyperparameters=own.learn_hyperparameters, priors=own.priors, frozen=own.frozen
        )
        return dataclasses.replace(
            result, summary=table, rows=rows, asked=asked, priors=self.space.prior_of
        )

    def control_with(
        self, method: Any, settings_of: Any, space: ParameterSpace, **settings: Any
    ) -> RunControl:
        """Callback and limits, with a checkpoint that the same problem alone can resume from.

        Of the method its kind is compared, and `settings_of` it, such as the algorithm; further
        settings by the name that a refusal gives them.
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
