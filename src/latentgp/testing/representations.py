"""Conformance suite of representations of the latent functions."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.errors import InputError
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import Kernel, LatentKernel, OwnKernels
from latentgp.likelihoods.base import Marginals
from latentgp.representations import LatentPosterior, Representation, SiteForm, log_evidence
from latentgp.representations.protocols import SamplesCoefficients
from latentgp.representations.variables import (
    Centres,
    covariance_of,
    cross_covariance,
    prior_variances,
    spans_prior,
)
from latentgp.rows.arrays import as_inputs
from latentgp.runtime.x64 import double_precision
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.testing.numerics import (
    as_single,
    chunks_of,
    require,
    require_alike,
    require_equal,
    require_gradient,
    require_single,
)

_LATENTS = 2
_CHUNK = 4
_DRAWS = 4000
_STANDARD_ERRORS = 5.0


@double_precision
def check_representation(
    representation: Representation, kernel: LatentKernel, inputs: Any, *, exact: bool | None = None
) -> None:
    """Check a representation of two latent functions at the rows of some inputs.

    Args:
        representation: what is checked; it is initialised for the inputs first.
        kernel: a smooth one, whose Gram matrix at the inputs is well conditioned, shared by the
            two latent functions; or a `PerLatent` of two such kernels.
        inputs: shape (N, D), at least six rows, best not a multiple of four.
        exact: whether it is exact for these rows, and is to be compared with dense linear
            algebra; by default what it says itself. `Inducing(points=inputs)` is. Where weights
            span the prior it is compared under the covariance that these imply, which must not be
            singular: give as many of them as rows.

    Raises:
        AssertionError: evidence, KL, marginals, covariance or samples are wrong or do not agree;
            a gradient is wrong; sums in chunks differ from sums in one piece.
    """
    X = as_inputs(inputs)
    require(len(X) >= 6, f"Give at least six rows to check a representation, got {len(X)}.")
    require(len(_kernel_of_each(kernel)) == _LATENTS, "Give one kernel, or a PerLatent of two.")
    key = jax.random.key(0)
    ready = representation.initialise(X, None, kernel, key).for_rows(X, None, kernel)
    same = type(ready) is type(representation)
    require(same, "initialise(...) must give the same representation.")
    sites = _sites(len(X))
    posterior = jax.jit(_condition)(ready, kernel, X, sites)
    spans = spans_prior(posterior.centres)
    exact = (spans or representation.traits.evidence == "exact") if exact is None else exact
    name = type(representation).__name__
    whole = exact or ready.traits.one_gaussian
    require(
        not ready.traits.one_coefficient_a_row or np.array_equal(posterior.centres, X),
        f"{name} says that it has one coefficient a row, but its centres are not the rows.",
    )
    case = _RepresentationCase(ready, kernel, X, sites, name, posterior, exact)
    _check_agreement(case)
    _check_against_dense(case)
    _check_derivatives(case, whole)
    _check_update(case)
    _check_sharing(case, spans)
    _check_kept(case)
    if isinstance(ready, SamplesCoefficients) and not _refuses_white(case):
        _check_white(case)
    if ready.traits.paths and (exact or (whole and ready.traits.predicts_by_all_centres)):
        _check_paths(case)
    narrow = as_single((ready, kernel, X, sites))
    require_single(jax.eval_shape(_condition, *narrow), f"{name}.condition(...)")


class _RepresentationCase(NamedTuple):
    """A representation of rows, and its posterior given sites."""

    representation: Representation
    kernel: LatentKernel
    X: np.ndarray
    sites: GaussianSites
    name: str
    posterior: LatentPosterior
    exact: bool


def _condition(
    representation: Representation, kernel: LatentKernel, X: Any, sites: GaussianSites
) -> LatentPosterior:
    return representation.condition(kernel, X, sites)


def _kernel_of_each(kernel: LatentKernel) -> tuple[Kernel, ...]:
    return kernel.each if isinstance(kernel, OwnKernels) else (kernel,) * _LATENTS


def _grams(
    centres: Centres, kernel: LatentKernel, A: np.ndarray, B: np.ndarray
) -> list[np.ndarray]:
    """Prior covariances of each latent function under the representation."""
    if spans_prior(centres):
        left, right = (cross_covariance(kernel, centres, points) for points in (A, B))
        grams = np.asarray(jnp.swapaxes(left, 1, 2) @ right)
        return list(np.broadcast_to(grams, (_LATENTS, *grams.shape[1:])))
    if A is B:
        return [np.asarray(own.symmetric_gram(A)) for own in _kernel_of_each(kernel)]
    return [np.asarray(own.gram(A, B)) for own in _kernel_of_each(kernel)]


def _sites(rows: int) -> GaussianSites:
    """Sites of two latents, one row of them absent."""
    generator = np.random.default_rng(0)
    linear = generator.normal(size=(rows, _LATENTS))
    precision = generator.uniform(0.3, 3.0, (rows, _LATENTS))
    log_constant = generator.normal(size=rows)
    linear[2], precision[2], log_constant[2] = 0.0, 0.0, 0.0
    return GaussianSites(*map(jnp.asarray, (linear, precision, log_constant)))


def _elsewhere(X: np.ndarray) -> np.ndarray:
    """Points between the rows and away from them."""
    return np.concatenate([X[:3] + 0.37 * (X[3:6] - X[:3]), X[:1] + 3 * np.ptp(X, axis=0)])


def _check_agreement(case: _RepresentationCase) -> None:
    """Properties that hold whatever the coefficients are."""
    _, kernel, X, sites, name, posterior, _ = case
    marginals: Any = posterior.marginals(X)
    nats = jnp.sum(sites._replace(log_constant=0 * sites.log_constant).expected(marginals))
    what = f"{name}: the log evidence is not the expected log sites minus the KL"
    require_equal(posterior.log_evidence, nats - posterior.kl, what, rtol=1e-7, atol=1e-7)
    require(posterior.kl >= 0, f"{name}: the KL is negative, {posterior.kl}.")
    term = posterior.trace_term
    require(term >= -1e-6, f"{name}: the trace term is negative, {term}.")
    new = _elsewhere(X)
    mean, variance = posterior.marginals(new)
    prior = prior_variances(kernel, posterior.centres, new).T
    inside = np.all((variance >= 0) & (variance <= prior * (1 + 1e-12)))
    require(inside, f"{name}: posterior variances are outside [0, prior variance].")
    what = f"{name}.mean differs from the mean of the marginals"
    require_equal(posterior.mean(new), mean, what, rtol=1e-10, atol=1e-10)
    covariance = np.asarray(posterior.covariance(new))
    own = np.diagonal(covariance, axis1=1, axis2=2).T
    scale = float(np.max(prior))
    what = f"{name}: the covariance's diagonal differs from the marginal variances"
    require_equal(own, variance, what, atol=1e-8 * scale)
    smallest = np.linalg.eigvalsh(covariance).min()
    require(smallest >= -1e-7 * scale, f"{name}: a covariance has eigenvalue {smallest:.3e}.")
    what = f"{name}: there must be as many centres as columns"
    require_equal(posterior.centres.shape[1], X.shape[1], what)


def _check_against_dense(case: _RepresentationCase) -> None:
    """Compare with dense linear algebra that inverts what it likes."""
    representation, kernel, X, sites, name, posterior, exact = case
    new = _elsewhere(X)
    total, divergence = 0.0, 0.0
    means, variances, covariances = [], [], []
    pairs = (X, X), (new, X), (new, new)
    grams = (_grams(posterior.centres, kernel, *pair) for pair in pairs)
    for q, (K, cross, prior) in enumerate(zip(*grams, strict=True)):
        linear, precision = np.asarray(sites.linear[:, q]), np.asarray(sites.precision[:, q])
        gain = np.linalg.solve(np.eye(len(X)) + precision[:, None] * K, np.diag(precision))
        S = K - K @ gain @ K
        mean = S @ linear
        log_determinant = np.linalg.slogdet(np.eye(len(X)) + precision[:, None] * K)[1]
        total += 0.5 * linear @ mean - 0.5 * log_determinant
        divergence += 0.5 * (
            np.trace(np.linalg.solve(K, S)) - len(X) + mean @ np.linalg.solve(K, mean)
        )
        divergence += 0.5 * log_determinant
        covariance = prior - cross @ gain @ cross.T
        means.append(cross @ (linear - gain @ K @ linear))
        covariances.append(covariance)
        variances.append(np.diagonal(covariance))
    if not exact:
        require(
            posterior.log_evidence <= total + 1e-6 * abs(total)
            or representation.traits.evidence == "approximation",
            f"{name}: the log evidence {posterior.log_evidence} is above the true one, {total}.",
        )
        return
    mean, variance = posterior.marginals(new)
    scale = float(np.max(prior_variances(kernel, posterior.centres, new)))
    what = "differs from dense linear algebra"
    require_equal(posterior.log_evidence, total, f"{name}: the log evidence {what}", rtol=1e-8)
    require_equal(posterior.kl, divergence, f"{name}: the KL {what}", rtol=1e-6)
    require_equal(posterior.trace_term, 0.0, f"{name}: the trace term", atol=1e-6)
    require_equal(mean, np.stack(means, 1), f"{name}: the mean {what}", atol=1e-6)
    near = 1e-6 * scale
    require_equal(variance, np.stack(variances, 1), f"{name}: the variance {what}", atol=near)
    covariance, expected = posterior.covariance(new), np.stack(covariances)
    require_equal(covariance, expected, f"{name}: the covariance {what}", atol=near)


def _check_derivatives(case: _RepresentationCase, whole: bool) -> None:
    representation, kernel, X, sites, name, posterior, _ = case
    space = ParameterSpace(kernel)
    floats, rest = eqx.partition(representation, eqx.is_inexact_array)

    def evidence(point):
        vector, places, sites = point
        return log_evidence(eqx.combine(places, rest), space.to_model(vector), X, sites)

    def directly(point):
        vector, places, sites = point
        posterior = eqx.combine(places, rest).condition(space.to_model(vector), X, sites)
        return posterior.log_evidence + jnp.sum(sites.log_constant)

    point = (jnp.asarray(space.to_vector()), jax.tree.map(jnp.asarray, floats), sites)
    value, gradient = jax.jit(jax.value_and_grad(evidence))(point)
    value_of = jax.jit(directly)
    require_equal(value, value_of(point), f"{name}: log_evidence(...)", rtol=1e-12)
    # The row without a site has its precision at the end of the support: leave it where it is.
    present = np.ones((len(X), 1))
    present[2] = 0.0

    def of_present(parts: Any) -> GaussianSites:
        return GaussianSites(*(present.reshape(-1, *[1] * (p.ndim - 1)) * p for p in parts))

    names = ("kernel", "representation", "sites")
    for index, what in enumerate(names):
        if not jax.tree.leaves(point[index]):
            continue

        def along(part: Any, index: int = index) -> Any:
            if index == 2:
                moved = (new - old for old, new in zip(sites, part, strict=True))
                part = jax.tree.map(jnp.add, sites, of_present(moved))
            return value_of((*point[:index], part, *point[index + 1 :]))

        slope = gradient[index]
        if index == 2:
            slope = of_present(slope)
        sentence = f"{name}: the gradient of the log evidence in the {what}"
        require_gradient(along, point[index], slope, sentence, rtol=1e-6, atol=1e-7)
    if not whole:
        return
    pullback = jax.jit(type(representation).pull_back)(representation, posterior, X, sites)
    posterior_marginals: Any = posterior.marginals(X)
    what = f"{name}: pull_back and marginals disagree about the"
    there = slice(None) if representation.traits.one_gaussian else np.flatnonzero(present[:, 0])
    for field in Marginals._fields:
        ours, theirs = getattr(pullback.marginals, field), getattr(posterior_marginals, field)
        require_equal(ours[there], theirs[there], f"{what} {field}", rtol=1e-7, atol=1e-8)


def _update(
    rows: Rows, marginals: Any, sites: GaussianSites, offset: Any
) -> tuple[GaussianSites, Any]:
    """Some site update that reads everything it is given."""
    mean, variance = marginals
    linear = jnp.tanh(mean + offset) + rows.y[:, None] + 0.5 * sites.linear
    precision = 0.2 + variance + 0.5 * sites.precision
    terms = jnp.sum(mean + variance, axis=1) * rows.y
    return GaussianSites(linear, precision, 2 * sites.log_constant), terms


def _check_update(case: _RepresentationCase) -> None:
    representation, kernel, X, sites, name = case[:5]
    generator = np.random.default_rng(1)
    offset = jnp.asarray(generator.normal(size=(len(X), _LATENTS)))
    rows = Rows(jnp.asarray(generator.normal(size=len(X))), None, {})

    def run(representation, kernel, sites):
        posterior = representation.condition(kernel, X, sites)
        outcome = representation.update_sites(posterior, X, rows, sites, offset, _update)
        return outcome, representation.pull_back(posterior, X, sites), posterior

    whole = jax.jit(run)(representation, kernel, sites)
    (new_sites, updated, terms), _, before = whole
    expected, each = _update(rows, before.marginals(X), sites, offset)
    require_alike(new_sites, expected, f"{name}.update_sites: sites", rtol=1e-7, atol=1e-8)
    require_equal(terms, each, f"{name}.update_sites: what is one a row", rtol=1e-7, atol=1e-8)
    again = representation.condition(kernel, X, new_sites.about(offset))
    for field in ("log_evidence", "kl"):
        what = f"{name}: {field} after update_sites differs from that of condition"
        require_equal(getattr(updated, field), getattr(again, field), what, rtol=1e-9)
    new = _elsewhere(X)
    what = f"{name}: marginals after update_sites differ from those of condition"
    require_alike(updated.marginals(new), again.marginals(new), what, rtol=1e-8, atol=1e-8)
    with chunks_of(_CHUNK):
        pieces = jax.jit(lambda *arguments: run(*arguments))(representation, kernel, sites)
    what = f"{name}: results in chunks of {_CHUNK} rows differ from those in one piece"
    require_alike(pieces, whole, what, rtol=1e-7, atol=1e-8)


def _check_sharing(case: _RepresentationCase, spans: bool) -> None:
    """Precisions that are the same for all latent functions say so once, or for each."""
    representation, kernel, X, sites, name = case[:5]
    shared = sites._replace(precision=jnp.broadcast_to(sites.precision[:, :1], sites.linear.shape))

    kind = representation.traits

    @jax.jit
    def run(representation):
        posterior = representation.condition(kernel, X, shared)
        pullback = representation.pull_back(posterior, X, shared)._replace(representation=None)
        new = _elsewhere(X)
        prior = jnp.zeros if spans else jnp.ones
        values = prior((covariance_of(kernel, posterior.centres).shape[1], _LATENTS))
        path = kind.paths and posterior.pathwise_update(jax.random.key(4), lambda _: values)
        views = posterior.marginals(new), posterior.covariance(new), path
        samples = isinstance(representation, SamplesCoefficients)
        remembers = samples and kind.dense_factors
        seen = posterior.remembered(0.0) if remembers else None
        return posterior.log_evidence, posterior.kl, pullback, views, seen

    sharing = representation.for_sites(SiteForm(shared=True))
    what = f"{name}.for_sites(SiteForm(shared=True)) and sites that share their precisions"
    require_alike(run(sharing), run(representation), what, rtol=1e-8, atol=1e-8)


def _check_kept(case: _RepresentationCase) -> None:
    """Kept blocks of one latent function give the same as inputs."""
    representation, kernels, X, sites, name = case[:5]
    kernel = _kernel_of_each(kernels)[0]
    representation = representation.for_rows(X, None, kernel)  # of one latent function
    one = sites._replace(linear=sites.linear[:, :1], precision=sites.precision[:, :1])
    kept = representation.kept(kernel, X, one)
    if kept is X:
        return
    rows = Rows(jnp.asarray(X[:, 0]), None, {})

    @jax.jit
    def run(given):
        posterior = representation.condition(kernel, given, one)
        offset = jnp.zeros((len(X), 1))
        return posterior, representation.update_sites(posterior, given, rows, one, offset, _update)

    what = f"{name}: results from what is kept differ from those from inputs"
    require_alike(run(kept), run(X), what, rtol=1e-7, atol=1e-8)
    with chunks_of(_CHUNK):
        again = representation.kept(kernel, X, one)
    what = f"{name}.kept: what is made in chunks of {_CHUNK} rows differs"
    require_alike(again, kept, what, rtol=1e-12, atol=1e-12)


def _refuses_white(case: _RepresentationCase) -> bool:
    """Whether these settings have no white coefficients, as a sentence says."""
    try:
        cast(SamplesCoefficients, case.representation).whitening(case.kernel, case.X)
    except InputError:
        return True
    return False


def _check_white(case: _RepresentationCase) -> None:
    representation: Any = case.representation
    _, kernel, X, _, name, _, exact = case
    centres = representation.whitening(kernel, X).centres
    size = len(centres)
    generator = np.random.default_rng(2)
    white, along = generator.normal(size=(2, _LATENTS, size))
    whitening = representation.whitening
    conditional = jax.jit(lambda kernel, white: whitening(kernel, X).conditional(white))
    mean, variance = conditional(kernel, white)
    for values in (mean, variance):
        require_equal(np.shape(values), (len(X), _LATENTS), f"{name}.conditional: the shape")
    # The map is linear, so its matrix says what covariance white noise gets.
    units = np.broadcast_to(np.eye(size)[:, None], (size, _LATENTS, size))
    columns = np.stack([conditional(kernel, unit)[0] for unit in units])
    of_prior = exact or representation.traits.predicts_by_all_centres  # else by a prior of its own
    for q, K in enumerate(_grams(centres, kernel, X, X)):
        matrix = columns[:, :, q].T
        what = f"{name}.conditional: the mean is not linear"
        require_equal(mean[:, q], matrix @ white[q], what, atol=1e-10)
        if not of_prior:
            continue
        left = K - matrix @ matrix.T
        scale = np.max(np.diagonal(K))
        what = f"{name}.conditional: variance of the mean and variance are not the prior's"
        require_equal(np.diagonal(left), variance[:, q], what, atol=1e-6 * scale)
        if exact:
            what = f"{name}.conditional: means under N(0, I) lack prior covariance"
            require_equal(left, np.zeros_like(left), what, atol=1e-6 * scale)
        smallest = np.linalg.eigvalsh(left).min()
        what = f"{name}.conditional: means have more variance than the prior somewhere."
        require(smallest >= -1e-6 * scale, what)

    def value(kernel: LatentKernel, white: Any) -> Any:
        mean, variance = conditional(kernel, white)
        return jnp.sum(jnp.sin(mean)) + jnp.sum(variance**2)

    in_kernel, in_white = jax.jit(jax.grad(value, (0, 1)))(kernel, jnp.asarray(white))
    step = 1e-5
    slope = (value(kernel, white + step * along) - value(kernel, white - step * along)) / step / 2
    what = f"{name}.conditional: the derivative in the coefficients is wrong"
    require_equal(jnp.sum(in_white * along), slope, what, rtol=1e-5, atol=1e-7)
    more, less = (jax.tree.map(lambda a, s=s: a * s, kernel) for s in (1 + step, 1 - step))
    slope = (value(more, white) - value(less, white)) / step / 2
    scaled = jax.tree.map(lambda slope, leaf: jnp.sum(slope * leaf), in_kernel, kernel)
    what = f"{name}.conditional: the derivative in the kernel is wrong"
    require_equal(sum(jax.tree.leaves(scaled)), slope, what, rtol=1e-4, atol=1e-6)


def _check_paths(case: _RepresentationCase) -> None:
    _, kernel, X, _, name, posterior, _ = case
    new = _elsewhere(X)
    centres = posterior.centres
    cross = np.swapaxes(cross_covariance(kernel, centres, new), 1, 2)
    cross = np.broadcast_to(cross, (_LATENTS, *cross.shape[1:]))
    K = np.stack([np.asarray(own.gram(new, new)) for own in _kernel_of_each(kernel)])
    if not spans_prior(centres):
        own = covariance_of(kernel, centres)
        own = np.broadcast_to(own, (_LATENTS, *own.shape[1:]))
        K = np.block([[K, cross], [np.swapaxes(cross, 1, 2), own]])
    size = K.shape[1]
    roots = np.linalg.cholesky(K + 1e-10 * np.max(K) * np.eye(size))

    @jax.jit
    def draw(key):
        key_prior, key_update = jax.random.split(key)
        noise = jax.random.normal(key_prior, (_LATENTS, size))
        prior = jnp.einsum("qij,qj->iq", roots, noise)
        if spans_prior(centres):
            prior = jnp.zeros((len(new) + len(centres), _LATENTS))
        update = posterior.pathwise_update(key_update, lambda centres: prior[len(new) :])
        return prior[: len(new)] + jnp.einsum("qij,qj->iq", cross, update)

    draws = np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(3), _DRAWS)))
    mean, _ = posterior.marginals(new)
    for q, covariance in enumerate(np.asarray(posterior.covariance(new))):
        variance = np.diagonal(covariance)
        off = np.abs(draws[:, :, q].mean(axis=0) - mean[:, q])
        allowed = _STANDARD_ERRORS * np.sqrt(variance / _DRAWS) + 1e-4
        require(np.all(off <= allowed), f"{name}: the mean of paths is off by {off}.")
        off = np.abs(np.cov(draws[:, :, q].T) - covariance)
        error = np.sqrt((np.outer(variance, variance) + covariance**2) / _DRAWS)
        require(
            np.all(off <= _STANDARD_ERRORS * error + 1e-4),
            f"{name}: the covariance of paths is off by {off}.",
        )
