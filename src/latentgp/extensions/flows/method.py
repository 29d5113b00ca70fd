"""Gaussian approximations of the log density that samplers explore."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from latentgp.errors import InputError, check_choices
from latentgp.extensions.chains.coordinate_maps import Coordinates
from latentgp.extensions.chains.coordinates import Kind, coordinates_at, starting_point
from latentgp.extensions.chains.draws import Chains
from latentgp.extensions.chains.joint import JointDensity, JointPosition
from latentgp.extensions.chains.loop import Draw
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.target import WhiteTarget, whitening_at_rows
from latentgp.extensions.flows import Approximation, GaussianApproximation, GaussianParticleFlow
from latentgp.extensions.flows.base import LogDensity, Start, approximate_in_pieces
from latentgp.extensions.flows.front import finished
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.posteriors.arviz_versions import smoothed_log_weights
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import RunControl
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean
from latentgp.site_inference.search.profiled_bound import converge, initial_sites
from latentgp.site_inference.search.starts import has_several_ends, raised
from latentgp.typing import Array, Coefs, Point, RandomKey, RowLatents, Scalar

_WHITE_STD, _HYPER_STD = 0.3, 0.3  # of the start
_FULL = 256  # numbers, up to which the usual covariance couples all
_PARTICLES = 128  # of the usual flow beyond
_EXACT = 1e-6  # deviation of log weights below which all are one
_CLOSE = 1e-3  # deviations, well below the noise of the draws
_ATTEMPTS = 5  # to make draws at which the log density is finite
_FAR = 0.7  # Pareto shape of importance weights above which they mean nothing


class DensityApproximation(SamplingMethod):
    """A Gaussian, or particles, for the target of `NUTS`, instead of chains; any smooth model.

    Latent functions and hyper-parameters are approximated jointly, by a Gaussian in coordinates in
    which they are nearly N(0, I) ("sites"), or white ones; the posterior is independent draws of
    it, as of chains. How far it is from the density is told by the Pareto shape of importance
    weights (Vehtari et al. 2024). `lgp.fit(..., method=lgp.flows.GaussianParticleFlow())` is this
    with that approximation. A callback is told every 20 steps; where it or `max_seconds` ends the
    steps, the draws are those of the Gaussian so far. `LaplaceApproximation` and `Pathfinder` are
    one step, which nothing ends.

    With `Inducing` the target is the free-form variational posterior of the inducing variables.

    Args:
        approximation: how, such as `GaussianFlow(rank=10)` or `approximations.MeanField()`; None is
            a particle flow that couples all numbers, or where these are more than 256 one that
            couples the hyper-parameters, and each coordinate with none.
        representation: `Dense()` or `Inducing(...)`.
        coupling: the coordinates: "sites", "partial" or "whitened".
        chains: in which the draws are arranged.
        draws: of each.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 2.0, 7.0])
        >>> method = lgp.DensityApproximation(lgp.flows.GaussianParticleFlow(particles=20))
        >>> result = lgp.fit(model, rows, key=jax.random.key(0), method=method)
        >>> result.posterior.predict([0.0, 2.0]).mean.shape
        (2,)
    """

    approximation: Approximation | None = None
    representation: Representation = Dense()
    coupling: str = eqx.field(static=True, default="sites")
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=500)
    warmup: int = eqx.field(static=True, default=0, init=False)  # draws are independent
    thin: int = eqx.field(static=True, default=1, init=False)

    def __check_init__(self) -> None:
        check_choices(self, coupling=Kind)
        self._check_coordinates(self.coupling)

    @property
    def needs(self) -> Needs:
        return Needs(continuous=True, positive=True)

    def sample(
        self,
        representation: Representation,
        space: ParameterSpace,
        data: Data,
        watched: Int[np.ndarray, "W"],
        key: RandomKey,
        control: RunControl,
    ) -> Chains:
        target = WhiteTarget.of(space, representation, data)
        density = JointDensity.of(target, None, coupling=cast(Kind, self.coupling))
        key_start, key_fit, key_draws, key_f = jax.random.split(key, 4)
        white = _white_start(target, key_start)
        own = dataclasses.replace(self.starting_method(), representation=representation)
        density, centre = _from_best_end(target, density, own.algorithm(space.model), white.shape)
        flat = FlatDensity(density, space.size, white.shape)
        whitened = self.coupling == "whitened"
        if centre is None:
            centre = white if whitened else jnp.zeros_like(white)
        std = _WHITE_STD if whitened else 1.0
        stds = jnp.full(space.size, _HYPER_STD), jnp.full(white.size, std)
        start = Start(jnp.concatenate([target.centre, centre.ravel()]), jnp.concatenate(stds))
        method = self.approximation or _usual(space.size, white.size)
        method.check(len(start.mean), False)
        outcome, ended = approximate_in_pieces(method, LogDensity(flat), start, key_fit, control)
        found = finished(method, outcome, ended)
        sizes = self.chains, self.draws
        draw, points, lp, outside = _draws(found, flat, sizes, watched, key_draws, key_f)
        whitening = whitening_at_rows(target)
        notes, complaints = _told(found, _pareto_shape(found, points, lp), outside)
        ones = np.ones(sizes)
        return Chains(
            *draw,
            centres=jax.tree.map(np.asarray, whitening.centres),
            statistics={"acceptance_rate": ones, "diverging": ones < 0, "lp": lp},
            jitter=float(whitening.jitter),
            notes=notes,
            complaints=complaints,
        )


def _from_best_end(
    target: WhiteTarget, density: JointDensity, by_sites: SiteInference, shape: tuple[int, ...]
) -> tuple[JointDensity, Array | None]:
    """The density about the best end of site updates, and a start there; None for zero."""
    latents = best_latents(by_sites, target.space.model, target.data)
    if latents is None:
        return density, None
    there = _coordinates(target, latents)
    if density.coupling == "whitened":
        return density, there.white(jnp.zeros(shape, latents.dtype))
    fixed = None if density.fixed is None else there
    target = dataclasses.replace(density.target, anchor=there.marginals)
    return dataclasses.replace(density, target=target, fixed=fixed), None


@Program
def _coordinates(target: WhiteTarget, latents: RowLatents) -> Coordinates:
    """Those by sites at the mode next to some latents, under the space's model."""
    anchor = Marginals(latents, jnp.zeros_like(latents))
    return coordinates_at(target, target.space.model, "sites", anchor)


