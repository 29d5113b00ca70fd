"""An estimator that speaks tables: columns of any type in, predictions with intervals out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, get_args

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri

from latentgp.choosing.registry import of_name
from latentgp.errors import InputError, refuse
from latentgp.extension import verb
from latentgp.extensions import answer
from latentgp.kernels.parts import names_of_parts
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.methods.base import Method
from latentgp.modules import stored
from latentgp.posteriors.predictive import Predictive
from latentgp.rows.data import Data
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.interrupts import current_interrupts
from latentgp.runtime.x64 import double_precision, interruptible
from latentgp.surfaces.coefficients import Coefficients, GroupEffects
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.estimators.places import PlaceColumns, in_areas
from latentgp.surfaces.estimators.terms import is_learned_apart
from latentgp.surfaces.evaluation.effects import Effects
from latentgp.surfaces.files.pieces import TableFiles
from latentgp.surfaces.options import Degrees
from latentgp.surfaces.tables import TableEncoder, once, split_target
from latentgp.surfaces.tables.formula.contrasts import level_weights, term_weights
from latentgp.surfaces.tables.formula.encoder import (
    FormulaEncoder,
    rows_without_gaps,
    target_of,
    with_offset,
    with_sides,
)
from latentgp.surfaces.tables.grids import GridRows, is_grid, rows_with_target
from latentgp.surfaces.tables.levels import listed
from latentgp.surfaces.tables.notation import Notation, stays_text
from latentgp.surfaces.tables.rows import TableRows, sample_of
from latentgp.surfaces.tables.scores import classification_scores, regression_scores
from latentgp.surfaces.tables.start import (
    ESTIMATORS,
    SIDES,
    Estimator,
    TableStart,
    column_of_side,
    sides_of,
    start,
    taken_out,
    takes_exposure,
    targets_of,
)
from latentgp.surfaces.tables.targets import Task
from latentgp.surfaces.tables.values import (
    Tell,
    checked_frame,
    column_of,
    columns_of,
    known_column,
    name_of,
    silent,
    text_of,
    texts_in,
    warn,
)
from latentgp.typing import Array
from latentgp.validation import interval_levels

if TYPE_CHECKING:
    from latentgp.extensions.fields.totals import Totals
    from latentgp.extensions.groups.inference.contrasts import TermTests
    from latentgp.extensions.groups.inference.law import EffectsLaw
    from latentgp.extensions.groups.inference.marginal_means import MarginalMeans
    from latentgp.extensions.groups.summary import MixedSummary
    from latentgp.surfaces.evaluation.leave_one_out import LeaveOneOut
    from latentgp.surfaces.evaluation.model_weights import ModelComparison
    from latentgp.surfaces.export import Exported

_SAMPLED_ROWS, _START_ROWS, _START_EVALUATIONS = 20_000, 4_096, 20
_INDUCING = 200
_PRIORS = (
    "Variances have priors, weak unless given; priors=None is (restricted) maximum likelihood."
)
_Given = ParamSpec("_Given")
_Model = TypeVar("_Model", bound="TableModel")


def _recorded(fit: Callable[_Given, _Model]) -> Callable[_Given, _Model]:
    """A fit whose model says by which call it was made."""

    def as_code(value: Any) -> str:
        if hasattr(value, "columns") or is_grid(value):
            return "frame"
        return repr(fspath(value) if isinstance(value, Path) else value)

    @functools.wraps(fit)
    def recorded(*args: _Given.args, **given: _Given.kwargs) -> _Model:
        words = [*map(as_code, args[1:]), *(f"{k}={as_code(v)}" for k, v in given.items())]
        call = f"latentgp.TableModel.{fit.__name__}({', '.join(words)})"
        return dataclasses.replace(fit(*args, **given), made_by=call)

    return recorded


@stored
@dataclasses.dataclass(frozen=True)
class TableModel:
    """A fitted estimator with the encoding of its columns.

    Made by `fit` (or `fit_files`) of a table with numbers, text, categories, dates and gaps.

    Attributes:
        estimator: fitted, of the target's kind.
        encoder: turns the other columns into numbers.
        target: name of the target column.
        notes: what was done to the table, a line each.
        side_columns: which columns hold what the likelihood reads a row, by its name for it.
        notation: how text writes a target of numbers; None if as Python does.
        spreads: standard deviation of each encoded column in training, (D,).
        made_by: the call or command that fitted it; empty if nobody knows.
        places: columns that say where a row is, on the globe or a plane; None if none are known to.
        weights: the column of row weights; None if the fit had none.
        training: a copy of the rows that were fitted, of a formula; they stay in memory: `save`
            leaves them out.

    Example:
        >>> import numpy as np, pandas as pd, latentgp as lgp
        >>> size = np.linspace(50.0, 195.0, 30)
        >>> houses = pd.DataFrame({"size": size, "town": ["York", "Leeds"] * 15})
        >>> houses["price"] = 2 * size + 40 * (houses["town"] == "York") + np.sin(size)
        >>> model = lgp.TableModel.fit(houses, "price", random_state=0)
        >>> model.notes[-1]
        "town: 2 categories ('Leeds', 'York') as 0/1 columns"
        >>> model.predict(pd.DataFrame({"town": ["Leeds", "York"], "size": [100, 100]})).round(-1)
            mean  std  lower  upper
        0  200.0  0.0  200.0  200.0
        1  240.0  0.0  240.0  240.0
    """

    estimator: Estimator
    encoder: TableEncoder | FormulaEncoder
    target: str
    notes: tuple[str, ...]
    side_columns: dict[str, str] = dataclasses.field(default_factory=dict)
    notation: Notation | None = None
    spreads: tuple[float, ...] = ()
    made_by: str = ""
    places: PlaceColumns | None = dataclasses.field(default=None, repr=False)
    weights: str | None = dataclasses.field(default=None, repr=False)
    training: pd.DataFrame | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata={"saved": False}
    )

    @classmethod
    @interruptible
    @_recorded
    def fit(
        cls,
        frame: pd.DataFrame,
        target: str | None = None,
        *,
        formula: str | None = None,
        task: Task | Literal["auto"] = "auto",
        likelihood: str | Likelihood = "auto",
        weights: str | None = None,
        side_columns: dict[str, str] | None = None,
        order: Sequence[str] | None = None,
        leave_out: Sequence[str] = (),
        time: str | None = None,
        by: str | None = None,
        globe: bool | None = None,
        **settings: Any,
    ) -> Self:
        """Fit a table.

        Args:
            frame: inputs and target; rows without a target are left out. Of a Dataset or DataArray
                the variables and coordinates along the target's dimensions are columns. Of a
                GeoDataFrame the geometry becomes two columns, of areas a point inside each: degrees
                are on the globe, as longitude and latitude, others on a plane, as easting and
                northing.
            target: the column to predict; of a formula the one on its left, of a DataArray itself.
            formula: such as "y ~ x1 + gp(x2, x3) + (1 | clinic)", or "Surv(time, event) ~ x1", in
                place of all columns: fixed
                effects, Gaussian processes, effects of groups; x1:gp(x2, x3) is a coefficient of
                x1 that varies with x2 and x3. With neither an intercept nor all
                levels of a category it has a prior mean of zero. offset(x) is added to f as it is,
                and offset(log(days)) is the exposure of counts.
            task: "auto" goes by the likelihood, the side columns, or the order; or else guesses by
                the target's type; and says so in the notes.
            likelihood: by name, or an object; "auto" is the task's usual one, "binomial" where
                there are trials, a Weibull's or a log-normal's, the one with the higher evidence,
                where times may be censored.
            weights: a column of row weights, which is then not an input.
            side_columns: columns of what the likelihood reads a row, such as
                {"exposure": "days"}; they are then no inputs. {"event": "dead"} holds true or 1
                where a time has its event, or {"event": "status=2"} a value that means one;
                {"entry": "start"} the time from which a row was observed.
            order: of an ordinal target, its labels from lowest to highest; None takes that of
                numbers, or of a category with an order.
            leave_out: columns that are no inputs.
            time: the one input, a column of numbers or dates. Numbers with noise and counts have a
                level, a trend and seasons, others a Matérn 5/2 process; the notes say which, and
                why. Many rows are in state-space form, in O(N).
            by: a column that tells independent series apart, under the same hyper-parameters.
            globe: whether two columns of degrees are places on the globe, with a kernel
                there, its length-scale in kilometres, times an RBF of the other columns; None
                goes by the geometry's coordinate system, or by names such as lon and lat and their
                values, which the notes say; False is a plane. Of a formula `gp(lon, lat)` alone.
            settings: for the estimator, such as `method`, `representation`, `n_inducing` and
                `random_state`. Columns that `groups` names have an effect for each level, such as
                {"person": ["year"]} with slopes; without it text of more than 30 levels has, unless
                likelihood, method, kernel or the like are given; groups=() has none.

        Raises:
            InputError: no such column, or a target, side column or order that the task has none of;
                a formula that cannot be read.
        """
        refuse(
            {
                "a table has one target: name one column, or fit several outputs by "
                f"GPRegressor().fit(X, frame[{target}])": type(target) is list
            }
        )
        table, target, left = rows_with_target(frame, None if target is None else name_of(target))
        target = target_of(target, formula)
        named = with_sides(formula, side_columns or {})
        sides = with_offset(formula, named)
        asked = task, likelihood, order, named
        if sides != named and not takes_exposure(table, target, *asked):
            sides = named
        given = task, likelihood, weights, sides, order, leave_out, settings
        started = start(table, target, *given, time=time, by=by, formula=formula, globe=globe)
        started = started._replace(notes=(*left, *started.notes))
        estimator, X, y = started.estimator, started.X, started.y
        estimator.column_names = _names_of_effects(started.encoder)
        estimator.fit(X, y, sample_weight=started.weights, **started.side)
        model = cls._made(started, target, sides, weights)
        if formula is None:
            return model
        return dataclasses.replace(model, training=model.without_gaps(table))

    @classmethod
    @interruptible
    @_recorded
    def fit_files(
        cls,
        path: str | Path,
        target: str,
        *,
        task: Task | Literal["auto"] = "auto",
        likelihood: str | Likelihood = "auto",
        weights: str | None = None,
        side_columns: dict[str, str] | None = None,
        order: Sequence[str] | None = None,
        leave_out: Sequence[str] = (),
        globe: bool | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        checkpoint: str | Path | None = None,
        devices: Sequence[Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Fit tables in files that need not fit in memory, a batch of rows at a time.

        The encoding, the classes and where the search starts are learned from a sample of the
        rows; what a later row holds that the sample did not, such as a class, is an error with
        its file and row.

        Args:
            path: a CSV or Parquet file, or a folder of them.
            target: the column to predict.
            task: as in `fit`.
            likelihood: as in `fit`.
            weights: as in `fit`.
            side_columns: as in `fit`.
            order: as in `fit`.
            leave_out: as in `fit`.
            globe: as in `fit`.
            batch_size: rows of a batch; None is 1,000, or a method's own that learns from batches.
            epochs: at most so many passes over the rows; None is 20, or the method's own.
            checkpoint: a file kept up to date while learning, and resumed from if it exists.
            devices: over which the rows are spread, as in `latentgp.fit`.
            settings: for the estimator: `method`, `n_inducing`, `depth`, `random_state`, `verbose`.

        Raises:
            InputError: as `fit` does; a method that keeps something of every row.
        """
        sides = side_columns or {}
        method = settings.get("method", "auto")
        own = None if method == "auto" else of_name(method)
        if not (own is None or own.works_in_batches or own.reads_batches):
            raise InputError(
                f"method={method!r} keeps sites of every row and cannot be fitted in batches: "
                "choose auto, collapsed, augmented, variational or random-features, or fit one "
                "file without batches"
            )
        held = settings.get("representation")
        if held is not None and held.traits.one_coefficient_a_row:
            raise InputError(
                f"representation={held} keeps coefficients of every row and cannot be fitted in "
                "batches: take Inducing(200), or fit one file without batches"
            )
        if settings.get("hyperparameters", "auto") not in ("auto", "optimise"):
            raise InputError(
                "a fit in batches takes the most probable hyper-parameters: leave hyperparameters "
                "out, or fit one file without batches"
            )
        settings["hyperparameters"] = "optimise"
        answer("batches")().continued(batch_size, epochs)  # refuses what it cannot be
        files = TableFiles(path)
        frame = sample_of(files, _SAMPLED_ROWS)
        given = task, likelihood, weights, sides, order, leave_out, settings
        started = start(frame, target, *given, globe=globe, in_batches=True)
        model, estimator = cls._made(started, target, sides, weights), started.estimator
        deep = estimator.depth != 1 or (own is not None and own.reads_batches)
        if deep and not (own is None or own.takes_layers):
            raise InputError(
                f"method={method!r} has no hidden layers, but depth={estimator.depth}; leave the "
                "method out, or take depth=1"
            )
        if estimator.n_inducing is None and held is None and not deep:
            estimator.n_inducing = _INDUCING
        limit = estimator.max_seconds
        asked = {k: getattr(estimator, k) for k in ("max_evaluations", "verbose", "method")}
        estimator.set_params(max_evaluations=_START_EVALUATIONS, verbose=0)
        by_itself = method if isinstance(method, Method) else of_name("random-features")()
        if deep:  # its own search starts at what a few rows say
            estimator.set_params(method=dataclasses.replace(by_itself, epochs=1))
        began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is fitted is judged at the end
            few = slice(None, None, max(1, len(started.y) // _START_ROWS))
            part = {name: values[few] for name, values in started.side.items()}
            own = None if started.weights is None else started.weights[few]
            estimator.fit(started.X[few], started.y[few], sample_weight=own, **part)
        if current_interrupts().happened:
            raise KeyboardInterrupt  # nothing was learned from the batches yet
        if deep:
            estimator.method_ = by_itself
        left = None if limit is None else max(0.0, limit - (time.monotonic() - began))
        estimator.set_params(**asked | {"max_seconds": left})

        tell = once()

        def convert(frame: pd.DataFrame) -> Data:
            X, y, row_weights, side = model._rows(frame, tell, weights)
            if isinstance(estimator, LabelEstimator):
                y = estimator.numbered(y)
            return Data(X, y, weights=row_weights, **side)

        own_columns = model.encoder.column_names
        used = [*own_columns, target, *([weights] if weights else [])]
        used += model._own_sides.values()
        estimator.continue_with(
            TableRows(files, convert, used, target=target, weights=weights),
            batch_size=batch_size,
            epochs=epochs,
            checkpoint=checkpoint,
            verbose=estimator.verbose,
            devices=devices,
        )
        estimator.set_params(max_seconds=limit)
        return model

    @classmethod
    def _made(
        cls, started: TableStart, target: str, sides: dict[str, str], weights: str | None
    ) -> Self:
        """Model of an estimator that is fitted, or will be."""
        return cls(
            *(started.estimator, started.encoder, target, started.notes, sides, started.notation),
            spreads=tuple(np.std(started.X, axis=0).tolist()),
            places=started.places,
            weights=None if weights is None else name_of(weights),
        )

    def _read(self, frame: Any) -> pd.DataFrame:
        """A table of pandas, checked, with the columns of the places."""
        frame = GridRows.of(frame).rows if is_grid(frame) else frame
        return checked_frame(frame if self.places is None else self.places.read(frame))

    def _grid(self, frame: Any, *more: str | None) -> GridRows | None:
        """A grid with the columns that the model reads, and some more; None of a table."""
        if not (is_grid(frame) or isinstance(frame, Mapping)):
            return None
        where = () if self.places is None else self.places.columns
        names = *self.encoder.column_names, *self._own_sides.values(), *where, *more
        return GridRows.of(frame, [name for name in names if name is not None])

    @property
    def _own_sides(self) -> dict[str, str]:
        """Columns of the table that side information is read from, by its names."""
        return {name: column_of_side(name, own) for name, own in self.side_columns.items()}

    def _sides(self, frame: pd.DataFrame, tell: Tell) -> dict[str, np.ndarray]:
        """Side information that predictions depend on; says what is taken where it lacks."""
        known = {}
        for name, column in self.side_columns.items():
            without = SIDES[name].without
            if without is not None and column in frame:
                known[name] = column
            elif without is not None:
                tell(f"the table has no column {column!r}", f": {without}")
        return sides_of(frame, known)

    @property
    def read_as_text(self) -> list[str]:
        """Columns that a reader of CSV must leave as text: 1.200 may be 1200 there."""
        target = [self.target] if stays_text(self.notation) else []
        return [*self.encoder.read_as_text, *target]

    @property
    def task(self) -> Task:
        """Kind of target: a number, a count, a class, or an ordered class."""
        return next(task for task, kind in ESTIMATORS.items() if isinstance(self.estimator, kind))

    def predict(
        self,
        frame: Any,
        level: float = 0.95,
        *,
        mean_only: bool = False,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        tell: Tell = warn,
    ) -> Any:
        """Predictions, one a row of the table, or one a cell of a grid.

        Numbers and counts give `mean`, `std`, `lower`, `upper` of the target; without a column of
        exposure or trials in one unit of it, which a warning says. Classes give
        `prediction`, a `probability_...` for each class, and, of two classes with one latent
        function, `probability_..._lower` and `_upper` of the second: the interval that holds this
        probability, given how uncertain the latent function is.

        Args:
            frame: the rows; a Dataset or DataArray of xarray, or a mapping of coordinates to their
                values, is a grid of them.
            level: probability that an interval holds.
            mean_only: of numbers and counts give `mean` alone, which is several times faster.
            quantiles: probabilities of numbers' and counts' quantiles that are wanted too, as
                columns `quantile_0.5` and the like.
            above: values of which the probability that the target exceeds them is wanted too, as
                `probability_above_365`: of times a survival curve.
            tell: warns; `tables.once()` does so once for all parts of a table.

        Returns:
            A DataFrame with the index of the rows. Of a grid a Dataset with its coordinates, where
            `quantiles`, along a coordinate `quantile`, has the ends of the intervals.

        Raises:
            InputError: columns that are missing, rows without a place, degrees that are none, a
                level that is not between 0 and 1.

        Example:
            >>> import numpy as np, pandas as pd, latentgp as lgp
            >>> x = np.linspace(0.0, 6.0, 30)
            >>> waves = pd.DataFrame({"x": x, "y": np.sin(x) + 0.01 * np.cos(50 * x)})
            >>> model = lgp.TableModel.fit(waves, "y", random_state=0)
            >>> model.predict({"x": [1.0, 2.0, 3.0]})["quantiles"].sizes
            Frozen({'quantile': 2, 'x': 3})
        """
        if grid := self._grid(frame):
            more: Any = {"quantiles": quantiles, "above": above, "tell": tell}
            found = self.predict(grid.rows, level, mean_only=mean_only, **more)
            return grid.shaped(found, level)
        upper_level = interval_levels(level)[1]
        frame = self._read(frame)
        side: dict[str, Any] = self._sides(frame, tell)
        X = self.encoder.encode(frame, tell)
        of_law = bool(len(quantiles) or len(above))
        if mean_only and not (of_law or isinstance(self.estimator, LabelEstimator)):
            return pd.DataFrame({"mean": self.estimator.predict(X, **side)}, index=frame.index)
        # All that is asked for is read off one set of marginals, which are what takes long.
        predictive = self.estimator.posterior_.predict(X, **side)
        if not isinstance(self.estimator, LabelEstimator):
            self._tell_of_tails(predictive, tell)
            lower, upper = predictive.interval(level)
            found = {"mean": predictive.mean, "std": np.sqrt(predictive.variance)}
            found |= {"lower": lower, "upper": upper}
            if len(quantiles):
                names = [f"quantile_{p:.15g}" for p in quantiles]
                found |= zip(names, predictive.quantiles(quantiles).T, strict=True)
            for value in above:
                below = predictive.cdf(np.full(len(X), value))
                found[f"probability_above_{value:.15g}"] = 1 - below
            return pd.DataFrame(found, index=frame.index)
        refuse({"quantiles and above are of numbers and counts: leave them out": of_law})
        probabilities, classes = predictive.probabilities, self.estimator.classes_
        columns = {
            "prediction": classes[np.argmax(probabilities, axis=1)],
            **{f"probability_{k}": p for k, p in zip(classes, probabilities.T, strict=True)},
        }
        likelihood = predictive.likelihood
        if len(classes) == 2 and self.task == "classification" and likelihood.latent_size == 1:
            mean, variance = predictive.latent_mean[:, 0], predictive.latent_variance[:, 0]
            reach = ndtri(upper_level) * np.sqrt(variance)
            lower, upper = _second_class(likelihood, np.stack([mean - reach, mean + reach]))
            second = f"probability_{classes[1]}"
            columns |= {f"{second}_lower": lower, f"{second}_upper": upper}
        return pd.DataFrame(columns, index=frame.index)

    def encoded(
        self, frame: pd.DataFrame, tell: Tell = warn
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Inputs, targets and side information of rows whose target is known.

        Args:
            frame: the rows.
            tell: as in `predict`.

        Raises:
            InputError: a column of the fit that is missing.
        """
        X, y, _, side = self._rows(frame, tell)
        return X, y, side

    def weighted(
        self, frame: pd.DataFrame, tell: Tell = warn, weights: str | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, dict[str, np.ndarray]]:
        """As `encoded`, with row weights before the side information; None without any.

        Args:
            frame: the rows.
            tell: as in `predict`.
            weights: the column of row weights; None for that of the fit, if the table has it.
        """
        if weights is None and self.weights is not None:
            known = self.weights in self._read(frame)
            weights = self.weights if known else None
            if not known:
                tell(f"the table has no column {self.weights!r}", ": its rows count alike")
        return self._rows(frame, tell, weights)

    def _rows(
        self, frame: pd.DataFrame, tell: Tell, weights: str | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, dict[str, np.ndarray]]:
        """As `encoded`, with row weights of a column before the side information."""
        inputs, target, _ = split_target(self._read(frame), self.target)
        own = None if weights is None else taken_out(inputs, weights, "weights")[1]
        X, side = self.encoder.encode(inputs, tell), sides_of(inputs, self.side_columns)
        return X, targets_of(target, self.task, self.notation), own, side

    def leave_one_out(
        self, frame: pd.DataFrame, *, weights: str | None = None, tell: Tell = warn
    ) -> LeaveOneOut:
        """Predict every row whose target is known from all others, as `GPRegressor.leave_one_out`.

        Args:
            frame: the rows that were fitted; those that a formula had gaps in are left out.
            weights: a column of row weights; None for that of the fit.
            tell: as in `predict`.

        Raises:
            InputError: a column of the fit that is missing; rows that were not fitted.

        Example:
            >>> import numpy as np, pandas as pd, latentgp as lgp
            >>> days = pd.DataFrame({"day": np.arange(40.0)})
            >>> days["sold"] = 9 + np.sin(days["day"] / 4) + 0.1 * np.cos(9 * days["day"])
            >>> model = lgp.TableModel.fit(days, "sold", random_state=0)
            >>> model.leave_one_out(days).mean.shape
            (40,)
        """
        kept = self.without_gaps(frame, tell)
        X, y, own, side = self._rows(kept, tell, weights or self.weights)
        return self.estimator.leave_one_out(X, y, own, **side)

    @staticmethod
    def compare(
        models: Mapping[str, TableModel],
        frame: pd.DataFrame,
        *,
        weights: str | None = None,
        tell: Tell = warn,
    ) -> ModelComparison:
        """Compare models of one target by predictions of every row from all others.

        Differences of expected log predictive densities with standard errors, row by row (Vehtari,
        Gelman & Gabry 2017, 5), hyper-parameters held.

        Args:
            models: by name, fitted to the same rows.
            frame: these rows.
            weights: a column of row weights; None for those of the fits.
            tell: as in `predict`.

        Raises:
            InputError: fewer than two models, other targets or rows, densities beside
                probabilities.

        Example:
            >>> import numpy as np, pandas as pd, latentgp as lgp
            >>> x = np.linspace(0.0, 6.0, 40)
            >>> waves = pd.DataFrame({"x": x, "y": np.sin(x) + 0.1 * np.cos(50 * x)})
            >>> formulas = {"line": "y ~ x", "curve": "y ~ s(x)"}
            >>> models = {
            ...     name: lgp.TableModel.fit(waves, formula=formula, random_state=0)
            ...     for name, formula in formulas.items()
            ... }
            >>> lgp.TableModel.compare(models, waves).names
            ('curve', 'line')
        """
        from latentgp.surfaces.evaluation.model_weights import compare_models

        targets = {own.target: None for own in models.values()}
        if len(targets) > 1:
            raise InputError(
                f"the models predict {listed(targets)}: log densities compare for one target alone"
            )
        kinds = {n: own.estimator.model_.likelihood.targets for n, own in models.items()}
        smooth = [name for name, own in kinds.items() if own == "real"]
        if 0 < len(smooth) < len(kinds):
            raise InputError(
                f"the likelihood of {listed(smooth)} has densities, that of the others "
                "probabilities, which do not compare: take one kind for all"
            )
        if not (is_grid(frame) or frame.index.is_unique):
            frame = frame.reset_index(drop=True)  # so that a label tells one row
        tables = {name: own.without_gaps(frame) for name, own in models.items()}
        columns = {name for own in models.values() for name in own.encoder.column_names}
        if len({tuple(own.index) for own in tables.values()}) > 1:
            sizes = [f"{name}: {len(own)}" for name, own in tables.items()]
            raise InputError(
                f"gaps leave other rows to each model ({', '.join(sizes)}): fit all of them to "
                f"frame.dropna(subset={sorted(columns)})"
            )
        given = {"weights": weights, "tell": tell}
        return compare_models(
            {name: own.leave_one_out(tables[name], **given) for name, own in models.items()}
        )

    def without_gaps(self, frame: Any, tell: Tell = silent) -> pd.DataFrame:
        """The rows that a fit takes: those with a target, and a formula's without gaps.

        Args:
            frame: the rows, with the target.
            tell: warns of gaps.
        """
        table: Any = self._read(frame)
        table = table[column_of(table, known_column(table, self.target)).notna().to_numpy()]
        if isinstance(self.encoder, FormulaEncoder):
            exposure = self.side_columns.get("exposure")
            table, left = rows_without_gaps(table, self.encoder.formula, exposure)
            for note in left:
                tell(note, "")
        return table

    @double_precision
    def coefficients(self) -> Coefficients:
        """Fixed effects of a formula with their standard errors, on the scale of f.

        Raises:
            InputError: the model has none.
        """
        names = self.encoder.feature_names
        found = self.estimator.posterior_.coefficients(names)
        greatest = self.estimator.diagnostics_.finding("greatest likelihood")
        if greatest is not None:
            found = found._replace(estimate=greatest.estimates(names, found))
        ones = list(getattr(self.encoder, "ones", ()))
        level = np.asarray(self.estimator.posterior_.model.mean(np.zeros((1, len(names)))))[0]
        moved = found.estimate.copy()
        moved[ones] += level if moved.ndim > 1 else float(level[0])
        return found._replace(estimate=moved)

    def mixed_summary(
        self,
        frame: pd.DataFrame | None = None,
        *,
        weights: str | None = None,
        degrees: Degrees | None = None,
    ) -> MixedSummary:
        """Variance components and fixed effects of a formula.

        Args:
            frame: as in `effect_tests`; without it and where the rows are not known, tests of fixed
                effects are by the normal law, and there is no R^2.
            weights: as in `effect_tests`.
            degrees: as in `effect_tests`; None for Satterthwaite's, or where rows in memory
                have none, as of more than 30 hyper-parameters, the normal law.

        Raises:
            InputError: the model has neither groups nor fixed effects, or several latent functions
                of different kernels.
        """
        names, posterior = _names_of_effects(self.encoder), self.estimator.posterior_
        found = verb("mixed_summary")(posterior, names)
        has_priors = any(prior is not None for prior in self.estimator.priors_.values())
        if has_priors and (found.components or found.residual is not None):
            found = found._replace(notes=(_PRIORS,))
        if found.names:
            found = found._replace(estimate=self.coefficients().estimate)
        if frame is None and self.training is None:
            return found
        if found.names and found.estimate.ndim == 1:
            given: Any = {"frame": frame, "weights": weights}
            try:
                law = self.effect_tests(**given, degrees=degrees or "satterthwaite")
            except InputError:
                if degrees is not None or frame is not None:  # which may be of other rows
                    raise
                law = self.effect_tests(**given, degrees="normal")
            own, notes = law.coefficients(), (*law.notes, *found.notes)
            said = {"standard_error": own.standard_error, "degrees": own.degrees, "notes": notes}
            found = found._replace(**said)
        data = self._fitted(frame, weights)[1]
        with contextlib.suppress(InputError):  # of other likelihoods there is none
            found = found._replace(r_squared=verb("r_squared")(posterior, data))
        return found

    def _fitted(self, frame: pd.DataFrame | None, weights: str | None) -> tuple[pd.DataFrame, Data]:
        """The rows of the fit, as a table without gaps and encoded."""
        if frame is None:
            if self.training is None:
                raise InputError(
                    "the rows of the fit are not in memory, as of a model that was read from a "
                    "file: give them as frame"
                )
            frame = self.training
        kept = self.without_gaps(frame)
        X, y, own, side = self._rows(kept, once(), weights or self.weights)
        if isinstance(self.estimator, LabelEstimator):
            y = self.estimator.numbered(y)
        return kept, Data(X, y, weights=own, **side)

    @double_precision
    def effect_tests(
        self,
        frame: pd.DataFrame | None = None,
        *,
        weights: str | None = None,
        degrees: Degrees = "satterthwaite",
    ) -> EffectsLaw:
        """T and F tests of weighted sums of a formula's fixed effects.

        Args:
            frame: the rows that were fitted; None for those in memory, which a file of the model
                does not have.
            weights: a column of row weights; None for that of the fit.
            degrees: of freedom, with Gaussian noise and fixed effects that are integrated over:
                "satterthwaite" (Kuznetsova, Brockhoff & Christensen 2017); "kenward-roger", with
                their covariance (Kenward & Roger 1997), of at most 2,000 rows; "normal", which
                other likelihoods have, and variances that are known or averaged over. "curvature"
                is the normal law where fixed effects are maximised over, with errors by the
                curvature in the variances too, as `glmer` has them.

        Raises:
            InputError: no fixed effects; rows that are not known; several latent functions.
        """
        estimator: Any = self.estimator
        posterior, names = estimator.posterior_, _names_of_effects(self.encoder)
        found = self.coefficients()
        refuse(
            {
                f"degrees must be one of {listed(get_args(Degrees))}, got {degrees!r}": degrees
                not in get_args(Degrees),
                "tests of fixed effects are of one latent function": found.estimate.ndim > 1,
                "Kenward and Roger's tests are of restricted likelihood: take "
                'fixed_effects="integrate", or degrees="normal"': degrees == "kenward-roger"
                and estimator.fixed_effects != "integrate",
                "the curvature in all parameters is that at their greatest likelihood: take "
                'fixed_effects="maximise"': degrees == "curvature"
                and estimator.fixed_effects != "maximise",
            }
        )
        is_restricted = (
            isinstance(posterior.model.likelihood, Gaussian)
            and estimator.fixed_effects == "integrate"
            and posterior.is_gaussian  # at variances that were estimated
            and estimator.method_.makes_sites
            and estimator.priors_
        )
        if degrees == "normal" or not (is_restricted or degrees == "curvature"):
            return verb("normal_tests")(found.names, found.estimate, found.covariance)
        data = self._fitted(frame, weights)[1]
        if degrees == "kenward-roger":
            own = verb("kenward_roger")(posterior, data, estimator.priors_, names)
        else:
            given = estimator.method_, data.merged_rows(), estimator.priors_
            if degrees == "curvature":
                greatest = estimator.diagnostics_.finding("greatest likelihood")
                own = verb("joint_curvature")(posterior, *given, greatest, names)
            else:
                own = verb("satterthwaite")(posterior, *given, names)
        return dataclasses.replace(own, estimate=found.estimate)

    def term_tests(
        self,
        frame: pd.DataFrame | None = None,
        *,
        weights: str | None = None,
        degrees: Degrees = "satterthwaite",
    ) -> TermTests:
        """F tests of the terms of a formula, type III: each given all others.

        Args:
            frame: as in `effect_tests`.
            weights: as in `effect_tests`.
            degrees: as in `effect_tests`.

        Raises:
            InputError: as `effect_tests` does; columns of fixed effects that follow from others.
        """
        law = self.effect_tests(frame, weights=weights, degrees=degrees)
        assert isinstance(self.encoder, FormulaEncoder)
        empty, following = self.encoder.unknown(self._fitted(frame, weights)[1].X)
        if unknown := [*empty, *following]:
            raise InputError(
                f"the rows say nothing of {listed(unknown)}, so that its terms have no test: leave "
                "out terms or levels, or test sums that are known by effect_tests()"
            )
        return law.term_tests(term_weights(self.encoder))

    def marginal_means(
        self,
        column: str,
        by: str | Sequence[str] = (),
        *,
        frame: pd.DataFrame | None = None,
        weights: str | None = None,
        degrees: Degrees = "satterthwaite",
    ) -> MarginalMeans:
        """Means at the levels of a factor of a formula, the other factors averaged over.

        Their levels count alike, whatever the rows; numbers are at their means.

        Args:
            column: the factor.
            by: factors at each level of which there are means of their own.
            frame: as in `effect_tests`.
            weights: as in `effect_tests`.
            degrees: as in `effect_tests`.

        Raises:
            InputError: as `effect_tests` does; a column that is no factor of the formula.
        """
        law = self.effect_tests(frame, weights=weights, degrees=degrees)
        table, data = self._fitted(frame, weights)
        assert isinstance(self.encoder, FormulaEncoder)
        names = [by] if isinstance(by, str) else by
        at = level_weights(self.encoder, table, column, names, data.weights)
        return verb("marginal_means")(*at, law, self.estimator.model_.likelihood)

    def group_effects(self, column: str) -> dict[str, GroupEffects]:
        """Effects of the groups of a column by what they multiply, on the scale of f.

        Args:
            column: of groups, in a formula; "a:b" of combinations of two, "mm(a, b)" of members.

        Raises:
            InputError: no such column of groups.
        """
        groups: Any = getattr(self.encoder, "groups", ())
        known = getattr(self.encoder, "grouped", {})
        if column not in known:
            raise InputError(
                f"there is no column of groups {column!r}: "
                + (f"there are {listed(known)}" if known else "fit a formula with (1 | column)")
            )
        names, labels = self.encoder.feature_names, groups[known[column]].labels
        number = len(names) - len(groups) + known[column]
        named = {"names": names, "labels": labels}
        return self.estimator.posterior_.group_effects(number, range(len(labels)), **named)

    @double_precision
    def varying_coefficient(
        self, term: str, frame: Any, level: float = 0.95, *, tell: Tell = warn
    ) -> pd.DataFrame:
        """A coefficient that varies, x:gp(...) of a formula, at rows, on the scale of f.

        A fixed effect of x in the formula comes beside it.

        Args:
            term: as the formula has it, such as "x:gp(lon, lat)", or what comes before gp.
            frame: rows with the formula's columns; what the coefficient is of does not matter.
            level: probability that an interval holds.
            tell: as in `predict`.

        Returns:
            A DataFrame with a row each: estimate, standard error, ends of intervals; units of f
            over those of x.

        Raises:
            InputError: no such term, or one that varies with what it multiplies; a representation
                without parts, such as neighbours without features.

        Example:
            >>> import numpy as np, pandas as pd, latentgp as lgp
            >>> t = np.linspace(0.0, 6.0, 60)
            >>> waves = pd.DataFrame({"t": t, "x": np.cos(5 * t)})
            >>> waves["y"] = np.sin(t) * waves["x"] + 0.01 * np.cos(50 * t)
            >>> model = lgp.TableModel.fit(waves, formula="y ~ 0 + x:gp(t)", random_state=0)
            >>> found = model.varying_coefficient("x", waves.iloc[[15, 45]])
            >>> bool((found["estimate"] - np.sin(t[[15, 45]])).abs().max() < 0.05)
            True
        """
        encoder: Any = self.encoder
        known = getattr(encoder, "varying", {})
        before = re.compile(r":(gp|s|te|ti)\(.*")
        found = [own for name, own in known.items() if term in (name, before.sub("", name))]
        if len(found) != 1:
            raise InputError(
                f"there is no one coefficient {term!r} that varies: "
                + (f"name one of {listed(known)}" if known else "fit a formula with x:gp(...)")
            )
        number, columns = found[0]
        if {*columns} & {*encoder.terms().smooth[number].columns}:
            raise InputError(
                f"the coefficient {term!r} varies with what it multiplies, and is not told apart "
                "from it: write gp(I(1 * x)) for x inside"
            )
        table, posterior = self._read(frame), self.estimator.posterior_
        X = self.encoder.encode(table, tell)
        X[:, list(columns)] = 1.0
        parts = len(names_of_parts(posterior.model.kernel))
        unit = np.tile(np.eye(parts)[self.first_smooth + number], (len(X), 1))
        mean, variance = posterior.marginals_of_parts(np.concatenate([X, unit], axis=1))
        names = tuple(map(str, table.index))
        each = GroupEffects(names, mean, np.sqrt(np.maximum(variance, 0.0)))
        return each.table(level).set_axis(table.index)

    @property
    def first_smooth(self) -> int:
        """Number of the first smooth term of a formula among the parts of the kernel."""
        has_fixed = bool(getattr(self.encoder, "fixed", ()))
        return int(has_fixed and not is_learned_apart(self.estimator.mean))

    def effects(self, frame: pd.DataFrame, tell: Tell = warn, **settings: Any) -> Effects:
        """Effects of the columns on the prediction, categories and dates included.

        Numbers and dates are those that the model reads, however text writes them.

        Args:
            frame: the background rows.
            tell: as in `predict`.
            settings: as `latentgp.surfaces.evaluation.effects.Effects` takes them.
        """
        outputs = [self.response]
        if isinstance(self.estimator, LabelEstimator):
            classes = self.estimator.classes_
            shown = classes if len(classes) > 2 else classes[1:]
            outputs = [self.probability_of(label) for label in shown]
        response = outputs[0] if len(outputs) == 1 else f"probability of {self.target}"
        plain = {"columns": self.encoder.column_names, "outputs": outputs, "response": response}
        return Effects(
            self.encoder.read(self._read(frame)),
            self.estimator.posterior_,
            lambda rows: self.encoder.encode(rows, tell),
            **plain | settings,
        )

    def totals(
        self,
        frame: Any,
        *,
        weights: str | None = None,
        by: str | None = None,
        areas: Any = None,
        tell: Tell = warn,
        **settings: Any,
    ) -> Totals:
        """Totals and means of the target's expectation over areas, by the joint law of the rows.

        Args:
            frame: the rows, such as cells of a grid, as `predict` takes them.
            weights: a column of the rows' weights, such as areas of cells; ones unless given.
            by: a column that says which area a row belongs to; with `areas` one of theirs, their
                index unless given. One area of all rows without either.
            areas: a GeoDataFrame, in whose areas the rows are looked up; rows in none are left out,
                and those in several of one name count once.
            tell: as in `predict`.
            settings: as `latentgp.fields.total` takes them: `of`, `key`, `number`.

        Raises:
            InputError: columns that are missing, a model without places, areas without rows.

        Example:
            >>> import numpy as np, pandas as pd, latentgp as lgp
            >>> x = np.linspace(0.0, 6.0, 30)
            >>> waves = pd.DataFrame({"x": x, "y": np.sin(x) + 0.01 * np.cos(50 * x)})
            >>> model = lgp.TableModel.fit(waves, "y", random_state=0)
            >>> cells = pd.DataFrame({"x": np.arange(0.05, 6, 0.1), "size": 0.1})
            >>> model.totals(cells, weights="size").table()["total"].round(2).tolist()
            [0.04]
        """
        grid = self._grid(frame, weights, None if areas is not None else by)
        table = self._read(frame if grid is None else grid.rows)
        X, side = self.encoder.encode(table, tell), self._sides(table, tell)
        w = None if weights is None else taken_out(table, weights, "weights")[1]
        labels: Any = None
        if areas is not None:
            if self.places is None:
                raise InputError(
                    "the model knows of no places to look up in areas: fit a GeoDataFrame, or name "
                    "columns of degrees lon and lat"
                )
            own = columns_of(table, self.places.columns, "that say where rows are")
            points = own[list(self.places.columns)].to_numpy(np.float64)
            rows, numbers = in_areas(points, self.places, areas)
            given = areas.index if by is None else columns_of(areas, [by], "of the areas")[by]
            names, which = np.unique([text_of(name) for name in given], return_inverse=True)
            rows, numbers = np.unique([rows, which[numbers]], axis=1)  # once in each of a name
            empty = np.delete(names, numbers).tolist()
            if empty:
                raise InputError(
                    f"no row lies in {listed(empty)}: take finer rows, or leave it out"
                )
            if left := len(table) - len(np.unique(rows)):
                tell("rows lie in none of the areas", f": {left} of {len(table)} are left out")
            X, side = X[rows], {name: values[rows] for name, values in side.items()}
            w, labels = None if w is None else w[rows], names[numbers]
        elif by is not None:
            labels = texts_in(column_of(columns_of(table, [by], "of areas"), by)).to_numpy(str)
        return verb("total")(self.estimator.posterior_, X, weights=w, by=labels, **settings, **side)

    def exceedance(
        self, frame: Any, above: float, *, tell: Tell = warn, **settings: Any
    ) -> pd.DataFrame:
        """Probabilities that the target's expectation exceeds a threshold, one a row.

        Args:
            frame: the rows, as `predict` takes them.
            above: the threshold, units of the target.
            tell: as in `predict`.
            settings: as `latentgp.fields.exceedance` takes them: `of`, `key`, `number`.

        Returns:
            A DataFrame with `probability` and its Monte Carlo standard error `error`, which is zero
            where nothing is drawn; of a grid a Dataset.

        Raises:
            InputError: columns that are missing; a target of several classes.

        Example:
            >>> import numpy as np, pandas as pd, latentgp as lgp
            >>> x = np.linspace(0.0, 6.0, 30)
            >>> waves = pd.DataFrame({"x": x, "y": np.sin(x) + 0.01 * np.cos(50 * x)})
            >>> model = lgp.TableModel.fit(waves, "y", random_state=0)
            >>> model.exceedance(waves.iloc[[5, 20]], above=0.5)["probability"].round(2).tolist()
            [1.0, 0.0]
        """
        if grid := self._grid(frame):
            found = self.exceedance(grid.rows, above, tell=tell, **settings)
            return grid.shaped(found, 0.95)
        table = self._read(frame)
        X, side = self.encoder.encode(table, tell), self._sides(table, tell)
        found = verb("exceedance")(self.estimator.posterior_, X, above, **settings, **side)
        columns = {"probability": found.probability, "error": found.error}
        return pd.DataFrame(columns, index=table.index)

    @property
    def response(self) -> str:
        """Quantity predicted without side information of a row."""
        known = (self.side_columns.get(name) for name in ("exposure", "trials"))
        return " ".join([self.target, *(f"per unit of {column}" for column in known if column)])

    def probability_of(self, label: Any) -> str:
        """Name of the probability of a class."""
        return f"P({self.target} = {label})"

    def save(self, path: str | Path) -> Path:
        """Write the model to one file, without pickle; read it with `latentgp.load`."""
        from latentgp.persistence import save

        return save(self, path)

    def export(self, folder: str | Path, **settings: Any) -> Exported:
        """Write the predictions as files that need no latentgp: a Python file, StableHLO.

        The Python file, `predictor.py`, has `predict_table(columns)`, which takes a dict of columns
        and reads them as `predict` does, and `python predictor.py rows.csv > predictions.csv`.

        Args:
            folder: where to; it is made if need be.
            settings: `formats` and `tolerance` of `latentgp.export_predictor`.

        Raises:
            InputError: as `latentgp.export_predictor` does.
        """
        return verb("export_table")(self, folder, **settings)

    def evaluate(
        self, frame: pd.DataFrame, *, weights: str | None = None, tell: Tell = warn
    ) -> dict[str, float]:
        """Scores on rows whose target is known, by name.

        Args:
            frame: the rows.
            weights: a column of row weights, such as how often a row of a table of frequencies
                was seen; None for that of the fit, if the table has it.
            tell: as in `predict`.
        """
        X, y, own, side = self.weighted(frame, tell, weights)
        if isinstance(self.estimator, LabelEstimator):
            return classification_scores(self.estimator, X, y, own)
        predictive = self.estimator.posterior_.predict(X, **side)
        self._tell_of_tails(predictive, tell)
        return regression_scores(self.estimator, y, predictive, side, own)

    def _tell_of_tails(self, predictive: Predictive, tell: Tell) -> None:
        """Say why there is no standard deviation, where the law has none."""
        if np.all(np.isfinite(predictive.variance)):
            return
        freedom = getattr(self.estimator.model_.likelihood, "degrees_of_freedom", None)
        why = "" if freedom is None else f", of {float(freedom):.3g} degrees of freedom"
        tell(
            "the standard deviation is infinite",
            f", as the law that was learned{why}, has tails too heavy to have one: go by the "
            "interval, and by the mean absolute error",
        )


@double_precision
def _second_class(
    likelihood: Likelihood, ends: Float[np.ndarray, "2 N"]
) -> Float[np.ndarray, "2 N"]:
    """Its probability at the two ends of the one latent function, the lower first."""
    values = apply_in_buckets(_probability_of_second, likelihood, rows=ends.ravel())
    return np.sort(values.reshape(ends.shape), axis=0)


@jax.jit
def _probability_of_second(likelihood: Likelihood, f: Float[Array, "N"]) -> Float[Array, "N"]:
    return jax.vmap(lambda value: likelihood.class_probabilities(value[None], {})[1])(f)


def _names_of_effects(encoder: TableEncoder | FormulaEncoder) -> list[str]:
    """Names of encoded columns, of groups as the formula has them."""
    names, groups = encoder.feature_names, getattr(encoder, "groups", ())
    return [*names[: len(names) - len(groups)], *(own.name for own in groups)]
