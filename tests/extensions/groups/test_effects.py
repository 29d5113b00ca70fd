"""Effects of groups against dense algebra, and where they are odd."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing.choice import choose_method, treating
from latentgp.extensions.groups import representation
from latentgp.extensions.groups.design import EffectDesign, designs_of
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import RBF, FixedEffects, SameGroup
from latentgp.kernels.parts import parts_of
from latentgp.representations import Dense, Representation, SiteForm, log_evidence
from latentgp.site_inference.search import hyperparameters
from latentgp.site_inference.search.hyperparameters import _Runs
from latentgp.sites.gaussian import GaussianSites
from latentgp.testing.numerics import chunks_of
from pupils import (
    FIXED,
    INTERCEPTS,
    ITEM,
    KERNELS,
    KEY,
    PUPIL,
    SCHOOL,
    X1,
    new_rows,
    rows_of,
    same,
    sites_of,
)

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_posterior_is_that_of_dense_algebra(name):
    kernel, X = KERNELS[name], rows_of()
    sites, new = sites_of(len(X)), new_rows(X)
    own = lgp.groups.SparseEffects(number=60).initialise(X, None, kernel, KEY)
    near = 1e-6 if name == "smooth beside" else 1e-9  # points for a smooth function
    found, dense = (r.condition(kernel, X, sites) for r in (own, Dense()))
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence, rtol=near)
    np.testing.assert_allclose(found.kl, dense.kl, rtol=near)
    for ours, theirs in zip(found.marginals(new), dense.marginals(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=near)
    np.testing.assert_allclose(found.mean(new), dense.mean(new), atol=near)
    np.testing.assert_allclose(found.covariance(new), dense.covariance(new), atol=near)
    assert found.complaints == ()


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_slope_of_the_evidence_is_that_of_dense_algebra(name):
    kernel, X = KERNELS[name], rows_of()
    sites, space = sites_of(len(X)), ParameterSpace(KERNELS[name])
    vector = jnp.asarray(space.to_vector())
    own = lgp.groups.SparseEffects(number=60).initialise(X, None, kernel, KEY)

    def slopes(representation):
        def evidence(vector, sites):
            return log_evidence(representation, space.to_model(vector), X, sites)

        return jax.grad(evidence, (0, 1))(vector, sites)

    for ours, theirs in zip(
        jax.tree.leaves(slopes(own)), jax.tree.leaves(slopes(Dense())), strict=True
    ):
        near = 1e-3 if name == "smooth beside" else 1e-8
        np.testing.assert_allclose(ours, theirs, atol=near)


@pytest.mark.parametrize("name", ["slopes", "smooth beside"])
def test_parts_are_those_of_dense_algebra(name):
    kernel, X = KERNELS[name], rows_of()
    sites, number = sites_of(len(X)), len(parts_of(kernel))
    shares = np.random.default_rng(2).normal(size=(9, number))
    new = np.column_stack([new_rows(X), shares])
    own = lgp.groups.SparseEffects(number=60).initialise(X, None, kernel, KEY)
    found, dense = (
        r.condition(kernel, X, sites).telling_parts(number).marginals(new) for r in (own, Dense())
    )
    for ours, theirs in zip(found, dense, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


SPARSE = [
    test_the_posterior_is_that_of_dense_algebra,
    test_the_slope_of_the_evidence_is_that_of_dense_algebra,
    test_parts_are_those_of_dense_algebra,
]


@pytest.mark.parametrize("exact", [True, False])
def test_new_levels_of_a_grouping_of_one_have_the_prior(exact):
    """All rows of the fit have its level, and others need not."""
    X = rows_of()
    new, X[:, SCHOOL] = new_rows(X), 3.0
    kernel, sites = KERNELS["nested and crossed"], sites_of(len(X))
    own = lgp.groups.SparseEffects(exact=exact, probes=400).initialise(X, None, kernel, KEY)
    (found, theirs) = (r.condition(kernel, X, sites).marginals(new) for r in (own, Dense()))
    np.testing.assert_allclose(found.mean, theirs.mean, atol=1e-9 if exact else 1e-5)
    # of variances that are means over 400 probe vectors a share of sqrt(2 / 400) is an error
    np.testing.assert_allclose(found.variance, theirs.variance, rtol=1e-9 if exact else 0.25)


def few_pairs(monkeypatch):
    """Products over pairs of levels, however few rows there are."""
    monkeypatch.setattr("latentgp.extensions.groups.incidence._PRODUCTS_A_PAIR", 1e-3)


@pytest.mark.parametrize("name", ["crossed", "smooth beside"])
@pytest.mark.parametrize("check", SPARSE)
def test_sums_over_pairs_of_levels_are_those_of_dense_algebra(check, name, monkeypatch):
    few_pairs(monkeypatch)
    (design,) = designs_of(KERNELS[name], rows_of(), 60)
    assert design.incidence is not None
    check(name)


@pytest.mark.parametrize("exact", [None, True])
def test_pairs_of_levels_are_not_kept_beside_conjugate_gradients(exact, monkeypatch):
    """One latent function's effects are few, another's many; files hold no pairs of levels."""
    few_pairs(monkeypatch)
    small = EffectDesign.is_small.fget
    monkeypatch.setattr(EffectDesign, "is_small", property(lambda d: small(d) and len(d.terms) > 1))
    kernel, X = lgp.PerLatent(KERNELS["one grouping"], KERNELS["crossed"]), rows_of()
    own = lgp.groups.SparseEffects(exact=exact).initialise(X, None, kernel, KEY)
    assert [design.incidence is None for design in own.designs] == [True, exact is None]


def test_a_row_of_levels_that_no_row_had_together_is_said(monkeypatch):
    few_pairs(monkeypatch)
    kernel, X = KERNELS["crossed"], rows_of()
    own = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)
    of_pupil, of_school = ({tuple(row) for row in X[:, [own, ITEM]]} for own in (PUPIL, SCHOOL))
    rows = ((n, item) for n in range(len(X)) for item in range(7))
    pupil, school = X[:, PUPIL], X[:, SCHOOL]
    row, new = next(
        (n, item)
        for n, item in rows
        if (pupil[n], item) not in of_pupil and (school[n], item) in of_school
    )
    X[row, ITEM] = new
    found = own.condition(kernel, X, sites_of(len(X)))
    assert found.complaints[0].startswith("1 rows have groups")


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_what_points_leave_open_counts_by_a_power(power):
    """As `Inducing` has it, through the same points and coefficients."""
    kernel, X = FIXED + RBF(0.3).on(X1) + 0.7 * same(ITEM), rows_of()
    sites, space, form = sites_of(len(X), 1), ParameterSpace(kernel), SiteForm(power=power)
    vector = jnp.asarray(space.to_vector())
    per_part = lgp.inter_domain.PerPart(4)
    ours, theirs = (
        own.initialise(X, None, kernel, KEY).for_sites(form)
        for own in (lgp.groups.SparseEffects(number=4), lgp.Inducing(features=per_part))
    )
    found, expected = (r.condition(kernel, X, sites) for r in (ours, theirs))
    np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-6)
    np.testing.assert_allclose(found.trace_term, expected.trace_term, atol=1e-5)
    pulled, wanted = (
        own.pull_back(posterior, X, sites) for own, posterior in ((ours, found), (theirs, expected))
    )
    for one, other in zip(pulled.marginals, wanted.marginals, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)

    def slope(representation):
        def evidence(v, sites):
            return log_evidence(representation, space.to_model(v), X, sites)

        return jax.grad(evidence, (0, 1))(vector, sites)

    both = zip(jax.tree.leaves(slope(ours)), jax.tree.leaves(slope(theirs)), strict=True)
    for one, other in both:
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["nested and crossed", "smooth beside", "own kernels"])
def test_means_move_with_linear_terms_by_a_solve(name, exact):
    """As by the derivative of all that is done, of the evidence of Laplace's sites."""
    kernel, X = KERNELS[name], rows_of()
    form, sites = SiteForm(power=1.0), sites_of(len(X))
    own = lgp.groups.SparseEffects(number=9, exact=exact).initialise(X, None, kernel, KEY)
    own = own.for_sites(form)
    posterior = own.condition(kernel, X, sites)
    along = jnp.asarray(np.random.default_rng(3).normal(size=sites.linear.shape))

    def moved(linearised):
        return jax.tree.leaves(jax.jit(lambda s: linearised(own, posterior, X, sites)(s))(along))

    both = moved(type(own).linearised), moved(Representation.linearised)
    for ours, theirs in zip(*both, strict=True):
        # conjugate gradients end at a relative residual of 1e-6
        np.testing.assert_allclose(ours, theirs, atol=1e-9 if exact else 1e-4)


