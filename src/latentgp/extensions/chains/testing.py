"""Conformance suite of methods that sample."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import LogNormal, Normal

from latentgp.extensions.chains.loop import Sampler
from latentgp.extensions.chains.methods.hmc import NUTS
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.posterior import SampledPosterior
from latentgp.extensions.chains.target import Position, WhiteTarget, from_prior
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.inference import fit
from latentgp.kernels import RBF
from latentgp.likelihoods import Gaussian, Poisson
from latentgp.means import ConstantMean
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.representations import Dense
from latentgp.representations.site_form import SiteForm
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.exact import ExactGP
from latentgp.testing.numerics import require
from latentgp.typing import Array, Inputs, PerRow, RandomKey

_LIMIT = 5.0  # standard errors
_CHAINS, _TURNS = 96, 60
_SPREAD = 0.3


@double_precision
def check_sampler(method: SamplingMethod, *, long: bool = False) -> None:
    """Check a sampler of the latent functions, its hyper-parameters held, on small problems.

    Args:
        method: what is checked, with its representation; of `Inducing` the target of comparison is
            that of `NUTS` through the same points.
        long: four times as many draws, for a smaller standard error.

    Raises:
        AssertionError: it does not leave a known Gaussian posterior invariant; fails Geweke's
            (2004) joint-distribution test; does not agree with long chains of `NUTS`; gives other
            bits for one key, or after it was interrupted and resumed; compiles anew for other
            numbers.
    """
    name, times = type(method).__name__, 4 if long else 1
    method = dataclasses.replace(method, draws=method.draws * times)
    _check_gaussian(method, name)
    if type(method).sampler is not SamplingMethod.sampler:  # else it has states of its own
        model, data = counts()
        if method.representation.traits.one_coefficient_a_row:  # exp(E log p) is no law of y
            check_joint(method, model, data.X[::3], chains=_CHAINS * times)
    _check_against_nuts(method, name)
    _check_bits(method, name)


def regression() -> tuple[LatentGP, Data]:
    """A model with Gaussian noise, and rows, one of them of weight two."""
    X = np.linspace(0.0, 3.0, 12)
    y = np.sin(2 * X) + 0.2 * np.random.default_rng(0).normal(size=12)
    weights = np.where(np.arange(12) == 4, 2.0, 1.0)
    model = LatentGP(RBF(0.7, 1.5), Gaussian(noise_variance=0.1), ConstantMean(0.2))
    return model, Data(X, y, weights=weights)


def counts() -> tuple[LatentGP, Data]:
    """A model of counts, and rows."""
    X = np.linspace(0.0, 3.0, 10)
    y = np.array([1.0, 3, 4, 4, 1, 0, 0, 1, 0, 3])
    return LatentGP(RBF(0.7, 1.0), Poisson(), ConstantMean(0.3)), Data(X, y)


def _fit(method: SamplingMethod, problem: tuple[LatentGP, Data], seed: int, **more: Any) -> Fit:
    model, data = problem
    key = jax.random.key(seed)
    return fit(model, data, key=key, method=method, learn_hyperparameters=False, **more)


def _figures(result: Fit) -> Float[np.ndarray, "C S figures"]:
    """The watched latent functions and their squares, draw by draw."""
    posterior = result.posterior
    assert isinstance(posterior, SampledPosterior)
    f = posterior.f.reshape(*posterior.f.shape[:2], -1)
    return np.concatenate([f, f**2], axis=2)


def _means(result: Fit) -> tuple[Float[np.ndarray, "figures"], Float[np.ndarray, "figures"]]:
    """Means over draws, and their squared standard errors by batches of draws."""
    figures = _figures(result)
    chains, draws, columns = figures.shape
    batches = max(1, int(np.sqrt(draws) / 2))
    size = draws // batches
    parts = figures[:, : batches * size].reshape(chains * batches, size, columns).mean(axis=1)
    return figures.mean(axis=(0, 1)), parts.var(axis=0, ddof=1) / len(parts)


def _require_means(
    means: tuple[Any, Any], expected: Any, expected_variance: Any, what: str
) -> None:
    off = (means[0] - expected) / np.sqrt(means[1] + expected_variance + 1e-12)
    worst = int(np.argmax(np.abs(off)))
    said = f"{what}: figure {worst} is off by {off[worst]:.1f} standard errors."
    require(np.all(np.abs(off) < _LIMIT), said)


def _check_gaussian(method: SamplingMethod, name: str) -> None:
    """Means and second moments at the rows against the exact posterior's."""
    if not method.representation.traits.one_coefficient_a_row:
        return
    model, data = regression()
    known: Any = {"method": ExactGP(), "learn_hyperparameters": False}
    exact = fit(model, data, key=jax.random.key(0), **known).posterior.predict_f(data.X)
    expected = np.concatenate([exact.mean, exact.mean**2 + exact.variance])
    ours = _means(_fit(method, (model, data), 1))
    _require_means(ours, expected, 0.0, f"{name}: moments of a Gaussian posterior")


@functools.cache
def _dense_means() -> tuple[Float[np.ndarray, "figures"], Float[np.ndarray, "figures"]]:
    """Those of long chains of NUTS, with one coefficient a row: most samplers are set beside it."""
    return _means(_fit(NUTS(chains=4, warmup=600, draws=2000), counts(), 3))


