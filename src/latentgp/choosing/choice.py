"""Choice of the method for a model and a number of rows: `method="auto"`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

from latentgp.errors import InputError
from latentgp.extensions import answer, offers
from latentgp.kernels import has_effects, is_tabulated
from latentgp.likelihoods import LeastSquares
from latentgp.likelihoods.bernoulli import BinaryResponse
from latentgp.methods.base import Method, check_method
from latentgp.methods.options import Hyperparameters
from latentgp.models import LatentGP
from latentgp.representations import Dense, Inducing, Representation
from latentgp.representations.needs import sites_are_known, usual_method
from latentgp.representations.protocols import SamplesCoefficients
from latentgp.rows import RowSource
from latentgp.site_inference.methods.augmented import AugmentedVI
from latentgp.site_inference.methods.base import ShortSearch
from latentgp.site_inference.methods.exact import CollapsedVI, ExactGP
from latentgp.site_inference.methods.expectation_propagation import ExpectationPropagation
from latentgp.site_inference.methods.laplace import Laplace
from latentgp.site_inference.methods.variational import VariationalInference

_DENSE_REGRESSION = 2_000
DENSE_OTHERWISE = 400
DENSE_CLASSES = 5_000  # by least squares, where one factorisation is all there is
# Estimates for two cores: a default takes the same way on every machine.
_BUDGET = 60.0  # seconds, where nothing is said
# Of two classes with one coefficient a row, a search takes a third of this times the rows cubed.
_SECONDS_OF_MOMENTS = 1.5e-8
_MOST_OF_MOMENTS = 10_000  # rows; of 40,000 a search takes nine times that of the bound
_SECONDS = 4e-11  # of a product in a pass over the rows
# Of an evaluation, until sites converge; one each if sites are known.
_PASSES, _FINAL_PASSES = 3, 15


class Offer(NamedTuple):
    """A representation for all rows of a model, as an extension offers it to "auto"."""

    rank: int  # the smallest is taken: 0 of what is exact, and above the more is approximated
    representation: Representation
    why: str  # what it is of, in words
    exactness: str = ""  # what Gaussian noise makes of it, in words
    at_mode: bool = False  # whether sites that move are those of the mode, as others take long


class Choice(NamedTuple):
    """A method and why it was chosen."""

    method: Method
    reason: str  # why, in a sentence
    # the choice where hyper-parameters are integrated over or sampled; None for the same one
    otherwise: "Choice | None" = None

    def within(self, seconds: float | None, model: LatentGP, shape: tuple[int, ...]) -> "Choice":
        """The same method, to be done within seconds (a minute if None) by an estimate of its cost.

        Where a search on all rows takes longer, hyper-parameters are learned from a part of them;
        where the posterior alone does, all is done in batches. The inputs of merged rows have
        `shape`.
        """
        rows, inputs = shape
        own: Any = self.method
        if not own.makes_sites:
            return self
        a_row = own.settled(model, rows).algorithm(model).representation.traits.products
        if a_row is None:
            return self
        number = own.representation.number
        budget = _BUDGET if seconds is None else seconds
        known = sites_are_known(model.likelihood)
        products = rows * a_row.of(inputs) * model.likelihood.latent_size
        final = _SECONDS * products * (1 if known else _FINAL_PASSES)
        evaluation = _SECONDS * products * (1 if known else _PASSES)
        search = evaluation * (30 + 3 * inputs)  # so many evaluations
        if final + search <= budget:
            return self
        batches = own.works_in_batches and not own.representation.traits.one_coefficient_a_row
        if final > budget / 2 and batches:
            why = f"in batches, as the posterior of all rows at once takes some {final:.0f} s"
            return Choice(answer("batches")(own), f"{self.reason}; {why}")
        # Beside a posterior that takes long a search may, too.
        budget = max(budget, (2.0 if seconds is None else 1.25) * final)
        part = max(int(rows * (budget - final) / search), 20 * number)  # 20 rows a point at least
        if part >= rows:
            return self
        method = dataclasses.replace(own, search=ShortSearch(part, evaluations=None))
        why = f"hyper-parameters from {part} of them, as a search on all takes some {search:.0f} s"
        return Choice(method, f"{self.reason}; {why}")


def treatment(
    asked: str, model: LatentGP, rows: int, frozen: Sequence[str], *, may_integrate: bool
) -> str:
    """What is done about hyper-parameters; "auto" integrates where an extension does for few rows.

    Where it may not, or rows are many, "auto" optimises.
    """
    if asked != "auto":
        return asked
    few = may_integrate and any(offer(model, rows, frozen) for offer in offers("few rows"))
    return "integrate" if few else "optimise"


def treating(hyperparameters: str, choice: Choice, model: LatentGP, learned: bool = True) -> Choice:
    """The method that optimises, integrates over or samples hyper-parameters, for one chosen.

    InputError for another word, a method that cannot do it, or where none are `learned`.
    """
    if hyperparameters not in get_args(Hyperparameters):
        raise InputError(
            'hyperparameters must be "auto", "optimise", "integrate" or "sample", got '
            f"{hyperparameters!r}."
        )
    if hyperparameters == "optimise":
        return choice
    check_method(choice.method, model, False, 0, False)
    choice = choice.otherwise or choice
    if hyperparameters == "integrate":
        return answer("integrate")(choice, learned)
    if hyperparameters == "sample" and not choice.method.samples_hyperparameters:
        return answer("sample")(choice, model)
    return choice


def choose_for(
    model: LatentGP,
    shape: tuple[int, ...],
    source: RowSource | None = None,
    n_inducing: int | None = None,
    representation: Representation | None = None,
    *,
    searched: bool = False,
    seconds: float | None = None,
) -> Choice:
    """Choose the method that "auto" stands for; rows of a source are read in batches.

    Merged rows in memory have inputs of `shape`. A budget of seconds holds where hyper-parameters
    are `searched`, learned in one run. Without a representation it is the usual one.
    """
    if model.depth > 1:
        return answer("layers")(model)
    if source is not None:
        choice = choose_method(model, source.size, usual_number_of_points(model))
        why = f"{choice.reason}; batches of rows that are read"
        return Choice(answer("batches")(choice.method), why)
    if representation is None:
        choice = choose_method(model, shape[0], n_inducing, shape[1])
    else:
        choice = _method_through(representation, model)
    choice = choice.within(seconds, model, shape) if searched else choice
    # Of up to three inputs, points leave next to nothing.
    few = representation is None and n_inducing is None and shape[1] > 3
    few &= _SECONDS_OF_MOMENTS * shape[0] ** 3 <= (seconds or _BUDGET)
    return _by_moments(choice, model, shape[0], few)


def _by_moments(choice: Choice, model: LatentGP, rows: int, few: bool) -> Choice:
    """Of two classes, expectation propagation in place of the bound; `few` have a coefficient each.

    Further rows, and batches, go on by the bound, see `that_goes_on`.
    """
    own: Any = choice.method
    if not isinstance(model.likelihood, BinaryResponse) or type(own) is not VariationalInference:
        return choice
    representation, why = own.representation, choice.reason.split(";")[0]
    plain = type(representation) in (Dense, Inducing) and representation.traits.powers
    plain &= getattr(representation, "features", None) is None
    if not plain or rows > _MOST_OF_MOMENTS or own.search is not None:
        return choice
    if few:
        representation, why = Dense(), f"{rows} rows are few enough for one coefficient a row"
    why += "; moments predict two classes better than a bound does"
    return Choice(ExpectationPropagation(representation), why, choice)


def gone_on(
    chosen: Choice, fit: Any, seconds: float | None, again: Callable[[Method], Any]
) -> tuple[Choice, Any]:
    """A choice and its fit, or another where an extension finds that rows say more than it took in.

    Where seconds are limited, a note says so instead.
    """
    found = (offer(fit) for offer in offers("what a fit leaves"))
    better: Choice | None = next((choice for choice in found if choice is not None), None)
    if better is None:
        return chosen, fit
    if seconds is not None:
        why = f"With more time the fit would be by {better.method}: {better.reason}."
        return chosen, fit.noted([why])
    better = better.within(None, fit.model, fit.rows.merged.X.shape)
    result = again(better.method)
    seconds = fit.diagnostics.seconds + result.diagnostics.seconds
    reason = fit.rows.counted(better.reason)
    said = dataclasses.replace(result.diagnostics, reason=reason, seconds=seconds)
    return better, dataclasses.replace(result, diagnostics=said)


def that_goes_on(method: Any, model: LatentGP) -> Method:
    """The method for further rows, or for batches, where "auto" has chosen one for all rows.

    Moments are matched and modes found with all rows at hand; the bound of the same sites goes on
    with any.
    """
    by_all = type(method) in (ExpectationPropagation, Laplace) and model.likelihood.is_positive
    return VariationalInference(method.representation) if by_all else method


def choose_method(
    model: LatentGP, rows: int, n_inducing: int | None = None, inputs: int | None = None
) -> Choice:
    """Choose the method for a model and N rows of D inputs (None if unknown), as "auto" does.

    `n_inducing` asks for so many inducing points whatever N is.
    """
    usual = usual_method(model.likelihood)
    exact = usual == "ExactGP"
    own = _of_core(model, rows, n_inducing)
    asked = (offer(model, rows, inputs, n_inducing) for offer in offers("rows"))
    chosen = min([*own, *filter(None, asked)], key=lambda offer: offer.rank)
    representation, why = chosen.representation, chosen.why
    exactly = f"{why}{chosen.exactness}"
    # What chains and black boxes take.
    _, points, of_points, exactness, _ = own[-1]
    moves = isinstance(representation, SamplesCoefficients)
    if exact and isinstance(model.likelihood, LeastSquares) and isinstance(representation, Dense):
        return Choice(
            ExactGP(search=ShortSearch()),
            f"{why}: the posterior is exact, one factorisation for all classes; "
            "hyper-parameters are those of a short search",
        )
    if exact:
        otherwise = None if moves else Choice(CollapsedVI(points), f"{of_points}{exactness}")
        return Choice(ExactGP().through(representation), exactly, otherwise)
    if not model.likelihood.has_gradient:
        representation, why = (representation, why) if moves else (points, of_points)
        why = f"{why}; expectations from values alone, as the likelihood has no gradient"
        return Choice(answer("values")(representation), why)
    method, gain = {
        "AugmentedVI": (AugmentedVI, "augmented updates suit its kink"),
        "ExpectationPropagation": (
            ExpectationPropagation,
            "moments match where there is no variational bound",
        ),
    }.get(usual, (VariationalInference, "quadrature sites have the tighter bound"))
    otherwise = None if moves else Choice(method(points), f"{of_points}; {gain}")
    if chosen.at_mode:
        method, gain = Laplace, "the curvature at the mode takes few variances"
    return Choice(method(representation), f"{why}; {gain}", otherwise)


def _of_core(model: LatentGP, rows: int, n_inducing: int | None) -> list[Offer]:
    """One coefficient a row, or inducing variables."""
    representation: Any = usual_representation(model, rows, n_inducing)
    if representation.traits.one_coefficient_a_row:
        why = f"{rows} rows are few enough for one coefficient a row"
        return [Offer(0, representation, why, ": the posterior is exact")]
    features = representation.features
    number = (representation if features is None else features).number
    why = f"{rows} rows through {number} inducing points"
    why += "" if features is None else " and the coefficients of the other parts"
    return [Offer(3, representation, why, ": Gaussian noise needs no iterations")]


def is_long_series(model: LatentGP, rows: int, n_inducing: int | None, inputs: int = 1) -> bool:
    """Whether "auto" takes a state-space form: exact, of few states, for many rows."""
    return any(offer(model, rows, inputs, n_inducing) for offer in offers("series"))


def _method_through(representation: Representation, model: LatentGP) -> Choice:
    """The usual method of a model's likelihood, with a representation that was asked for."""
    points = None if representation.traits.one_coefficient_a_row else 1
    usual: Any = choose_method(model, 1, points).method
    method = dataclasses.replace(usual, representation=representation)
    return Choice(method, f"the usual method through {representation}")


