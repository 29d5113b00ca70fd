"""Methods are values: which algorithm, with which settings. They hold no data and no result."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx

from latentgp.errors import InputError
from latentgp.inference.site_inference import SiteInference
from latentgp.latents import Dense, Inducing, Representation
from latentgp.likelihoods import Bernoulli, Gaussian
from latentgp.models import LatentGP
from latentgp.sites.augmentation import AugmentationRule
from latentgp.sites.variational import VariationalRule


class Method(eqx.Module):
    """How a model is to be fitted."""

    @abstractmethod
    def algorithm(self, model: LatentGP) -> SiteInference:
        """The algorithm for a model.

        Raises:
            InputError: the method cannot be used on the model.
        """


class ExactGP(Method):
    """Regression with Gaussian noise in closed form (Rasmussen & Williams 2006, 2.2): O(N^3)."""

    def algorithm(self, model: LatentGP) -> SiteInference:
        return _conjugate_inference(self, model, Dense())


class CollapsedVI(Method):
    """Regression with Gaussian noise through inducing points, q(u) integrated out: O(N M^2).

    The bound is that of Titsias (2009, eq. 9).

    Args:
        representation: how many inducing points, and how they are chosen.
    """

    representation: Inducing = Inducing(number=500)

    def algorithm(self, model: LatentGP) -> SiteInference:
        return _conjugate_inference(self, model, self.representation)


class AugmentedVI(Method):
    """Coordinate-ascent variational inference in the augmented model (Wenzel et al. 2019).

    Updates are in closed form and never lower the bound.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        tolerance: relative change of the bound below which site updates stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.
    """

    representation: Representation = Dense()
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_updates: int = eqx.field(static=True, default=4)

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = AugmentationRule()
        rule.check(model.likelihood)
        return SiteInference(self.representation, rule, self.tolerance, self.max_updates)


class VariationalInference(Method):
    """Gaussian variational inference by natural gradients (Khan & Lin 2017), any likelihood.

    Expectations are by Gauss-Hermite quadrature for one or two latents, by fixed quasi-Monte
    Carlo for more, in closed form where the likelihood has one.

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
    max_updates: int = eqx.field(static=True, default=4)

    def __check_init__(self) -> None:
        if not 0 < self.step_size <= 1:
            raise InputError(
                f"VariationalInference.step_size must be in (0, 1], got {self.step_size}; "
                "0.7 is a good start, lower it if the bound oscillates."
            )

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = VariationalRule(step_size=self.step_size)
        return SiteInference(self.representation, rule, self.tolerance, self.max_updates)


class Choice(NamedTuple):
    """A method and why it was chosen, in a sentence."""

    method: Method
    reason: str


_DENSE_REGRESSION = 2_000
_DENSE_OTHERWISE = 400


def choose_method(model: LatentGP, rows: int, n_inducing: int | None = None) -> Choice:
    """What `method="auto"` means for a model and a number of rows.

    Args:
        model: the model.
        rows: number of rows N.
        n_inducing: asks for so many inducing points whatever N is.
    """
    representation = _representation(model, rows, n_inducing)
    gaussian = isinstance(model.likelihood, Gaussian)
    if isinstance(representation, Inducing):
        why = f"{rows} rows through {representation.number} inducing points"
        if gaussian:
            return Choice(CollapsedVI(representation), f"{why}: Gaussian noise needs no iterations")
    else:
        why = f"{rows} rows are few enough for one coefficient a row"
        if gaussian:
            return Choice(ExactGP(), f"{why}: the posterior is exact")
    return Choice(
        VariationalInference(representation), f"{why}; quadrature sites have the tighter bound"
    )


def _representation(model: LatentGP, rows: int, n_inducing: int | None) -> Dense | Inducing:
    gaussian = isinstance(model.likelihood, Gaussian)
    if n_inducing is None and rows <= (_DENSE_REGRESSION if gaussian else _DENSE_OTHERWISE):
        return Dense()
    return Inducing(number=min(rows, n_inducing or default_inducing(model)))


def default_inducing(model: LatentGP) -> int:
    """How many inducing points "auto" takes: enough to matter, few enough to be fast."""
    return 200 if isinstance(model.likelihood, Bernoulli) else 500


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
    representation = _representation(model, rows, n_inducing)
    if name == "augmented":
        return Choice(AugmentedVI(representation), "asked for")
    if name == "variational":
        return Choice(VariationalInference(representation), "asked for")
    if name == "collapsed":
        number = n_inducing or default_inducing(model)
        return Choice(CollapsedVI(Inducing(number=min(rows, number))), "asked for")
    if name == "exact":
        if n_inducing is not None:
            raise InputError(
                f'method="exact" uses no inducing points, but n_inducing={n_inducing}; '
                "leave one of them out."
            )
        return Choice(ExactGP(), "asked for")
    raise InputError(
        f"method must be one of auto, exact, collapsed, augmented, variational, got {name!r}."
    )


def _conjugate_inference(
    method: Method, model: LatentGP, representation: Representation
) -> SiteInference:
    rule = AugmentationRule()
    rule.check(model.likelihood)
    if not rule.is_exact(model.likelihood):
        raise InputError(
            f"{type(method).__name__} needs Gaussian noise, but the likelihood is "
            f"{type(model.likelihood).__name__}; use AugmentedVI or VariationalInference."
        )
    return SiteInference(representation, rule)
