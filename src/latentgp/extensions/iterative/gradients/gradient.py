"""Stochastic gradients of the log evidence under Gaussian noise, by solves alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, UInt32

from latentgp.extensions.iterative.gradients.settings import Solves
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import System, stored_or_tiled
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import (
    Nystrom,
    nystrom_factor,
    random_rows,
)
from latentgp.extensions.iterative.solvers.ulisse import ExponentialWeights, ulisse
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.representations.prior_paths import prior_paths
from latentgp.rows.data import Data
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean, rows_of
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, HyperVector, PerRow, RandomKey, Scalar, Vectors

_FEATURES = 1024  # of a path
_COPIES = 4  # of an unbiased solution: two pairs, whose difference tells their variance


class Probes(NamedTuple):
    """Random parts of a gradient, held for some iterations."""

    # shape (N, S): signs, which the root of the preconditioner turns, or normal noise that is added
    # to paths
    noise: Vectors
    rows: Int[Array, "M"]  # of the preconditioner
    seed: UInt32[Array, "B"]  # bits of the key of the paths, shape (B,)


class Slope(NamedTuple):
    """An estimate of the gradient of the log posterior of hyper-parameters."""

    gradient: HyperVector
    # of the estimate given the probes' law, shape (H, H), by the spread of its parts
    covariance: Float[Array, "H H"]
    # of the targets in the first column and of the probes; a start for the next ones
    solution: Vectors
    steps: Int[Array, ""]  # products with the covariance
    solved: Bool[Array, ""]  # whether all solves ended as they should


class StandardisedTargets(NamedTuple):
    """Targets in units of their noise: r ~ N(0, B), B = I + W^1/2 K W^1/2.

    The log evidence is log N(r; 0, B) + constant; rows of weight zero have r = 0 and a row of the
    identity.
    """

    system: System
    target: PerRow
    constant: Scalar


class SolvedEvidence(Module):
    """The log posterior of hyper-parameters, known by stochastic gradients."""

    algorithm: SiteInference  # whose sites are the likelihood itself
    space: ParameterSpace  # the hyper-parameters
    data: Data  # the rows, on the device
    solves: Solves  # how they are made, settled for the rows

    def standardised(self, vector: HyperVector) -> StandardisedTargets:
        """System and targets at a vector of hyper-parameters."""
        model = self.space.to_model(vector)
        sites = _sites_of(self.algorithm, model, self.data)
        (kernel,) = distinct_kernels(model.kernel)
        precision, linear = sites.precision[:, 0], sites.linear[:, 0]
        there = precision > 0
        root = jnp.sqrt(jnp.where(there, precision, 1.0))
        target = jnp.where(there, linear / root, 0.0)
        root = jnp.where(there, root, 0.0)
        X = self.data.X
        K = stored_or_tiled(kernel, X, self.solves.stored)
        nothing = 0.5 * len(X) * jnp.log(2 * jnp.pi) + 0.5 * jnp.sum(target**2)
        system = System(K, root, jnp.ones_like(root))
        return StandardisedTargets(system, target, jnp.sum(sites.log_constant) + nothing)

    def probes(self, key: RandomKey) -> Probes:
        """New ones."""
        key_noise, key_rows, key_paths = jax.random.split(key, 3)
        size, rank = len(self.data.X), self.solves.rank or 0
        draw = jax.random.normal if self.solves.pathwise else jax.random.rademacher
        seed = jax.random.key_data(key_paths)
        noise = draw(key_noise, (size, self.solves.probes), self.data.X.dtype)
        return Probes(noise, random_rows(key_rows, size, min(size, rank)), seed)

    def _paths(self, vector: HyperVector, scale: PerRow, probes: Probes) -> Array:
        """Draws of the standardised targets, by random features that length-scales stretch."""
        kernel, X = self.space.to_model(vector).kernel, self.data.X
        sizes = {"inputs": X.shape[1], "latents": 1, "features": _FEATURES, "number": 1}
        keys = jax.random.split(jax.random.wrap_key_data(probes.seed), self.solves.probes)
        paths = jax.lax.map(lambda key: prior_paths(kernel, key, **sizes)(X)[0, :, 0], keys)
        return scale[:, None] * paths.T + probes.noise

    def no_solution(self) -> Vectors:
        """Where solves start that know of no earlier ones."""
        return jnp.zeros((len(self.data.X), 1 + self.solves.probes), self.data.X.dtype)

    def slope(self, vector: HyperVector, probes: Probes, start: Vectors, key: RandomKey) -> Slope:
        """Estimate of the gradient of log evidence plus log prior.

        With v = B^-1 r it is that of v' B v / 2 - v' r, v held, less half that of log |B|: the mean
        over probes z = R u, P = R R', of (B^-1 z)' dB (P^-1 z) (Filippone & Engler 2015, eq. 9,
        with the half that its second term lacks). With a preconditioner only the difference to the
        derivative of log |P| is estimated, (B^-1 z)' dB (P^-1 z) - (P^-1 z)' dP (P^-1 z), which is
        small where P is near B (Wenger et al. 2022, 3.2). Unbiased where solves are, as E[u u'] =
        I. Pathwise z ~ N(0, B) are draws of the targets, and the trace is the mean of (B^-1 z)' dB
        (B^-1 z) (Lin et al. 2024, eq. 8), whose solutions move little with hyper-parameters. The
        start of the solves must not depend on the key, which is of solves that end at random.
        """
        at = self.standardised(vector)
        pathwise = self.solves.pathwise
        P = Nystrom(probes.rows)(at.system) if self.solves.rank else Identity()
        preconditioned = bool(self.solves.rank) and not pathwise
        paths = self._paths(vector, at.system.scale, probes) if pathwise else None
        z = P.times_root(probes.noise) if paths is None else paths
        right = jnp.concatenate([at.target[:, None], z], axis=1)
        first, second, s, solution, steps, solved = self._solved(at.system, right, P, start, key)
        t = s if pathwise else P.solve(z)
        pairs = first.shape[1]
        left, by = jnp.concatenate([first, s], axis=1), jnp.concatenate([second, t], axis=1)
        middle = 0.5 * (first + second)

        def parts(vector: Any) -> Any:
            at = self.standardised(vector)
            forms = 0.5 * jnp.sum(left * at.system.times(by), axis=0)
            of_target, of_probes = forms[:pairs] - middle.T @ at.target, -forms[pairs:]
            rest = at.constant + self.space.log_prior(vector)
            if preconditioned:
                squares, log_determinant = _nystrom_forms(at.system, probes.rows, t)
                of_probes, rest = of_probes + 0.5 * squares, rest - 0.5 * log_determinant
            return of_target, of_probes, rest

        along = (
            jax.linearize(parts, vector)[1]
            if self.solves.stored
            else lambda direction: jax.jvp(parts, (vector,), (direction,))[1]
        )
        # One hyper-parameter after another: all at once would keep as many tiles.
        targets, traces, rest = jax.lax.map(along, jnp.eye(vector.size, dtype=vector.dtype))
        gradient = jnp.mean(targets, axis=1) + jnp.mean(traces, axis=1) + rest
        covariance = _covariance_of_mean(traces)
        if pairs > 1:
            covariance = covariance + _covariance_of_mean(targets)
        return Slope(gradient, covariance, solution, steps, solved)

    def _solved(self, system: Any, right: Any, P: Any, start: Any, key: Any) -> Any:
        """Solutions of the targets in pairs, of the probes, all in columns; steps; success."""
        own = self.solves
        common: Any = {"preconditioner": P, "start": start, "max_steps": own.max_steps}
        if own.solver == "ulisse":
            threshold, weights = own.threshold * jnp.sqrt(system.size), ExponentialWeights(own.rate)
            common |= {"threshold": threshold, "weights": weights, "copies": _COPIES}
            found = ulisse(system, right, key, **common)
            mean = jnp.mean(found.value, axis=0)
            fine = jnp.all(found.is_unbiased)
            copies = found.value[:, :, 0].T
            pairs = copies[:, ::2], copies[:, 1::2]
            return *pairs, mean[:, 1:], mean, found.products, fine
        found = conjugate_gradients(system, right, tolerance=own.tolerance, **common)
        v, fine = found.value[:, :1], jnp.all(found.relative_residual <= own.tolerance)
        return v, v, found.value[:, 1:], found.value, found.steps, fine


def _nystrom_forms(
    system: System, rows: Int[Array, "M"], t: Vectors
) -> tuple[Float[Array, "S"], Scalar]:
    """Forms t' P t of columns, and log |P|, of the Nyström preconditioner, differentiable."""
    factor = system.scale[:, None] * nystrom_factor(system.covariance, rows)
    inner = factor.T @ (factor / system.added[:, None]) + jnp.eye(factor.shape[1])
    root = jnp.diagonal(lower_cholesky(inner))
    log_determinant = jnp.sum(jnp.log(system.added)) + 2 * jnp.sum(jnp.log(root))
    squares = jnp.sum(system.added[:, None] * t**2, axis=0) + jnp.sum((factor.T @ t) ** 2, axis=0)
    return squares, log_determinant


def _sites_of(algorithm: SiteInference, model: LatentGP, data: Data) -> GaussianSites:
    """The likelihood's own sites, as functions of f less the prior mean."""
    offset = prior_mean(model, data)
    anywhere = Marginals(offset, jnp.ones_like(offset))
    sites = algorithm.new_sites(model, rows_of(data), anywhere, GaussianSites.none(offset))
    return sites.about(offset)


def _covariance_of_mean(parts: Float[Array, "H S"]) -> Float[Array, "H H"]:
    """Covariance of the mean of independent columns."""
    number = parts.shape[1]
    apart = parts - jnp.mean(parts, axis=1, keepdims=True)
    return apart @ apart.T / (number * (number - 1))