class FlatDensity(eqx.Module):
    """The density of one vector: unconstrained hyper-parameters, then coordinates."""

    density: JointDensity  # of positions
    hyperparameters: int = eqx.field(static=True)  # their number P
    shape: tuple[int, ...] = eqx.field(static=True)  # of the coordinates, (Q, M)

    def __call__(self, x: Point) -> Scalar:
        return self.density.log_density(self.position(x))

    def position(self, x: Point) -> JointPosition:
        """The position of a vector."""
        number = self.hyperparameters
        return JointPosition(x[:number], x[number:].reshape(self.shape), jnp.zeros(0, x.dtype))


@Program
def _white_start(target: WhiteTarget, key: RandomKey) -> Coefs:
    """White coefficients where the posterior is; coordinates by sites start at their centre."""
    return starting_point(target, key).white


def _usual(hyperparameters: int, coordinates: int) -> GaussianParticleFlow:
    """A full rank where that is cheap; else the hyper-parameters, and single coordinates."""
    size = hyperparameters + coordinates
    if size <= _FULL:
        return GaussianParticleFlow(particles=size + 1, tolerance=_CLOSE)
    blocks = (hyperparameters,) * (hyperparameters > 0) + (1,) * coordinates
    structure = blocks if hyperparameters else "mean-field"
    return GaussianParticleFlow(particles=_PARTICLES, structure=structure, tolerance=_CLOSE)


