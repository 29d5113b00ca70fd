"""Draws from the prior: what a model believes before it sees any target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key
from numpyro.distributions import Distribution

from latentgp.hyperparameters.base import parameters, replace_unchecked
from latentgp.likelihoods.base import Likelihood, Targets
from latentgp.model_checks import check_model
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.numerics.cholesky import jittered_lower
from latentgp.representations.latent_axis import latent_grams, vmap_latents
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.setup.priors import scales, space_of
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import Array
from latentgp.validation import check_arguments, check_data, key_of_draws

__all__ = ["PriorDraws", "sample_prior"]

_OF_HIDDEN = 1 << 20  # folded into a key; smaller numbers are what it is split into


@stored
class PriorDraws(NamedTuple):
    """Draws of hyper-parameters, latent functions and targets before the data.

    Attributes:
        hyperparameters: by path, of those that have a prior, shape (S, ...).
        f: latent functions at the rows, shape (S, N) or (S, N, Q).
        y: targets, shape (S, N) or (S, N, P).
        held: paths of those without a prior, at the model's values in every draw.
        targets: what y is: a real number, a count, or a class.
    """

    hyperparameters: dict[str, Float[np.ndarray, "S ..."]]
    f: Float[np.ndarray, "S N *Q"]
    y: Float[np.ndarray, "S N *P"]
    held: tuple[str, ...]
    targets: Targets = "real"


@double_precision
def sample_prior(
    model: LatentGP,
    data: Data,
    *,
    key: Key[Array, ""],
    number: int = 100,
    priors: Mapping[str, Distribution | None] | Literal["weak"] | None = "weak",
    frozen: Sequence[str] = (),
) -> PriorDraws:
    """Draw hyper-parameters, latent functions and targets from the prior that `fit` would use.

    Targets like nothing the field knows say that a prior is to be mended (Gabry et al. 2019, 3).

    Args:
        model: with the values of hyper-parameters that have no prior.
        data: the rows; of the targets only spread and level are read, for weak priors.
        key: random key.
        number: S, of draws, each of O(N^3).
        priors: as `fit` takes them.
        frozen: paths (or their beginnings) that are held.

    Raises:
        InputError: what `fit` refuses; fewer than one draw.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> rows = lgp.Data(np.arange(8.0), [3, 1, 0, 2, 5, 4, 1, 0])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> draws = lgp.sample_prior(model, rows, key=jax.random.key(0), number=50)
        >>> draws.y.shape, draws.hyperparameters["kernel.lengthscale"].shape
        ((50, 8), (50,))
    """
    check_arguments(model, data, priors)
    check_data(model.likelihood, data)
    check_model(model, data.X)
    key_vectors, key_rows = jax.random.split(key_of_draws(key, number))
    frozen = (frozen,) if isinstance(frozen, str) else tuple(frozen)
    space = space_of(model, scales(model, data), priors, frozen)
    drawn = space.prior_draws(key_vectors, number)
    keys = jax.random.split(key_rows, number)
    f, y = _draws(model, model.layout(data.X), data.to_device(), drawn, keys)
    f = f[..., 0] if model.likelihood.latent_size == 1 else f
    held = tuple(path for path in parameters(model) if path not in drawn)
    return PriorDraws(drawn, np.asarray(f), np.asarray(y), held, model.likelihood.targets)


@jax.jit
def _draws(
    model: LatentGP, layout: Any, data: Data, drawn: dict[str, Array], keys: Key[Array, "S"]
) -> tuple[Float[Array, "S N Q"], Float[Array, "S N *P"]]:
    def one(own: tuple[dict[str, Array], Array]) -> tuple[Array, Array]:
        values, key = own
        at = replace_unchecked(model, values)
        return draw_rows(at.likelihood, *moments_before(at, layout, data, key), data, key)

    return jax.lax.map(one, (drawn, keys))


def moments_before(
    model: LatentGP, layout: Any, data: Data, key: Key[Array, ""]
) -> tuple[Float[Array, "N Q"], Float[Array, "#Q N N"]]:
    """Prior mean of the latent functions at the rows, and lower factors of their covariances.

    Of a deep model they are those given a draw of the hidden functions.
    """
    seen = data.X
    if layout is not None:
        seen = layout.from_prior(model, data.X, jax.random.fold_in(key, _OF_HIDDEN))
    return prior_mean(model, data), vmap_latents(jittered_lower, latent_grams(model.kernel, seen))


def draw_rows(
    likelihood: Likelihood,
    mean: Float[Array, "N Q"],
    lower: Float[Array, "#Q N N"],
    data: Data,
    key: Key[Array, ""],
) -> tuple[Float[Array, "N Q"], Float[Array, "N *P"]]:
    """Latent functions at the rows of given moments, and targets given them."""
    key_f, key_y = jax.random.split(key)
    noise = jax.random.normal(key_f, mean.T.shape, mean.dtype)
    f = mean + vmap_latents(lambda lower, noise: lower @ noise, lower, noise).T
    keys = jax.random.split(key_y, len(f))
    return f, jnp.asarray(jax.vmap(likelihood.sample)(keys, f, dict(data.side_information)))
