"""Base of the estimators: checks, the fit, and its results as attributes."""

from __future__ import annotations

import dataclasses
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from latentgp.choosing.choice import (
    Choice,
    choose_for,
    gone_on,
    inducing_points,
    is_long_series,
    that_goes_on,
    treating,
    treatment,
    usual_number_of_points,
)
from latentgp.choosing.kernels import FEWEST_ROWS, leaves_time, usual_kernel
from latentgp.choosing.registry import as_method, method_from_name, names_in_words
from latentgp.errors import InputError, refuse, warn_user
from latentgp.extension import verb
from latentgp.extensions import answer
from latentgp.hyperparameters.summary import lengthscales
from latentgp.inference import fit
from latentgp.kernels import RBF, Functionals, Kernel, LatentKernel, OwnKernels
from latentgp.likelihoods import Likelihood
from latentgp.likelihoods.heteroscedastic import Heteroscedastic
from latentgp.means import ZeroMean, constant_first
from latentgp.methods.base import Method
from latentgp.methods.options import SearchOptions, completed
from latentgp.methods.result import Fit
from latentgp.models import LatentGP, without_constant
from latentgp.modules import check_argument_names
from latentgp.posteriors.parts import Parts
from latentgp.posteriors.posterior import Posterior
from latentgp.representations import Representation
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.representations.protocols import SamplesCoefficients
from latentgp.rows import RowSource
from latentgp.rows.arrays import (
    FOR_LABELS,
    as_weights,
    check_finite,
    check_not_traced,
    rows_named,
    unmasked,
)
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.interrupts import current_interrupts
from latentgp.runtime.x64 import interruptible, public
from latentgp.setup.priors import scales
from latentgp.site_inference.methods.base import is_exact
from latentgp.streams import with_noise_for_points
from latentgp.surfaces.coefficients import Coefficients, GroupEffects
from latentgp.surfaces.estimators.additive import AdditiveTerms
from latentgp.surfaces.estimators.centred import CentredRows
from latentgp.surfaces.estimators.fingerprints import are_known, fingerprints, with_known
from latentgp.surfaces.estimators.initial_model import (
    NAMED,
    as_series,
    starting_model,
    with_nuggets,
)
from latentgp.surfaces.estimators.likelihoods import OWNERS
from latentgp.surfaces.estimators.nested import changed, inside
from latentgp.surfaces.estimators.places import check_there, has_geometry, placed, points_of
from latentgp.surfaces.estimators.precomputed import (
    checked_cross,
    checked_gram,
    gram_kernel,
    is_precomputed,
    with_points,
)
from latentgp.surfaces.estimators.terms import (
    check_leaves_out,
    is_learned_apart,
    number_of,
    with_terms,
)
from latentgp.surfaces.options import EstimatorOptions, Regressor

if TYPE_CHECKING:
    from latentgp.surfaces.evaluation.leave_one_out import LeaveOneOut
    from latentgp.surfaces.export import Exported

# For messages about what belongs to a row.
ROUTED = " (cross-validation: params={...} after sklearn.set_config(enable_metadata_routing=True))"
_NOTED = 1.05  # times that deviations are too small
# How Python, NumPy and pandas write what is missing.
_MISSING = ("None", "nan", "NaT", "<NA>")


class _SignatureOfInit:
    """Signature of the constructor, which `__new__` would hide."""

    def __get__(self, _: Any, kind: type) -> inspect.Signature:
        taken = inspect.signature(kind.__init__)
        own = list(taken.parameters.values())[1:]
        return taken.replace(parameters=own, return_annotation=taken.empty)


