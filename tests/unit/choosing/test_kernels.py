"""The kernel that estimators take where none is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import latentgp as lgp
from latentgp.choosing import evidence, kernels
from latentgp.choosing.evidence import (
    FAMILIES,
    KernelShape,
    RowBlock,
    negative_log_evidence,
    optimum,
)
from latentgp.choosing.kernels import usual_kernel
from latentgp.choosing.laplace import law_of
from latentgp.runtime.x64 import in_x64
from latentgp.setup.priors import scales

# Two length-scales of three columns: the first two share one, as coordinates of a place do.
CANDIDATES = [KernelShape(family, inputs) for family in FAMILIES for inputs in (1, 2, 3)]


def logarithms(candidate):
    values = np.random.default_rng(1).normal(scale=0.3, size=candidate.inputs)
    mixing = [0.3] if candidate.family == "RationalQuadratic" else []
    return np.concatenate([values, [0.2, -2.0], mixing])


def some_rows(size, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(size, 3))
    y = np.sin(X[:, 0]) + 0.1 * generator.normal(size=size)
    return RowBlock(X, y, generator.integers(1, 4, size).astype(float), np.ones(size))


@pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
@pytest.mark.quick
def test_gradient_is_that_of_the_evidence(candidate):
    blocks, at = [some_rows(30), some_rows(20, seed=1)], logarithms(candidate)
    _, gradient = negative_log_evidence(at, candidate, blocks)
    step = 1e-5
    for place, unit in enumerate(step * np.eye(len(at))):
        above, below = (
            negative_log_evidence(p, candidate, blocks)[0] for p in (at + unit, at - unit)
        )
        assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=str)
@pytest.mark.quick
def test_evidence_is_that_of_the_kernel(candidate):
    rows, at = some_rows(25), logarithms(candidate)
    copies = np.repeat(np.arange(25), rows.weights.astype(int))
    number = candidate.inputs
    values = np.exp(at)
    each = {1: [0, 0, 0], 2: [0, 0, 1], 3: [0, 1, 2]}[number]
    settings = {"lengthscale": values[each], "variance": values[number]}
    if candidate.family == "RationalQuadratic":
        settings["mixing"] = values[-1]

    @in_x64
    def gram():
        X = jnp.asarray(rows.X[copies])
        return np.asarray(FAMILIES[candidate.family].kernel(**settings).gram(X, X))

    same = 1e-8 * values[number] * (copies[:, None] == copies)
    noise = values[number + 1] * np.eye(len(copies))
    expected = multivariate_normal(cov=gram() + same + noise).logpdf(rows.y[copies])
    around = 0.5 * np.log(3) * np.ones(number)
    shared = 2.75 * np.ones((number, number)) + 0.25 * np.eye(number)
    expected += multivariate_normal(around, shared).logpdf(at[:number])
    middle = np.array([0.0, np.log(0.1), 0.0])[: len(at) - number]
    expected += norm(middle, 2.0).logpdf(at[number:]).sum()
    assert -negative_log_evidence(at, candidate, [rows])[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.quick
def test_a_search_goes_on_where_its_first_step_has_no_evidence(monkeypatch, counts):
    rows, shape = some_rows(40)._replace(weights=np.ones(40)), KernelShape("RBF", 3)
    law, start = None, np.array([2.0, 2.0, 2.0, 0.0, -2.0])
    if counts:
        law, start = law_of(lgp.Poisson(), np.log(1e3), 1.0), start[:4]
        rows = rows._replace(y=np.round(1e3 * np.exp(2 * rows.y)))
    expected = optimum(shape, [rows], start, 60, law)
    failed = []

    def near(at, *rest):
        if np.max(abs(at - start)) < 4:
            return negative_log_evidence(at, *rest)
        failed.append(len(failed))
        return np.inf, np.zeros_like(at)

    assert np.max(abs(expected.logarithms - start)) < 4
    monkeypatch.setattr(evidence, "negative_log_evidence", near)
    found = optimum(shape, [rows], start, 60, law)
    assert failed
    at_start = -negative_log_evidence(start, shape, [rows], law)[0]
    assert at_start + 5 < expected.log_evidence - 2 < found.log_evidence


def drawn(kernel, X, noise, seed=0):
    """A function of the kernel at some rows, with noise."""
    generator = np.random.default_rng(seed)

    @in_x64
    def gram():
        return np.asarray(kernel.gram(jnp.asarray(X), jnp.asarray(X)))

    root = np.linalg.cholesky(gram() + 1e-8 * np.eye(len(X)))
    return root @ generator.normal(size=len(X)) + noise * generator.normal(size=len(X))


def chosen(X, y, likelihood=None):
    likelihood = likelihood or lgp.Gaussian()
    data = lgp.Data(X, y - np.mean(y))
    return usual_kernel(data, likelihood, scales(lgp.LatentGP(lgp.RBF(), likelihood), data))


@pytest.mark.parametrize("family", ["RBF", "Matern32", "Matern12"])
@pytest.mark.quick
def test_family_that_rows_are_drawn_from_is_chosen(family):
    X = np.random.default_rng(3).uniform(-2, 2, size=(200, 2))
    kernel = FAMILIES[family].kernel(lengthscale=np.array([0.7, 1.5]))
    assert chosen(X, drawn(kernel, X, 0.02)).family == family


@pytest.mark.quick
def test_choice_does_not_depend_on_units():
    X = np.random.default_rng(3).uniform(-2, 2, size=(200, 2))
    y = drawn(lgp.Matern12(lengthscale=np.array([0.7, 1.5])), X, 0.02)
    one, other = chosen(X, y), chosen(X * [1e3, 1e-2] + [5.0, 0.0], 1e4 * y)
    assert one.family == other.family == "Matern12"
    np.testing.assert_allclose(
        other.kernel.lengthscale / one.kernel.lengthscale, [1e3, 1e-2], rtol=1e-3
    )
    np.testing.assert_allclose(other.kernel.variance / one.kernel.variance, 1e8, rtol=1e-3)


@pytest.mark.quick
def test_places_that_are_far_apart_in_a_sample_are_seen_to_be_rough():
    X = np.random.default_rng(2).uniform(-30, 30, size=(1200, 2))
    found = chosen(X, drawn(lgp.Matern12(lengthscale=4.0), X, 0.05))
    assert found.family.startswith("Matern12")
    best, second = (found.log_evidences[name] for name in (found.family, "Matern32"))
    assert best > second + 2
    # A search starts near the end, whose length-scale patches know within a factor of two or so.
    np.testing.assert_allclose(np.log(found.kernel.lengthscale / 4.0), 0.0, atol=np.log(2.5))


@pytest.mark.quick
def test_many_rows_of_many_inputs_are_seen_to_be_rough_by_those_that_are_near():
    """Rows at random do not say so: on 10,000 an RBF had twice the error of what is chosen now."""
    X = np.random.default_rng(4).uniform(-3, 3, size=(2100, 5))
    y = drawn(lgp.Matern12(lengthscale=np.array([2.0, 3.0, 4.0, 40.0, 40.0])), X, 0.05)
    found, at_random = chosen(X, y), chosen(X[:400], y[:400])
    assert (found.rows, at_random.rows) == (200 + 40 * 15, 200)
    assert at_random.family == "RBF"
    assert found.family.startswith("Matern")
    assert found.log_evidences[found.family] > found.log_evidences["RBF"] + 5


@pytest.mark.quick
def test_rows_near_each_other_are_so_by_the_inputs_as_they_are(monkeypatch):
    """Of normal scores other rows are near, whose evidence would say nothing of these."""
    X = np.exp(np.random.default_rng(4).normal(size=(2100, 4)))
    kernel = lgp.kernels.InputWarping.by_scores(lgp.RBF(1.5), X, range(4))
    y, seen = drawn(kernel, X, 0.05), []
    optima = kernels.optima_of
    monkeypatch.setattr(
        kernels, "optima_of", lambda *given: seen.append(given[1]) or optima(*given)
    )
    assert chosen(X, y).family.endswith("of normal scores")
    few = [blocks for blocks in seen if len(blocks) == 41 and len(blocks[0].y) == 200]
    targets = {b"".join(block.y.tobytes() for block in blocks) for blocks in few}
    inputs = {b"".join(block.X.tobytes() for block in blocks) for blocks in few}
    assert (len(targets), len(inputs)) == (1, 2)


@pytest.mark.quick
def test_inputs_that_matter_alike_have_one_length_scale():
    X = np.random.default_rng(2).normal(size=(180, 6))
    found = chosen(X, drawn(lgp.Matern32(lengthscale=4.0), X, 0.05))
    assert found.family.endswith("of one length-scale")
    assert np.shape(found.kernel.lengthscale) in ((), (1,))


@pytest.mark.quick
def test_wild_targets_do_not_make_functions_rough():
    generator = np.random.default_rng(0)
    X = np.sort(generator.uniform(-3, 3, size=(150, 1)), axis=0)
    y = np.sin(2 * X[:, 0]) + 0.1 * generator.standard_t(2.0, size=150)
    assert chosen(X, y, lgp.StudentT()).family == "RBF"


@pytest.mark.quick
def test_no_choice_where_nothing_says_which():
    X = np.arange(5.0)[:, None]
    assert chosen(X, X[:, 0]) is None
    X = np.arange(40.0)[:, None]
    assert chosen(X, np.zeros(40)) is None
    assert chosen(np.ones((40, 1)), X[:, 0]) is None
    labels = lgp.Data(X, (X[:, 0] > 20).astype(float))
    model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    assert usual_kernel(labels, model.likelihood, scales(model, labels)) is None


def test_estimators_say_which_kernel_and_keep_it(tmp_path):
    X = np.random.default_rng(3).uniform(-2, 2, size=(200, 2))
    y = drawn(lgp.Matern12(lengthscale=np.array([0.7, 1.5])), X, 0.02)
    fitted = lgp.GPRegressor(random_state=0).fit(X, y)
    assert isinstance(fitted.model_.kernel, lgp.Matern12)
    assert "Kernel: Matern12" in fitted.diagnostics_.verdict
    assert fitted.kernel_choice_.family == "Matern12"
    again = lgp.GPRegressor(random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    lgp.save(fitted, tmp_path / "fitted")
    assert lgp.load(tmp_path / "fitted").kernel_choice_ == fitted.kernel_choice_
    named = lgp.GPRegressor("matern32", random_state=0).fit(X, y)
    assert isinstance(named.model_.kernel, lgp.Matern32)
    assert named.kernel_choice_ is None
    beside = lgp.GPRegressor("matern32", mean="linear", random_state=0).fit(X, y)
    assert "Matern32" in str(beside.model_.kernel)
    with pytest.raises(lgp.InputError, match="rbf, matern12"):
        lgp.GPRegressor("matern42").fit(X, y)


@pytest.mark.parametrize(("seconds", "chooses"), [(None, True), (5.0, True), (4.9, False)])
def test_a_choice_takes_at_most_a_fifth_of_the_time(seconds, chooses):
    assert [kernels.leaves_time(s, 2100) for s in (None, 12.0, 11.9)] == [True, True, False]
    X = np.linspace(0, 6, 30)[:, None]
    fitted = lgp.GPRegressor(max_seconds=seconds, random_state=0).fit(X, np.sin(X[:, 0]))
    assert (fitted.kernel_choice_ is not None) == chooses


def test_choice_for_the_same_rows_does_not_depend_on_a_key():
    X = np.random.default_rng(2).uniform(-2, 2, size=(700, 2))
    y = np.sin(X.sum(1))
    one, other = chosen(X, y), chosen(X, y)
    assert one.log_evidences == other.log_evidences
    assert jax.tree.all(jax.tree.map(np.array_equal, one.kernel, other.kernel))


def test_fit_replaces_the_kernel_of_a_model():
    X = np.random.default_rng(3).uniform(-2, 2, size=(200, 2))
    data = lgp.Data(X, 50 + drawn(lgp.Matern12(lengthscale=np.array([0.7, 1.5])), X, 0.02))
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1), lgp.ConstantMean(50.0))
    fitted = lgp.fit(model, data, key=jax.random.key(0), kernel="auto")
    assert isinstance(fitted.posterior.model.kernel, lgp.Matern12)
    assert "Kernel: Matern12" in fitted.diagnostics.verdict
    labels = lgp.Data(X, (data.y > 50).astype(float))
    of_classes = lgp.LatentGP(lgp.Matern52(lengthscale=0.7), lgp.Bernoulli())
    fitted = lgp.fit(of_classes, labels, key=jax.random.key(0), kernel="auto")
    assert isinstance(fitted.posterior.model.kernel, lgp.Matern52)
    assert "the model's own stays" in fitted.diagnostics.verdict
