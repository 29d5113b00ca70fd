"""Choice of the method for a model and a number of rows: `method="auto"`."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

from latentgp.errors import InputError
from latentgp.extensions.batches.method import Stochastic
from latentgp.extensions.black_box.method import BlackBoxVI
from latentgp.extensions.chains.methods.gibbs import GibbsSampling
from latentgp.extensions.chains.methods.mcmc import MCMC
from latentgp.extensions.chains.methods.nuts import NUTS
from latentgp.extensions.deep.methods.random_feature_vi import RandomFeatureVI
from latentgp.extensions.integrated.method import NOTHING_TO_INTEGRATE, Integrated, check_integrable
from latentgp.extensions.state_space.kernels import has_small_state_space
from latentgp.kernels import has_effects, is_tabulated
from latentgp.kernels.areal import areas_alone
from latentgp.likelihoods import Gaussian, LeastSquares
from latentgp.methods.base import Method, check_method, sites_are_known, usual_method
from latentgp.models import LatentGP
from latentgp.representations import (
    Dense,
    Inducing,
    Markov,
    Neighbours,
    PerPart,
    Representation,
)
from latentgp.rows import RowSource
from latentgp.site_inference.methods.augmented import AugmentedVI
from latentgp.site_inference.methods.base import ShortSearch
from latentgp.site_inference.methods.exact import CollapsedVI, ExactGP
from latentgp.site_inference.methods.expectation_propagation import ExpectationPropagation
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.sites.augmentations import augmentation_of

_DENSE_REGRESSION = 2_000
DENSE_OTHERWISE = 400
DENSE_CLASSES = 5_000  # by least squares, where one factorisation is all there is
# Estimates for two cores: a default takes the same way on every machine.
_BUDGET = 60.0  # seconds, where nothing is said
_SECONDS = 4e-11  # of a product in a pass over the rows
_MOST_BY_NEIGHBOURS = 100_000  # rows, all of which a prediction looks at
_EVALUATIONS, _EVALUATIONS_AN_INPUT = 30, 3  # of a search
_PASSES, _FINAL_PASSES = (
    3,
    15,
)  # of an evaluation, until sites converge; one each if sites are known
_FEWEST_ROWS_A_POINT = 20
_MOST_STATES = 12  # of a series, whose cost grows with their cube

Hyperparameters = Literal["optimise", "integrate", "sample"]


class Choice(NamedTuple):
    """A method and why it was chosen.

    Attributes:
        method: the method.
        reason: why, in a sentence.
        otherwise: the choice where hyper-parameters are integrated over or sampled; None for the
            same one.
    """

    method: Method
    reason: str
    otherwise: "Choice | None" = None

    def within(self, seconds: float | None, model: LatentGP, shape: tuple[int, ...]) -> "Choice":
        """The same method, arranged to be done within a budget by an estimate of what it costs.

        Where a search on all rows takes longer, hyper-parameters are learned from a part of them;
        where the posterior alone does, all is done in batches.

        Args:
            seconds: the budget; None for a minute.
            model: the model.
            shape: of the merged rows' inputs, (N, D).
        """
        rows, inputs = shape
        own: Any = self.method
        a_row = own.representation.products_a_row(inputs) if own.makes_sites else None
        if a_row is None:
            return self
        number = own.representation.number
        budget = _BUDGET if seconds is None else seconds
        known = sites_are_known(model.likelihood)
        products = rows * a_row * model.likelihood.latent_size
        final = _SECONDS * products * (1 if known else _FINAL_PASSES)
        evaluation = _SECONDS * products * (1 if known else _PASSES)
        search = evaluation * (_EVALUATIONS + _EVALUATIONS_AN_INPUT * inputs)
        if final + search <= budget:
            return self
        batches = own.works_in_batches and not own.representation.one_coefficient_a_row
        if final > budget / 2 and batches:
            why = f"in batches, as the posterior of all rows at once takes some {final:.0f} s"
            return Choice(Stochastic.of(own), f"{self.reason}; {why}")
        part = max(int(rows * (budget - final) / search), _FEWEST_ROWS_A_POINT * number)
        if part >= rows:
            return self
        method = dataclasses.replace(own, search=ShortSearch(part, evaluations=None))
        why = f"hyper-parameters from {part} of them, as a search on all takes some {search:.0f} s"
        return Choice(method, f"{self.reason}; {why}")


def treating(hyperparameters: str, choice: Choice, model: LatentGP, learned: bool = True) -> Choice:
    """The method that optimises, integrates over or samples hyper-parameters, for one chosen.

    Args:
        hyperparameters: what is to be done with them.
        choice: a method, and why it was chosen.
        model: the model.
        learned: whether any are learned at all.

    Raises:
        InputError: another word; a method that cannot do it; nothing to integrate over.
    """
    if hyperparameters not in get_args(Hyperparameters):
        raise InputError(
            f'hyperparameters must be "optimise", "integrate" or "sample", got {hyperparameters!r}.'
        )
    check_method(choice.method, model, False, 0, False)
    if hyperparameters != "optimise" and choice.otherwise is not None:
        choice = choice.otherwise
    if hyperparameters == "integrate" and not isinstance(choice.method, Integrated):
        if not learned:
            raise InputError(NOTHING_TO_INTEGRATE)
        check_integrable(choice.method)
        method: Any = choice.method
        return Choice(Integrated(method), f"{choice.reason}; hyper-parameters integrated over")
    if hyperparameters == "sample" and not choice.method.samples_hyperparameters:
        return _sampler(choice, model)
    return choice


def _sampler(choice: Choice, model: LatentGP) -> Choice:
    """The sampler with the representation of a method by sites."""
    own: Any = choice.method
    if not own.makes_sites:
        raise InputError(
            f"{type(own).__name__} cannot sample hyper-parameters; use MCMC or GibbsSampling."
        )
    likelihood, representation = model.likelihood, own.representation
    if not likelihood.is_positive:
        method, why = GibbsSampling(representation), "Gibbs sampling, as the likelihood can be zero"
    elif not representation.has_coordinates_of_sites and augmentation_of(likelihood) is not None:
        method, why = GibbsSampling(representation), "Gibbs sampling, given sites f integrated out"
    elif not representation.has_coordinates_of_sites and likelihood.has_gradient:
        method, why = (
            NUTS(representation=representation),
            "NUTS, as Markov has no coordinates of sites",
        )
    elif likelihood.is_continuous and likelihood.has_gradient:
        method, why = MCMC(representation), "MCMC in coordinates of sites"
    else:
        method = MCMC(representation, latents="elliptical-slice", coupling="whitened")
        why = "MCMC by elliptical slices, as the likelihood has no gradient to follow"
    return Choice(method, f"{choice.reason}; hyper-parameters sampled by {why}")


def choose_for(
    model: LatentGP,
    shape: tuple[int, ...],
    source: RowSource | None,
    searched: bool,
    seconds: float | None,
) -> Choice:
    """Choose the method that "auto" stands for; rows of a source are read in batches.

    Args:
        model: the model.
        shape: of the inputs of merged rows in memory, (N, D).
        source: where rows are read from; None if all are in memory.
        searched: hyper-parameters are learned in one run.
        seconds: that the fit may take; None where nothing is said.
    """
    if model.depth > 1:
        return deep_choice(model)
    if source is None:
        choice = choose_method(model, shape[0], inputs=shape[1])
        return choice.within(seconds, model, shape) if searched else choice
    choice = choose_method(model, source.size, usual_number_of_points(model))
    why = f"{choice.reason}; batches of rows that are read"
    return Choice(Stochastic.of(choice.method), why)


def deep_choice(model: LatentGP) -> Choice:
    """The method for a model with hidden layers."""
    why = f"{model.depth} layers of functions, the hidden ones by random features"
    return Choice(RandomFeatureVI(), why)


def choose_method(
    model: LatentGP, rows: int, n_inducing: int | None = None, inputs: int | None = None
) -> Choice:
    """Choose the method for a model and a number of rows, as `method="auto"` does.

    Args:
        model: the model.
        rows: number of rows N.
        n_inducing: asks for so many inducing points whatever N is.
        inputs: number of input columns D; None where it is not known.
    """
    representation: Representation = usual_representation(model, rows, n_inducing)
    if inputs is not None and is_long_series(model, rows, n_inducing, inputs):
        representation = Markov()
    usual = usual_method(model.likelihood)
    if isinstance(representation, Inducing):
        features: Any = representation.features
        number = (representation if features is None else features).number
        why = f"{rows} rows through {number} inducing points"
        why += "" if features is None else " and the coefficients of the other parts"
        if usual == "ExactGP":
            why = f"{why}: Gaussian noise needs no iterations"
            points = Choice(CollapsedVI(representation), why)
            if n_inducing is not None or rows > _MOST_BY_NEIGHBOURS or not _has_neighbours(model):
                return points
            near = Neighbours()
            why = f"{rows} rows, each given its {near.number} nearest, which say more than points"
            return Choice(ExactGP(near), why, points)
    elif isinstance(representation, Markov):
        why = f"{rows} rows of one time-like column, in state-space form"
        if usual == "ExactGP":
            return Choice(ExactGP(representation), f"{why}: the posterior is exact in O(N)")
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
    if not model.likelihood.has_gradient:
        why = f"{why}; expectations from values alone, as the likelihood has no gradient"
        return Choice(BlackBoxVI(representation), why)
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


def is_long_series(model: LatentGP, rows: int, n_inducing: int | None, inputs: int = 1) -> bool:
    """Whether "auto" takes the state-space form: exact, of few states, for many rows."""
    many = n_inducing is None and isinstance(usual_representation(model, rows), Inducing)
    one = model.likelihood.latent_size == 1
    return many and one and has_small_state_space(model.kernel, inputs, _MOST_STATES)


def _has_neighbours(model: LatentGP) -> bool:
    """Whether the targets of the nearest rows are all that a row needs, for one output."""
    known = is_tabulated(model.kernel) or has_effects(model.kernel)
    return isinstance(model.likelihood, Gaussian) and not known


def method_through(representation: Representation, model: LatentGP) -> Choice:
    """The usual method of a model's likelihood, with a representation that was asked for."""
    points = None if representation.one_coefficient_a_row else 1
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
    number = min(rows, n_inducing or usual_number_of_points(model))
    if has_effects(model.kernel):
        return Inducing(features=PerPart(number))
    return Inducing(number=number)


def usual_number_of_points(model: LatentGP) -> int:
    """Number of inducing points that "auto" takes: at all areas nothing is approximated."""
    usual = 500 if sites_are_known(model.likelihood) else 200
    return max(usual, areas_alone(model.kernel) or 0)
