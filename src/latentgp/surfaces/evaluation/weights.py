"""Posterior summaries of the weights of kernels that are summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.hyperparameters.summary import aligned
from latentgp.kernels.per_latent import OwnKernels
from latentgp.modules import stored
from latentgp.posteriors.posterior import Posterior
from latentgp.surfaces.evaluation.protocols import HoldsDraws, HoldsMarginals
from latentgp.validation import interval_levels


@stored
class KernelWeights(eqx.Module):
    """Posterior of the weights of kernels: means, standard deviations, central intervals.

    `str` makes a table of it, a line for each latent function and part.

    Attributes:
        parts: names of the M kernels.
        latents: names of the Q latent functions; one where they share their weights.
        mean: posterior means, shape (Q, M); units of the latent function squared over those of the
            parts, or shares of one.
        std: posterior standard deviations, shape (Q, M).
        lower: lower ends of the central intervals, shape (Q, M).
        upper: their upper ends, shape (Q, M).
        level: the intervals' probability.
    """

    parts: tuple[str, ...] = eqx.field(static=True)
    latents: tuple[str, ...] = eqx.field(static=True)
    mean: Float[np.ndarray, "Q M"]
    std: Float[np.ndarray, "Q M"]
    lower: Float[np.ndarray, "Q M"]
    upper: Float[np.ndarray, "Q M"]
    level: float = eqx.field(static=True)

    def rows(self) -> list[tuple[str, str, tuple[float, ...]]]:
        """Latent function, part, and mean, standard deviation and ends of the interval, of each."""
        figures = self.mean, self.std, self.lower, self.upper
        return [
            (latent, part, tuple(float(a[q, m]) for a in figures))
            for q, latent in enumerate(self.latents)
            for m, part in enumerate(self.parts)
        ]

    def __str__(self) -> str:
        heads = ["latent function", "kernel", "mean", "sd", f"{100 * self.level:g} % interval", ""]
        cells = [[*names, *(f"{number:.3g}" for number in row)] for *names, row in self.rows()]
        return aligned([heads, *cells])


def kernel_weights(
    posterior: Posterior,
    *,
    parts: Sequence[str] | None = None,
    latents: Sequence[str] | None = None,
    level: float = 0.95,
    shares: bool = False,
) -> KernelWeights:
    """Summary of the weights of a `WeightedSum`, `PerLatentSum` or a `PerLatent` of such sums.

    Args:
        posterior: of a method that draws hyper-parameters (`MCMC`, `NUTS`, `GibbsSampling`), or,
            without `shares`, of `Integrated`.
        parts: names of the summed kernels; "0", "1", ... unless given.
        latents: names of the latent functions, such as classes; "0", "1", ... unless given.
        level: of the intervals.
        shares: of each latent function's sum of weights, in place of the weights: comparable
            where the parts have like variances.

    Raises:
        InputError: a posterior without draws of weights; names that are not as many.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.random.default_rng(0).normal(size=(12, 2))
        >>> kernel = lgp.kernels.WeightedSum((lgp.Linear().on(0), lgp.Linear().on(1)))
        >>> fit = lgp.fit(
        ...     lgp.LatentGP(kernel, lgp.Gaussian(0.1)),
        ...     lgp.Data(X, X[:, 0]),
        ...     key=jax.random.key(0),
        ...     hyperparameters="integrate",
        ...     frozen=["kernel.parts", "likelihood"],
        ... )
        >>> first, second = kernel_weights(fit.posterior, parts=["a", "b"]).mean[0]
        >>> bool(first > second)
        True
    """
    tail = interval_levels(level)
    if isinstance(posterior, HoldsDraws):
        draws = _draws(posterior)
        draws = draws / draws.sum(axis=-1, keepdims=True) if shares else draws
        mean, std = draws.mean(axis=0), draws.std(axis=0)
        lower, upper = np.quantile(draws, tail, axis=0)
    elif isinstance(posterior, HoldsMarginals) and not shares:
        mean, std, lower, upper = _of_marginals(posterior, level)
    else:
        raise InputError(
            "The posterior has no draws of the weights; fit with MCMC, NUTS or GibbsSampling "
            '(hyperparameters="sample"), or integrate and leave shares out.'
        )
    Q, M = mean.shape
    of_parts = tuple(map(str, range(M) if parts is None else parts))
    of_latents = tuple(map(str, range(Q) if latents is None else latents))
    if (len(of_latents), len(of_parts)) != (Q, M):
        raise InputError(
            f"There are weights of {M} parts for {Q} latent function(s), "
            f"but {len(of_parts)} and {len(of_latents)} names; give one name for each."
        )
    return KernelWeights(of_parts, of_latents, mean, std, lower, upper, level)


def _draws(posterior: HoldsDraws) -> Float[np.ndarray, "S Q M"]:
    """Draws of the weights, all chains together."""
    of_weights = (v for path, v in posterior.hyperparameters.items() if _is_weights(path))
    found = [np.reshape(values, (-1, *values.shape[2:])) for values in of_weights]
    if not found:
        raise InputError(
            "The chains have no weights of a WeightedSum or PerLatentSum among their "
            f"hyper-parameters ({', '.join(posterior.hyperparameters) or 'none'}); sample them."
        )
    if len(found) > 1 and not isinstance(posterior.model.kernel, OwnKernels):
        raise InputError(
            f"The kernel has {len(found)} sums with weights; take one WeightedSum or PerLatentSum, "
            "or a PerLatent of one for each latent function."
        )
    return found[0] if found[0].ndim == 3 else np.stack(found, axis=1)


def _of_marginals(posterior: HoldsMarginals, level: float) -> tuple[Float[np.ndarray, "Q M"], ...]:
    kernel: Any = posterior.model.kernel
    shape = np.atleast_2d(getattr(kernel, "weights", np.zeros(0))).shape
    marginals = posterior.hyperparameter_marginals.items()
    found = [own for path, own in marginals if _is_weights(path.rpartition("[")[0])]
    if not found or len(found) != np.prod(shape):
        raise InputError(
            "The weights of a WeightedSum or PerLatentSum are not among the hyper-parameters that "
            "were integrated over; learn them."
        )
    figures = [(m.mean, m.std, *m.interval(level)) for m in found]
    return tuple(np.array(column).reshape(shape) for column in zip(*figures, strict=True))


def _is_weights(path: str) -> bool:
    return path.startswith("kernel.") and path.rpartition(".")[2] == "weights"
