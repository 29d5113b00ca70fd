"""Posterior of equispaced functions' weights: predictions cost O(M + N) for all places together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import warn_user
from latentgp.extensions.fields.fourier.conditioned import WhiteWeights, draws_about_mean
from latentgp.extensions.fields.fourier.frequencies import (
    FrequencyGrid,
    kernel_error,
    variance_left_open,
)
from latentgp.extensions.fields.fourier.toeplitz import StrongFunctions, ToeplitzGram, squares_of
from latentgp.extensions.fields.fourier.weights import FourierWeights
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.solution import CONVERGED
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.typing import Array, Coefs, Inputs, PerRow, RandomKey, RowLatents, Scalar, Vectors

_DRAWS_TOLERANCE = 1e-2
_MORE = "give EquispacedFourier a larger block or max_steps."
_SEEN = 0.25  # of the variance by which a row tells, which may be open beside it


@stored
class FourierPosterior(LatentPosterior):
    """Posterior with one weight a function, of which no matrix but a block is kept.

    Means at N places are one non-uniform transform of the posterior mean of the weights. Variances
    are mean squares of draws from the posterior about its mean, whose relative error is sqrt(2 / S)
    of S draws, or exact where the functions are as few as their block.
    """

    kernel: LatentKernel
    grid: FrequencyGrid
    gram: ToeplitzGram  # of the functions over the rows
    settings: Any  # of solves
    scale: PerRow  # S, the roots of the prior variances over the noise
    root: PerRow  # roots of the prior variances
    white: PerRow  # the posterior mean of white weights
    inverse_diagonal: PerRow  # of B, an estimate unless exact
    squares: Float[Array, "doubled"]  # weights of their variances, at doubled frequencies
    number: int = eqx.field(static=True)  # of draws that these are by; none where they are exact
    left_open: Scalar  # prior variance without functions
    log_evidence: Scalar
    error: Scalar  # standard error of the log evidence, in nats
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar
    residual: Float[Array, "S"]  # relative, of the solves
    steps: Any
    code: Any
    left_of_draws: Scalar  # residual of solves with the draws' directions
    unseen: Scalar | float = 0.0  # what is open over what rows tell, where they are without it

    @classmethod
    def of(
        cls,
        representation: Any,
        kernel: LatentKernel,
        solver: tuple[System, StrongFunctions],
        variances: PerRow,
        noise: Scalar,
        found: WhiteWeights,
        told: Scalar | float = 0.0,
    ) -> FourierPosterior:
        """Given the posterior of white weights, and what they were solved with.

        `told` is the mean precision of rows to which what frequencies leave open was not added.
        """
        settings, grid = representation.settings, representation.grid
        root, (system, near) = jnp.sqrt(variances), solver
        number = 0 if settings.is_exact(grid.number) else representation.draws
        if representation.means_only:
            drawn, left = jnp.zeros((grid.number, 1)), jnp.zeros(())
        elif number:
            drawn, left = _drawn(system, near, settings, number)
            drawn = drawn / np.sqrt(number)
        else:
            drawn, left = near.solve_root(jnp.eye(grid.number), transposed=True), jnp.zeros(())
        log_determinant = found.log_determinant
        quadratic = jnp.sum(found.mean**2) + jnp.sum(found.inverse_diagonal) - grid.number
        left_open = variance_left_open(cast(Any, kernel), grid, variances)
        make: Any = cls
        return make(
            kernel=kernel,
            grid=grid,
            gram=system.covariance,
            settings=settings,
            scale=jnp.sqrt(variances / noise),
            root=root,
            white=found.mean,
            inverse_diagonal=found.inverse_diagonal,
            squares=squares_of(grid, root[:, None] * drawn),
            number=number,
            left_open=left_open,
            log_evidence=found.gain - 0.5 * log_determinant.value,
            error=0.5 * log_determinant.standard_error * (not settings.is_exact(grid.number)),
            kl=0.5 * (quadratic + log_determinant.value),
            jitter=jnp.zeros(()),
            trace_term=jnp.zeros(()),
            residual=found.solution.relative_residual,
            steps=found.solution.steps,
            code=found.solution.code,
            left_of_draws=left,
            unseen=left_open * told,
        )

    @property
    def weights(self) -> PerRow:
        """The posterior mean of the functions' weights."""
        return jnp.asarray(self.root) * self.white

    @property
    def evidence_error(self) -> Scalar:
        return self.error

    @property
    def is_exact(self) -> bool:
        """Whether variances are."""
        return self.number == 0

    @property
    def notes(self) -> tuple[str, ...]:
        added, left = kernel_error(self.kernel, self.grid)  # pyright: ignore
        shape = " x ".join(map(str, self.grid.shape))
        every = (
            f"{self.grid.number} Fourier functions ({shape}) stand for the kernel: between places "
            f"it is off by at most {left:.1e} of the prior variance, {added:.1e} of it by images "
            "of places; what frequencies leave open is an independent part of each prediction, "
            "and no part of paths."
        )
        if self.is_exact:
            return (every,)
        return (
            every,
            f"The mean is solved for in {int(self.steps)} steps to a relative residual of "
            f"{float(self.residual[0]):.1e}; the log evidence has a standard error of "
            f"{float(self.error):.2g} nats, variances one of {np.sqrt(2 / self.number):.0%} "
            f"({self.number} draws).",
        )

    @property
    def complaints(self) -> tuple[str, ...]:
        failed = int(np.sum(np.asarray(self.code) != CONVERGED))
        found = []
        if failed:
            found.append(
                f"{failed} of {len(self.code)} solves did not converge in {int(self.steps)} steps: "
                f"a relative residual of {float(np.max(self.residual)):.1e} is left; {_MORE}"
            )
        if not float(self.left_of_draws) <= _DRAWS_TOLERANCE:
            found.append(f"{_draws_off(self.left_of_draws)}, and so are deviations; {_MORE}")
        if float(self.unseen) > _SEEN:
            share = float(self.left_open) / float(np.sum(np.square(self.root)) + self.left_open)
            enough = share * _SEEN / float(self.unseen)
            found.append(
                f"Frequencies leave open {share:.1e} of the prior variance, on average "
                f"{float(self.unseen):.2g} times the variance by which a row tells of the latent "
                "function; rows are fitted, and the log evidence found, as if nothing were open: "
                f"give EquispacedFourier(left={enough:.1e}), or a larger most."
            )
        return tuple(found)

    @property
    def centres(self) -> FourierWeights:
        return FourierWeights(self.grid)

    def check_inputs(self, X: Inputs) -> None:
        self.grid.check_places(X)

    def mean(self, X: Inputs) -> RowLatents:
        return self.grid.combined(X, self.weights[:, None])

    def marginals(self, X: Inputs) -> Marginals:
        spread = self.grid.doubled().combined(X, jnp.asarray(self.squares)[:, None])
        return Marginals(self.mean(X), jnp.maximum(spread, 0.0) + self.left_open)

    def open_variances(self, X: Inputs) -> Float[Array, "N #Q"]:
        return jnp.full((len(X), 1), self.left_open)

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        """By a solve for each row."""
        right = (self.grid.functions(X) * self.root).T
        found = right.T @ self.solve(right, "Covariances")
        return (0.5 * (found + found.T) + self.left_open * jnp.eye(len(X)))[None]

    def draws(self, key: RandomKey, X: Inputs, number: int) -> Float[Array, "S N Q"]:
        """Joint draws, O(N + M) each: no covariance of the places is made."""
        of_weights, of_places = jax.random.split(key)
        weights = jnp.asarray(self.root)[:, None] * self._white_draws(of_weights, number)
        noise = jax.random.normal(of_places, (len(X), number))
        values = self.grid.combined(X, weights) + jnp.sqrt(self.left_open) * noise
        return values.T[..., None]

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Any], Array]) -> Coefs:
        """A draw of white weights: the functions are all that there is of a path."""
        return self._white_draws(key, 1).T

    def _white_draws(self, key: RandomKey, number: int) -> Float[Array, "M S"]:
        white = jax.random.normal(key, (self.grid.number, number))
        steps = self.settings.max_steps
        drawn, left = draws_about_mean(*self._solver(), white, _DRAWS_TOLERANCE, steps)
        jax.debug.callback(_tell_of_draws, left)
        return jnp.asarray(self.white)[:, None] + drawn

    def solve(self, right: Vectors, what: str) -> Vectors:
        """B^-1 right; a warning of what rests on it where it did not converge."""
        system, near = self._solver()
        own = {"tolerance": self.settings.tolerance, "max_steps": self.settings.max_steps}
        solution = conjugate_gradients(system, right, preconditioner=near, **own)
        solution.tell(what)
        return solution.value

    def _solver(self) -> tuple[System, StrongFunctions]:
        return self.settings.system(self.gram, jnp.asarray(self.scale) ** 2)


def _draws_off(left: Any) -> str:
    return f"Draws of the posterior are off by about {float(left):.1e} of their size"


def _tell_of_draws(left: Any) -> None:
    if not left <= _DRAWS_TOLERANCE:
        warn_user(f"{_draws_off(left)}; {_MORE}")


def _drawn(
    system: System, near: StrongFunctions, settings: Any, number: int
) -> tuple[Vectors, Scalar]:
    key = jax.random.fold_in(jax.random.wrap_key_data(settings.key), 1)
    white = jax.random.normal(key, (system.size, number))
    return draws_about_mean(system, near, white, _DRAWS_TOLERANCE, settings.max_steps)