def test_rows_of_other_groups_are_said():
    kernel, X = KERNELS["nested and crossed"], rows_of()
    own = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)
    X[3, PUPIL] = 77
    assert "1 rows have groups" in own.condition(kernel, X, sites_of(len(X))).complaints[0]


ODD = {
    "one level": np.zeros(40),
    "a level a row": np.arange(40.0),
    "levels of one row": np.repeat(np.arange(30.0), [11] + [1] * 29),
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_groups_are_fitted(name):
    rng = np.random.default_rng(0)
    X = np.column_stack([ODD[name], np.ones(40)])
    kernel = FixedEffects(10.0).on(1) + 1.0 * same(0)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.5))
    method = lgp.CollapsedVI(lgp.groups.SparseEffects())
    data = lgp.Data(X, rng.normal(size=40))
    ours: Any = lgp.fit(model, data, key=KEY, method=method)
    theirs: Any = lgp.fit(model, data, key=KEY, method=lgp.ExactGP())
    np.testing.assert_allclose(
        ours.posterior.evidence.value, theirs.posterior.evidence.value, atol=1e-3
    )


def test_groups_that_tell_the_classes_apart_are_fitted():
    group = np.arange(60.0) % 6
    data = lgp.Data(np.column_stack([group, np.ones(60)]), (group > 2).astype(float))
    kernel = FixedEffects(10.0).on(1) + 1.0 * same(0)
    model = lgp.LatentGP(kernel, lgp.Bernoulli())
    found = lgp.fit(model, data, key=KEY, method=lgp.Laplace(lgp.groups.SparseEffects()))
    probability = found.posterior.predict(np.array([[0.0, 1.0], [5.0, 1.0]])).mean
    assert probability[0] < 0.1
    assert probability[1] > 0.9