@dataclasses.dataclass(eq=False, repr=False)
class GPEstimator(SearchOptions, EstimatorOptions, BaseEstimator):
    """Base of the estimators.

    Args:
        kernel: as in `GPRegressor`.
        options: as in `EstimatorOptions`.
        options: as in `SearchOptions`.
        verbose: 1 prints progress, the method chosen and the verdict.

    Attributes:
        lengthscales_: one an input, in its units, the shortest of several; infinity for
            one that is not used, such as a constant column.
        posterior_: the posterior; ask it about the latent function.
        diagnostics_: what happened; `diagnostics_.verdict` in words.
        history_: the search.
        priors_: of the learned hyper-parameters, by path; None of one without.
        places_: columns of the places of a GeoDataFrame, and its coordinate system; None without.
        method_: the method used, and `method_reason_` why.
        kernel_choice_: evidence of the kernels that the choice was among; None where one was given.
    """

    kernel: LatentKernel | str | None = None
    # Of the table that X was made of; no setting.
    column_names = cast("Sequence[str] | None", None)

    __signature__ = _SignatureOfInit()

    # Not by `__init__`, from which scikit-learn reads the parameters.
    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        check_argument_names(cls, kwargs)
        return super().__new__(cls)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        document = completed(cls.__doc__ or "", cls.__mro__)
        cls.__doc__ = document.replace("{methods}", names_in_words())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name.

        Args:
            deep: with those inside kernel, likelihood, method and representation, as
                `kernel__lengthscale` or, of a sum, `kernel__parts__0__lengthscale`.
        """
        found = super().get_params(deep)
        if deep:
            for name, value in list(found.items()):
                found |= inside(name, value)
        return found

    def set_params(self, **params: Any) -> Self:
        """Set settings by name, as `get_params` gives them; modules are replaced.

        Raises:
            InputError: a name of nothing inside a module.
        """
        own = super().get_params(deep=False)
        direct = {name: value for name, value in params.items() if name.partition("__")[0] == name}
        super().set_params(**direct)
        deeper: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            head, _, rest = name.partition("__")
            if rest and (head not in own or isinstance(getattr(self, head), Regressor)):
                super().set_params(**{name: value})  # which says what there is
            elif rest:
                deeper.setdefault(head, {})[rest] = value
        for head, further in deeper.items():
            setattr(self, head, changed(head, getattr(self, head), further))
        return self

    def save(self, path: str | Path) -> Path:
        """Write the estimator to one file, without pickle; read it with `latentgp.load`."""
        from latentgp.persistence import save

        return save(self, path)

    @interruptible
    def _fit_model(
        self,
        rows: MergedRows,
        likelihood: Likelihood,
        centre: float = 0.0,
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
    ) -> Self:
        """Fit targets less a constant, which is added to the model's mean again.

        Far from zero, squares of targets that are not centred would lose all their digits.

        Args:
            rows: checked by the likelihood and merged.
            likelihood: whose values are where the search starts.
            centre: the constant; zero unless the likelihood is one of y - f.
            notes: on what was chosen before.
            warnings: on what should have been.
        """
        found = fingerprints(rows.merged.X, rows.merged.y)
        self.row_fingerprints_ = with_known(found, found[:0])
        has_level = not isinstance(self.kernel, AdditiveTerms) or self.kernel.has_level
        apart = is_learned_apart(self.mean)
        terms = self.kernel if isinstance(self.kernel, AdditiveTerms) else AdditiveTerms()
        if apart and terms.offsets:
            raise InputError(
                "A mean of trees or of a regressor takes no offset(...); leave one of them out."
            )
        centre = centre if has_level and not apart and not terms.offsets else 0.0
        rows = rows.centred(centre)
        merged = rows.merged
        n_inducing = self._number_of_points()
        kernel: Any = gram_kernel(self.gram_) if is_precomputed(self.kernel) else self.kernel
        named = isinstance(kernel, str) and kernel in NAMED
        if not (kernel is None or named or isinstance(kernel, Kernel | OwnKernels | AdditiveTerms)):
            raise InputError(
                f"kernel must be a latentgp kernel such as RBF(), one of {', '.join(NAMED)} and "
                f'"precomputed", or None, got {kernel!r}.'
            )
        if isinstance(kernel, Kernel | OwnKernels) and any(
            isinstance(part, Functionals) for part in distinct_kernels(kernel)
        ):
            raise InputError(
                "Rows of functionals have no common level, which estimators take from the targets; "
                "fit such rows with latentgp.fit."
            )
        shape, places = merged.X.shape, getattr(self, "places_", None)
        if self.depth != 1 and places is not None and places.on_globe:
            warn_user("Hidden layers take longitude and latitude as a plane of degrees.")
            places = None
        kernel = with_terms(kernel, self.mean, self.groups, shape[1], self._names(), places)
        level = None
        if apart and likelihood.is_location:
            level = float(np.average(merged.y, weights=merged.weights))
        elif has_level and not likelihood.is_location:
            level = likelihood.latent_centre(merged.y, merged.weights, merged.side_information)
        if isinstance(level, tuple) and getattr(self.method, "classes", None) is not None:
            level = None  # steps on some of the classes need a mean that all of them share
        mean = ZeroMean() if level is None else constant_first(level, likelihood.latent_size)
        mean = terms.with_offsets(mean, merged, likelihood)
        own, plain = self._own_representation(), kernel is None and self.depth == 1
        self.kernel_choice_ = None
        searched = isinstance(self.method, str) and self.learn_hyperparameters
        on_globe = kernel.on_globe if isinstance(kernel, AdditiveTerms) else ()
        by_evidence = bool(on_globe) or (plain and own is None)
        if searched and by_evidence and leaves_time(self.max_seconds, merged.size):
            scale = scales(LatentGP(RBF(), likelihood, mean), merged)
            self.kernel_choice_ = usual_kernel(merged, likelihood, scale, on_globe)
            kernel = kernel if self.kernel_choice_ is None else self.kernel_choice_.kernel
        model = starting_model(merged, likelihood, mean, kernel)
        if self.depth != 1:
            if kernel is not None or n_inducing is not None or self.representation is not None:
                raise InputError(
                    "depth has layers with kernels and features of their own; leave kernel, "
                    "n_inducing and representation out, or call latentgp.fit with a DeepGP."
                )
            model = answer("hidden layers")(model, self.depth, merged)
        method = self.method
        may_go_on = False
        may = method == "auto" and self.learn_hyperparameters and self.priors is not None
        may &= own is None and n_inducing is None and not (apart or terms is self.kernel)
        may &= bool(np.ptp(merged.y, axis=0).any())
        given = self.hyperparameters, model, merged.size, self.frozen_paths
        asked = treatment(*given, may_integrate=may)
        if method == "auto":
            if plain and own is None and shape[1] == 1:
                series = as_series(model)
                if series is not model and is_long_series(series, merged.size, n_inducing):
                    model = series
                    notes = (*notes, "A state-space form has no RBF: a Matern52 is in its place.")
            searched = self.learn_hyperparameters and not self.restarts and asked == "optimise"
            choice = choose_for(
                model, shape, None, n_inducing, own, searched=searched, seconds=self.max_seconds
            )
            may_go_on = searched and own is None and n_inducing is None
        elif isinstance(method, str):
            choice = method_from_name(method, model, merged.size, n_inducing, own)
        else:
            choice = Choice(as_method(method), "asked for")
        choice = treating(asked, choice, model, self.learn_hyperparameters)
        method = choice.method
        gaussian = likelihood.is_jointly_gaussian and self.depth == 1
        if plain and gaussian and is_exact(method, model, merged.size):
            model = with_nuggets(model)
        by = answer("mean learned apart")(self.mean) if apart else fit
        if self.fixed_effects != "integrate":
            by = answer("greatest likelihood")(self.fixed_effects, apart)
        result = self._run(model, rows, method, by)
        if may_go_on and by is fit:
            choice, result = gone_on(
                choice,
                result,
                self.max_seconds,
                lambda method: self._run(model, rows, method, checkpoint=None),
            )
        usual = self.method, self.learn_hyperparameters, self.priors
        if usual == ("auto", True, "weak") and plain and by is fit and not self.frozen:
            result = self._with_widths(result, rows, asked)
        if asked != self.hyperparameters and asked == "integrate":
            why = (
                f"Hyper-parameters are averaged over, as {merged.size} rows say little of them; "
                'hyperparameters="optimise" takes the most probable ones.'
            )
            result = result.noted([rows.counted(why)])
        if isinstance(likelihood, Heteroscedastic):
            of_noise = np.asarray(result.posterior.mean_f(merged.evenly(500).X))[:, 1]
            same = "Noise is the same in all rows, as the sigmoid of its latent function is one"
            advice = f'{same}; use likelihood="gaussian", or other priors.'
            warnings = (*warnings, *[advice] * bool(np.min(of_noise) > 5))
        of_kernel = [] if self.kernel_choice_ is None else [self.kernel_choice_.reason]
        result = result.noted([*notes, *of_kernel]).warned_before(warnings)
        reason = rows.counted(choice.reason)
        self._keep(result, choice.method, reason, centre, self.verbose)
        if self.certify is not None and not current_interrupts().happened:
            key = jax.random.key(self._seed())
            self.certificate_ = result.certify(self.certify, key=key, verbose=self.verbose)
        return self

    def _with_widths(self, result: Fit, rows: MergedRows, asked: str) -> Fit:
        """The result with how far its deviations fall short by the choice of its kernel.

        Of fewer rows than a choice needs, that they rest on the priors.
        """
        number = rows.merged.size
        if number < FEWEST_ROWS:
            few = rows.counted(f"Deviations rest on the priors more than on the {number} rows.")
            return result.noted([few])
        factor = 1.0 if self.kernel_choice_ is None else self.kernel_choice_.widening**0.5
        if asked != "optimise" or factor < _NOTED:
            return result
        note = (
            f"Standard deviations are about {factor:.2f} times too small, as {number} rows say "
            "little of hyper-parameters that are taken for known; "
            'hyperparameters="integrate" averages over them.'
        )
        return result.noted([rows.counted(note)])

    @interruptible
    def _update_model(self, data: Data, learn_hyperparameters: bool) -> Self:
        """Update the posterior with further rows; earlier rows are not needed.

        As in a first fit, what is known to be a constant is taken off the targets meanwhile.
        """
        self._need_inputs("partial_fit")
        refuse(
            {
                'Further rows integrate over fixed effects; take fixed_effects="integrate".': (
                    self.fixed_effects != "integrate"
                )
            }
        )
        mixture = self.posterior_.components
        posterior = Posterior(mixture.heaviest, self.posterior_.evidence)
        number = self._number_of_points()
        usual = usual_number_of_points(self.model_)
        if number is None and isinstance(self.method, str):
            number = usual  # the first rows may have been few
        plain = self._that_goes_on().through_points(None, number, usual)
        remembered = posterior.remembered()
        own: Any = dataclasses.replace(plain.representation, remembered=remembered)
        method = dataclasses.replace(plain, representation=own)
        model, centre = without_constant(with_noise_for_points(self.model_, data, method))
        result = self._run(
            model,
            data.shifted(-centre),
            method,
            restarts=0,
            learn_hyperparameters=learn_hyperparameters,
        )
        reason = "went on with further rows"
        if mixture.size > 1:
            reason += ", hyper-parameters at the point of the greatest weight"
        if len(remembered.centres) < len(posterior.latent.centres):
            reason += f"; earlier ones are remembered through {len(remembered.centres)} points"
        self._keep(result, plain, reason, centre, self.verbose)
        known = getattr(self, "row_fingerprints_", None)
        self.row_fingerprints_ = with_known(fingerprints(data.X, data.y), known)
        return self

    def _that_goes_on(self) -> Method:
        """The method with all rows at once, or another one where nobody asked for it."""
        own = self.method_.all_rows_at_once
        return that_goes_on(own, self.model_) if self.method == "auto" else own

    @interruptible
    def continue_with(
        self,
        rows: RowSource,
        *,
        batch_size: int | None = None,
        epochs: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: int = 0,
        devices: Sequence[Any] | None = None,
    ) -> Self:
        """Learn from rows that need not fit in memory, in batches, from the fitted model on.

        Args:
            rows: inputs and targets as `fit` makes them for the model: of classes their numbers.
            batch_size: rows of a batch; None is 1,000, or a method's own that learns from batches.
            epochs: at most so many passes over the rows; None is 20, or the method's own.
            checkpoint: a file kept up to date while learning, and resumed from if it exists.
            verbose: 1 prints progress and the verdict.
            devices: over which the rows are spread, as in `latentgp.fit`.

        Raises:
            InputError: the method is none that learns from batches, or rows that do not fit.
        """
        check_is_fitted(self)
        self._need_inputs("continue_with")
        asked = self.hyperparameters
        refuse(
            {
                f'Batches cannot {asked} hyper-parameters; take hyperparameters="optimise".': (
                    asked not in ("auto", "optimise")
                ),
                "Batches integrate over fixed effects; take "
                'fixed_effects="integrate".': self.fixed_effects != "integrate",
            }
        )
        method = self._that_goes_on()
        own = getattr(method, "representation", None)
        if method.reads_batches:  # by itself
            batches = method
        else:
            number, usual = self._number_of_points(), usual_number_of_points(self.model_)
            if own is None or own.traits.one_coefficient_a_row:
                method = method.through_points(None, number, usual, selection="k-means++")
            elif not isinstance(own, SamplesCoefficients):
                points = inducing_points(self.model_, usual, number)
                method = dataclasses.replace(method, representation=points)
            batches = answer("batches")(method)
        batches = batches.continued(batch_size, epochs)
        model, centre = without_constant(self.model_)
        result = self._run(
            model,
            CentredRows(rows, centre) if centre else rows,
            batches,
            restarts=0,
            checkpoint=checkpoint,
            verbose=verbose,
            devices=devices,
        )
        self.row_fingerprints_ = None
        reason = f"{rows.size} rows in batches, begun with {self.method_reason_}"
        self._keep(result, batches, reason, centre, verbose)
        return self

    def _run(
        self,
        model: LatentGP,
        data: Data | MergedRows | RowSource,
        method: Method,
        by: Callable[..., Fit] = fit,
        **settings: Any,
    ) -> Fit:
        """`fit`, or what is like it, with the estimator's own settings, unless others are given."""
        terms, frozen = self.kernel, self.frozen_paths
        has_level = isinstance(terms, AdditiveTerms) and not terms.centred
        if has_level and not isinstance(model.mean, ZeroMean):
            frozen = (*frozen, "mean")  # about which the intercept is; what is learned is that
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(SearchOptions)}
        own |= {"hyperparameters": "optimise", "frozen": frozen}
        own["input_names"] = self._names() or self.column_names
        return by(model, data, key=jax.random.key(self._seed()), method=method, **own | settings)

    def _number_of_points(self) -> int | None:
        """`n_inducing`, which may be written as a whole float.

        Raises:
            InputError: it is no positive whole number.
        """
        number = self.n_inducing
        if number is None:
            return None
        if not (isinstance(number, Real) and number >= 1 and float(number).is_integer()):
            raise InputError(f"n_inducing must be a positive number or None, got {number!r}.")
        return int(number)

    def _own_representation(self) -> Representation | None:
        """`representation`, checked.

        Raises:
            InputError: something else, or what says the same is given too.
        """
        own = self.representation
        if own is None:
            return None
        if not isinstance(own, Representation):
            raise InputError(
                f"representation must be one such as Inducing(200) or Neighbours(20), got {own!r}."
            )
        if self.n_inducing is not None or not isinstance(self.method, str):
            other = "n_inducing" if self.n_inducing is not None else "a method object"
            raise InputError(
                f"representation and {other} both set the representation; leave one of them out."
            )
        return own

    def _seed(self) -> int:
        return check_random_state(self.random_state).randint(np.iinfo(np.int32).max)

    def _keep(self, result: Fit, method: Method, reason: str, centre: float, verbose: int) -> None:
        """Keep a fit's results as attributes, and issue its warnings."""
        self.posterior_ = result.posterior.shifted(centre) if centre else result.posterior
        self.model_ = self.posterior_.model
        of_inputs = lengthscales(self.model_.of_inputs, self.posterior_.latent_inputs())
        self.lengthscales_ = of_inputs * np.asarray(self.posterior_.components.units)
        self.history_ = result.history
        self.priors_ = dict(result.priors or {})
        self.diagnostics_ = dataclasses.replace(result.diagnostics, method=method, reason=reason)
        self.method_, self.method_reason_ = method, reason
        if verbose:
            print(self.diagnostics_.verdict)
        else:
            for warning in self.diagnostics_.warnings:
                warn_user(warning)

    def _chosen(self, default: str, names: Mapping[str, Any]) -> Any:
        """The likelihood asked for: an object as it is, or the class that a name stands for."""
        if isinstance(self.likelihood, Likelihood):
            return self.likelihood
        name = default if self.likelihood == "auto" else self.likelihood
        if not isinstance(name, str) or name not in names:
            if isinstance(name, str) and name in OWNERS:
                raise InputError(
                    f"likelihood {name!r} is for {OWNERS[name]}; here choose one of auto, "
                    f"{', '.join(names)}, or a likelihood object."
                )
            raise InputError(
                f"likelihood must be one of auto, {', '.join(names)}, or a likelihood object, got "
                f"{self.likelihood!r}."
            )
        return names[name]

    def _inputs(self, X: Any) -> Float[np.ndarray, "N D"]:
        check_is_fitted(self)
        return self._validated(X, reset=False, ensure_min_samples=0)

    def _asked(self, X: Any) -> tuple[Posterior, Float[np.ndarray, "S D"]]:
        """The posterior and the inputs that are asked about.

        Of Gram matrices X has covariances with the rows of the fit: the posterior then knows the
        new points too, and their inputs are numbers.
        """
        check_is_fitted(self)
        if not is_precomputed(self.kernel):
            return self.posterior_, self._inputs(X)
        cross, variances = checked_cross(X, self.gram_)
        scale = np.mean(np.diagonal(self.gram_))
        return with_points(self.posterior_, cross / scale, variances / scale)

    def _predictive(self, X: Any, **side_information: Any) -> Any:
        """The distributions of y at inputs, given what belongs to each row."""
        posterior, X = self._asked(X)
        return posterior.predict(X, **given(**side_information))

    def coefficients(self) -> Coefficients:
        """Coefficients of the columns that `mean` names, with their standard errors.

        Units of the latent function over those of the column. Given the hyper-parameters.

        Raises:
            InputError: the model has none.
        """
        check_is_fitted(self)
        return self.posterior_.coefficients(self._column_names())

    def group_effects(
        self, column: int | str, groups: Sequence[float], labels: Sequence[str] | None = None
    ) -> dict[str, GroupEffects]:
        """Intercepts and slopes of groups, by the name of the column that a slope is of.

        Args:
            column: of the groups, one that `groups` names.
            groups: their values in it.
            labels: of the groups; their values unless given.

        Raises:
            InputError: the model has none for that column.
        """
        check_is_fitted(self)
        names = self._column_names()
        return self.posterior_.group_effects(
            number_of(column, len(names), names), groups, names=names, labels=labels
        )

    def _names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    def _column_names(self) -> list[str]:
        inputs = self.posterior_.components.inputs
        return self._names() or [str(column) for column in range(inputs)]

    def parts(self, X: Any, names: Sequence[str] | None = None) -> Parts:
        """Posteriors of the parts of the latent functions at X, as `Posterior.parts`.

        Args:
            X: inputs, shape (N, D).
            names: of the parts, in the order of the kernel's; as their kernels print unless given.
        """
        posterior, X = self._asked(X)
        return posterior.parts(X, names)

    def leave_one_out(
        self, X: Any, y: Any, sample_weight: Any = None, **side_information: Any
    ) -> LeaveOneOut:
        """Predict every row from all others, without refits, as `latentgp.leave_one_out`.

        The rows are not in the estimator, and nor are the sites that stand for them: where these
        are not the likelihood itself, they are those of a variational fit with the posterior's
        marginals. `latentgp.fit(...).leave_one_out()` has the fit's own.

        Args:
            X: inputs of the rows that were fitted, shape (N, D).
            y: their targets or labels.
            sample_weight: their weights, if the fit had any.
            side_information: what belonged to each row, such as `exposure`.

        Raises:
            InputError: rows that do not fit the model; side information of the fit that is missing;
                a mean of trees or of a regressor.

        Example:
            >>> import numpy as np, latentgp as lgp
            >>> X = np.linspace(0, 6, 40)[:, None]
            >>> y = np.sin(X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
            >>> found = lgp.GPRegressor(random_state=0).fit(X, y).leave_one_out(X, y)
            >>> bool(np.mean(np.abs(y - found.mean) < 1.96 * found.std) > 0.9)
            True
        """
        check_is_fitted(self)
        self._need_inputs("leave_one_out")
        check_leaves_out(self.mean)
        side = given(**side_information)
        self._check_sides(side, "leave_one_out")
        data = self._rows(X, y, sample_weight, side, reset=False)
        rows = data.merged_rows().merged
        known = are_known(self, rows.X, rows.y)
        if known is not None and not known.all():
            raise InputError(
                f"{np.sum(~known)} of {known.size} different rows are none that were fitted; give "
                "those of the fit."
            )
        return verb("leave_one_out")(self.posterior_, data)

    def report(
        self,
        X: Any,
        y: Any,
        path: str | Path,
        sample_weight: Any = None,
        **side_information: Any,
    ) -> Path:
        """Write a page about the fitted model: what it is, whether to trust it, what inputs do.

        Args:
            X: inputs, shape (N, D), or a data frame.
            y: targets; rows the model has learned from are predicted from the others.
            path: of the page, one file of HTML.
            sample_weight: the rows' weights, if the fit had any.
            side_information: what belongs to each row, such as `exposure`.

        Returns:
            The file written.

        Raises:
            InputError: rows that do not fit the model, or a path that cannot be written.
        """
        check_is_fitted(self)
        self._need_inputs("report")
        return verb("report")(self, path, X, y, sample_weight, **side_information)

    def export(self, folder: str | Path, **settings: Any) -> Exported:
        """Write the predictions as files that need no latentgp: a Python file, StableHLO.

        Args:
            folder: where to; it is made if need be.
            settings: as `latentgp.export_predictor` takes them.

        Raises:
            InputError: as `latentgp.export_predictor` does.
        """
        check_is_fitted(self)
        self._need_inputs("export")
        classes = getattr(self, "classes_", None)
        return verb("export")(self.posterior_, folder, classes=classes, **settings)

    @abstractmethod
    def _rows(self, X: Any, y: Any, weights: Any, side: dict[str, Any], *, reset: bool) -> Data:
        """The rows as the likelihood takes them, checked."""

    def _check_sides(self, side: dict[str, Any], asked: str) -> None:
        """Raise InputError where side information that the fit had is missing."""
        for name in getattr(self, "side_information_", ()):
            if name not in side:
                raise InputError(
                    f"The fit had {name}, without which targets mean something else; give "
                    f"{asked}(..., {name}=...){ROUTED}."
                )

    def _need_inputs(self, what: str) -> None:
        """Raise InputError where rows are known by covariances with those of the fit alone."""
        if is_precomputed(self.kernel):
            raise InputError(
                f'{what} needs covariances between new rows, which kernel="precomputed" does not '
                "have; use latentgp.Precomputed of all rows with latentgp.fit."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        return tags

    def _validated(self, X: Any, y: Any = "no_validation", **checks: Any) -> Any:
        """scikit-learn's checks, with messages that name the rows at fault."""
        check_not_traced("X", X)
        alone = isinstance(y, str)
        X, y = unmasked(self._placed(X, checks.get("reset", True))), unmasked(y)
        try:
            checked = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False, **checks)
        except (TypeError, ValueError) as error:
            if not alone and y is not None:
                check_known(y)
            if "xarray.Dataset" in str(error):
                raise InputError(
                    "X is a Dataset of xarray; use latentgp.TableModel.fit(dataset, target), which "
                    "makes rows of its grid, or give rows and targets of dataset.to_dataframe()."
                ) from error
            if "could not be promoted" in str(error):
                raise InputError(
                    "X holds dates beside numbers; use latentgp.TableModel.fit(frame, target), "
                    "which encodes the columns of a table, or make numbers of them first."
                ) from error
            if "could not convert string" not in str(error):
                raise
            culprit = "X" if alone or _holds_text(X) else "y"
            advice = (
                "use latentgp.TableModel.fit(frame, target), which encodes the columns of a table, "
                "or encode it first, with scikit-learn's OneHotEncoder, say"
            )
            if culprit == "y":
                advice = FOR_LABELS
            raise InputError(
                f"{culprit} holds text where numbers are needed ({error}); {advice}."
            ) from error
        array: Any = checked if alone else checked[0]
        if len(array):
            check_finite("X", array)
        if not is_precomputed(self.kernel):
            return checked
        if not checks.get("reset", True):
            self._need_inputs("partial_fit")
        self.gram_ = checked_gram(array)
        numbers = np.arange(len(array), dtype=np.float64)[:, None]
        return numbers if alone else (numbers, checked[1])

    def _placed(self, X: Any, reset: bool) -> Any:
        """Inputs with geometry as a table of numbers; what is doubtful there is warned of."""
        if not reset:
            places = getattr(self, "places_", None)
            return X if places is None else places.read(X)
        self.places_ = None
        if not has_geometry(X):
            return X
        check_there(X, points_of(X)[0])
        table, self.places_, _, doubts = placed(X)
        for doubt in doubts:
            warn_user(doubt)
        return table

    @public
    def _draws(
        self,
        X: Any,
        number: int,
        random_state: int | np.random.RandomState | None,
        **side_information: Any,
    ) -> Float[np.ndarray, "N *P S"]:
        self._need_inputs("sample_y")
        X = self._inputs(X)
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        key = jax.random.key(seed)
        side = given(**side_information)
        draws = self.posterior_.sample_y(X, key=key, number=number, **side)
        return np.moveaxis(draws, 0, -1)


