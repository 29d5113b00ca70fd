"""Latents that are a low rank and a residual given its neighbours, by brute force."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.search import NOBODY
from latentgp.representations import log_evidence
from latentgp.representations.site_form import SiteForm
from latentgp.sites.coupled import CoupledSites
from latentgp.sites.gaussian import GaussianSites
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

ROWS, POINTS = 90, 9
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 2))
NEW = X[:8] + 0.2
F = np.sin(2 * X[:, 0]) + X[:, 1]
CLASSES = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-2 * F))).astype(float)
COUNTS = rng.poisson(np.exp(F)).astype(float)
KERNEL = 2.0 * lgp.Matern52(lengthscale=[0.9, 1.4])
PRECISION = rng.uniform(0.1, 2.0, (ROWS, 1))
SITES = GaussianSites(rng.normal(size=(ROWS, 1)), PRECISION, np.zeros(ROWS))
SIGNED = SITES._replace(precision=np.where(np.arange(ROWS)[:, None] == 4, -0.05, PRECISION))
KEY = jax.random.key(0)


def ready(rows=X, kernel=KERNEL, weights=None, **settings):
    own = LatentNeighbours(**{"inducing": POINTS} | settings)
    own = own.initialise(rows, weights, kernel, KEY)
    return own.for_rows(rows, weights, kernel)


class Results(NamedTuple):
    evidence: float
    kl: float
    at_rows: lgp.Marginals
    at_new: lgp.Marginals


@eqx.filter_jit
def results(own, sites=SITES, rows=X):
    posterior = own.condition(KERNEL, rows, sites)
    at_rows = own.pull_back(posterior, rows, sites).marginals
    return Results(posterior.log_evidence, posterior.kl, at_rows, posterior.marginals(NEW))


@eqx.filter_jit
def slopes(own, kernel=KERNEL, sites=SITES, rows=X):
    """The log evidence and its derivatives in kernel and representation."""

    def value(kernel, points):
        moved = own
        if points is not None:
            moved = eqx.tree_at(lambda own: own.inducing.points, own, points)
        return log_evidence(moved, kernel, rows, sites)

    points = getattr(own, "inducing", None) and jnp.asarray(own.inducing.points)
    return jax.value_and_grad(value, (0, 1))(kernel, points)


def assert_close(ours, theirs, tolerance):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def of_definition(own, sites):
    """Evidence, divergence and marginals from the joint covariance of residuals and weights."""
    gram = lambda *pair: np.asarray(KERNEL.gram(*pair))  # noqa: E731
    Z = np.asarray(own.inducing.points)
    lower = np.linalg.cholesky(gram(Z, Z))
    phi, phi_new = (np.linalg.solve(lower, gram(Z, at)).T for at in (X, NEW))
    R = gram(X, X) - phi @ phi.T + 1e-9 * 2.0 * np.eye(ROWS)
    B, D = np.eye(ROWS), np.diag(R).copy()
    for row, those in enumerate(own.found.rows[:, 0]):
        those = those[those != NOBODY]
        weights = np.linalg.solve(R[np.ix_(those, those)], R[those, row])
        B[row, those], D[row] = -weights, D[row] - weights @ R[those, row]
    root = np.linalg.solve(B, np.diag(np.sqrt(D)))
    prior = np.eye(ROWS + POINTS)
    prior[:ROWS, :ROWS] = root @ root.T
    G = np.hstack([np.eye(ROWS), phi])
    linear, W = sites.linear[:, 0], np.diag(sites.precision[:, 0])
    inner = np.eye(ROWS) + W @ G @ prior @ G.T
    covariance = prior - prior @ G.T @ np.linalg.solve(inner, W @ G @ prior)
    mean = covariance @ G.T @ linear
    evidence = 0.5 * linear @ G @ mean - 0.5 * np.linalg.slogdet(inner)[1]
    at_rows = lgp.Marginals(G @ mean, np.diag(G @ covariance @ G.T))
    nats = linear @ at_rows.mean - 0.5 * np.diag(W) @ (at_rows.mean**2 + at_rows.variance)
    near = own.rows_seen(X).near(KERNEL, jnp.asarray(NEW)).rows[:, 0, :-1]
    means, variances = [], []
    for x, own_phi, those in zip(NEW, phi_new, np.asarray(near), strict=True):
        left = gram(x[None], X[those])[0] - phi[those] @ own_phi
        weights = np.linalg.solve(R[np.ix_(those, those)], left)
        at = np.zeros(ROWS + POINTS)
        at[those], at[ROWS:] = weights, own_phi
        means.append(at @ mean)
        variances.append(2.0 - own_phi @ own_phi - weights @ left + at @ covariance @ at)
    at_new = lgp.Marginals(np.array(means)[:, None], np.array(variances)[:, None])
    at_rows = lgp.Marginals(at_rows.mean[:, None], at_rows.variance[:, None])
    return Results(evidence, nats - evidence, at_rows, at_new)


@pytest.mark.parametrize("sites", [SITES, *slow_parameters(SIGNED)], ids=["sites", "signed"])
def test_few_neighbours_are_those_of_the_definition(sites):
    own = ready(number=6, number_predicted=7)
    assert_close(results(own, sites), of_definition(own, sites), 1e-6)


@pytest.mark.slow
def test_it_is_exact_where_all_rows_are_neighbours():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(300, 2))
    linear, precision = generator.normal(size=(300, 1)), generator.uniform(0.1, 2.0, (300, 1))
    sites = GaussianSites(linear, precision, np.zeros(300))
    own = ready(rows, number=299, inducing=20)
    # Latents have white noise of 1e-9 of their variance.
    assert_close(results(own, sites, rows), results(lgp.Dense(), sites, rows), 1e-6)
    (value, (slope, _)), (exact, (exact_slope, _)) = (
        slopes(each, sites=sites, rows=rows) for each in (own, lgp.Dense())
    )
    assert_close((value, slope), (exact, exact_slope), 1e-6)


@pytest.mark.slow
def test_derivatives_in_kernel_and_points():
    own = ready(number=6)
    _, (in_kernel, in_points) = slopes(own)
    step = 1e-4

    def difference(move):
        return float(slopes(*move(step))[0] - slopes(*move(-step))[0]) / (2 * step)

    at = KERNEL.kernel.lengthscale

    def along_lengthscale(by):
        moved = np.array([at[0] + by, at[1]])
        return own, eqx.tree_at(lambda k: k.kernel.lengthscale, KERNEL, moved)

    def along_point(by):
        points = np.array(own.inducing.points)
        points[3, 1] += by
        return eqx.tree_at(lambda own: own.inducing.points, own, points), KERNEL

    found = float(in_kernel.kernel.lengthscale[0]), float(in_points[3, 1])
    assert found == pytest.approx((difference(along_lengthscale), difference(along_point)), 1e-5)


@pytest.mark.slow
def test_estimates_are_within_their_errors():
    known = ready(number=6)
    estimated = dataclasses.replace(known, exact_up_to=0, probes=64)
    true, whole = slopes(known), results(known)

    @eqx.filter_jit
    def run(key):
        own = dataclasses.replace(estimated, key=key)
        posterior = own.condition(KERNEL, X, SITES)
        return slopes(own), posterior.evidence_error, posterior.at_rows

    runs = [run(jax.random.key_data(jax.random.key(k))) for k in range(6)]
    for (value, _), error, at_rows in runs:
        assert 0 < error < 1.0
        assert abs(value - true[0]) < 4 * error
        np.testing.assert_allclose(at_rows.mean, whole.at_rows.mean, atol=1e-5)
        ratio = at_rows.variance / whole.at_rows.variance
        assert np.all(ratio > 0)
        assert abs(np.mean(ratio) - 1) < 0.1
    of_all = (jax.tree.leaves(each) for each in (true[1], *(run[0][1] for run in runs)))
    for leaf, *leaves in zip(*of_all, strict=True):
        error = np.std(leaves, axis=0, ddof=1) / np.sqrt(len(leaves))
        # Student's t of five degrees of freedom exceeds 9 once in 4,000 times.
        assert np.all(np.abs(np.mean(leaves, axis=0) - leaf) < 9 * error)
    many = dataclasses.replace(estimated, draws=512)
    posterior = eqx.filter_jit(lambda own: own.condition(KERNEL, X, SITES))(many)
    found = eqx.filter_jit(lambda p: p.marginals(NEW))(many.finished(posterior))
    np.testing.assert_allclose(found.mean, whole.at_new.mean, atol=1e-5)
    assert np.all(np.abs(found.variance / whole.at_new.variance - 1) < 4 * np.sqrt(2 / 512))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "likelihood", "y"),
    [
        (lgp.Laplace, lgp.Poisson(), COUNTS),
        (lgp.Laplace, lgp.Bernoulli(), CLASSES),
        (lgp.VariationalInference, lgp.Bernoulli(), CLASSES),
        (lgp.ExpectationPropagation, lgp.Bernoulli(), CLASSES),
    ],
)
def test_every_rule_agrees_with_dense_where_all_rows_are_neighbours(method, likelihood, y):
    near, dense = (
        lgp.fit(
            lgp.LatentGP(KERNEL, likelihood),
            lgp.Data(X, y),
            method=method(representation),
            key=KEY,
            learn_hyperparameters=False,
        ).posterior
        for representation in (lgp.Neighbours(ROWS - 1, inducing=POINTS), lgp.Dense())
    )
    assert float(near.log_evidence) == pytest.approx(float(dense.log_evidence), abs=1e-5)
    assert_close(tuple(near.predict_f(NEW)), tuple(dense.predict_f(NEW)), 1e-5)


@pytest.mark.slow
def test_the_derivative_through_the_mode_is_that_of_dense():
    model, data = lgp.LatentGP(KERNEL, lgp.Poisson()), lgp.Data(X, COUNTS)
    own = lgp.Neighbours(ROWS - 1, inducing=POINTS).for_sites(SiteForm(moved=True))
    own = own.initialise(X, None, KERNEL, KEY).for_rows(X, None, KERNEL)

    def slope(own):
        return jax.value_and_grad(lambda m: lgp.log_evidence(m, data, lgp.Laplace(own)))(model)

    assert_close(slope(own), slope(lgp.Dense()), 1e-4)


@pytest.mark.slow
def test_a_search_by_estimates_and_its_file(tmp_path):
    model = lgp.LatentGP(KERNEL, lgp.Bernoulli())
    fit, dense = (
        lgp.fit(model, lgp.Data(X, CLASSES), method=lgp.Laplace(own), key=KEY)
        for own in (LatentNeighbours(10, inducing=POINTS, exact_up_to=0), lgp.Dense())
    )
    assert fit.diagnostics.converged
    assert "standard error" in fit.diagnostics.verdict
    assert abs(float(fit.posterior.log_evidence) - float(dense.posterior.log_evidence)) < 1.5
    again = lgp.load(lgp.save(fit.posterior, tmp_path / "posterior"))
    assert_close(tuple(again.predict_f(NEW)), tuple(fit.posterior.predict_f(NEW)), 1e-10)
    marginals = fit.posterior.predict_f(NEW)
    draws = fit.posterior.sample_f(NEW, key=KEY, number=2000)
    spread = np.sqrt(marginals.variance / 2000)
    assert np.all(np.abs(draws.mean(axis=0) - marginals.mean) < 5 * spread)
    np.testing.assert_allclose(draws.var(axis=0), marginals.variance, rtol=5 * np.sqrt(2 / 2000))


@pytest.mark.slow
def test_paths_have_the_law_of_the_posterior():
    own = ready(number=ROWS - 1)
    posterior = own.condition(KERNEL, X, SITES)
    K = np.asarray(KERNEL.symmetric_gram(X))
    lower = np.linalg.cholesky(K + 1e-9 * np.eye(ROWS))

    @eqx.filter_jit
    def at_rows(key):
        prior = (lower @ jax.random.normal(key, (ROWS,)))[:, None]
        weights = posterior.pathwise_update(jax.random.fold_in(key, 1), lambda _: prior)
        return prior[:, 0] + K @ weights[0]

    drawn = np.array([at_rows(key) for key in jax.random.split(KEY, 400)])
    mean, variance = (np.asarray(each)[:, 0] for each in results(own).at_rows)
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(variance / 400))
    assert abs(np.mean(drawn.var(axis=0) / variance) - 1) < 0.1


@pytest.mark.slow
def test_latents_that_are_coupled_agree_with_dense():
    generator = np.random.default_rng(3)
    root = 0.6 * generator.normal(size=(ROWS, 3, 3))
    linear = generator.normal(size=(ROWS, 3))
    sites = CoupledSites(*map(jnp.asarray, (linear, root @ root.mT, np.zeros(ROWS))))
    kernel = lgp.PerLatent(KERNEL, lgp.Matern32(lengthscale=[1.5, 0.8]), lgp.RBF([1.0, 2.0]))
    form = SiteForm(moved=True, coupled=True)
    near = LatentNeighbours(ROWS - 1, inducing=POINTS).for_sites(form)

    @eqx.filter_jit
    def run(own):
        value, slope = jax.value_and_grad(lambda k: log_evidence(own, k, X, sites))(kernel)
        posterior = own.condition(kernel, X, sites)
        at_rows = own.pull_back(posterior, X, sites).marginals
        joint = posterior.joint_covariance(jnp.asarray(NEW[:4]))
        return value, slope, at_rows, posterior.marginals(jnp.asarray(NEW)), joint, posterior.kl

    near = near.initialise(X, None, kernel, KEY).for_rows(X, None, kernel)
    assert_close(run(near), run(lgp.Dense().for_sites(form)), 1e-5)


@pytest.mark.slow
def test_a_long_and_a_short_range_need_both():
    generator = np.random.default_rng(1)
    inputs = generator.uniform(0, 10, (300, 2))
    kernel = 4.0 * lgp.RBF(3.0) + 2.0 * lgp.RBF(0.4)
    gram = np.asarray(kernel.gram(inputs, inputs)) + 1e-6 * np.eye(300)
    f = 1 + np.linalg.cholesky(gram) @ generator.normal(size=300)
    counts = np.random.default_rng(2).poisson(np.exp(f))
    exact, near, low, both = (
        lgp.fit(
            lgp.LatentGP(kernel, lgp.Poisson()),
            lgp.Data(inputs, counts.astype(float)),
            method=lgp.Laplace(own),
            key=KEY,
            learn_hyperparameters=False,
        ).posterior.log_evidence.value
        for own in (
            lgp.Dense(),
            lgp.Neighbours(8),
            lgp.Inducing(40),
            lgp.Neighbours(8, inducing=40),
        )
    )
    assert abs(both - exact) < 0.7 * min(abs(near - exact), abs(low - exact))


def test_chains_are_refused():
    with pytest.raises(lgp.InputError, match="no white coefficients with inducing points"):
        ready(number=5).whitening(KERNEL, X)