def test_many_rows_of_groups_take_effects_by_default():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 500, 3000)
    X = np.column_stack([group, rng.normal(size=3000), np.ones(3000)]).astype(float)
    y = X[:, 1] + rng.normal(size=500)[group] + 0.5 * rng.normal(size=3000)
    kernel = FixedEffects([100.0, 100.0]).on(1, 2) + 1.0 * same(0)
    found: Any = lgp.fit(lgp.LatentGP(kernel, lgp.Gaussian()), lgp.Data(X, y), key=KEY)
    assert isinstance(found.diagnostics.method.representation, lgp.groups.SparseEffects)
    assert "the posterior is exact" in found.diagnostics.reason
    slope = found.posterior.coefficients().estimate[0]
    np.testing.assert_allclose(slope, 1.0, atol=0.05)


@pytest.mark.parametrize("likelihood", [lgp.Gaussian(), lgp.Bernoulli()])
def test_chains_take_points_of_each_part(likelihood):
    model = lgp.LatentGP(FIXED + INTERCEPTS, likelihood)
    chosen: Any = choose_method(model, 3000, inputs=5)
    assert isinstance(chosen.method.representation, lgp.groups.SparseEffects)
    sampled: Any = treating("sample", chosen, model)
    assert isinstance(sampled.method.representation, lgp.Inducing)


@pytest.mark.parametrize("likelihood", [lgp.StudentT(), lgp.Poisson()])
def test_groups_of_any_likelihood_are_fitted_by_default(likelihood):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 40, 420)
    X = np.column_stack([group, np.ones(420), rng.normal(size=420)])  # no row twice
    data = lgp.Data(X, rng.poisson(2.0, 420))
    kernel = FixedEffects(10.0).on(1) + 0.5 * same(0)
    found: Any = lgp.fit(lgp.LatentGP(kernel, likelihood), data, key=KEY, max_evaluations=2)
    own = found.diagnostics.method.representation
    assert isinstance(own, lgp.groups.SparseEffects) == likelihood.is_log_concave


def test_sums_over_chunks_of_rows_are_those_of_all_at_once():
    kernel, X = KERNELS["slopes"], rows_of()
    sites = sites_of(len(X))
    own = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)

    def both(X):
        posterior = own.condition(kernel, X, sites)
        return posterior.log_evidence, own.pull_back(posterior, X, sites)

    whole = both(X)
    with chunks_of(7):
        pieces = jax.jit(lambda X: both(X))(jnp.asarray(X))
    for ours, theirs in zip(jax.tree.leaves(pieces), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_white_noise_beside_groups_is_an_effect_of_every_row():
    X = rows_of(40)
    kernel = FIXED + 0.7 * same(ITEM) + lgp.kernels.White(0.3).on(PUPIL, X1)
    sites = sites_of(40)
    own = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)
    found, dense = (r.condition(kernel, X, sites) for r in (own, Dense()))
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence, rtol=1e-9)
    for ours, theirs in zip(found.marginals(X), dense.marginals(X), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_a_few_points_of_smooth_parts_are_said():
    kernel, X = FIXED + RBF(0.05).on(X1) + 0.7 * same(ITEM), rows_of()
    own = lgp.groups.SparseEffects(number=4).initialise(X, None, kernel, KEY)
    notes = own.condition(kernel, X, sites_of(len(X))).notes
    assert "leave open" in notes[-1]


def test_effects_that_need_too_much_memory_are_refused(monkeypatch):
    """25 pupils, their 7 schools and 7 items of an intercept and a slope each, 8 bytes a number."""
    monkeypatch.setattr("latentgp.extensions.groups.representation._MOST_NUMBERS", 100)
    with pytest.raises(lgp.InputError, match=r"need 0.0 GiB of covariances; give SparseEffects"):
        lgp.groups.SparseEffects().initialise(rows_of(), None, KERNELS["slopes"], KEY)


def test_a_search_looks_at_all_of_many_rows(monkeypatch):
    """Effects of a few functions a row take little, of a sample of the rows they say little."""
    monkeypatch.setattr(_Runs, "on_a_part", lambda *_: pytest.fail("looked at some of the rows"))
    rng = np.random.default_rng(0)
    group = rng.integers(0, 100, 20_100)
    y = rng.normal(size=100)[group] + rng.normal(size=20_100)
    found: Any = lgp.fit(
        lgp.LatentGP(1.0 * same(0), lgp.Gaussian()),
        lgp.Data(group[:, None], y),
        key=KEY,
        method=lgp.CollapsedVI(lgp.groups.SparseEffects()),
    )
    np.testing.assert_allclose(found.model.likelihood.noise_variance, 1.0, atol=0.04)


def test_some_levels_come_with_all_their_rows():
    kernel, X = KERNELS["nested and crossed"], rows_of(300)
    whole = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)
    chosen, own = whole.on_some_rows(X, None, kernel, 60)
    pupils = np.unique(X[chosen, PUPIL])
    assert len(pupils) == 5
    np.testing.assert_array_equal(chosen, np.flatnonzero(np.isin(X[:, PUPIL], pupils)))
    part, sites = X[chosen], sites_of(len(chosen))
    dense = Dense().condition(kernel, part, sites).log_evidence
    np.testing.assert_allclose(own.condition(kernel, part, sites).log_evidence, dense, rtol=1e-9)


