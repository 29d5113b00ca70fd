"""Every rule that makes sites, with effects of groups, against dense algebra."""

import jax
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.representations import Dense
from pupils import FIXED, INTERCEPTS, ITEM, KERNELS, KEY, PUPIL, new_rows, rows_of, same
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

N = 300
STRUCTURES = {
    "nested": FIXED + INTERCEPTS,
    "crossed": FIXED + 0.7 * same(PUPIL) + 0.9 * same(ITEM),
    "slopes": KERNELS["slopes"],
}
LIKELIHOODS = {
    "gaussian": lgp.Gaussian(0.5),
    "bernoulli": lgp.Bernoulli(),
    "poisson": lgp.Poisson(),
}
RULES = {
    "exact": lambda of: lgp.ExactGP() if of == Dense() else lgp.CollapsedVI(of),
    "laplace": lgp.Laplace,
    "variational": lgp.VariationalInference,
    "propagation": lgp.ExpectationPropagation,
    "augmented": lgp.AugmentedVI,
}
SETTINGS = {"key": KEY, "learn_hyperparameters": False}


def rows_and_model(structure, likelihood):
    """Rows whose targets are drawn from the model, and the model."""
    X, rng = rows_of(N), np.random.default_rng(3)
    kernel, law = STRUCTURES[structure], LIKELIHOODS[likelihood]
    root = np.linalg.cholesky(np.asarray(kernel.gram(X, X)) + 1e-9 * np.eye(N))
    f = 0.3 * root @ rng.normal(size=N)
    y = jax.vmap(lambda key, f: law.sample(key, f, {}))(jax.random.split(KEY, N), f[:, None])
    return lgp.Data(X, np.asarray(y, float)), lgp.LatentGP(kernel, law)


PAIRS = [("exact", "gaussian"), ("augmented", "bernoulli"), ("propagation", "bernoulli")]
OTHERS = [
    (rule, likelihood)
    for rule in ("laplace", "variational", "propagation")
    for likelihood in LIKELIHOODS
    if (rule, likelihood) not in PAIRS
]


@pytest.mark.parametrize("structure", ["slopes", *slow_parameters("nested", "crossed")])
@pytest.mark.parametrize(
    ("rule", "likelihood"),
    [*PAIRS, *(pytest.param(*own, marks=pytest.mark.slow) for own in OTHERS)],
)
def test_every_rule_finds_the_same_as_with_dense_algebra(structure, likelihood, rule):
    data, model = rows_and_model(structure, likelihood)
    ours, theirs = (
        lgp.fit(model, data, method=RULES[rule](of), **SETTINGS).posterior
        for of in (lgp.groups.SparseEffects(exact=True), Dense())
    )
    new = new_rows(data.X)
    for one, other in zip(ours.predict_f(new), theirs.predict_f(new), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(ours.evidence.value, theirs.evidence.value, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
@pytest.mark.parametrize("rule", ["laplace", "variational", "propagation"])
def test_conjugate_gradients_make_the_sites_of_dense_algebra(rule, likelihood):
    """Sites are made of variances that are means over probes, which move means a little."""
    data, model = rows_and_model("crossed", likelihood)
    new, by_steps = new_rows(data.X), lgp.groups.SparseEffects(exact=False, probes=64)
    found, exact = (
        lgp.fit(model, data, method=RULES[rule](of), **SETTINGS) for of in (by_steps, Dense())
    )
    dense = exact.posterior
    error = float(found.posterior.latent.evidence_error)
    assert abs(found.posterior.evidence.value - dense.evidence.value) < 4 * error
    (mean, variance), expected = found.posterior.predict_f(new), dense.predict_f(new)
    deviation = np.sqrt(expected.variance)
    np.testing.assert_allclose(mean / deviation, expected.mean / deviation, atol=0.05)
    # a mean over 64 products of probes is off by about 1 / sqrt(64)
    np.testing.assert_allclose(variance / expected.variance, 1.0, atol=4 / np.sqrt(64))
    assert "means over 64 probe vectors" in " ".join(found.diagnostics.notes)


@pytest.mark.parametrize("likelihood", ["bernoulli", *slow_parameters("poisson")])
def test_the_mode_by_conjugate_gradients_is_exact(likelihood):
    """Sites at the mode need no variances, and coefficients have exact ones given sites."""
    data, model = rows_and_model("crossed", likelihood)
    ours, theirs = (
        lgp.fit(model, data, method=lgp.Laplace(of, correct_mean=False), **SETTINGS).posterior
        for of in (lgp.groups.SparseEffects(exact=False, probes=4), Dense())
    )
    new = new_rows(data.X)
    np.testing.assert_allclose(ours.mean_f(new), theirs.mean_f(new), atol=1e-4)
    one, other = (own.coefficients() for own in (ours, theirs))
    np.testing.assert_allclose(one.estimate, other.estimate, atol=1e-4)
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-5)


@pytest.mark.slow
def test_a_smooth_term_beside_thousands_of_levels_is_that_of_dense_algebra():
    """By points of the one column, beside an effect of every level."""
    rng = np.random.default_rng(0)
    level, x = rng.integers(0, 2000, 3000), rng.uniform(0, 10, 3000)
    y = np.sin(x) + 0.5 * rng.normal(size=2000)[level] + 0.3 * rng.normal(size=3000)
    table = pd.DataFrame({"x": x, "y": y, "g": [f"level {own}" for own in level]})
    own = lgp.TableModel.fit(
        table, formula="y ~ s(x) + (1 | g)", learn_hyperparameters=False, random_state=0
    )
    estimator = own.estimator
    assert isinstance(estimator.method_.representation, lgp.groups.SparseEffects)
    X = own.encoder.encode(table)
    dense = lgp.fit(estimator.model_, lgp.Data(X, y), method=lgp.ExactGP(), **SETTINGS).posterior
    some, whole = X[::30], estimator.posterior_
    for ours, theirs in zip(whole.predict_f(some), dense.predict_f(some), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(whole.evidence.value, dense.evidence.value, atol=1e-3)
    ours, theirs = (of.parts(some, ["line", "smooth", "levels"]) for of in (whole, dense))
    for name, part in theirs.items():
        np.testing.assert_allclose(ours[name].mean, part.mean, atol=1e-5)
