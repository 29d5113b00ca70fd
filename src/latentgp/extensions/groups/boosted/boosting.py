"""Trees fitted to the gradient of the log evidence, in alternation with hyper-parameters."""

from __future__ import annotations

import dataclasses
import re
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError, check_ranges, check_whole, refuse
from latentgp.extensions.groups.boosted.trees import Trees
from latentgp.extensions.inter_domain.per_part import GROUPS
from latentgp.hyperparameters.base import replace
from latentgp.inference import fit
from latentgp.kernels import Kernel, MultipleMembership
from latentgp.kernels.terms import terms_of
from latentgp.likelihoods import Gaussian
from latentgp.means import Mean
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.programs import Program
from latentgp.runtime.x64 import double_precision, in_x64
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean, site_form
from latentgp.site_inference.search.fixed_point import ascend
from latentgp.site_inference.search.profiled_bound import converge, initial_sites, slope_at
from latentgp.sites.coupled import Sites
from latentgp.typing import Array, PerRow

_EVALUATIONS = 20  # of the bound, between trees
_NOISE = "likelihood.noise_variance"


@dataclasses.dataclass(frozen=True)
class Boosting:
    """Trees as the prior mean, by boosting of the log evidence (Sigrist 2022, algorithm 1).

    Each tree is fitted by LightGBM to the gradient of the log evidence (or bound) in the prior
    mean at the rows, with the precisions of sites as curvatures, as if effects were held.
    Hyper-parameters of all else are learned again every few trees. How many trees there are is
    where the density of rows that were held out is highest, their effects of groups unknown but
    for those of the other rows; the trees are then made anew from all rows. A Gaussian noise
    variance that is learned is that of held-out rows: trees fit their own rows too well.

    Args:
        learning_rate: by which each tree is multiplied.
        trees: the most of them.
        leaves: of a tree, at most.
        rows_in_leaf: rows of a leaf, at least.
        held_out: share of rows that choose the number of trees; 0 makes the most.
        patience: trees without a gain after which there are no more.
        every: the density is looked at after so many trees, or a tenth of those that there are;
            hyper-parameters are learned again there when there are twice as many as last time.
        columns: inputs that trees split; None for those that tell no groups apart.
        seed: of the rows that are held out.

    Raises:
        InputError: a number outside of its range; on use no LightGBM, a method without sites, a
            likelihood of several latent functions.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> group, x = np.arange(600.0) % 30, np.cos(7.0 * np.arange(600.0))
        >>> data = lgp.Data(np.column_stack([group, x]), np.abs(x) + np.cos(group))
        >>> model = lgp.LatentGP(lgp.kernels.SameGroup().on(0) * 1.0, lgp.Gaussian(0.1))
        >>> method = lgp.CollapsedVI(lgp.groups.SparseEffects())
        >>> boosting = lgp.groups.Boosting(learning_rate=0.3, trees=20)
        >>> result = boosting.fit(model, data, key=jax.random.key(0), method=method)
        >>> means = result.posterior.mean_f([[0.0, 0.9], [0.0, 0.0]])
        >>> bool(abs(means[0] - means[1] - 0.9) < 0.2)
        True
    """

    learning_rate: float = 0.1
    trees: int = 1000
    leaves: int = 31
    rows_in_leaf: int = 20
    held_out: float = 0.2
    patience: int = 100
    every: int = 10
    columns: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, learning_rate="(0, 1]", held_out="[0, 1)")
        check_whole(self, trees=1, leaves=2, rows_in_leaf=1, patience=1, every=1)

    def fit(
        self,
        model: LatentGP,
        data: Data | MergedRows,
        *,
        key: Key[Array, ""],
        method: SiteMethod | Any,
        **options: Any,
    ) -> Fit:
        """Fit a model whose prior mean is that of `model` plus trees.

        Args:
            model: its hyper-parameters are where searches start.
            data: the rows.
            key: random key, as `latentgp.fit` takes it.
            method: by sites, such as `CollapsedVI` or `Laplace`.
            options: further ones of `latentgp.fit`, for each search of hyper-parameters; those
                between trees have at most 20 evaluations.

        Returns:
            As of `latentgp.fit`, with `Trees` as the model's prior mean; its notes say what the
            uncertainty leaves out.
        """
        several = model.likelihood.latent_size > 1 or not isinstance(model.kernel, Kernel)
        refuse(
            {
                "Boosting needs the package lightgbm; install latentgp[groups].": (
                    find_spec("lightgbm") is None
                ),
                f"Boosting needs a method by sites, such as CollapsedVI(), got {method!r}.": (
                    not isinstance(method, SiteMethod)
                ),
                "Boosting is for one latent function; choose a likelihood that has one.": several,
            }
        )
        rows = data.merged if isinstance(data, MergedRows) else data.merged_rows().merged
        columns = self.columns or columns_beside_groups(model, rows.X.shape[1])
        refuse({"Boosting has no column beside those of groups; add one to split.": not columns})
        frozen = options.get("frozen", ())
        options["frozen"] = (frozen,) if isinstance(frozen, str) else tuple(frozen)
        run = _Alternation(self, columns, key, method, options)
        number, chosen, stages = self.trees, f"{self.trees} trees, as asked for", None
        ended = f"no further split has {self.rows_in_leaf} rows on each side"
        if self.held_out > 0:
            out = np.random.default_rng(self.seed).random(rows.size) < self.held_out
            if not 0 < out.sum() < rows.size:
                raise InputError(
                    f"Boosting.held_out={self.held_out:g} leaves {rows.size - out.sum()} of "
                    f"{rows.size} rows to learn from; change it."
                )
            _, tried, stages = run.made(model, rows.select(~out), self.trees, rows.select(out))
            number = _best(stages)
            best = stages[number]
            chosen = (
                f"{number} trees, by the density of {out.sum()} rows held out: {best.density:.4f} "
                f"nats a row, {stages[0].density:.4f} without trees; hyper-parameters "
                f"were learned from the others, by at most {run.evaluations} evaluations at a time"
            )
            if best.covered is not None:
                chosen += f"; {100 * best.covered:.0f} % of them are in their intervals of 90 %"
            if number >= self.trees:
                chosen += "; more trees may be better, as it was still growing"
            chosen += "" if tried.depth else f"; {ended}"
        model, trees, _ = run.made(model, rows, number, stages=stages)
        model = dataclasses.replace(model, mean=trees)
        if stages is None and (made := len(trees.value) if trees.depth else 0) < number:
            chosen = f"{made} of {number} trees: {ended}"
        if stages and _learns_noise(model, options):
            options["frozen"] = (*options["frozen"], _NOISE)
        if stages and options.get("hyperparameters", "optimise") == "optimise":
            options["learn_hyperparameters"] = False
        result = fit(model, data, key=key, method=method, **options)
        return result.noted(
            (
                f"The prior mean has {chosen}.",
                "Trees were fitted to the same rows and are held fixed: that they could be others "
                "is not in the uncertainty, and the log evidence is too high for comparisons.",
            )
        )


