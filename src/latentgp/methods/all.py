"""Methods are values: which algorithm, with which settings. They hold no data and no result."""

import dataclasses
from abc import abstractmethod
from typing import Literal, NamedTuple, get_args

import equinox as eqx
import numpy as np
from jaxtyping import Int, Key

from latentgp.augmentations import Augmentation, Automatic, augmentation_of
from latentgp.distributions import TiltedScaleMixture
from latentgp.errors import InputError
from latentgp.inference.mcmc.gibbs import Gibbs, HyperUpdate, run_gibbs
from latentgp.inference.mcmc.nuts import run_nuts
from latentgp.inference.sites.algorithm import SiteInference
from latentgp.likelihoods import BayesianSVM, Gaussian, LeastSquares, Likelihood, ScaleMixture
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.parameters.space import ParameterSpace
from latentgp.posteriors.chains import Chains
from latentgp.representations import Dense, Inducing, Representation
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.inducing.stream import Remembered
from latentgp.rows.data import Data
from latentgp.rules.augmentation import AugmentationRule
from latentgp.rules.expectation_propagation import MomentRule
from latentgp.rules.laplace import LaplaceRule
from latentgp.rules.variational import VariationalRule
from latentgp.runtime.progress import Driving
from latentgp.typing import Array


class Method(Module):
    """How a model is to be fitted: by Gaussian sites, or by sampling."""


class SiteMethod(Method):
    """A method whose posterior is Gaussian, by sites."""

    representation: eqx.AbstractVar[Representation]

    @abstractmethod
    def algorithm(self, model: LatentGP) -> SiteInference:
        """The algorithm for a model.

        Raises:
            InputError: the method cannot be used on the model.
        """


class ShortSearch(eqx.Module):
    """Hyper-parameters learned from a part of the rows, in few evaluations; the posterior has all.

    Args:
        rows: at most so many, evenly spaced.
        evaluations: at most so many a run.

    Raises:
        InputError: fewer than one of either.
    """

    rows: int = eqx.field(static=True, default=1000)
    evaluations: int = eqx.field(static=True, default=12)

    def __check_init__(self) -> None:
        if min(self.rows, self.evaluations) < 1:
            raise InputError(
                f"ShortSearch needs at least one row and one evaluation, got rows={self.rows} and "
                f"evaluations={self.evaluations}."
            )


class ExactGP(SiteMethod):
    """Gaussian noise, or classes by least squares, in closed form (R&W 2006, 2.2 and 6.5): O(N^3).

    Args:
        representation: `Dense()`.
        search: how much of a search hyper-parameters are learned by; None for the whole one.
    """

    representation: Representation = Dense()
    search: ShortSearch | None = None

    def algorithm(self, model: LatentGP) -> SiteInference:
        return _conjugate_inference(self, model)


class CollapsedVI(SiteMethod):
    """Regression with Gaussian noise through inducing points, q(u) integrated out: O(N M^2).

    The bound is that of Titsias (2009, eq. 9).

    Args:
        representation: how many inducing points, and how they are chosen.
    """

    representation: Representation = Inducing(number=500)

    def algorithm(self, model: LatentGP) -> SiteInference:
        return _conjugate_inference(self, model)


class AugmentedVI(SiteMethod):
    """Coordinate-ascent variational inference in the augmented model (Wenzel et al. 2019).

    Updates are in closed form and never lower the bound.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        augmentation: which one, where a likelihood has several; None is the registered one.
        tolerance: relative change of the bound below which site updates stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.
    """

    representation: Representation = Dense()
    augmentation: Augmentation | None = None
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_updates: int = eqx.field(static=True, default=4)

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = AugmentationRule(augmentation=self.augmentation)
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)


class VariationalInference(SiteMethod):
    """Gaussian variational inference by natural gradients (Khan & Lin 2017), any likelihood.

    Expectations are by Gauss-Hermite quadrature for one or two latents, by fixed quasi-Monte
    Carlo for more, in closed form where the likelihood has one. The covariance is full, or diagonal
    with `Inducing(covariance="diagonal")`.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        step_size: of the natural-gradient steps, in (0, 1].
        tolerance: relative change of the bound below which site updates stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.

    Raises:
        InputError: a step size outside (0, 1].
    """

    representation: Representation = Dense()
    step_size: float = eqx.field(static=True, default=0.7)
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_updates: int = eqx.field(static=True, default=8)

    def __check_init__(self) -> None:
        _check_share(self, "step_size", "0.7 is a good start, lower it if the bound oscillates")

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = VariationalRule(step_size=self.step_size)
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)


