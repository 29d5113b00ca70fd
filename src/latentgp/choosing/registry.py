"""The methods by name, from which choices, refusals and documents are derived.

A new method is a file with a subclass of `Method`, and an entry here or of its extension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from latentgp.choosing.choice import Choice, inducing_points, usual_representation
from latentgp.errors import InputError
from latentgp.extension import Entry
from latentgp.extensions import present
from latentgp.kernels import is_tabulated
from latentgp.methods.base import Method, StandsForMethod, check_is_method
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.site_inference.methods.augmented import AugmentedVI
from latentgp.site_inference.methods.exact import CollapsedVI, ExactGP
from latentgp.site_inference.methods.expectation_propagation import ExpectationPropagation
from latentgp.site_inference.methods.laplace import Laplace
from latentgp.site_inference.methods.variational import VariationalInference

_DENSE_SAMPLING = 1_000
_TASKS = "count", "classification", "ordinal"
_GAUSSIAN = "Gaussian; classes by least squares"
_AUGMENTED = (
    "Gaussian, Student-t, Laplace, asymmetric Laplace, Matérn, heteroscedastic, Bernoulli, "
    "Bayesian SVM, binomial, negative binomial, scaled-logistic Poisson, logistic-softmax, scale "
    "mixtures of one's own"
)
_ALL = (
    "all 40, any differentiable `log_prob` among them: those of AugmentedVI, probit, Poisson, "
    "beta-binomial, ordinal, softmax, robust-max, stochastic volatility, log-normal noise, gamma, "
    "log-normal, Tweedie, generalised Pareto, Weibull with censoring, beta, warped Gaussian, "
    "several outputs; zero-inflated, hurdle, zero-one-inflated and censored forms"
)


def without_points(model: LatentGP, rows: int, n_inducing: int | None) -> None:
    """The method's own, which has no inducing points."""
    if n_inducing is not None:
        raise InputError(
            f"The method uses no inducing points, but n_inducing={n_inducing}; leave one of them "
            "out."
        )


def for_samplers(model: LatentGP, rows: int, n_inducing: int | None) -> Representation:
    """One coefficient a row for more rows than is usual, as chains are exact there."""
    few = n_inducing is None and (rows <= _DENSE_SAMPLING or is_tabulated(model.kernel))
    return Dense() if few else usual_representation(model, rows, n_inducing)


METHODS: dict[str, Entry] = {
    "exact": Entry(ExactGP, "closed form", _GAUSSIAN, without_points),
    "collapsed": Entry(CollapsedVI, "closed-form bound", _GAUSSIAN, inducing_points),
    "augmented": Entry(
        AugmentedVI,
        "expected sites of an augmentation",
        _AUGMENTED,
        compared_for=("classification",),
    ),
    "variational": Entry(
        VariationalInference, "natural gradients by quadrature", _ALL, compared_for=_TASKS
    ),
    "laplace": Entry(
        Laplace,
        "curvature at the mode, about the mean",
        "all without kinks and steps",
        compared_for=_TASKS,
    ),
    "ep": Entry(
        ExpectationPropagation,
        "matched moments, any power",
        "all but the Bayesian SVM, with the Heaviside likelihood",
        compared_for=_TASKS,
    ),
}
for _extension in present().values():
    METHODS |= _extension.methods


def as_method(given: Any) -> Method:
    """A method itself, or the one that a value stands for; InputError of anything else."""
    method = given.as_method() if isinstance(given, StandsForMethod) else given
    check_is_method(method)
    return method


def of_name(method: Any) -> Any:
    """Class of a named method, or the method given; either has the capabilities.

    InputError of a name of none, or of what is no method.
    """
    if not isinstance(method, str):
        return as_method(method)
    if method not in METHODS:
        names = ", ".join(["auto", *METHODS])
        raise InputError(f"method must be one of {names}, or a method object, got {method!r}.")
    return METHODS[method].method


def method_from_name(
    name: str,
    model: LatentGP,
    rows: int,
    n_inducing: int | None = None,
    representation: Representation | None = None,
) -> Choice:
    """The method that a name in an estimator or on the command line stands for, but "auto".

    Of so many inducing points, or a representation that was asked for; None is the usual one.
    InputError if there is no such name, or it does not fit the model.
    """
    make: Callable[..., Method] = of_name(name)
    representation = representation or METHODS[name].representation(model, rows, n_inducing)
    method = make() if representation is None else make(representation=representation)
    return Choice(method, "asked for")


def names_in_words() -> str:
    """The names, as documents list them."""
    return ", ".join(f'"{name}"' for name in ("auto", *METHODS))