def columns_beside_groups(model: LatentGP, columns: int) -> tuple[int, ...]:
    """Columns of the inputs that tell no groups apart."""
    every = tuple(range(columns))
    parts = [part for term in terms_of(model.kernel, every) for part in term.parts]
    kinds = GROUPS | MultipleMembership
    groups = {c for part in parts if isinstance(part.kernel, kinds) for c in part.columns}
    return tuple(column for column in every if column not in groups)


class _Alternation(NamedTuple):
    """What trees are made with."""

    settings: Boosting
    columns: tuple[int, ...]  # that are split
    key: Key[Array, ""]
    method: SiteMethod
    options: dict[str, Any]  # of `fit`

    @property
    def evaluations(self) -> int:
        """Evaluations of the bound in a search between trees, at most."""
        return min(self.options.get("max_evaluations", _EVALUATIONS), _EVALUATIONS)

    def made(
        self,
        model: LatentGP,
        rows: Data,
        number: int,
        held_out: Data | None = None,
        stages: dict[int, HeldOut] | None = None,
    ) -> tuple[LatentGP, Trees, dict[int, HeldOut]]:
        """The model as learned, its mean with so many trees, and stages by numbers of trees.

        With rows held out it ends where their density has not risen for a while. Where stages are
        given, the model is theirs, and nothing is learned.
        """
        import lightgbm

        own, inputs, columns = self.settings, rows.X.shape[1], np.array(self.columns)
        parameters = {
            "objective": "none",
            "learning_rate": own.learning_rate,
            "num_leaves": own.leaves,
            "min_data_in_leaf": own.rows_in_leaf,
            # It infers counts from curvatures, rounded: a leaf could be empty. A row has 1e-6.
            "min_sum_hessian_in_leaf": 5e-7,
            "use_missing": False,
            "feature_pre_filter": False,  # it fails where nothing can be split
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        splits = np.ptp(rows.X[:, columns], axis=0).any()
        table = lightgbm.Dataset(rows.X[:, columns], np.zeros(rows.size), params=parameters)
        booster = lightgbm.Booster(parameters, table)
        if held_out is not None:
            there = held_out.X[:, columns], np.zeros(held_out.size)
            booster.add_valid(table.create_valid(*there, params=parameters), "held out")
        asked, calibrates = self._options(inputs), _learns_noise(model, self.options)
        ascent = RowSlopes.of(self.method, model, rows, self.key)
        sites, searched, look = None, 0, 0
        made: dict[int, HeldOut] = {}

        def slopes(offset: PerRow, _: Any) -> tuple[PerRow, PerRow]:
            nonlocal sites
            slope, curvature, sites = ascent.slopes(model, offset, sites)
            greatest = np.max(curvature)
            return -slope / greatest, curvature / greatest

        for tree in range(number + 1):
            if stages is not None:
                model = stages[tree].model if tree in stages else model
            elif tree == look or (tree == number and held_out is not None):
                look = tree + max(own.every, tree // 10)
                learns = tree == 0 or tree >= max(own.every, 2 * searched)
                searched = tree if learns else searched
                if learns or held_out is not None:
                    found = self._fitted(model, rows, _scores(booster.eval_train), asked, learns)
                    model = _without_column(found.model)
                    if held_out is not None:
                        beside = _beside(held_out, _scores(booster.eval_valid))
                        made[tree] = HeldOut.of(found, model, beside, calibrates)
                        model = made[tree].model
                        asked["frozen"] += [_NOISE] if calibrates else []
                if made and tree - _best(made) >= own.patience:
                    break
            if tree == number or not splits or booster.update(fobj=slopes):
                break  # no tree would have a split
        trees = Trees.of_booster(booster, model.mean, columns=self.columns, inputs=inputs)
        return model, trees, made

    def _fitted(
        self, model: LatentGP, rows: Data, offset: PerRow, asked: dict[str, Any], learns: bool
    ) -> Fit:
        """The model with an offset in one more column, its hyper-parameters learned or held."""
        kernel = cast(Kernel, model.kernel).on(range(rows.X.shape[1]))
        inner = dataclasses.replace(model, kernel=kernel, mean=_OffsetColumn(model.mean))
        learns = learns and asked.get("learn_hyperparameters", True)
        asked = {**asked, "method": self.method, "learn_hyperparameters": learns}
        return fit(inner, _beside(rows, offset), key=self.key, **asked)

    def _options(self, inputs: int) -> dict[str, Any]:
        """Options of the searches between trees, for a kernel of the columns before the last."""
        asked = {name: own for name, own in self.options.items() if name != "input_names"}
        asked |= {"max_evaluations": self.evaluations, "restarts": 0}

        def moved(path: str) -> str:
            return re.sub(r"^kernel\b", "kernel.kernel", path)

        asked["frozen"] = [moved(path) for path in asked["frozen"]]
        if isinstance(priors := asked.get("priors"), dict):
            asked["priors"] = {moved(path): law for path, law in priors.items()}
        return asked


class _OffsetColumn(Mean):
    """A prior mean plus what is in the last column."""

    base: Mean

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return self.base(X[:, :-1]) + X[:, -1:]


class _OffsetRows(Mean):
    """A prior mean plus a number for each row."""

    base: Mean
    offset: Float[Array, "N"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return self.base(X) + self.offset[:, None]


def _beside(rows: Data, offset: PerRow) -> Data:
    """The rows with one more column."""
    return eqx.tree_at(lambda d: d.X, rows, np.column_stack([rows.X, offset]))


def _scores(evaluate: Any) -> PerRow:
    """Sums of the trees so far at the rows that a booster evaluates."""
    found: list[PerRow] = []
    evaluate(lambda scores, _: (str(found.append(scores.copy())), 0.0, True))
    return found[0]


class HeldOut(NamedTuple):
    """What was learned beside a number of trees, and scores of rows that were held out."""

    model: LatentGP  # without the trees
    density: float  # mean of its logarithm, in nats
    covered: float | None  # share in intervals of 90 %, where y is f and noise

    @classmethod
    def of(cls, found: Fit, model: LatentGP, rows: Data, calibrates: bool) -> HeldOut:
        """Scores by a fit to other rows; if it `calibrates`, its noise is that of these rows."""
        posterior, weights = found.posterior, rows.weights
        if calibrates:
            mean, variance = posterior.predict_f(rows.X)
            known = variance + rows.side_information.get("noise_variance", 0.0)
            squares = np.average((rows.y - mean) ** 2, weights=weights)
            noise = float(max(squares - np.average(known, weights=weights), 0.01 * squares))
            posterior = posterior.with_likelihood(Gaussian(noise))
            model = replace(model, {_NOISE: noise})
        law = posterior.predict(rows.X, **rows.side_information)
        density = float(np.average(law.log_prob(rows.y), weights=weights))
        if not found.model.likelihood.is_location:
            return cls(model, density, None)
        lower, upper = law.interval(0.9)
        inside = (lower < rows.y) & (rows.y < upper)
        return cls(model, density, float(np.average(inside, weights=weights)))


def _learns_noise(model: LatentGP, asked: dict[str, Any]) -> bool:
    """Whether a Gaussian noise variance is among what is learned."""
    held = any(_NOISE.startswith(path) for path in asked["frozen"])
    return (
        isinstance(model.likelihood, Gaussian)
        and asked.get("learn_hyperparameters", True)
        and not held
    )


def _best(stages: dict[int, HeldOut]) -> int:
    """Number of trees of the stage whose density is highest."""
    return max(stages, key=lambda trees: stages[trees].density)


def _without_column(inner: Any) -> LatentGP:
    """The model of the columns before the last."""
    return dataclasses.replace(inner, kernel=inner.kernel.kernel, mean=inner.mean.base)


class RowSlopes(NamedTuple):
    """Rows and algorithm by which slopes are found."""

    algorithm: SiteInference
    rows: Data  # padded
    size: int

    @classmethod
    @in_x64
    def of(cls, method: SiteMethod, model: LatentGP, rows: Data, key: Key[Array, ""]) -> RowSlopes:
        """The algorithm of a method, made ready for rows."""
        algorithm = method.settled(model, rows.size).algorithm(model)
        own = algorithm.representation.initialise(rows.X, rows.weights, model.kernel, key)
        if algorithm.rule.sites_are_fixed(model.likelihood):
            form = site_form(algorithm.rule, model.likelihood)
            own = own.for_sites(dataclasses.replace(form, means_alone=True))
        algorithm = dataclasses.replace(algorithm.until_converged(), representation=own)
        return cls(algorithm, rows.padded().to_device(), rows.size)

    def slopes(
        self, model: LatentGP, offset: PerRow, sites: Sites | None = None
    ) -> tuple[PerRow, PerRow, Sites]:
        """Derivatives of the log evidence (or bound) in the prior mean at the rows.

        Curvatures follow, the precisions of the sites, and sites that the next call may start from.
        """
        padded = np.pad(offset, (0, self.rows.size - self.size))
        mean = _OffsetRows(model.mean, padded)
        model = dataclasses.replace(model, mean=mean)
        slope, precision, sites = _slopes(self.algorithm, model, self.rows, sites)
        slope, precision = slope[: self.size], precision[: self.size]
        return slope, np.maximum(precision, 1e-6 * np.max(np.abs(precision))), sites


@double_precision
def _slopes(
    algorithm: SiteInference, model: LatentGP, rows: Data, sites: Any
) -> tuple[PerRow, PerRow, Sites]:
    own = algorithm.representation.for_rows(rows.X, rows.weights, model.kernel)
    algorithm = dataclasses.replace(algorithm, representation=own)
    sites = initial_sites(algorithm, model, rows) if sites is None else sites
    if algorithm.rule.sites_are_fixed(model.likelihood):
        found = converge(algorithm, model, rows, sites)
        slope, own = _slope_of(found.posterior, model, rows, found.sites), found.sites
    else:
        ascended = ascend(algorithm, model, rows, sites)
        slope = _slope_in_model(algorithm, model, rows, ascended)
        own, sites = ascended.best.update.sites, ascended.next_sites
    return jax.tree.map(np.asarray, (slope, own.precision[:, 0], sites))


@Program
def _slope_of(posterior: Any, model: LatentGP, rows: Data, sites: Sites) -> PerRow:
    """The slope of each row's site at the posterior mean, which is (K + S)^-1 (y - m)."""
    return sites.slope(posterior.mean(rows.X) + prior_mean(model, rows))[:, 0]


@Program
def _slope_in_model(algorithm: SiteInference, model: LatentGP, rows: Data, ascended: Any) -> PerRow:
    in_mean: Any = slope_at(algorithm, model, rows, ascended)[1].mean
    return in_mean.offset