class Laplace(SiteMethod):
    """Laplace's approximation: the mode of the latents and the curvature there (R&W 2006, 3.4).

    Newton's method, its steps shortened where the posterior density would fall, so that it ends
    at a mode for likelihoods that are not log-concave too. The gradient of the evidence has the
    implicit term of the mode. Of several latents the curvature's diagonal is used: what ties
    the latents of one row together at the mode is left out of the covariance. With `Inducing`
    the prior is that of FITC.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        tolerance: relative change of the log density below which Newton's method stops.
        max_updates: at most so many Newton steps an evaluation of the hyper-parameters.
    """

    representation: Representation = Dense()
    tolerance: float = eqx.field(static=True, default=1e-10)
    max_updates: int = eqx.field(static=True, default=50)

    def algorithm(self, model: LatentGP) -> SiteInference:
        return SiteInference.of(
            model, self.representation, LaplaceRule(), self.tolerance, self.max_updates
        )


class ExpectationPropagation(SiteMethod):
    """Expectation propagation (Minka 2001) and its powers (Minka 2004), parallel and damped.

    Site updates go on until they stand still; one that would move the sites more than the last
    is taken back and shortened. Rows whose cavity is improper keep their site for that time; with
    such rows at its end a fit has not converged. With `Inducing` it is the sparse power
    expectation propagation of Bui, Yan & Turner (2017): power 1 has FITC's prior.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        power: in (0, 1]; 1 is expectation propagation, towards 0 it becomes variational.
        step_size: of the updates, in (0, 1].
        tolerance: size of an update, relative to the log evidence, below which they stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.

    Raises:
        InputError: a power or step size outside (0, 1].
    """

    representation: Representation = Dense()
    power: float = eqx.field(static=True, default=1.0)
    step_size: float = eqx.field(static=True, default=0.8)
    tolerance: float = eqx.field(static=True, default=1e-8)
    max_updates: int = eqx.field(static=True, default=50)

    def __check_init__(self) -> None:
        _check_share(self, "power", "1 is expectation propagation")
        _check_share(self, "step_size", "0.8 is a good start, lower it if updates do not settle")

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = MomentRule(step_size=self.step_size, fraction=self.power)
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)


class SamplingMethod(Method):
    """A method whose posterior is draws of Markov chains.

    Attributes:
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: sweeps of each chain that are thrown away.
        thin: sweeps a draw that is kept.
    """

    representation: eqx.AbstractVar[Representation]
    chains: eqx.AbstractVar[int]
    draws: eqx.AbstractVar[int]
    warmup: eqx.AbstractVar[int]
    thin: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        if min(self.chains, self.draws, self.thin) < 1 or self.warmup < 0:
            raise InputError(
                f"{type(self).__name__} needs at least one chain, draw and sweep a draw, and a "
                f"warm-up of at least 0, got chains={self.chains}, draws={self.draws}, "
                f"thin={self.thin}, warmup={self.warmup}."
            )

    @abstractmethod
    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        """Raise InputError if the method cannot be used on the model."""

    @abstractmethod
    def run(
        self,
        representation: Representation,
        space: ParameterSpace,
        data: Data,
        watched: Int[np.ndarray, "W"],
        key: Key[Array, ""],
        driving: Driving,
    ) -> Chains:
        """Draw the chains, starting around the hyper-parameters of the space's model.

        Args:
            representation: made ready for the rows.
            space: the hyper-parameters; none are free if they are fixed.
            data: the rows, on the device.
            watched: rows whose latents are kept draw by draw.
            key: random key.
            driving: callback, limit, progress line, checkpoint.
        """

    @abstractmethod
    def starting_method(self) -> SiteMethod:
        """The method that finds where chains that sample hyper-parameters start."""