def usual_representation(
    model: LatentGP, rows: int, n_inducing: int | None = None
) -> Dense | Inducing:
    """Dense for few rows, else inducing points; these also if a number is given."""
    if is_tabulated(model.kernel) and n_inducing is None:
        return Dense()  # no point lies between rows
    dense = _DENSE_REGRESSION if sites_are_known(model.likelihood) else DENSE_OTHERWISE
    if isinstance(model.likelihood, LeastSquares):
        dense = DENSE_CLASSES
    if n_inducing is None and rows <= dense:
        return Dense()
    return inducing_points(model, rows, n_inducing)


def inducing_points(model: LatentGP, rows: int, n_inducing: int | None = None) -> Inducing:
    """Inducing points: the number given or the usual one, at most one a row.

    Of each part of a kernel, where parts are coefficients or effects of groups.
    """
    number = min(rows, usual_number_of_points(model) if n_inducing is None else n_inducing)
    of_parts = offers("effects") if has_effects(model.kernel) else ()
    return of_parts[0](number) if of_parts else Inducing(number=number)


def usual_number_of_points(model: LatentGP) -> int:
    """Number of inducing points that "auto" takes, or more by which nothing is approximated."""
    usual = 500 if sites_are_known(model.likelihood) else 200
    return max(usual, *(offer(model.kernel) or 0 for offer in offers("points")), 0)
