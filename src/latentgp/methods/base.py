"""Methods: settings as a value, capabilities, and `run`."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from latentgp.errors import InputError
from latentgp.likelihoods import BayesianSVM, Gaussian, LeastSquares, Likelihood
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.modules import Module
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.inducing.stream import StreamingPrior

if TYPE_CHECKING:
    from latentgp.methods.sites import SiteMethod


class Method(Module):
    """An inference algorithm with its settings; it holds no data.

    A new method is a subclass with a `run`, and one line in `latentgp.methods.registry`. What it
    can do is stated by attributes; its type is never tested.

    Attributes:
        needs_augmentation: only likelihoods with an augmentation can be fitted.
        works_in_batches: `Stochastic` can make its sites from a batch of rows at a time.
        reads_batches: rows may come from a source such as `FileRows`, a batch at a time.
        takes_restarts: the search can be run again from random starts.
    """

    needs_augmentation: ClassVar[bool] = False
    works_in_batches: ClassVar[bool] = False
    reads_batches: ClassVar[bool] = False
    takes_restarts: ClassVar[bool] = False

    @abstractmethod
    def run(self, problem: Problem) -> Fit:
        """Fit the problem's model to its rows.

        Raises:
            InputError: the method cannot be used on the model.
        """

    @property
    def spreads_rows(self) -> bool:
        """Whether rows can be spread over devices."""
        return False

    @property
    def streaming_prior(self) -> StreamingPrior | None:
        """Summary of the data seen so far that the fit starts from; None without any."""
        return None

    @property
    def all_rows_at_once(self) -> "Method":
        """The method that a batch method wraps; itself for all others."""
        return self

    def through_points(
        self,
        remembered: StreamingPrior | None,
        number: int | None,
        usual: int,
        selection: Selection = "greedy-variance",
    ) -> "SiteMethod":
        """The same method through inducing points, for streams and batches.

        Args:
            remembered: summary of the data seen so far; None for none.
            number: at most so many points; None keeps the method's own number.
            usual: the number where it has none.
            selection: how points are chosen among rows and earlier points.

        Raises:
            InputError: a method without sites.
        """
        raise InputError(
            f"{type(self).__name__} has no sites, which further rows could be added to; use "
            "VariationalInference, AugmentedVI or CollapsedVI."
        )


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


def in_unit_interval(method: Any, name: str, advice: str) -> None:
    """Raise InputError unless a setting of a method is in (0, 1]."""
    value = getattr(method, name)
    if not 0 < value <= 1:
        raise InputError(
            f"{type(method).__name__}.{name} must be in (0, 1], got {value}; {advice}."
        )
