"""Effects of the inputs on the prediction, with bands from the posterior's joint law.

Every answer is a statistic of joint draws of the expectation of y given the latent functions, at
rows in which some columns are replaced. Averages over rows, differences and slopes therefore keep
the dependence between rows, which bands of point predictions do not have.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.hyperparameters.summary import aligned
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.arrays import as_inputs, evenly
from latentgp.typing import Array
from latentgp.validation import as_key, interval_levels

if TYPE_CHECKING:
    import pandas as pd

Scale = Literal["response", "latent"]
_MOST_ROWS = 2048  # of a joint draw, which costs the cube of them
_CATEGORIES = 20
_STEP = 0.01  # of a slope's difference, in standard deviations of the column


class Estimate(eqx.Module):
    """A number with its posterior, of each output.

    Attributes:
        name: what it is.
        outputs: names of the K outputs or classes; one empty name where there is one.
        mean: posterior means, shape (K,), in units of y (or of f on the latent scale).
        std: posterior standard deviations, shape (K,).
        lower: lower ends of the central intervals, shape (K,).
        upper: their upper ends, shape (K,).
        above_zero: probabilities that it is positive, shape (K,).
        each: posterior means in each background row, shape (N, K).
        level: the intervals' probability.
        draws: number of joint draws; means are off by about std / sqrt(draws).
    """

    name: str = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)
    mean: Float[np.ndarray, "K"]
    std: Float[np.ndarray, "K"]
    lower: Float[np.ndarray, "K"]
    upper: Float[np.ndarray, "K"]
    above_zero: Float[np.ndarray, "K"]
    each: Float[np.ndarray, "N K"]
    level: float = eqx.field(static=True)
    draws: int = eqx.field(static=True)

    def __str__(self) -> str:
        heads = [self.name, "mean", "sd", f"{100 * self.level:g} % interval", "", "P(> 0)"]
        figures = self.mean, self.std, self.lower, self.upper, self.above_zero
        rows = zip(self.outputs, *figures, strict=True)
        return aligned([heads, *([name, *(f"{v:.4g}" for v in row)] for name, *row in rows)])


class Dependence(eqx.Module):
    """Partial dependence on a column, and individual conditional expectations.

    The average over the background rows of the expectation of y, were the column the same value in
    all of them (Friedman 2001, eq. 53), and that of each row (Goldstein et al. 2015).

    Attributes:
        column: the column.
        values: some of its values: numbers, dates or categories, shape (grid,).
        outputs: names of the K outputs or classes; one empty name where there is one.
        mean: posterior means of the average, shape (grid, K), in units of y.
        lower: lower ends of its central intervals, shape (grid, K).
        upper: their upper ends, shape (grid, K).
        each: posterior means of the background rows, shape (N, grid, K).
        level: the intervals' probability.
        draws: number of joint draws.
        response: what the mean is of, with its unit: a quantity, or the event of a probability.
    """

    column: str = eqx.field(static=True)
    values: Any
    outputs: tuple[str, ...] = eqx.field(static=True)
    mean: Float[np.ndarray, "grid K"]
    lower: Float[np.ndarray, "grid K"]
    upper: Float[np.ndarray, "grid K"]
    each: Float[np.ndarray, "N grid K"]
    level: float = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    response: str = eqx.field(static=True, default="y")

    @property
    def is_ordered(self) -> bool:
        """Whether the values are numbers or dates."""
        return self.values.dtype.kind in "fiuMm"

    def __str__(self) -> str:
        heads = [self.column, "mean of", "mean", f"{100 * self.level:g} % interval", ""]
        return aligned([heads, *self.rows()])

    def rows(self) -> list[list[str]]:
        """Value, output, mean and ends of the interval, in words, of each value and output."""
        return [
            [
                in_words(value),
                name or self.response,
                *(f"{a[g, k]:.4g}" for a in (self.mean, self.lower, self.upper)),
            ]
            for g, value in enumerate(self.values)
            for k, name in enumerate(self.outputs)
        ]


class VarianceShares(eqx.Module):
    """Shares of the columns in the variance of the expectation of y (Sobol' 2001).

    The columns are drawn independently of each other, each from its values in the rows. The first
    order is what a column explains alone, the total what it explains with all its interactions.

    Attributes:
        columns: names of the D columns.
        outputs: names of the K outputs or classes.
        first: posterior means of the first-order shares, shape (D, K).
        first_interval: ends of their central intervals, shape (2, D, K).
        total: posterior means of the total shares, shape (D, K).
        total_interval: ends of their central intervals, shape (2, D, K).
        design_error: half the difference of `total` between two halves of the design, shape (D, K):
            how far off shares are because rows are finitely many.
        level: the intervals' probability.
        rows: number of rows at which draws were made.
        draws: number of joint draws.
        response: what has the variance, as in `Dependence`.
    """

    columns: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)
    first: Float[np.ndarray, "D K"]
    first_interval: Float[np.ndarray, "2 D K"]
    total: Float[np.ndarray, "D K"]
    total_interval: Float[np.ndarray, "2 D K"]
    design_error: Float[np.ndarray, "D K"]
    level: float = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    response: str = eqx.field(static=True, default="y")

    def __str__(self) -> str:
        interval = f"{100 * self.level:g} % interval"
        heads = ["column", "variance of", "alone", "in all", interval, "", "off by (design)"]
        figures = self.first, self.total, *self.total_interval, self.design_error
        order = np.argsort(-self.total.mean(axis=1), kind="stable")
        rows = [
            [self.columns[d], name or self.response, *(f"{a[d, k]:.3f}" for a in figures)]
            for d in order
            for k, name in enumerate(self.outputs)
        ]
        return aligned([heads, *rows])


class Effects:
    """Effects of columns on the expectation of y, averaged over background rows.

    Args:
        frame: rows, of which at most `background` evenly spaced ones are the background.
        posterior: of the model.
        encode: a table of such columns as inputs, (N, D).
        columns: those asked about; None is all of the frame.
        outputs: names of the outputs or classes that draws have, one for all where there is one.
        response: what the expectation is of, with its unit, for tables and pictures.
        background: number of rows that averages are over, at most.
        draws: number of joint draws.
        level: probability of the intervals.
        scale: the expectation of y ("response"), or the latent functions ("latent").
        key: random key of the draws; None is `jax.random.key(0)`.

    Raises:
        InputError: a level outside of (0, 1), or numbers below one.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> x = np.random.default_rng(0).uniform(size=(60, 2))
        >>> regressor = lgp.GPRegressor(random_state=0).fit(x, 3 * x[:, 0])
        >>> effects = regressor.posterior_.effects(x, names=["dose", "age"])
        >>> round(effects.contrast({"dose": 0.2}, {"dose": 0.7}).mean.item(), 1)
        1.5
    """

    def __init__(
        self,
        frame: "pd.DataFrame",
        posterior: Posterior,
        encode: Callable[["pd.DataFrame"], Float[np.ndarray, "N D"]],
        *,
        columns: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        response: str = "y",
        background: int = 100,
        draws: int = 500,
        level: float = 0.95,
        scale: Scale = "response",
        key: Key[Array, ""] | None = None,
    ):
        if min(background, draws) < 1 or not len(frame):
            raise InputError(
                f"background and draws must be at least 1 and the table hold rows, got "
                f"{background}, {draws} and {len(frame)} rows."
            )
        if scale not in ("response", "latent"):
            raise InputError(f'scale must be "response" or "latent", got {scale!r}.')
        self.columns = tuple(frame.columns if columns is None else columns)
        self.frame = frame
        self.background = frame.iloc[evenly(len(frame), background)]
        self.level, self._ends = level, np.asarray(interval_levels(level))
        self._posterior, self._encode, self._scale = posterior, encode, scale
        self._draws, self._outputs = draws, None if outputs is None else tuple(outputs)
        self.response = response if scale == "response" else "f"
        self._key = jax.random.key(0) if key is None else as_key(key)

    @classmethod
    def of_posterior(
        cls, posterior: Posterior, X: Any, *, names: Sequence[str] | None = None, **settings: Any
    ) -> "Effects":
        """Effects of the columns of an array or table, by names: those given, its own, or x0, ...

        Raises:
            InputError: names that are not one for each column.
        """
        import pandas as pd

        if isinstance(X, pd.DataFrame):
            names, X = list(map(str, X.columns)) if names is None else names, X.to_numpy()
        X = as_inputs(X)
        names = [f"x{d}" for d in range(X.shape[1])] if names is None else list(names)
        if len(names) != X.shape[1]:
            raise InputError(f"names has {len(names)} names for {X.shape[1]} columns.")
        frame = pd.DataFrame(X, columns=pd.Index(names))
        return cls(frame, posterior, lambda rows: rows.to_numpy(dtype=np.float64), **settings)

    def dependence(self, column: str, *, points: int = 20, values: Any = None) -> Dependence:
        """Partial dependence on a column with its band, and every background row's own.

        Args:
            column: its name.
            points: number of values between the column's 1 % and 99 % quantiles, of a number or
                date; of categories the 20 most frequent are taken.
            values: the values, if others are wanted.

        Raises:
            InputError: no such column.
        """
        known = self._known(column)
        values = _grid(known, points) if values is None else np.asarray(values)
        background = self._few(len(values))
        draws = self._response([background.assign(**{column: value}) for value in values])
        average = draws.mean(axis=2)
        lower, upper = np.quantile(average, self._ends, axis=0)
        return Dependence(
            column,
            values,
            self._named(draws),
            mean=average.mean(axis=0),
            lower=lower,
            upper=upper,
            each=np.moveaxis(draws.mean(axis=0), 1, 0),
            level=self.level,
            draws=self._draws,
            response=self.response,
        )

    def contrast(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Estimate:
        """Average difference if columns were set to other values: what if.

        Args:
            before: values by column, in all background rows.
            after: values by column; what is not named stays as it is in each row.

        Raises:
            InputError: no such column.
        """
        for column in (*before, *after):
            self._known(column)
        low, high = self._pair(before, after)
        said = " -> ".join(
            ", ".join(f"{name} = {value}" for name, value in given.items()) or "as it is"
            for given in (before, after)
        )
        return self._estimate(said, high - low)

    def value_of(self, column: str, text: str) -> str:
        """A value of a column as text writes it, which the table's own reading takes.

        Raises:
            InputError: no such column, or no such value.
        """
        known = self._known(column)
        try:
            self._encode(self.background.iloc[:1].assign(**{column: text}))
        except (InputError, ValueError):
            raise InputError(
                f"{text!r} is no value of {column!r}, such as {in_words(known.iloc[0])}."
            ) from None
        return text

    def slope(self, column: str) -> Estimate:
        """Average derivative with respect to a column of numbers, by central differences.

        The step is a hundredth of the column's standard deviation to either side.

        Raises:
            InputError: no such column, or none of numbers.
        """
        known = self._known(column)
        if known.dtype.kind not in "fiu":
            raise InputError(f"{column!r} holds no numbers; take contrast() of two of its values.")
        step = _STEP * (float(np.std(known.to_numpy(dtype=np.float64))) or 1.0)
        low, high = self._pair(*({column: lambda f, s=s: f[column] + s} for s in (-step, step)))
        return self._estimate(f"slope in {column}", (high - low) / (2 * step))

    def variance_shares(self) -> VarianceShares:
        """Shares of the columns in the variance of the expectation of y, with bands.

        Raises:
            InputError: more columns than a joint draw has room for.
        """
        from scipy.stats.qmc import Sobol

        D = len(self.columns)
        size = 1 << int(np.log2(_MOST_ROWS // (D + 2))) if _MOST_ROWS // (D + 2) else 0
        if size < 8:
            raise InputError(
                f"{D} columns are too many for variance shares; name at most "
                f"{_MOST_ROWS // 8 - 2} of them."
            )
        places = Sobol(2 * D, rng=np.random.default_rng(0)).random(size)
        picked = np.minimum((places * len(self.frame)).astype(int), len(self.frame) - 1)
        here, there = self._independent(picked[:, :D]), self._independent(picked[:, D:])
        mixed = [here.assign(**{name: there[name].to_numpy()}) for name in self.columns]
        draws = self._response([here, there, *mixed])
        first, total = _sobol_indices(draws)
        each = [_sobol_indices(half)[1].mean(axis=0) for half in np.split(draws, 2, axis=2)]
        return VarianceShares(
            self.columns,
            self._named(draws),
            first=first.mean(axis=0),
            first_interval=np.quantile(first, self._ends, axis=0),
            total=total.mean(axis=0),
            total_interval=np.quantile(total, self._ends, axis=0),
            design_error=np.abs(each[0] - each[1]) / 2,
            level=self.level,
            rows=size * (D + 2),
            draws=self._draws,
            response=self.response,
        )

    def _known(self, column: str) -> "pd.Series":
        if column not in self.columns or column not in self.frame.columns:
            raise InputError(
                f"There is no column {column!r}; take one of {', '.join(map(str, self.columns))}."
            )
        return cast("pd.Series", self.frame[column])

    def _few(self, copies: int) -> "pd.DataFrame":
        """Background rows of which so many copies can be drawn together."""
        rows = self.background
        return rows.iloc[evenly(len(rows), max(1, _MOST_ROWS // copies))]

    def _independent(self, picked: np.ndarray) -> "pd.DataFrame":
        """Rows whose columns come from rows of their own, of those in order of the column.

        In order the expectation is smooth along the design, which is what makes it exact soon.
        """
        rows = self.frame.iloc[picked[:, 0]].reset_index(drop=True)
        given = zip(self.columns, picked.T, strict=True)
        return rows.assign(**{name: _in_order(self._known(name))[p] for name, p in given})

    def _response(self, frames: "Sequence[pd.DataFrame]") -> Float[np.ndarray, "S sets N K"]:
        """Joint draws at all rows of some tables of N rows."""
        X = np.concatenate([self._encode(frame) for frame in frames])
        distinct, places = np.unique(X, axis=0, return_inverse=True)
        posterior, latent = self._posterior, self._scale == "latent"
        ask = posterior.sample_f if latent else posterior.sample_expectation
        draws = ask(distinct, key=self._key, number=self._draws)[:, places.ravel()]
        return draws.reshape(self._draws, len(frames), len(frames[0]), -1)

    def _pair(self, *changes: Mapping[str, Any]) -> Float[np.ndarray, "2 S N K"]:
        """Joint draws with some columns set to other values, and to others."""
        background = self._few(2)
        return np.moveaxis(self._response([background.assign(**dict(c)) for c in changes]), 1, 0)

    def _estimate(self, name: str, draws: Float[np.ndarray, "S N K"]) -> Estimate:
        average = draws.mean(axis=1)
        lower, upper = np.quantile(average, self._ends, axis=0)
        return Estimate(
            name,
            self._named(draws),
            mean=average.mean(axis=0),
            std=average.std(axis=0),
            lower=lower,
            upper=upper,
            above_zero=(average > 0).mean(axis=0),
            each=draws.mean(axis=0),
            level=self.level,
            draws=self._draws,
        )

    def _named(self, draws: np.ndarray) -> tuple[str, ...]:
        """Names of the outputs, the last axis."""
        count = draws.shape[-1]
        if self._scale == "response" and self._outputs is not None and len(self._outputs) == count:
            return self._outputs
        return tuple(map(str, range(count))) if count > 1 else ("",)


def in_words(value: Any) -> str:
    """A value of a column: numbers with six digits, days without the time."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[s]").item()
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "seconds").removesuffix(" 00:00:00")
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _in_order(values: "pd.Series") -> Any:
    """The values of a column, sorted."""
    numbers = values.dtype.kind in "fiuM"
    return values.sort_values(key=None if numbers else lambda v: v.astype(str)).array