class NumberEstimator(RegressorMixin, GPEstimator):
    """Base of the estimators of numbers and counts."""

    def predict_interval(
        self, X: Any, level: float = 0.95, **side_information: Any
    ) -> tuple[Float[np.ndarray, "N *P"], Float[np.ndarray, "N *P"]]:
        """Ends of the central interval that holds y with the given probability; a count with more.

        Shapes (N,), or (N, P) for each output by itself.
        """
        return self._predictive(X, **side_information).interval(level)

    def log_predictive_density(
        self, X: Any, y: Any, **side_information: Any
    ) -> Float[np.ndarray, "N"]:
        """Log p(y | data) a row, in nats; of all outputs that are there together."""
        return self._predictive(X, **side_information).log_prob(y)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        **side_information: Any,
    ) -> Float[np.ndarray, "N *P S"]:
        """Draws of y, joint over rows through the latents, shape (N, n_samples) or (N, P, ...)."""
        return self._draws(X, n_samples, random_state, **side_information)


def given(**values: Any) -> dict[str, Any]:
    """The arguments that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def row_weights(sample_weight: Any, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N"] | None:
    """Row weights, checked, with a warning where they look like shares; None stays None."""
    if sample_weight is None:
        return None
    weights = np.asarray(unmasked(sample_weight))
    weights = as_weights(np.full(len(X), weights) if weights.ndim == 0 else weights, len(X))
    if round(weights.sum()) <= 1 < len(X):
        warn_user(
            f"The weights of {len(X)} rows add up to {weights.sum():.3g} rows, as a weight is a "
            "number of copies; multiply them to a mean of one if only their ratios are meant."
        )
    return weights


def check_known(y: Any) -> None:
    """Raise InputError, naming the rows, where a target is missing or infinite."""
    y = np.asarray(unmasked(y))
    if y.dtype.kind == "f":
        check_finite("y", y)
    elif y.dtype.kind == "O":
        missing = np.array(
            [not isinstance(v, str) and str(v) in _MISSING for v in y.ravel().tolist()], bool
        )
        if missing.any():
            raise InputError(f"y is missing in {rows_named(missing)}; drop these rows first.")


def _holds_text(values: Any) -> bool:
    try:
        np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return True
    return False
