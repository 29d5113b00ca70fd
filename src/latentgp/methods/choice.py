"""Choice of the method for a model and a number of rows: `method="auto"`."""

from __future__ import annotations

from typing import NamedTuple

from latentgp.likelihoods import LeastSquares
from latentgp.methods.augmented import AugmentedVI
from latentgp.methods.base import Method, sites_are_known, usual_method
from latentgp.methods.exact import CollapsedVI, ExactGP
from latentgp.methods.expectation_propagation import ExpectationPropagation
from latentgp.methods.sites import ShortSearch
from latentgp.methods.stochastic import Stochastic
from latentgp.methods.variational import VariationalInference
from latentgp.models import LatentGP
from latentgp.representations import Dense, Inducing
from latentgp.rows import RowSource

_DENSE_REGRESSION = 2_000
DENSE_OTHERWISE = 400
DENSE_CLASSES = 5_000  # by least squares, where one factorisation is all there is
_AT_ONCE = 200_000


class Choice(NamedTuple):
    """A method and why it was chosen, in a sentence."""

    method: Method
    reason: str

    def in_batches_if_many(self, rows: int) -> "Choice":
        """The same method in batches where a pass over all rows is dear."""
        if rows <= _AT_ONCE or not self.method.works_in_batches:
            return self
        why = f"{self.reason}; in batches, as a pass over all rows is dear"
        return Choice(Stochastic.of(self.method), why)


def choose_for(model: LatentGP, rows: int, source: RowSource | None, searched: bool) -> Choice:
    """Choose the method that "auto" stands for; rows of a source are read in batches.

    Args:
        model: the model.
        rows: number of merged rows in memory.
        source: where rows are read from; None if all are in memory.
        searched: hyper-parameters are learned in one run.
    """
    if source is None:
        choice = choose_method(model, rows)
        return choice.in_batches_if_many(rows) if searched else choice
    method, reason = choose_method(model, source.size, usual_number_of_points(model))
    return Choice(Stochastic.of(method), f"{reason}; batches of rows that are read")


def choose_method(model: LatentGP, rows: int, n_inducing: int | None = None) -> Choice:
    """Choose the method for a model and a number of rows, as `method="auto"` does.

    Args:
        model: the model.
        rows: number of rows N.
        n_inducing: asks for so many inducing points whatever N is.
    """
    representation = usual_representation(model, rows, n_inducing)
    usual = usual_method(model.likelihood)
    points = getattr(representation, "number", None)
    if not representation.one_coefficient_a_row:
        why = f"{rows} rows through {points} inducing points"
        if usual == "ExactGP":
            return Choice(CollapsedVI(representation), f"{why}: Gaussian noise needs no iterations")
    else:
        why = f"{rows} rows are few enough for one coefficient a row"
        if isinstance(model.likelihood, LeastSquares):
            return Choice(
                ExactGP(search=ShortSearch()),
                f"{why}: the posterior is exact, one factorisation for all classes; "
                "hyper-parameters are those of a short search",
            )
        if usual == "ExactGP":
            return Choice(ExactGP(), f"{why}: the posterior is exact")
    if usual == "AugmentedVI":
        return Choice(AugmentedVI(representation), f"{why}; augmented updates suit its kink")
    if usual == "ExpectationPropagation":
        return Choice(
            ExpectationPropagation(representation),
            f"{why}; moments match where there is no variational bound",
        )
    return Choice(
        VariationalInference(representation), f"{why}; quadrature sites have the tighter bound"
    )


def usual_representation(
    model: LatentGP, rows: int, n_inducing: int | None = None
) -> Dense | Inducing:
    """Dense for few rows, else inducing points; these also if a number is given."""
    dense = _DENSE_REGRESSION if sites_are_known(model.likelihood) else DENSE_OTHERWISE
    if isinstance(model.likelihood, LeastSquares):
        dense = DENSE_CLASSES
    if n_inducing is None and rows <= dense:
        return Dense()
    return inducing_points(model, rows, n_inducing)


def inducing_points(model: LatentGP, rows: int, n_inducing: int | None = None) -> Inducing:
    """Inducing points: the number given or the usual one, at most one a row."""
    return Inducing(number=min(rows, n_inducing or usual_number_of_points(model)))


def usual_number_of_points(model: LatentGP) -> int:
    """Number of inducing points that "auto" takes."""
    return 500 if sites_are_known(model.likelihood) else 200
