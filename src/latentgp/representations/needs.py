"""Needs of methods and settings, compared with the properties of what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any

from latentgp.errors import InputError, refuse
from latentgp.kernels import is_tabulated
from latentgp.kernels.base import contains
from latentgp.kernels.index import IndexKernel
from latentgp.likelihoods import BayesianSVM, Gaussian, LeastSquares, Likelihood
from latentgp.likelihoods.row_modes import is_concave
from latentgp.representations.base import Representation
from latentgp.representations.learned_points import learns_points
from latentgp.representations.protocols import streaming_prior_of
from latentgp.representations.site_form import SiteForm
from latentgp.sites.augmentations import augmentation_of


def _need(is_met: str | Callable[[Any], Any], words: str, instead: str = "", *, of: str) -> Any:
    """A field of `Needs`, false by default: a property of what is given, or a function of that.

    The words are for the need, and for what does not meet it; without a remedy, `instead`, it is
    the usual method of the likelihood.
    """
    is_met = attrgetter(is_met) if isinstance(is_met, str) else is_met
    says = {"of": of, "is_met": is_met, "words": words, "instead": instead}
    return field(default=False, metadata=says)


def _fixes_sites(likelihood: Likelihood) -> bool:
    augmentation = augmentation_of(likelihood)
    return augmentation is not None and augmentation.sites_are_fixed


_likelihood = partial(_need, of="likelihood")
_representation = partial(_need, of="representation")
_kernel = partial(_need, of="kernel")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Needs of a method, or of a setting of it: each field says which, in words."""

    positive: bool = _likelihood(
        "is_positive", "a positive density, but {} gives some targets a density of zero"
    )
    continuous: bool = _likelihood(
        "is_continuous", "a gradient in f, but {} is a step function of f"
    )
    gradient: bool = _likelihood(
        lambda own: own.is_continuous and own.has_gradient,
        "a gradient in f, but {} has no informative gradient",
    )
    curvature: bool = _likelihood("is_smooth", "curvature in f, but {} has kinks or steps")
    concave: bool = _likelihood(is_concave, "a concave log density, but {} is not log-concave")
    normalised: bool = _likelihood("is_normalised", "moments, but {} is a pseudo-likelihood")
    augmentation: bool = _likelihood(augmentation_of, "an augmentation, but {} has none")
    fixed_sites: bool = _likelihood(
        _fixes_sites, "Gaussian noise on one output, or classes by least squares, but {} is neither"
    )
    gaussian_noise: bool = _likelihood(
        lambda own: _fixes_sites(own) and own.latent_size == 1,
        "Gaussian noise on one output, but {} is not that",
    )
    dense_factors: bool = _representation(
        "traits.dense_factors", "dense factors, but {} has none", "Dense() or Inducing(...)"
    )
    coordinates_of_sites: bool = _representation(
        "traits.coordinates_of_sites", "coordinates of sites, but {} has none", "Dense()"
    )
    latents_at_rows: bool = _representation(
        "traits.one_coefficient_a_row",
        "the latents at the rows, but {} has inducing variables",
        "Dense()",
    )
    inducing_variables: bool = _representation(
        lambda own: not own.traits.one_coefficient_a_row,
        "inducing variables, but {} has a coefficient for each row",
        "Inducing(number=200)",
    )
    one_gaussian: bool = _representation(
        "traits.one_gaussian",
        "the variational bound, but {} has another approximation",
        "Inducing(number=200)",
    )
    all_rows: bool = _representation(
        lambda own: streaming_prior_of(own) is None,
        "all rows, but {} has a summary of some",
        "VariationalInference, AugmentedVI or CollapsedVI",
    )
    held_points: bool = _representation(
        lambda own: not learns_points(own),
        "inducing points that are held, but {} learns them",
        "the points that a search has found, learn_points=False",
    )
    any_inputs: bool = _kernel(
        lambda own: not is_tabulated(own),
        "values between rows, but {} is or contains Precomputed",
        "Dense()",
    )
    distances: bool = _kernel(
        lambda own: not contains(own, IndexKernel),
        "distances of inputs, but {} is or contains a kernel over indices, such as those of areas",
        "Inducing(number=) with as many points as areas, or Dense()",
    )
    log_evidence: bool = _need(
        lambda own: getattr(own, "makes_sites", False),
        "a log evidence by sites, but {} gives no log evidence",
        "ExactGP, CollapsedVI, VariationalInference, AugmentedVI or Laplace",
        of="method",
    )

    def check(self, user: str, *, instead: str = "", **given: Any) -> None:
        """Raise InputError unless what is given meets the needs of a method or setting.

        Given are any of `likelihood`, `representation`, `kernel` and `method`; `instead` is the
        remedy, empty for the usual one.
        """
        for need in fields(self):
            says, own = need.metadata, given.get(need.metadata["of"])
            if own is None or not getattr(self, need.name) or says["is_met"](own):
                continue
            remedy = instead or says["instead"] or usual_method(own)
            words = says["words"].format(type(own).__name__)
            raise InputError(f"{user} needs {words}; use {remedy}.")