class GibbsSampling(SamplingMethod):
    """Exact posterior draws of an augmented likelihood, by turns (Galy-Fajou et al. 2020, alg. 2).

    With `Inducing`, latents are drawn from the optimal sparse Gaussian given the auxiliary
    variables (VI-Gibbs: Galy-Fajou 2022, 7.5).

    Args:
        representation: `Dense()` or `Inducing(...)`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: sweeps of each chain that are thrown away.
        thin: sweeps a draw that is kept.
        augmentation: which one, where a likelihood has several; None is the registered one.
        hyperparameters: how they are updated in a sweep where they are learned: "slice" or
            "metropolis".
        alpha: of the divergence that a sparse sweep minimises, in [0, 1]: 0 is variational,
            1 is FITC.
        over_relaxation: in [0, 1): how far each draw of the latents goes past the mean of their
            conditional, away from the last one (Adler 1981), with `Dense` and wherever kernel
            parameters are not drawn with the latents integrated out. Still exact; means mix
            faster, variances slower.
        slow_rows: how many rows that mix slowly, found in the warm-up, are updated ten times a
            sweep with the other rows' latents integrated out; for scale mixtures with `Dense`.

    Raises:
        InputError: settings outside their range.
    """

    representation: Representation = Dense()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=300)
    thin: int = eqx.field(static=True, default=1)
    augmentation: Augmentation | None = None
    hyperparameters: HyperUpdate = eqx.field(static=True, default="slice")
    alpha: float = eqx.field(static=True, default=0.0)
    over_relaxation: float = eqx.field(static=True, default=0.3)
    slow_rows: int = eqx.field(static=True, default=8)

    def __check_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"GibbsSampling.alpha must be in [0, 1], got {self.alpha}.")
        if not 0 <= self.over_relaxation < 1:
            raise InputError(
                f"GibbsSampling.over_relaxation must be in [0, 1), got {self.over_relaxation}."
            )
        if self.slow_rows < 0:
            raise InputError(f"GibbsSampling.slow_rows must be 0 or more, got {self.slow_rows}.")
        if self.hyperparameters not in ("slice", "metropolis"):
            raise InputError(
                'GibbsSampling.hyperparameters must be "slice" or "metropolis", got '
                f"{self.hyperparameters!r}."
            )

    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        if self.augmentation is None and augmentation_of(model.likelihood) is None:
            draws = "NUTS for draws, or " if model.likelihood.is_continuous else ""
            raise InputError(
                f"{type(model.likelihood).__name__} has no augmentation, which GibbsSampling "
                f"needs; use {draws}{_usual(model)}."
            )
        rule = AugmentationRule(augmentation=self.augmentation)
        rule.check(model.likelihood)
        dense = isinstance(self.representation, Dense)
        if dense or not learns_hyperparameters:
            return
        if len(rule.blocks(model.likelihood)) > 1 or self.alpha > 0:
            raise InputError(
                "Hyper-parameters are sampled through inducing points only with alpha=0 and a "
                "likelihood whose latents are drawn together; pass learn_hyperparameters=False "
                "to fit, or use Dense() with some thousand rows at most."
            )

    def run(
        self,
        representation: Representation,
        space: ParameterSpace,
        data: Data,
        watched: Int[np.ndarray, "W"],
        key: Key[Array, ""],
        driving: Driving,
    ) -> Chains:
        rule = AugmentationRule(augmentation=self.augmentation)
        algorithm = Gibbs(
            representation,
            rule,
            space,
            self.hyperparameters,
            self.alpha,
            self.over_relaxation,
            self.slow_rows,
        )
        return run_gibbs(
            algorithm,
            data,
            chains=self.chains,
            warmup=self.warmup,
            draws=self.draws,
            thin=self.thin,
            watched=watched,
            key=key,
            driving=driving,
        )

    def starting_method(self) -> SiteMethod:
        return AugmentedVI(self.representation, self.augmentation)


