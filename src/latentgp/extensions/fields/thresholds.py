"""Probabilities that a field exceeds a threshold, place by place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.extensions.fields.response import as_numbers, check_quantity, posterior_of
from latentgp.likelihoods import Likelihood
from latentgp.methods.result import Fit
from latentgp.posteriors.components import Components, variances_of
from latentgp.posteriors.posterior import Posterior, expected
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, Inputs, PerRow, RandomKey
from latentgp.validation import as_key, check_count, checked_inputs, checked_side

_REACH = 12.0  # standard deviations of f within which a response's threshold is looked for
_HALVINGS, _NODES = 60, 65
_ROWS = 500  # drawn together


class Exceedance(NamedTuple):
    """Probabilities that a field exceeds a threshold.

    Attributes:
        probability: a row, shape (N,).
        error: Monte Carlo standard errors, shape (N,); zeros where nothing is drawn. Of a Markov
            chain as if its draws were independent.
        reason: how they were found, in a sentence.
    """

    probability: Float[np.ndarray, "N"]
    error: Float[np.ndarray, "N"]
    reason: str


@double_precision
def exceedance(
    posterior: Fit | Posterior,
    X: Any,
    above: Any,
    *,
    of: str = "response",
    key: RandomKey | None = None,
    number: int = 1000,
    **side_information: Any,
) -> Exceedance:
    """P(E[y | f] > c), or P(f > c), at every row.

    Under one latent function, or components with a common likelihood, it is the normal law's beyond
    the threshold of f at which the monotone E[y | f] is c, found by bisection. Elsewhere it is the
    share of draws. Each row has a probability of its own: that all of an area exceeds c is less.

    Args:
        posterior: or a fit.
        X: inputs, shape (N, D).
        above: the threshold c, a number or one a row, units of the quantity.
        of: "response" is the expectation of y, "latent" the latent function.
        key: random key of the draws, where there are any; that of seed 0 unless given.
        number: of draws.
        side_information: what the likelihood reads a row, such as exposure.

    Raises:
        InputError: thresholds that are not finite numbers, one a row; several classes or outputs;
            no number of draws.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> data = lgp.Data([0.0, 1.0, 2.0], [3, 1, 0])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> lgp.fields.exceedance(fit, [0.0, 2.0], above=1.0).probability.round(2)
        array([0.88, 0.18])
    """
    posterior = posterior_of(posterior)
    likelihood = posterior.model.likelihood
    check_quantity(of, likelihood)
    X = checked_inputs(X, posterior.latent_inputs())
    side = checked_side(likelihood, side_information, len(X))
    check_count("number", number, 1)
    c = as_numbers("above", above)
    if len(c) not in (1, len(X)):
        raise InputError(
            f"above must be a number, or one for each of the {len(X)} rows, got {above!r}."
        )
    c, asked = np.array(np.broadcast_to(c, len(X))), c
    known, rising = of == "latent", np.ones(len(X), bool)
    if not known and likelihood.latent_size == 1 and not posterior.components.law.own:
        moments: Any = posterior.predict_f(X)
        ends: Any = moments.mean, np.sqrt(moments.variance)
        c, known, rising = _threshold(likelihood, *ends, c, side)
        known = bool(np.all(known))
    if known:
        probability, square = _normal(posterior, X, c)
        drawn = not posterior.components.law.by_quadrature
        size = posterior.components.size
        error = np.sqrt(np.maximum(square - probability**2, 0.0) / size) * drawn
        probability = np.where(rising, probability, 1 - probability)
        by = f"the mean over {size} draws of exact ones" if drawn else "exact for the posterior"
        return Exceedance(probability, error, by)
    first = jax.random.key(0) if key is None else as_key(key)
    shares = []
    for start in range(0, len(X), _ROWS):
        own = slice(start, start + _ROWS)
        part = {name: values[own] for name, values in side.items()}
        key_rows = jax.random.fold_in(first, start)
        draws = posterior.sample_expectation(X[own], key=key_rows, number=number, **part)
        if draws.ndim > 2:
            raise InputError(
                f"A threshold is of one output, but {type(likelihood).__name__} has several."
            )
        shares.append(np.mean(draws > np.broadcast_to(asked, len(X))[own], axis=0))
    share = np.concatenate([np.zeros(0), *shares])
    # Of a share of none or all it is that of half a draw more or less.
    smooth = (share * number + 0.5) / (number + 1)
    error = np.sqrt(smooth * (1 - smooth) / number)
    return Exceedance(share, error, f"the share of {number} draws")


def _normal(
    posterior: Posterior, X: Float[np.ndarray, "N D"], c: PerRow
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """P(f > c), and the mean of its squares over the components."""
    components = posterior.components.prepared()
    found = apply_in_buckets(_above, components, rows=(X, c), columns=components.columns)
    return found[0], found[1]


@jax.jit
def _above(components: Components, rows: tuple[Inputs, PerRow]) -> tuple[PerRow, PerRow]:
    X, c = rows
    mean, spread = components.marginals(X)
    deviation = jnp.sqrt(variances_of(spread))[..., 0]
    each = jax.scipy.stats.norm.sf(c[:, None], mean[..., 0], jnp.where(deviation > 0, deviation, 1))
    each = jnp.where(deviation > 0, each, mean[..., 0] > c[:, None])
    weights = jnp.exp(jnp.asarray(components.law.log_weights))
    return jnp.sum(weights * each, axis=1), jnp.sum(weights * each**2, axis=1)


@jax.jit
def _threshold(
    likelihood: Likelihood,
    mean: Float[Array, "N"],
    deviation: Float[Array, "N"],
    c: Float[Array, "N"],
    side: Mapping[str, Any],
) -> tuple[Float[Array, "N"], Bool[Array, "N"], Bool[Array, "N"]]:
    """Latent value at which the response is c, whether that is monotone there, and rises."""

    def of_row(mean: Array, deviation: Array, c: Array, side: Any) -> tuple[Array, Array, Array]:
        def response(f: Array) -> Array:
            return expected(likelihood, f[None], side).reshape(())

        reach = _REACH * deviation
        nodes = mean + reach * jnp.linspace(-1.0, 1.0, _NODES)
        values = jax.vmap(response)(nodes)
        steps = jnp.diff(values)
        slack = 1e-12 * jnp.max(jnp.abs(values))
        rising, falling = jnp.all(steps >= -slack), jnp.all(steps <= slack)

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            beyond = (response(middle) > c) == rising
            return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

        low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (mean - reach, mean + reach))
        known = jnp.where(response(mean) > c, -jnp.inf, jnp.inf)
        return jnp.where(reach > 0, 0.5 * (low + high), known), rising | falling, rising

    return jax.vmap(of_row)(mean, deviation, c, dict(side))