def _draws(
    found: GaussianApproximation,
    flat: FlatDensity,
    sizes: tuple[int, int],
    watched: Int[np.ndarray, "W"],
    key_points: RandomKey,
    key_f: RandomKey,
) -> tuple[Draw, Float[np.ndarray, "C S D"], Float[np.ndarray, "C S"], float]:
    """Draws, where they are, and log densities; the share that were made again until finite."""

    def made(keys: tuple[Any, Any]) -> tuple[Draw, Any, Any]:
        points = found.sample(keys[0], sizes[0] * sizes[1]).reshape(*sizes, -1)
        drawn = _drawn(flat, points, jax.random.split(keys[1], sizes), watched)
        draw, log_density = jax.tree.map(np.array, drawn)
        return draw, points, log_density

    whole = made((key_points, key_f))
    outside = np.count_nonzero(~np.isfinite(whole[2])) / whole[2].size
    for attempt in range(_ATTEMPTS):
        wrong = ~np.isfinite(whole[2])
        if not wrong.any():
            break
        again = made((jax.random.fold_in(key_points, attempt), jax.random.fold_in(key_f, attempt)))
        for old, new in zip(jax.tree.leaves(whole), jax.tree.leaves(again), strict=True):
            old[wrong] = new[wrong]
    return *whole, outside


@Program
def _drawn(
    flat: FlatDensity,
    points: Float[Array, "C S D"],
    keys: Key[Array, "C S"],
    watched: Int[Array, "W"],
) -> tuple[Draw, Float[Array, "C S"]]:
    """Draw at each point, one after another, and the log density there."""
    target = flat.density.target

    def one(given: Any) -> tuple[Draw, Array]:
        x, key = given
        at = flat.density.white(flat.position(x))
        return Draw(at.vector, at.white, target.latents(at, key)[watched]), flat(x)

    return jax.lax.map(lambda given: jax.lax.map(one, given), (points, keys))


def _pareto_shape(
    found: GaussianApproximation,
    points: Float[np.ndarray, "C S D"],
    log_density: Float[np.ndarray, "C S"],
) -> float:
    """Pareto shape of the draws' importance weights; NaN if the Gaussian has no density."""
    try:
        flat = points.reshape(-1, points.shape[-1])
        log_weights = log_density.ravel() - found.log_prob(flat)
    except InputError:
        return float("nan")
    if not np.isfinite(log_weights).all():
        return float("inf")
    if log_weights.std() < _EXACT:
        return 0.0
    return float(smoothed_log_weights(log_weights)[1])


def _told(
    found: GaussianApproximation, shape: float, outside: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and complaints."""
    notes = [found.verdict, f"Pareto shape of importance weights {shape:.2f}."]
    if outside:
        notes.append(
            f"{outside:.2%} of the draws were where the log density is no finite number, and were "
            "made again."
        )
    complaints = [] if found.converged else ["The approximation has not converged: see above."]
    if np.isnan(shape):
        complaints.append(
            "The covariance is singular, so some variances are zero and cannot be trusted; use "
            "more particles, or a structure of blocks."
        )
    elif shape > _FAR:
        complaints.append(
            f"The Gaussian is far from the posterior (Pareto shape {shape:.2f}, above {_FAR}): "
            "use NUTS or MCMC, or look at means alone."
        )
    return tuple(notes), tuple(complaints)


def best_latents(algorithm: SiteInference, model: LatentGP, data: Data) -> RowLatents | None:
    """Posterior means of f at the rows at an end above that from the first sites; None if none is.

    Where other methods than by sites start.
    """
    if not has_several_ends(algorithm, model):
        return None
    usual = converge(algorithm, model, data, initial_sites(algorithm, model, data))
    higher = raised(algorithm, model, data, usual)
    return None if higher is usual else _means_at_rows(algorithm, model, data, higher.sites)


@Program
def _means_at_rows(
    algorithm: SiteInference, model: LatentGP, data: Data, sites: Sites
) -> RowLatents:
    """Posterior means of f at the rows given sites."""
    offset = prior_mean(model, data)
    about = sites.about(offset)
    posterior = algorithm.representation.condition(model.kernel, data.X, about)
    return offset + algorithm.representation.pull_back(posterior, data.X, about).marginals.mean