def usual_method(likelihood: Likelihood) -> str:
    """Name of the class of method that "auto" takes for a likelihood where rows are few."""
    if sites_are_known(likelihood):
        return "ExactGP"
    if isinstance(likelihood, BayesianSVM):
        return "AugmentedVI"
    return "VariationalInference" if likelihood.is_positive else "ExpectationPropagation"


def sites_are_known(likelihood: Likelihood) -> bool:
    """Whether the sites follow from the likelihood alone, so that no iteration is needed."""
    return isinstance(likelihood, Gaussian | LeastSquares)


def chosen(value: Any, words: str) -> Any:
    """A value that `initialise` or `for_rows` sets; InputError if it is None."""
    if value is None:
        raise InputError(
            f"{words} have not been chosen yet; call initialise(X, weights, kernel, key) and "
            "for_rows(X, weights, kernel) first, or fit the model with latentgp.fit."
        )
    return value


def check_form(
    representation: Representation,
    form: SiteForm,
    likelihood: Likelihood,
    *,
    at_the_mode: bool = False,
) -> None:
    """Raise InputError unless a representation takes sites of a form.

    Updates that seek a mode (`at_the_mode`) read variances of several latents alone.
    """
    traits, name, of = representation.traits, type(representation).__name__, type(likelihood)
    at_means = at_the_mode and likelihood.latent_size == 1
    alone = "ExactGP" if traits.one_coefficient_a_row else "ExactGP and CollapsedVI"
    refusals = {
        f"{name} has noisy estimates of the variances at the rows, and works with ExactGP, and "
        "with Laplace for likelihoods of one latent function; use Inducing(...) or Dense().": (
            form.moved and traits.estimates_variances and not at_means
        ),
        f"{name} with {traits.only_fixed} works with {alone} alone; leave {traits.only_fixed} out, "
        "or use Inducing(number=...).": form.moved and traits.only_fixed,
        f"{name} needs precisions that are not negative, but {of.__name__} is not log-concave; use "
        "Dense() or Inducing(...).": form.signed and not traits.signed_sites,
        f"{name} takes no power of its prior, which Laplace and ExpectationPropagation need, as "
        'remembered data, covariance="diagonal" and approximation="vfe" rest on the variational '
        "bound; leave these out, or use VariationalInference, AugmentedVI or CollapsedVI.": (
            form.power and not traits.powers
        ),
        f"{name}(learn_points=True) needs a bound that is highest at its sites, which Laplace has "
        "not; use VariationalInference, or leave learn_points out.": (
            learns_points(representation) and at_the_mode
        ),
        f"{name} takes no sites that couple the latents of a row, nor does "
        'covariance="diagonal"; use coupled=False, or Dense().': (
            form.coupled and not traits.coupled_sites
        ),
    }
    refuse(refusals)