class NUTS(SamplingMethod):
    """The no-U-turn sampler (Hoffman & Gelman 2014) on white latents: any smooth likelihood.

    Args:
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: steps of each chain that adapt its step size and masses.
        thin: steps a draw that is kept.
        augmented: sample the auxiliary variables of a scale mixture too, as Galy-Fajou (2022,
            7.3) compares; seldom of use.
        target_acceptance: that the step size is adapted to, in (0, 1).

    Raises:
        InputError: settings outside their range.
    """

    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)
    augmented: bool = eqx.field(static=True, default=False)
    target_acceptance: float = eqx.field(static=True, default=0.8)
    representation: Representation = Dense()

    def __check_init__(self) -> None:
        if not 0 < self.target_acceptance < 1:
            raise InputError(
                f"NUTS.target_acceptance must be in (0, 1), got {self.target_acceptance}."
            )
        if self.warmup < 1:
            raise InputError("NUTS.warmup must be at least 1: its step size is found there.")
        if not isinstance(self.representation, Dense):
            raise InputError("NUTS works with one coefficient a row: leave it Dense().")

    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        likelihood = model.likelihood
        if not likelihood.is_continuous:
            raise InputError(
                f"{type(likelihood).__name__} is a step in f, whose gradient leads nowhere, so "
                "NUTS stays where it starts; use ExpectationPropagation, or Softmax."
            )
        if not self.augmented:
            return
        augmentation = AugmentationRule().chosen(likelihood)
        if isinstance(augmentation, Automatic) and isinstance(likelihood, ScaleMixture):
            law = likelihood.auxiliary_law(np.ones(1))
            if not isinstance(law, TiltedScaleMixture):
                return
        raise InputError(
            f"The auxiliary variables of {type(likelihood).__name__} are discrete or have no "
            "density in closed form, so no trajectory can follow it; use GibbsSampling, or NUTS "
            "without augmented=True."
        )

    def run(
        self,
        representation: Representation,
        space: ParameterSpace,
        data: Data,
        watched: Int[np.ndarray, "W"],
        key: Key[Array, ""],
        driving: Driving,
    ) -> Chains:
        return run_nuts(
            space,
            data,
            augmented=self.augmented,
            chains=self.chains,
            warmup=self.warmup,
            draws=self.draws,
            thin=self.thin,
            target_acceptance=self.target_acceptance,
            watched=watched,
            key=key,
            driving=driving,
        )

    def starting_method(self) -> SiteMethod:
        return VariationalInference()


MethodName = Literal[
    "auto",
    "exact",
    "collapsed",
    "augmented",
    "variational",
    "laplace",
    "ep",
    "gibbs",
    "nuts",
]


class Choice(NamedTuple):
    """A method and why it was chosen, in a sentence."""

    method: Method
    reason: str


_DENSE_REGRESSION = 2_000
DENSE_OTHERWISE = 400
DENSE_CLASSES = 5_000  # by least squares, where one factorisation is all there is
_DENSE_SAMPLING = 1_000


def choose_method(model: LatentGP, rows: int, n_inducing: int | None = None) -> Choice:
    """What `method="auto"` means for a model and a number of rows.

    Args:
        model: the model.
        rows: number of rows N.
        n_inducing: asks for so many inducing points whatever N is.
    """
    representation = _representation(model, rows, n_inducing)
    gaussian = _is_gaussian(model.likelihood)
    if isinstance(representation, Inducing):
        why = f"{rows} rows through {representation.number} inducing points"
        if gaussian:
            return Choice(CollapsedVI(representation), f"{why}: Gaussian noise needs no iterations")
    else:
        why = f"{rows} rows are few enough for one coefficient a row"
        if isinstance(model.likelihood, LeastSquares):
            return Choice(
                ExactGP(search=ShortSearch()),
                f"{why}: the posterior is exact, one factorisation for all classes; "
                "hyper-parameters are those of a short search",
            )
        if gaussian:
            return Choice(ExactGP(), f"{why}: the posterior is exact")
    if isinstance(model.likelihood, BayesianSVM):
        return Choice(AugmentedVI(representation), f"{why}; augmented updates suit its kink")
    if not model.likelihood.is_positive:
        return Choice(
            ExpectationPropagation(representation),
            f"{why}; moments match where there is no variational bound",
        )
    return Choice(
        VariationalInference(representation), f"{why}; quadrature sites have the tighter bound"
    )


def _usual(model: LatentGP) -> str:
    """What "auto" takes for a model, by name."""
    return type(choose_method(model, 1).method).__name__


