"""Rows that have several groups of one grouping: kernel, sparse effects, formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import CorrelatedLinear, FixedEffects, MultipleMembership, SameGroup
from latentgp.representations import Dense, log_evidence
from latentgp.sites.gaussian import GaussianSites
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder
from latentgp.surfaces.tables.formula.parser import parse
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
FIRST, SECOND, V, W, ITEM, DOSE, ONE = range(7)
ITEMS = 0.4 * SameGroup().on(ITEM)
TWO = MultipleMembership(2)
LINES = CorrelatedLinear([0.7, 0.3], [0.4]).on(DOSE)
AS_THEY_ARE = MultipleMembership(2, standardised=False).on(FIRST, SECOND, V, W)
KERNELS = {
    "weights": FixedEffects([10.0, 3.0]).on(ONE, DOSE) + 0.7 * TWO.on(FIRST, SECOND, V, W) + ITEMS,
    "slopes": LINES * AS_THEY_ARE + ITEMS,
    "within groups": 0.7 * TWO.on(FIRST, SECOND) * SameGroup().on(ITEM) + ITEMS,
    "alone": 0.7 * TWO.on(FIRST, SECOND),
}


def rows_of(number=300):
    generator = np.random.default_rng(0)
    groups = generator.integers(0, 30, (number, 2))
    groups[5] = 7  # a group is there twice
    items, dose = generator.integers(0, 12, number), generator.normal(size=number)
    weights = generator.uniform(0.2, 1.0, (number, 2))
    return np.column_stack([groups, weights, items, dose, np.ones(number)]).astype(float)


def sites_of(number):
    generator = np.random.default_rng(1)
    linear, precision = generator.normal(size=(number, 1)), generator.uniform(0.3, 3, (number, 1))
    return GaussianSites(jnp.asarray(linear), jnp.asarray(precision), jnp.zeros(number))


def new_rows(X):
    """Seen rows, and rows of one, two or twice the same group that there are not."""
    new = X[:10].copy()
    new[0, FIRST] = new[2, SECOND] = new[3, SECOND] = 99
    new[1, [FIRST, SECOND]], new[3, FIRST], new[4, ITEM] = 99, 98, 77
    return new


def test_the_covariance_is_that_of_weighted_sums_of_independent_effects():
    X = rows_of(40)
    design = np.zeros((40, 30))
    for member, weight in ((FIRST, V), (SECOND, W)):
        np.add.at(design, (np.arange(40), X[:, member].astype(int)), X[:, weight])
    np.testing.assert_allclose(AS_THEY_ARE.gram(X, X), design @ design.T, atol=1e-14)
    scaled = design / design.sum(axis=1, keepdims=True)
    own = TWO.on(FIRST, SECOND, V, W)
    np.testing.assert_allclose(own.gram(X, X), scaled @ scaled.T, atol=1e-14)
    np.testing.assert_allclose(own.diagonal(X), np.sum(scaled**2, axis=1), atol=1e-14)
    X[3, [V, W]] = 1.0, -1.0
    with pytest.raises(lgp.InputError, match="members add up to zero in 1 row"):
        lgp.fit(lgp.LatentGP(own, lgp.Gaussian()), lgp.Data(X, np.ones(40)), key=KEY)
    with pytest.raises(lgp.InputError, match="sees 3 columns"):
        TWO.gram(X[:, :3], X[:, :3])


@pytest.mark.parametrize("name", ["weights", *slow_parameters("slopes", "within groups", "alone")])
def test_sparse_effects_are_those_of_dense_algebra(name):
    kernel, X = KERNELS[name], rows_of()
    sites, new, space = sites_of(len(X)), new_rows(X), ParameterSpace(KERNELS[name])
    own = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)
    found, dense = (r.condition(kernel, X, sites) for r in (own, Dense()))
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence, atol=1e-8)
    np.testing.assert_allclose(found.kl, dense.kl, atol=1e-8)
    for ours, theirs in zip(found.marginals(new), dense.marginals(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(found.covariance(new), dense.covariance(new), atol=1e-8)
    assert found.complaints == ()
    assert "approximation" not in own.traits.evidence
    vector = jnp.asarray(space.to_vector())

    def slopes(representation):
        def evidence(vector):
            return log_evidence(representation, space.to_model(vector), X, sites)

        return jax.grad(evidence)(vector)

    np.testing.assert_allclose(slopes(own), slopes(Dense()), atol=1e-8)


def test_members_of_two_groupings_at_once():
    X, kernel = rows_of(40), AS_THEY_ARE * TWO.on(ITEM, FIRST)
    own = lgp.groups.SparseEffects().initialise(X, None, kernel, KEY)
    found, dense = (r.condition(kernel, X, sites_of(40)) for r in (own, Dense()))
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence, atol=1e-8)


@pytest.mark.parametrize("name", ["weights", *slow_parameters("within groups", "alone")])
def test_conjugate_gradients_are_within_their_error(name):
    kernel, X = KERNELS[name], rows_of()
    sites, new = sites_of(len(X)), new_rows(X)
    own = lgp.groups.SparseEffects(exact=False, probes=64).initialise(X, None, kernel, KEY)
    found, dense = (r.condition(kernel, X, sites) for r in (own, Dense()))
    assert abs(found.log_evidence - dense.log_evidence) < 4 * found.evidence_error
    np.testing.assert_allclose(found.mean(new), dense.mean(new), atol=1e-5)
    # a mean over 64 products of probes is off by about 1 / sqrt(64)
    ratio = found.marginals(new).variance / dense.marginals(new).variance
    np.testing.assert_allclose(ratio, 1.0, atol=4 / np.sqrt(64))
    assert found.complaints == ()


def test_points_of_parts_have_all_of_it():
    kernel, X = KERNELS["weights"], rows_of()
    own = lgp.Inducing(features=lgp.inter_domain.PerPart(20)).initialise(X, None, kernel, KEY)
    sites, new = sites_of(len(X)), new_rows(X)
    found, dense = (r.condition(kernel, X, sites) for r in (own, Dense()))
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence, atol=1e-8)
    np.testing.assert_allclose(
        found.marginals(new).variance, dense.marginals(new).variance, atol=1e-8
    )


def schools(rows):
    """Pupils with one or two of 20 schools, and their marks."""
    generator = np.random.default_rng(2)
    effect = generator.normal(size=20)
    first, second = generator.integers(0, 20, (2, rows))
    years = generator.integers(1, 5, (2, rows))
    share = years / years.sum(axis=0)
    dose = generator.normal(size=rows)
    mark = 1 + 0.5 * dose + share[0] * effect[first] + share[1] * effect[second]
    table = pd.DataFrame({"dose": dose, "v": years[0], "w": years[1]})
    table["a"], table["b"] = ([f"school {own}" for own in which] for which in (first, second))
    return table.assign(mark=mark + 0.3 * generator.normal(size=rows)), effect


def test_a_formula_finds_the_effects_of_schools():
    table, effect = schools(400)
    formula = "mark ~ dose + (1 | mm(a, b, weights=(v, w)))"
    model = lgp.TableModel.fit(table, formula=formula, random_state=0)
    found = model.group_effects("mm(a, b)")["intercept"]
    truth = effect[[int(name.split()[1]) for name in found.names]]
    away = (found.estimate - truth) / found.standard_error
    assert np.all(np.abs(away) < 4)  # 20 normal numbers
    np.testing.assert_array_equal(found.estimate, model.group_effects("b")["intercept"].estimate)
    variance = float(model.estimator.model_.kernel.parts[1].parts[0].variance)
    assert 0.3 < variance / np.var(effect) < 3  # chi-squared of 19 degrees of freedom, twice
    summary = model.mixed_summary()
    (component,) = summary.components
    assert (component.group, component.members) == ("mm(a, b)", 2)
    np.testing.assert_allclose(component.variance, variance, rtol=1e-6)
    with pytest.raises(lgp.InputError, match="one group a row"):
        summary.intraclass()
    new = table.iloc[:3].assign(a=["x", "x", "school 1"], b=["y", "x", "y"], v=1, w=1)
    with pytest.warns(UserWarning, match="groups that training never saw"):
        X = model.encoder.encode(new)
    f_variance = model.estimator.posterior_.predict_f(X)[1]
    # two unseen groups have half the variance of one, which both members of a row are
    rest = model.estimator.posterior_.predict_f(X[:1])[1] - variance / 2
    np.testing.assert_allclose(f_variance[:2] - variance * np.array([0.5, 1.0]), rest[0], rtol=0.3)
    with pytest.raises(lgp.InputError, match="there is no column of groups 'c': there are"):
        model.group_effects("c")


def test_members_have_one_numbering():
    table = pd.DataFrame({"y": 0.0, "a": [3, 1, 2], "b": [5, 3, 1], "w": [1.0, 2.0, 3.0]})
    encoder = FormulaEncoder.fit(table, "y ~ (1 | mm(a, b, weights=cbind(w, w / 2), scale=FALSE))")
    assert encoder.feature_names[-2:] == ["a [number]", "b [number]"]
    assert [own.labels for own in encoder.groups] == [("1", "2", "3", "5")] * 2
    np.testing.assert_array_equal(encoder.encode(table)[:, -2:], [[2, 3], [0, 2], [1, 0]])
    (term,) = encoder.terms().groups
    assert (term.others, len(term.weights), term.standardised) == ((4,), 2, False)
    with pytest.warns(UserWarning, match="groups that training never saw"):
        new = encoder.encode(table.assign(a=[9, 7, 1], b=[9, 8, 7]))
    assert new[0, -2] == new[0, -1]
    assert new[1, -2] == new[2, -1] != new[1, -1]


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ("mm(a)", "several groups of a row are mm(a, b)"),
        ("mm(a, b) / c", "several groups of a row are mm(a, b)"),
        ("mm(a, a)", "names a column twice"),
        ("mm(a, b, weights=w)", "weights must be one for each of 2"),
        ("mm(a, b, size=3)", "the settings weights and scale, each once"),
        ("mm(a, b, scale=2)", "scale of mm(...) must be True or False"),
        ("mm(a, b)) + (1 | mm(a, c)", "mm(a, b) shares a column with mm(...)"),
        ("mm(a, b)) + (1 | mm(b, a)", "has an intercept twice"),
        ("mm(a, b)) + (1 | a", "a shares a column with mm(...)"),
    ],
)
def test_what_is_no_membership_is_refused_in_a_sentence(groups, sentence):
    with pytest.raises(lgp.InputError) as refused:
        parse(f"y ~ (1 | {groups})")
    assert sentence in str(refused.value)