@pytest.mark.parametrize("name", ["nested and crossed", "smooth beside"])
def test_chunks_of_rows_without_sites_are_passed_over(name):
    """Evidence and slopes are those of the other rows, whatever is in these chunks."""
    kernel, X = KERNELS[name], rows_of()
    sites, space = sites_of(len(X), 1), ParameterSpace(kernel)
    vector, filled = jnp.asarray(space.to_vector()), np.tile(X[-1:], (990, 1))
    filled[: len(X)], filled[200:] = X, np.nan
    more = ((0, 900), (0, 0))
    padded = GaussianSites(*(jnp.pad(part, more[: part.ndim]) for part in sites))
    own = lgp.groups.SparseEffects(20).initialise(X, None, kernel, KEY)

    def slopes(X, sites):
        def evidence(vector, linear):
            about = sites._replace(linear=linear)
            return log_evidence(own, space.to_model(vector), X, about)

        return jax.value_and_grad(evidence, (0, 1))(vector, sites.linear)

    value, (in_kernel, in_linear) = slopes(X, sites)
    with chunks_of(64):
        found, (of_kernel, of_linear) = slopes(filled, padded)
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(of_kernel, in_kernel, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(of_linear[: len(X)], in_linear, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_many_functions_are_learned_from_some_levels_first(monkeypatch, exact):
    """The search on all rows begins with their curvatures, and ends where another one does."""
    monkeypatch.setattr(hyperparameters, "_THINNED_FROM", 1_000)
    monkeypatch.setattr(hyperparameters, "_THINNED_ROWS", 600)
    rng = np.random.default_rng(0)
    group, item, x = rng.integers(0, 400, 2_000), rng.integers(0, 30, 2_000), rng.normal(size=2_000)
    y = np.sin(2 * x) + rng.normal(size=400)[group] + 0.5 * rng.normal(size=30)[item]
    data = lgp.Data(np.column_stack([group, item, x]), y + 0.5 * rng.normal(size=2_000))
    model = lgp.LatentGP(RBF().on(2) + same(0) + same(1), lgp.Gaussian())

    def fitted(many):
        monkeypatch.setattr(representation, "_MANY_FUNCTIONS", many)
        method = lgp.CollapsedVI(lgp.groups.SparseEffects(20, exact=exact))
        return lgp.fit(model, data, key=KEY, method=method)

    first, usual = fitted(10), fitted(1_000)
    assert set(first.history.restart) == {hyperparameters.THINNED_RUN, 0}
    assert set(usual.history.restart) == {0}
    values = first.history.value[first.history.restart == 0]
    # Nats that a search leaves, and of estimates, whose slopes are not quite theirs, their error.
    near = 0.02 if exact else 2 * float(usual.posterior.latent.evidence_error)
    np.testing.assert_allclose(max(values), max(usual.history.value), rtol=0, atol=near)
    assert len(values) < len(usual.history.value)


def test_too_many_rows_for_a_matrix_are_led_to_effects():
    """A number of inducing points is no answer for thousands of groups."""
    X, kernel = np.zeros((60_000, 1)), SameGroup().on(0)
    with pytest.raises(lgp.InputError, match=r"leave the method out .* effects of groups"):
        lgp.Dense().initialise(X, None, kernel, jax.random.key(0))
