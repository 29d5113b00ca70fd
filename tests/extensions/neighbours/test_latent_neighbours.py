"""Nearest neighbours of latents against dense linear algebra."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.levels import TriangularFactor, levels_of
from latentgp.extensions.neighbours.search import earlier_neighbours, order_of
from latentgp.representations import log_evidence
from latentgp.representations.site_form import SiteForm
from latentgp.sites.coupled import CoupledSites
from latentgp.sites.gaussian import GaussianSites
from slow import slow_parameters

ROWS = 90
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 2))
F = np.sin(2 * X[:, 0]) + X[:, 1]
CLASSES = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-2 * F))).astype(float)
COUNTS = rng.poisson(np.exp(F)).astype(float)
KERNEL = 2.0 * lgp.Matern52(lengthscale=[0.9, 1.4])
SITES = GaussianSites(rng.normal(size=(ROWS, 1)), rng.uniform(0.1, 2.0, (ROWS, 1)), np.zeros(ROWS))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def ready(rows=X, weights=None, **settings):
    own = LatentNeighbours(**settings).initialise(rows, weights, KERNEL, jax.random.key(0))
    return own.for_rows(rows, weights, KERNEL)


@eqx.filter_jit
def conditioned(own, rows=X, sites=SITES):
    return own.condition(KERNEL, rows, sites)


@eqx.filter_jit
def marginals(posterior, new):
    return posterior.marginals(new)


@pytest.mark.parametrize("rows", [3, 700])  # of many, some are the neighbours of hundreds
def test_products_and_solves_are_those_of_a_triangular_matrix(rows):
    generator = np.random.default_rng(1)
    points = generator.normal(size=(rows, 2))
    present = np.arange(rows) != 1  # a row that is not in the order
    numbers = np.flatnonzero(present)
    order = order_of(points[present], "random")
    found = earlier_neighbours(points[present], order, min(30, len(numbers) - 1))
    neighbours = np.full((rows, found.shape[1]), -1)
    neighbours[present] = np.where(found < 0, -1, numbers[found])
    weights = generator.normal(size=neighbours.shape) / 40
    B = np.eye(rows)
    for i, (those, by) in enumerate(zip(neighbours, weights, strict=True)):
        B[i, those[those >= 0]] = -by[those >= 0]
    right = generator.normal(size=(rows, 3))
    weights = np.where(neighbours < 0, 0.0, weights)
    factor = TriangularFactor(levels_of(neighbours, numbers[order]), jnp.asarray(weights))

    def of_all(factor, right):
        plain = factor.times(right), factor.solve(right)
        return plain, (factor.transposed_times(right), factor.transposed_solve(right))

    found = eqx.filter_jit(of_all)(factor, right)
    for (product, solution), matrix in zip(found, (B, B.T), strict=True):
        np.testing.assert_allclose(product, matrix @ right, atol=1e-12)
        np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), atol=1e-10)


@pytest.mark.parametrize("method", [lgp.Laplace, *slow_parameters(lgp.ExpectationPropagation)])
@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (lgp.Bernoulli(), CLASSES),
        pytest.param(lgp.Poisson(), COUNTS, marks=pytest.mark.slow),
    ],
)
def test_every_rule_agrees_with_dense_where_all_rows_are_neighbours(method, likelihood, y):
    fits = [
        lgp.fit(
            lgp.LatentGP(KERNEL, likelihood),
            lgp.Data(X, y),
            method=method(representation),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        )
        for representation in (lgp.Neighbours(ROWS - 1), lgp.Dense())
    ]
    near, dense = (fit.posterior for fit in fits)
    assert float(near.log_evidence) == pytest.approx(float(dense.log_evidence), abs=1e-5)
    new = X[:5] + 0.2
    for one, other in zip(near.predict_f(new), dense.predict_f(new), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert near.log_evidence.kind == "approximation"


@pytest.mark.parametrize(
    ("factor", "anew"), [(0.5, False), (1e8, True), (-1e3, None), (np.nan, True), (np.inf, True)]
)
def test_means_are_the_same_by_the_preconditioner_of_other_sites(factor, anew):
    """Made anew for these sites where it is of none, or of sites far away."""
    own = ready(number=8, exact_up_to=0).for_sites(SiteForm(means_alone=True))
    before = SITES._replace(precision=factor * SITES.precision)
    found = own.condition(KERNEL, own.kept(KERNEL, X, before), SITES)
    usual = conditioned(own)
    mean = usual.mean_at_rows
    np.testing.assert_allclose(found.mean_at_rows, mean, atol=1e-5 * np.abs(mean).max())
    if anew is not None:
        roots = found.operator.root, usual.operator.root
        assert np.allclose(*roots, rtol=1e-6) is anew


@pytest.mark.slow
def test_the_evidence_comes_near_as_neighbours_are_added():
    exact = log_evidence(lgp.Dense(), KERNEL, X, SITES)
    found = [conditioned(ready(number=m)).log_evidence for m in (2, 6, 20)]
    errors = np.abs(np.array(found) - exact)
    assert errors[2] < errors[1] < errors[0]


@pytest.mark.slow
def test_estimates_are_within_their_errors():
    known = ready(number=10)
    estimated = dataclasses.replace(known, exact_up_to=0, probes=64)

    @jax.jit
    def run(own, kernel):
        value, slope = jax.value_and_grad(lambda k: log_evidence(own, k, X, SITES))(kernel)
        return value, slope, own.condition(kernel, X, SITES)

    true, slope, whole = run(known, KERNEL)
    assert whole.evidence_error == 0.0
    keys = [jax.random.key_data(jax.random.key(k)) for k in range(4)]
    of_keys = [run(dataclasses.replace(estimated, key=key), KERNEL) for key in keys]
    for value, _, posterior in of_keys:
        assert 0 < posterior.evidence_error < 1.0
        assert abs(value - true) < 5 * posterior.evidence_error
        np.testing.assert_allclose(posterior.solved.mean, whole.solved.mean, atol=1e-5)
        ratio = posterior.solved.variance / whole.solved.variance
        assert np.all(ratio > 0)
        assert abs(np.mean(ratio) - 1) < 0.1
    of_all = (jax.tree.leaves(a) for a in (slope, *(s for _, s, _ in of_keys)))
    for leaf, *leaves in zip(*of_all, strict=True):
        error = np.std(leaves, axis=0, ddof=1) / np.sqrt(len(leaves))
        assert np.all(np.abs(np.mean(leaves, axis=0) - leaf) < 6 * error)


@pytest.mark.slow
def test_draws_give_variances_at_new_inputs():
    known = ready(number=10)
    whole = conditioned(known)
    estimated = dataclasses.replace(known, exact_up_to=0, draws=512)
    posterior = estimated.finished(conditioned(estimated))
    new = X[:30] + 0.1
    found, exact = (marginals(p, new) for p in (posterior, whole))
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-5)
    assert np.all(np.abs(np.asarray(found.variance / exact.variance) - 1) < 5 * np.sqrt(2 / 512))


@pytest.mark.slow
def test_search_goes_by_estimates(tmp_path):
    estimated = LatentNeighbours(10, exact_up_to=0)
    fit = lgp.fit(
        lgp.LatentGP(KERNEL, lgp.Bernoulli()),
        lgp.Data(X, CLASSES),
        method=lgp.Laplace(estimated),
        key=jax.random.key(0),
    )
    dense = lgp.fit(
        lgp.LatentGP(KERNEL, lgp.Bernoulli()),
        lgp.Data(X, CLASSES),
        method=lgp.Laplace(),
        key=jax.random.key(0),
    )
    assert fit.diagnostics.converged
    assert "standard error" in fit.diagnostics.verdict
    again = lgp.load(lgp.save(fit.posterior, tmp_path / "posterior"))
    for one, other in zip(again.predict_f(X), fit.posterior.predict_f(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    assert abs(float(fit.posterior.log_evidence) - float(dense.posterior.log_evidence)) < 1.5


@pytest.mark.slow
def test_rows_of_weight_zero_say_nothing():
    weights = np.ones(ROWS)
    weights[::3] = 0.0
    kept, new = weights > 0, X[:5] + 0.1
    some = conditioned(ready(weights=weights, number=15), X, SITES.weighted(weights))
    part = GaussianSites(*(a[kept] for a in SITES))
    alone = conditioned(ready(X[kept], number=15), X[kept], part)
    np.testing.assert_allclose(some.log_evidence, alone.log_evidence, rtol=1e-6)
    np.testing.assert_allclose(marginals(some, new).mean, marginals(alone, new).mean, atol=1e-6)


@pytest.mark.slow
def test_rows_that_are_copies_are_taken():
    twice = np.concatenate([X, X])
    sites = GaussianSites(*(np.concatenate([a, a]) for a in SITES))
    found = conditioned(ready(twice, number=2 * ROWS - 1), twice, sites)
    doubled = SITES.weighted(2.0 * np.ones(ROWS))
    dense = lgp.Dense().condition(KERNEL, X, doubled)
    assert np.all(found.solved.variance > 0)
    np.testing.assert_allclose(found.solved.mean[:ROWS], dense.mean(X), atol=1e-4)


def tied(signed=False, rows=ROWS, latents=3):
    generator = np.random.default_rng(3)
    root = 0.6 * generator.normal(size=(rows, latents, latents))
    precision = root @ np.swapaxes(root, 1, 2)
    precision[0] -= signed * 0.1 * np.eye(latents)
    linear = generator.normal(size=(rows, latents))
    return CoupledSites(*map(jnp.asarray, (linear, precision, np.zeros(rows))))


OWN = lgp.PerLatent(KERNEL, lgp.Matern32(lengthscale=[1.5, 0.8]), lgp.RBF(lengthscale=[1.0, 2.0]))


@pytest.mark.parametrize(("kernel", "signed"), [(KERNEL, False), (OWN, True)])
def test_latents_that_are_coupled_agree_with_dense_where_all_rows_are_neighbours(kernel, signed):
    sites, form = tied(signed), SiteForm(moved=True, signed=signed, coupled=True)
    near = LatentNeighbours(ROWS - 1).for_sites(form).initialise(X, None, kernel, jax.random.key(0))
    new = jnp.asarray(X[:4] + 0.2)

    @eqx.filter_jit
    def run(own):
        value, slope = jax.value_and_grad(lambda k: log_evidence(own, k, X, sites))(kernel)
        posterior = own.condition(kernel, X, sites)
        at_rows = own.pull_back(posterior, X, sites).marginals
        joint = posterior.joint_covariance(new)
        return value, slope, at_rows, posterior.marginals(new), joint, posterior.kl

    mine, dense = (
        run(own) for own in (near.for_rows(X, None, kernel), lgp.Dense().for_sites(form))
    )
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(dense), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert np.abs(mine[3].covariance * (1 - np.eye(3))).max() > 0.01


SEVERAL = {
    "softmax": (lgp.Softmax(3), np.digitize(F, [-0.7, 0.7]).astype(float)),
    "noise": (lgp.HeteroscedasticGaussian(4.0), F + 0.3 * rng.normal(size=ROWS)),
}


@pytest.mark.parametrize("method", [lgp.Laplace, lgp.VariationalInference])
@pytest.mark.parametrize("name", ["softmax", *slow_parameters("noise")])
def test_rules_that_couple_latents_agree_with_dense(name, method):
    (likelihood, y), rows = SEVERAL[name], 40
    near, dense = (
        lgp.fit(
            lgp.LatentGP(KERNEL, likelihood),
            lgp.Data(X[:rows], y[:rows]),
            method=method(representation, coupled=True),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        ).posterior
        for representation in (lgp.Neighbours(rows - 1), lgp.Dense())
    )
    assert float(near.log_evidence) == pytest.approx(float(dense.log_evidence), abs=1e-5)
    one, other = (posterior.latent.marginals(X[:5] + 0.2) for posterior in (near, dense))
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-5)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-5)


@pytest.mark.parametrize("signed", [False, *slow_parameters(True)])
def test_estimates_of_latents_that_are_coupled_are_within_their_errors(signed):
    sites, new = tied(signed), X[:20] + 0.1
    known = ready(number=10)
    found = dataclasses.replace(known, exact_up_to=0, probes=512, draws=512)
    whole, posterior = (conditioned(own, sites=sites) for own in (known, found))
    assert abs(posterior.log_evidence - whole.log_evidence) < 5 * posterior.evidence_error < 2.0
    np.testing.assert_allclose(posterior.solved.mean, whole.solved.mean, atol=1e-4)
    finished = eqx.filter_jit(lambda own, p: own.finished(p))(found, posterior)
    pairs = [(posterior.at_rows, whole.at_rows)]
    if not signed:
        pairs.append((marginals(finished, new), marginals(whole, new)))
    for one, exact in pairs:
        spread = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
        error = (one.covariance - exact.covariance) / spread[:, :, None] / spread[:, None]
        assert np.abs(error).max() < 6 * np.sqrt(2 / 512)
    draws = eqx.filter_jit(lambda p: p.draws(jax.random.key(1), new, 2000))(finished)
    joint = np.asarray(marginals(finished, new).covariance)
    sample = np.einsum("snq,snr->nqr", *(2 * [draws - draws.mean(axis=0)])) / len(draws)
    np.testing.assert_allclose(sample, joint, atol=0.15 * joint.max())


@pytest.mark.parametrize("coupled", [True, False])
def test_covariances_far_from_the_rows_are_of_the_prior_at_most(coupled):
    """Where weights of neighbours extrapolate, draws alone would say more than the prior."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, (120, 2))
    score = np.column_stack([np.sin(2 * rows[:, 0]), rows[:, 1], 0 * rows[:, 0]])
    labels = np.argmax(score + 0.3 * rng.normal(size=(120, 3)), axis=1)
    own = lgp.LatentNeighbours(8, exact_up_to=0)
    posterior = lgp.fit(
        lgp.LatentGP(lgp.RBF([0.6, 2.0], variance=4.0), lgp.Softmax(3)),
        lgp.Data(rows, labels),
        method=lgp.VariationalInference(own, coupled=coupled),
        key=jax.random.key(0),
        learn_hyperparameters=False,
    ).posterior
    new = rng.uniform(-3, 3, (200, 2))
    assert np.all(np.isfinite(posterior.predict(new).probabilities))
    drawn = np.asarray(posterior.sample_f(new[:80], key=jax.random.key(1), number=100))
    assert np.all(np.isfinite(drawn))
    assert drawn.std(axis=0).max() < 3.0
    if coupled:
        known = eqx.filter_jit(lambda p, x: p.marginals(x))(posterior.latent, jnp.asarray(new))
        assert np.linalg.eigvalsh(known.covariance).min() > -1e-9
        assert np.diagonal(known.covariance, axis1=1, axis2=2).max() <= 4.0 + 1e-6


def test_evidence_is_estimated_where_there_are_many_latents_of_few_rows():
    own = ready(exact_up_to=2 * ROWS)
    estimated = [own.for_sites(SiteForm(latents=n)).traits.estimates_evidence for n in (1, 2, 3)]
    assert estimated == [False, False, True]
