"""Results of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Key

from latentgp.diagnostics import FitDiagnostics
from latentgp.errors import InputError
from latentgp.extension import verb
from latentgp.methods.options import SearchOptions
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import Data, MergedRows
from latentgp.typing import Array

if TYPE_CHECKING:
    from latentgp.surfaces.evaluation.certificate import Certificate
    from latentgp.surfaces.evaluation.leave_one_out import LeaveOneOut


@stored
class History(NamedTuple):
    """Every evaluation of the bound while hyper-parameters were learned, in order.

    Attributes:
        bound: in nats, shape (evaluations,).
        value: bound plus log prior, what was maximised, in nats, shape (evaluations,).
        seconds: since the start of the search, shape (evaluations,).
        restart: 0 for the first run, below for those before it, shape (evaluations,).
    """

    bound: Float[np.ndarray, "evaluations"]
    value: Float[np.ndarray, "evaluations"]
    seconds: Float[np.ndarray, "evaluations"]
    restart: Float[np.ndarray, "evaluations"]

    @classmethod
    def of(cls, records: Sequence[Any] = ()) -> "History":
        """History of records that have these fields; empty without any."""
        return cls(*(np.array([getattr(r, name) for r in records]) for name in cls._fields))


@stored
@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Attributes:
        model: with learned hyper-parameters.
        posterior: of the latent functions.
        history: of the search for hyper-parameters; empty after sampling.
        diagnostics: what happened, with a verdict.
        summary: a table of the learned hyper-parameters, their priors and where these came from.
        sites: of the merged rows as functions of f, with row weights, in NumPy; of
            `Integrated` with an axis of components first; None of methods that keep none.
        rows: that were fitted; None of rows that came from files or as sums. They stay in memory:
            `save` leaves them out.
        asked: how hyper-parameters were to be learned; likewise.
        priors: of each hyper-parameter that was learned, by path; None of one without; likewise.
    """

    model: LatentGP
    posterior: Posterior
    history: History
    diagnostics: FitDiagnostics
    summary: str = ""
    sites: Any = dataclasses.field(default=None, repr=False)
    rows: MergedRows | None = dataclasses.field(default=None, repr=False, metadata={"saved": False})
    asked: SearchOptions = dataclasses.field(
        default=SearchOptions(), repr=False, metadata={"saved": False}
    )
    priors: Mapping[str, Any] | None = dataclasses.field(
        default=None, repr=False, metadata={"saved": False}
    )

    def leave_one_out(self, data: Data | None = None) -> "LeaveOneOut":
        """Predictions of every row given the others, see `latentgp.leave_one_out`.

        Args:
            data: the rows; None for those that were fitted.
        """
        return verb("leave_one_out")(self, data)

    def hyperparameter_marginals(self) -> dict[str, HyperparameterMarginal]:
        """Posterior of every learned hyper-parameter, with its prior, by path.

        Of chains and of `Integrated` those of the posterior; of the most probable hyper-parameters
        their normal law by Laplace's approximation, in unconstrained coordinates, such as
        logarithms (`marginals_at_optimum`).

        Raises:
            InputError: hyper-parameters that were not learned, or by a method without a log
                evidence; rows that are not in memory, as of a fit that was saved; a search that
                ended away from the optimum.

        Example:
            >>> import jax, latentgp as lgp, numpy as np
            >>> data = lgp.Data(np.arange(20.0), np.sin(np.arange(20.0)))
            >>> fit = lgp.fit(lgp.LatentGP(lgp.RBF(), lgp.Gaussian()), data, key=jax.random.key(0))
            >>> lower, upper = fit.hyperparameter_marginals()["kernel.lengthscale"].interval(0.9)
            >>> bool(lower < fit.model.kernel.lengthscale < upper)
            True
        """
        own = getattr(self.posterior, "hyperparameter_marginals", None)
        if own is not None:
            return own
        if self.rows is None:
            raise InputError(
                "The rows of this fit are not in memory (files, sums, or a saved model); fit again."
            )
        method: Any = self.diagnostics.method
        return verb("hyperparameter_marginals")(
            self.posterior, method, self.rows, self.priors or {}
        )

    def certify(
        self, seconds: float = 60.0, *, key: Key[Array, ""] | None = None, **settings: Any
    ) -> "Certificate":
        """Difference of this posterior from the exact one, by chains that start at it.

        Args:
            seconds: for the chains.
            key: random key; one of its own unless given.
            settings: as `latentgp.certify` takes them.
        """
        key = jax.random.key(0) if key is None else key
        return verb("certify")(self, key=key, seconds=seconds, **settings)

    def noted(self, sentences: Sequence[str]) -> "Fit":
        """The same result with further notes before its own."""
        return self._said(notes=(*sentences, *self.diagnostics.notes))

    def warned_before(self, sentences: Sequence[str]) -> "Fit":
        """The same result with further warnings before its own."""
        return self._said(warnings=(*sentences, *self.diagnostics.warnings))

    def not_converged(self) -> "Fit":
        """The same result, said not to have converged."""
        return self._said(converged=False)

    def _said(self, **changed: Any) -> "Fit":
        diagnostics = dataclasses.replace(self.diagnostics, **changed)
        return dataclasses.replace(self, diagnostics=diagnostics)