def _check_against_nuts(method: SamplingMethod, name: str) -> None:
    ours = _means(_fit(method, counts(), 2))
    if method.representation == Dense() and not isinstance(method, NUTS):
        theirs = _dense_means()
    else:
        peer = NUTS(chains=4, warmup=300, draws=1000, representation=method.representation)
        if isinstance(method, NUTS):
            peer = dataclasses.replace(peer, target_acceptance=0.9)
        theirs = _means(_fit(peer, counts(), 3))
    _require_means(ours, *theirs, f"{name}: moments of a posterior of counts, beside NUTS")


def _check_bits(method: SamplingMethod, name: str) -> None:
    method = dataclasses.replace(
        method, draws=120, warmup=max(1, min(method.warmup or 100, 100)), thin=1
    )
    first = _figures(_fit(method, counts(), 4))
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(str(details.get("fun_name", event)))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        second = _figures(_fit(method, counts(), 4))
        model, data = counts()
        _fit(method, (model, Data(data.X, data.y[::-1])), 5)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    require(np.array_equal(first, second), f"{name}: two fits with one key differ.")
    require(not seen, f"{name}: other numbers of the same shapes compile {seen} anew.")
    with tempfile.TemporaryDirectory() as folder:
        settings = {"checkpoint": Path(folder) / "chains"}
        began = _figures(_fit(method, counts(), 4, callback=lambda progress: True, **settings))
        require(began.shape[1] < first.shape[1], f"{name}: a callback does not end the sampling.")
        resumed = _figures(_fit(method, counts(), 4, **settings))
    require(np.array_equal(first, resumed), f"{name}: resumed chains differ from whole ones.")


@double_precision
def check_joint(method: SamplingMethod, model: LatentGP, X: Inputs, *, chains: int) -> None:
    """Geweke's (2004) joint-distribution test of a sampler of hyper-parameters and latents.

    Positions from the prior and y given them have the joint law. So have the states of a chain
    that starts there and takes turns: a step, then y given f. Each chain gives one difference
    between averages over its states and over independent draws.

    Args:
        method: whose coefficients have all of f: of one a row, or of parts of finite rank.
        model: of one latent function; its hyper-parameters are about where the prior has them.
        X: the rows.
        chains: number of chains.

    Raises:
        AssertionError: the two are more than five standard errors apart.
    """
    key = jax.random.key(6)
    known = parameters(model)
    laws = {
        path: Normal(info.value, _SPREAD) if "mean" in path else LogNormal(np.log(info.value), 0.3)
        for path, info in known.items()
    }
    frozen = () if method.samples_hyperparameters else tuple(known)
    space = ParameterSpace(model, frozen=frozen, priors=laws)
    representation = method.representation.for_sites(SiteForm(moved=True))
    ready = representation.initialise(X, None, model.kernel, key).for_rows(X, None, model.kernel)
    target = WhiteTarget.of(space, ready, Data(X, np.zeros(len(X))).to_device())
    sampler = method.sampler(target)

    def observe(position: Position, key: RandomKey) -> PerRow:
        key_f, key_y = jax.random.split(key)
        f, likelihood = target.latents(position, key_f), space.to_model(position.vector).likelihood
        keys = jax.random.split(key_y, len(X))
        return jax.vmap(lambda key, f: likelihood.sample(key, f, {}))(keys, f)

    def joint(key: RandomKey) -> tuple[Position, Array]:
        key_position, key_y = jax.random.split(key)
        position = from_prior(target, key_position)
        return position, observe(position, key_y)

    def figures(position: Position, y: Array) -> Float[Array, "figures"]:
        f = target.latents(position, key)[:, 0]
        parts = [position.vector, position.vector**2, f, f**2, f[:1] * f[1:], jnp.log1p(y), f * y]
        return jnp.concatenate(parts)

    def seeing(y: Array) -> Sampler:
        return eqx.tree_at(lambda s: s.target.data.y, sampler, y)

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def differences(key: RandomKey) -> Float[Array, "C figures"]:
        key_adapt, key_y, key_chains = jax.random.split(key, 3)
        adapted = seeing(joint(key_y)[1]).init(key_adapt)

        def chain(key: RandomKey) -> Float[Array, "figures"]:
            key_prior, key_turns = jax.random.split(key)
            drawn = jax.vmap(joint)(jax.random.split(key_prior, _TURNS + 1))
            independent = jax.vmap(figures)(*jax.tree.map(lambda a: a[1:], drawn))

            def turn(carry: Any, key: RandomKey) -> tuple[Any, Array]:
                position, y = carry
                key_step, key_y = jax.random.split(key)
                own = seeing(y)
                state, _ = own.step(own.moved(adapted, position), key_step)
                position = own.position(state)
                y = observe(position, key_y)
                return (position, y), figures(position, y)

            start = jax.tree.map(lambda a: a[0], drawn)
            _, dependent = jax.lax.scan(turn, start, jax.random.split(key_turns, _TURNS))
            return jnp.mean(dependent - independent, axis=0)

        return jax.lax.map(chain, jax.random.split(key_chains, chains), batch_size=16)

    found = np.asarray(differences(key))
    off = np.abs(found.mean(axis=0) / (found.std(axis=0, ddof=1) / np.sqrt(chains)))
    said = (
        f"{type(method).__name__}: Geweke's joint test is off by {off.max():.1f} standard errors."
    )
    require(np.all(off < _LIMIT), said)
