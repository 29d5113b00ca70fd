"""The methods by name: one line each, from which choices, refusals and documents are derived.

A new method is a file with a subclass of `Method`, and a line here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from latentgp.errors import InputError
from latentgp.methods.augmented import AugmentedVI
from latentgp.methods.base import Method
from latentgp.methods.choice import Choice, choose_method, inducing_points, usual_representation
from latentgp.methods.elliptical_slice import EllipticalSlice
from latentgp.methods.exact import CollapsedVI, ExactGP
from latentgp.methods.expectation_propagation import ExpectationPropagation
from latentgp.methods.gibbs import GibbsSampling
from latentgp.methods.laplace import Laplace
from latentgp.methods.nuts import NUTS
from latentgp.methods.variational import VariationalInference
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation

_DENSE_SAMPLING = 1_000
_TASKS = "count", "classification", "ordinal"
ChooseRepresentation = Callable[[LatentGP, int, int | None], Representation | None]


def without_points(model: LatentGP, rows: int, n_inducing: int | None) -> None:
    """The method's own, which has no inducing points."""
    if n_inducing is not None:
        raise InputError(
            f"The method uses no inducing points, but n_inducing={n_inducing}; leave one of them "
            "out."
        )


def _for_samplers(model: LatentGP, rows: int, n_inducing: int | None) -> Representation:
    """One coefficient a row for more rows than is usual, as chains are exact there."""
    few = n_inducing is None and rows <= _DENSE_SAMPLING
    return Dense() if few else usual_representation(model, rows, n_inducing)


class Entry(NamedTuple):
    """A method that has a name.

    Attributes:
        method: its class, made with `representation=`, or with nothing where there is none.
        advice: what it is and when to take it, in one line.
        representation: gives the representation for a model, a number of rows and a number of
            inducing points that was asked for.
        compared_for: tasks for which `compare` takes it without being asked.
    """

    method: type[Method]
    advice: str
    representation: ChooseRepresentation = usual_representation
    compared_for: tuple[str, ...] = ()


METHODS: dict[str, Entry] = {
    "exact": Entry(ExactGP, "closed form for Gaussian noise", without_points),
    "collapsed": Entry(CollapsedVI, "Gaussian noise through inducing points", inducing_points),
    "augmented": Entry(
        AugmentedVI,
        "closed-form updates of an augmented likelihood",
        compared_for=("classification",),
    ),
    "variational": Entry(
        VariationalInference, "the usual choice for any other likelihood", compared_for=_TASKS
    ),
    "laplace": Entry(
        Laplace, "mode and curvature, quick for smooth log-concave likelihoods", compared_for=_TASKS
    ),
    "ep": Entry(
        ExpectationPropagation,
        "matched moments, the best evidence for binary data",
        compared_for=_TASKS,
    ),
    "gibbs": Entry(GibbsSampling, "exact draws of an augmented likelihood", _for_samplers),
    "elliptical-slice": Entry(
        EllipticalSlice, "exact draws at held hyper-parameters, any likelihood", _for_samplers
    ),
    "nuts": Entry(NUTS, "exact draws, hyper-parameters included, any smooth one", _for_samplers),
}


def of_name(method: str | Method) -> Any:
    """Class of a named method, or the method given; either has the capabilities.

    Raises:
        InputError: no such name.
    """
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        names = ", ".join(["auto", *METHODS])
        raise InputError(f"method must be one of {names}, or a method object, got {method!r}.")
    return METHODS[method].method


def method_from_name(
    name: str, model: LatentGP, rows: int, n_inducing: int | None = None
) -> Choice:
    """The method that a name in an estimator or on the command line stands for.

    Raises:
        InputError: no such name, or one that does not fit the model.
    """
    if name == "auto":
        return choose_method(model, rows, n_inducing)
    make: Callable[..., Method] = of_name(name)
    representation = METHODS[name].representation(model, rows, n_inducing)
    method = make() if representation is None else make(representation=representation)
    return Choice(method, "asked for")


def names_in_words() -> str:
    """The names, as documents list them."""
    return ", ".join(f'"{name}"' for name in ("auto", *METHODS))
