"""What `Inducing(features=...)` takes: kinds of inducing variables that are no points."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from latentgp.kernels import LatentKernel
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.representations.summary import RowsAsSums
from latentgp.representations.variables import InducingVariables
from latentgp.rows.data import Data
from latentgp.typing import Inputs, PerRow, RandomKey


class InducingFeatures(Module):
    """A kind of inducing variables, made for rows and a kernel."""

    evidence_is_bound: ClassVar[bool] = True  # the evidence that they give, on the kernel's

    @abstractmethod
    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> InducingVariables:
        """The inducing variables for some rows and a kernel, at whose values a search starts.

        InputError if the kernel is none that the kind has variables for.
        """

    def renewed(
        self, variables: Any, X: Inputs, weights: PerRow | None, kernel: LatentKernel, share: float
    ) -> InducingVariables | None:
        """The variables for another kernel; None where those that there are do as well.

        The share is that of what is left open that may still be.
        """

    def sums(self, model: LatentGP, data: Data, variables: Any) -> RowsAsSums | None:
        """Sums that stand for the rows of a model; None where there are none."""

    def has_sums(self, variables: Any) -> bool:
        """Whether sums over rows can be made once for all hyper-parameters."""
        return False