def _grid(values: "pd.Series", points: int) -> np.ndarray:
    """Values of a column at which its effect is shown."""
    present = values.dropna()
    if present.dtype.kind not in "fiuM" or not len(present):
        frequent = present.value_counts().index[:_CATEGORIES]
        return np.asarray(_in_order(frequent.to_series()))
    distinct = np.sort(np.asarray(present.unique()))
    if len(distinct) <= points:
        return distinct
    low, high = present.quantile([0.01, 0.99])
    if present.dtype.kind == "M":
        unit = "D" if bool((present == present.dt.normalize()).all()) else "us"
        found = np.asarray(low + (high - low) * np.linspace(0, 1, points), dtype="datetime64[us]")
        return found.astype(f"datetime64[{unit}]")
    return np.linspace(float(low), float(high), points)


def _sobol_indices(draws: Float[np.ndarray, "S sets N K"]) -> Float[np.ndarray, "2 S D K"]:
    """First-order and total indices of every draw and output (Saltelli et al. 2010)."""
    from scipy.stats import sobol_indices

    each = []
    for values in np.moveaxis(draws, (3, 1), (0, 1)):  # sets S N
        given = {"f_A": values[0], "f_B": values[1], "f_AB": values[2:]}
        found = sobol_indices(func=given, n=draws.shape[2])
        orders = found.first_order, found.total_order
        each.append(np.stack([np.reshape(order, (len(draws), -1)) for order in orders]))
    return np.stack(each, axis=-1)


effects_of_posterior = Effects.of_posterior