def _representation(model: LatentGP, rows: int, n_inducing: int | None) -> Dense | Inducing:
    gaussian = _is_gaussian(model.likelihood)
    dense = _DENSE_REGRESSION if gaussian else DENSE_OTHERWISE
    if isinstance(model.likelihood, LeastSquares):
        dense = DENSE_CLASSES
    if n_inducing is None and rows <= dense:
        return Dense()
    return Inducing(number=min(rows, n_inducing or default_inducing(model)))


def remembering(
    method: Method,
    model: LatentGP,
    remembered: Remembered | None,
    n_inducing: int | None = None,
    selection: Selection = "greedy-variance",
) -> SiteMethod:
    """A method through inducing points for rows to come, after those that a posterior remembers.

    Args:
        method: what it is like: `ExactGP` becomes `CollapsedVI`.
        model: the posterior's.
        remembered: what was said so far; None for nothing.
        n_inducing: at most so many points; None takes the method's own number, or what "auto" does.
            Points that were given stay.
        selection: how points are chosen among rows and earlier points.

    Raises:
        InputError: a method without sites.
    """
    if not isinstance(method, SiteMethod):
        raise InputError(
            f"{type(method).__name__} keeps draws, which no further rows can be added to; use "
            "VariationalInference, AugmentedVI or CollapsedVI."
        )
    own = method.representation
    if isinstance(own, Inducing):
        number = n_inducing or own.number
        inducing = dataclasses.replace(
            own, number=number, selection=selection, remembered=remembered
        )
    else:
        number = n_inducing or default_inducing(model)
        inducing = Inducing(number=number, selection=selection, remembered=remembered)
    if isinstance(method, ExactGP):
        return CollapsedVI(inducing)
    return eqx.tree_at(lambda m: m.representation, method, inducing)


def default_inducing(model: LatentGP) -> int:
    """How many inducing points "auto" takes: enough to matter, few enough to be fast."""
    return 500 if _is_gaussian(model.likelihood) else 200


def _is_gaussian(likelihood: Likelihood) -> bool:
    """Whether sites are known beforehand."""
    return isinstance(likelihood, Gaussian | LeastSquares)


def method_from_name(
    name: str,
    model: LatentGP,
    rows: int,
    n_inducing: int | None = None,
) -> Choice:
    """The method that a name in an estimator or on the command line stands for.

    Raises:
        InputError: no such name, or one that does not fit the model.
    """
    if name == "auto":
        return choose_method(model, rows, n_inducing)
    if name in ("exact", "nuts") and n_inducing is not None:
        raise InputError(
            f'method="{name}" uses no inducing points, but n_inducing={n_inducing}; '
            "leave one of them out."
        )
    representation = _representation(model, rows, n_inducing)
    if name == "augmented":
        return Choice(AugmentedVI(representation), "asked for")
    if name == "variational":
        return Choice(VariationalInference(representation), "asked for")
    if name == "laplace":
        return Choice(Laplace(representation), "asked for")
    if name == "ep":
        return Choice(ExpectationPropagation(representation), "asked for")
    if name == "gibbs":
        if n_inducing is None and rows <= _DENSE_SAMPLING:
            representation = Dense()
        return Choice(GibbsSampling(representation), "asked for")
    if name == "nuts":
        return Choice(NUTS(), "asked for")
    if name == "collapsed":
        number = n_inducing or default_inducing(model)
        return Choice(CollapsedVI(Inducing(number=min(rows, number))), "asked for")
    if name == "exact":
        return Choice(ExactGP(), "asked for")
    raise InputError(f"method must be one of {', '.join(get_args(MethodName))}, got {name!r}.")


def _check_share(method: SiteMethod, name: str, advice: str) -> None:
    value = getattr(method, name)
    if not 0 < value <= 1:
        raise InputError(
            f"{type(method).__name__}.{name} must be in (0, 1], got {value}; {advice}."
        )


def _conjugate_inference(method: SiteMethod, model: LatentGP) -> SiteInference:
    augmentation = augmentation_of(model.likelihood)
    if augmentation is None or not augmentation.is_exact:
        raise InputError(
            f"{type(method).__name__} needs Gaussian noise on one output, or classes by least "
            f"squares, but the likelihood is {type(model.likelihood).__name__}; use "
            f"{_usual(model)}."
        )
    return SiteInference.of(model, method.representation, AugmentationRule())
