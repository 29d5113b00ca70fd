"""State-space processes against dense algebra."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.state_space.kernels import LeftOut, Truncation
from latentgp.extensions.state_space.markov import elements
from latentgp.extensions.state_space.markov.representation import Markov
from latentgp.representations.dense import Dense
from latentgp.sites.gaussian import GaussianSites
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

ROWS = 300
KERNELS = {
    "matern 1/2": lgp.Matern12(lengthscale=1.3),
    "matern 3/2": lgp.Matern32(lengthscale=0.7, variance=1.7),
    "matern 5/2": lgp.Matern52(lengthscale=1.1),
    "matern 7/2": lgp.MaternHalfInteger(degree=3, lengthscale=2.0),
    "cosine": lgp.Cosine(period=2.2),
    "linear": lgp.Linear(0.3),
    "constant": lgp.Constant(2.0),
    "white": lgp.White(0.4),
    "sum": lgp.Matern32(lengthscale=2.0) + lgp.White(0.3) + lgp.Constant(1.5),
    "product": 2.0 * lgp.Matern12(lengthscale=3.0) * lgp.Cosine(period=1.5),
    "with a line": lgp.Linear(0.2) * lgp.Matern12() + lgp.Matern32(),
    "weighted": lgp.WeightedSum((lgp.Matern12(), lgp.Matern32(lengthscale=3.0)), [0.4, 2.0]),
    "periodic": lgp.Periodic(lengthscale=1.5, period=3.0),
    "quasi-periodic": lgp.Periodic(lengthscale=2.0, period=3.0) * lgp.Matern12(lengthscale=8.0),
}
QUICK = "matern 3/2", "sum", "with a line", "periodic"


def rows(number=ROWS, latents=1, seed=0):
    """Unsorted times with ties, a jump and missing rows, and sites."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 30, number)
    t[1], t[2], t[number // 2] = t[0], t[0] + 1e-9, 45.0
    linear = rng.normal(size=(number, latents))
    precision = rng.uniform(0, 3, (number, latents))
    linear[3:20], precision[3:20] = 0.0, 0.0
    sites = GaussianSites(*map(jnp.asarray, (linear, precision, np.zeros(number))))
    return jnp.asarray(t[:, None]), sites


def found(representation, kernel, X, sites, new):
    def run(kernel):
        posterior = representation.condition(kernel, X, sites)
        pullback = representation.pull_back(posterior, X, sites)
        return posterior, pullback, posterior.marginals(new), posterior.covariance(new[:9])

    return jax.jit(run)(jax.tree.map(jnp.asarray, kernel))


def compare(markov, dense, tolerance):
    (p, back, at_new, joint), (q, their_back, their_new, their_joint) = markov, dense
    np.testing.assert_allclose(p.log_evidence, q.log_evidence, rtol=tolerance)
    np.testing.assert_allclose(p.kl, q.kl, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(
        jax.tree.leaves((back.kernel, back.marginals, at_new, joint)),
        jax.tree.leaves((their_back.kernel, their_back.marginals, their_new, their_joint)),
        strict=True,
    ):
        scale = np.max(np.abs(theirs))
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize(
    "name", [*QUICK, *slow_parameters(*(name for name in KERNELS if name not in QUICK))]
)
@pytest.mark.parametrize("lanes", [1, *slow_parameters(5)])
def test_every_kernel_is_as_with_dense_algebra(name, lanes):
    X, sites = rows()
    new = jnp.asarray([-2.0, 0.0, X[0, 0], 11.11, 12.0, 29.99, 36.0, 45.0, 60.0])[:, None]
    kernel = KERNELS[name]
    dense = found(Dense(), kernel, X, sites, new)
    compare(found(Markov(lanes=lanes, harmonics=10), kernel, X, sites, new), dense, 1e-8)


def test_lanes_and_negative_precisions_are_as_with_dense_algebra():
    X, sites = rows(90, latents=2)
    sites = sites._replace(precision=sites.precision.at[7, 0].set(-0.02).at[70, 1].set(-0.05))
    new = jnp.asarray([-2.0, 0.5, 11.11, 29.99, 45.0])[:, None]
    kernel = lgp.PerLatent(KERNELS["matern 5/2"], KERNELS["matern 3/2"])
    dense = found(Dense(signed=True), kernel, X, sites, new)
    compare(found(Markov(signed=True, lanes=4), kernel, X, sites, new), dense, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["one kernel", *slow_parameters("many states", "signed")])
def test_lanes_joined_in_groups_are_as_with_dense_algebra(case, monkeypatch):
    monkeypatch.setattr(elements, "join_in_groups", lambda number: number > 6)
    X, sites = rows(90, latents=2)
    signed = case == "signed"
    if signed:
        sites = sites._replace(precision=sites.precision.at[7, 0].set(-0.02))
    new = jnp.asarray([-2.0, 0.5, 11.11, 29.99, 45.0])[:, None]
    kernel = {
        "one kernel": KERNELS["matern 3/2"],
        "many states": KERNELS["matern 5/2"] + KERNELS["matern 3/2"],  # too many to unroll
        "signed": lgp.PerLatent(KERNELS["matern 5/2"], KERNELS["matern 3/2"]),
    }[case]
    dense = found(Dense(signed=signed), kernel, X, sites, new)
    # Groups of groups, and lanes that fill no last group.
    compare(found(Markov(signed=signed, lanes=45), kernel, X, sites, new), dense, 1e-8)


@pytest.mark.slow
def test_an_approximate_kernel_says_by_how_much():
    X, sites = rows(80)
    kernel, new = lgp.RBF(lengthscale=1.2), X[:5]
    errors = []
    for states in (6, 10):
        posterior = found(Markov(rbf_states=states), kernel, X, sites, new)[0]
        exact = found(Dense(), kernel, X, sites, new)[0]
        errors.append(abs(float(posterior.log_evidence - exact.log_evidence)))
    assert 1e-6 < errors[1] < 0.2 * errors[0] < 0.1
    (note,) = LeftOut.of([kernel], Truncation(rbf=6)).notes
    assert "3.0e-03" in note


def test_harmonics_that_leave_out_much_are_no_convergence():
    t = np.linspace(0.0, 20.0, 30)
    model = lgp.LatentGP(lgp.Periodic(lengthscale=0.1, period=10.0), lgp.Gaussian(0.1))
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    method = lgp.ExactGP(lgp.Markov())
    fit = lgp.fit(model, lgp.Data(t, np.sin(t)), method=method, **settings)
    assert not fit.diagnostics.converged
    assert any("raise harmonics=" in said for said in fit.diagnostics.warnings)


def test_series_apart_are_independent():
    rng = np.random.default_rng(1)
    label = rng.integers(0, 4, 120).astype(float) * 7
    X = jnp.asarray(np.stack([rng.uniform(0, 9, 120), label], axis=1))
    _, sites = rows(120)
    new = jnp.asarray([[4.0, 0.0], [4.0, 14.0], [-1.0, 7.0], [12.0, 21.0], [4.0, 99.0]])
    kernel = (lgp.Matern32() + lgp.Constant(0.5)).on(0) * lgp.White(1.3).on(1)
    dense = found(Dense(), kernel, X, sites, new)
    for lanes in (1, 3):
        compare(found(Markov(lanes=lanes), kernel, X, sites, new), dense, 1e-8)


@pytest.mark.slow
def test_single_precision_is_within_its_own_error():
    X, sites = rows(200)
    kernel, new = KERNELS["matern 5/2"], X[:9]
    exact = found(Dense(), kernel, X, sites, new)
    narrow = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (kernel, X, sites, new))
    with jax.enable_x64(False):
        for lanes in (1, 3):
            ours = found(Markov(lanes=lanes), *narrow)
            assert ours[0].log_evidence.dtype == jnp.float32
            compare(ours, exact, 2e-4)


@pytest.mark.parametrize("number", [1, 2])
def test_one_row_and_two(number):
    X, sites = rows(40)
    X, sites = X[:number], jax.tree.map(lambda a: a[:number] + 0.5, sites)
    new = jnp.asarray([[0.0], [3.0]])
    kernel = KERNELS["matern 3/2"]
    dense = found(Dense(), kernel, X, sites, new)
    compare(found(Markov(), kernel, X, sites, new), dense, 1e-8)


def test_strong_sites_and_long_series_keep_their_digits():
    """A constant and a line seen a thousand times through little noise: the root stays positive."""
    t = np.linspace(0, 1, 1_000)
    X, precision = jnp.asarray(t[:, None]), jnp.full((1_000, 1), 1e10)
    sites = GaussianSites(precision * (2 + 3 * X), precision, jnp.zeros(1_000))
    posterior = Markov().condition(lgp.Constant(1e4) + lgp.Linear(1e4), X, sites)
    mean, variance = posterior.marginals(jnp.asarray([[0.5], [2.0]]))
    np.testing.assert_allclose(mean[:, 0], [3.5, 8.0], rtol=1e-8)
    # Of least squares: 1 / N for the constant, more away from the centre.
    np.testing.assert_allclose(variance[0, 0], 1e-13, rtol=0.01)


@pytest.mark.slow
def test_draws_have_the_posteriors_moments():
    X, sites = rows(60)
    kernel, new = KERNELS["sum"], jnp.asarray([[1.0], [1.5], [40.0]])
    posterior = Markov(lanes=2).condition(kernel, X, sites)
    drawn = posterior.draws(jax.random.key(0), new, 6_000)[..., 0]
    mean, covariance = posterior.mean(new)[:, 0], posterior.covariance(new)[0]
    np.testing.assert_allclose(np.mean(drawn, 0), mean, atol=0.07)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.12)


@pytest.mark.slow
def test_white_coefficients_make_the_prior_and_come_back():
    X, _ = rows(25)
    kernel = lgp.PerLatent(KERNELS["matern 3/2"], KERNELS["sum"])
    whitening = Markov().whitening(kernel, X)
    units = jnp.eye(25)
    for q, own in enumerate(kernel.each):
        columns = [
            whitening.conditional(jnp.zeros((2, 25)).at[q].set(unit)).mean[:, q] for unit in units
        ]
        root = jnp.stack(columns, axis=1)
        np.testing.assert_allclose(root @ root.T, own.symmetric_gram(X), atol=1e-8)
    white = jax.random.normal(jax.random.key(0), (2, 25))
    again = whitening.white_of(whitening.conditional(white).mean)
    np.testing.assert_allclose(again, white, atol=1e-3)  # of two times 1e-9 apart
    dense = Dense().whitening(kernel, X[jnp.asarray([i for i in range(25) if i not in (1, 2)])])
    ours = Markov().whitening(kernel, dense.centres)
    np.testing.assert_allclose(ours.log_determinant(2), dense.log_determinant(2), atol=1e-6)


RULES = {
    "exact": (lgp.Gaussian(0.05), lgp.ExactGP),
    "augmented": (lgp.Bernoulli(), lgp.AugmentedVI),
    "variational": (lgp.Poisson(), lgp.VariationalInference),
    "laplace": (lgp.StudentT(), lgp.Laplace),
    "moments": (lgp.Bernoulli(), lgp.ExpectationPropagation),
    "heteroscedastic": (lgp.HeteroscedasticGaussian(), lgp.AugmentedVI),
}


def series(likelihood, number=ROWS):
    rng = np.random.default_rng(3)
    t = rng.uniform(0, 20, number)
    f = np.sin(t) + 0.5 * np.sin(3 * t)
    if isinstance(likelihood, lgp.Bernoulli):
        return lgp.Data(t, (rng.uniform(size=number) < 1 / (1 + np.exp(-2 * f))).astype(int))
    if isinstance(likelihood, lgp.Poisson):
        return lgp.Data(t, rng.poisson(np.exp(f)))
    return lgp.Data(t, f + 0.2 * rng.normal(size=number))


@pytest.mark.parametrize(
    "name", ["exact", "augmented", *slow_parameters(*sorted(set(RULES) - {"exact", "augmented"}))]
)
def test_every_rule_is_as_with_dense_algebra(name):
    likelihood, method = RULES[name]
    model = lgp.LatentGP(lgp.Matern32(lengthscale=1.5, variance=1.2), likelihood)
    data, new = series(likelihood), np.linspace(-2, 22, 20)
    held = ["kernel.lengthscale", "kernel.variance"]
    held += ["likelihood.noise_variance"] if name == "exact" else []
    fits = [
        lgp.fit(model, data, method=method(representation), frozen=held, key=jax.random.key(0))
        for representation in (lgp.Dense(), lgp.Markov(), lgp.Markov(lanes=4))
    ]
    expected = fits[0].posterior.predict_f(new)
    for own in fits[1:]:
        evidence = [float(each.posterior.log_evidence) for each in (own, fits[0])]
        np.testing.assert_allclose(*evidence, rtol=1e-8)
        predicted = own.posterior.predict_f(new)
        np.testing.assert_allclose(predicted.mean, expected.mean, atol=1e-7)
        np.testing.assert_allclose(predicted.variance, expected.variance, atol=1e-7)


@pytest.mark.slow
def test_the_bound_of_two_thousand_rows_is_that_of_dense_algebra():
    model = lgp.LatentGP(lgp.Matern32(lengthscale=1.5, variance=1.2), lgp.Bernoulli())
    data, held = series(model.likelihood, 2_000), ["kernel.lengthscale", "kernel.variance"]
    dense, own = (
        lgp.fit(
            model,
            data,
            method=lgp.AugmentedVI(representation),
            frozen=held,
            key=jax.random.key(0),
        )
        for representation in (lgp.Dense(), lgp.Markov())
    )
    bounds = [float(each.posterior.log_evidence) for each in (own, dense)]
    np.testing.assert_allclose(*bounds, rtol=1e-8)


@pytest.mark.slow
def test_chains_are_those_of_dense_algebra():
    model = lgp.LatentGP(lgp.Matern32(lengthscale=1.5, variance=1.2), lgp.Bernoulli())
    data, new = series(model.likelihood, 40), np.array([0.3, 9.0, 25.0])
    held = ["kernel.lengthscale", "kernel.variance"]
    means = []
    for representation in (lgp.Dense(), lgp.Markov()):
        method = lgp.GibbsSampling(representation, chains=2, draws=1_000, warmup=50)
        posterior = lgp.fit(
            model, data, method=method, frozen=held, key=jax.random.key(1)
        ).posterior
        means.append(posterior.predict_f(new))
    np.testing.assert_allclose(means[0].mean, means[1].mean, atol=0.12)
    np.testing.assert_allclose(means[0].variance, means[1].variance, rtol=0.15)


@pytest.mark.slow
def test_hyperparameters_are_sampled_as_with_dense_algebra():
    model = lgp.LatentGP(lgp.Matern32(), lgp.Poisson())
    data, new = series(model.likelihood, 60), np.array([0.3, 9.0])
    means = []
    for representation in (lgp.Dense(), lgp.Markov()):
        method = lgp.NUTS(representation=representation, draws=400, warmup=300)
        posterior = lgp.fit(model, data, method=method, key=jax.random.key(1)).posterior
        means.append(posterior.predict_f(new).mean)
    np.testing.assert_allclose(*means, atol=0.12)


@pytest.mark.parametrize(
    ("kernel", "columns", "words"),
    [
        (lgp.RationalQuadratic(), 1, "no state-space form"),
        (lgp.Matern32(), 2, "one time-like column"),
        (lgp.Matern32().on(0) + lgp.Matern32().on(1), 2, "one time-like column"),
        (lgp.PerLatent(lgp.Matern32().on(0), lgp.Matern32().on(1)), 2, "same time column"),
    ],
)
def test_what_has_no_state_space_form_says_so(kernel, columns, words):
    with pytest.raises(lgp.InputError, match=words):
        Markov().initialise(jnp.zeros((3, columns)), None, kernel, jax.random.key(0))


def test_a_saved_posterior_is_the_same(tmp_path):
    model = lgp.LatentGP(lgp.Matern32() + lgp.Constant(), lgp.Gaussian())
    data = series(model.likelihood, 30)
    posterior = lgp.fit(
        model, data, method=lgp.ExactGP(lgp.Markov()), key=jax.random.key(0)
    ).posterior
    again = lgp.load(lgp.save(posterior, tmp_path / "posterior.latentgp"))
    new = np.array([1.0, 30.0])
    np.testing.assert_array_equal(again.predict(new).mean, posterior.predict(new).mean)


def test_order_is_kept_where_it_is_known():
    X, _ = rows(20)
    ready = Markov().for_rows(X, None, KERNELS["white"])
    np.testing.assert_array_equal(np.asarray(X)[ready.order.rows, 0], np.sort(X[:, 0]))
    sorted_ready = Markov().for_rows(np.sort(X, axis=0), None, KERNELS["white"])
    assert sorted_ready.in_order
    assert sorted_ready.order is None
    assert dataclasses.replace(sorted_ready, lanes=3).lanes == 3


@pytest.mark.slow
def test_parts_of_a_sum_are_those_of_dense_algebra():
    kernel = lgp.Matern32(lengthscale=1.5) + lgp.Linear(0.1) + lgp.Cosine(period=3.0)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.05))
    data, new = series(model.likelihood, 60), np.array([-1.0, 3.3, 30.0])
    dense, own = (
        lgp.fit(
            model,
            data,
            method=lgp.ExactGP(representation),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        ).posterior
        for representation in (lgp.Dense(), lgp.Markov(lanes=2))
    )
    for ours, theirs in zip(own.parts(new).values(), dense.parts(new).values(), strict=True):
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-8)
        np.testing.assert_allclose(ours.variance, theirs.variance, atol=1e-8)
    drawn = own.sample_parts(new, key=jax.random.key(1), number=4_000)
    for draws, part in zip(drawn.values(), own.parts(new).values(), strict=True):
        np.testing.assert_allclose(np.std(draws, 0), np.sqrt(part.variance), rtol=0.06, atol=1e-6)


@pytest.mark.parametrize("method", [lgp.ExactGP, lgp.VariationalInference])
def test_an_update_is_a_filter_step(method):
    """Rows one after another are as all at once: exactly, where sites do not depend on the rest."""
    model = lgp.LatentGP(lgp.Matern32(lengthscale=1.5), lgp.Gaussian(0.05))
    data, key = series(model.likelihood, 90), jax.random.key(0)
    settings = {"method": method(lgp.Markov()), "key": key, "learn_hyperparameters": False}
    first = lgp.Data(data.X[:60], data.y[:60])
    posterior = lgp.fit(model, first, **settings).posterior
    posterior = posterior.update(data.X[60:75], data.y[60:75], key=key)
    posterior = posterior.update(data.X[75:], data.y[75:], key=key)
    whole, new = lgp.fit(model, data, **settings).posterior, np.linspace(-1, 22, 9)
    for ours, theirs in zip(posterior.predict_f(new)[:2], whole.predict_f(new)[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    np.testing.assert_allclose(float(posterior.log_evidence), float(whole.log_evidence), rtol=1e-9)


def test_many_rows_of_one_column_are_a_series():
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 50, 3_000)
    own = lgp.GPRegressor(learn_hyperparameters=False).fit(t[:, None], np.sin(t))
    assert own.method_ == lgp.ExactGP(lgp.Markov())
    own.partial_fit(np.array([[51.0]]), np.array([0.0]))
    assert own.method_ == lgp.ExactGP(lgp.Markov())
    both = np.stack([t, t], axis=1)
    other = lgp.GPRegressor(learn_hyperparameters=False).fit(both, np.sin(t))
    assert not isinstance(other.method_.representation, lgp.Markov)


def test_an_update_keeps_what_is_approximated():
    model = lgp.LatentGP(lgp.Periodic(period=3.0), lgp.Gaussian(0.1))
    first = lgp.fit(
        model,
        lgp.Data(np.arange(8.0), np.sin(np.arange(8.0))),
        key=jax.random.key(0),
        method=lgp.ExactGP(lgp.Markov(harmonics=3)),
        learn_hyperparameters=False,
    ).posterior
    after = first.update([8.0], [0.9], key=jax.random.key(0))
    assert after.latent.notes == first.latent.notes


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_first_look_is_at_stretches_of_time(shuffled):
    t = np.arange(1_000.0)
    if shuffled:
        t = np.random.default_rng(0).permutation(t)
    ready = lgp.Markov().for_rows(t[:, None], None, lgp.Matern32())
    chosen, _ = ready.on_some_rows(t[:, None], None, lgp.Matern32(), 160)
    gaps = np.diff(np.sort(t[chosen]))
    assert len(chosen) == len(np.unique(chosen)) == 160
    assert np.sum(gaps > 1) == 7
    few, _ = ready.on_some_rows(t[:100, None], None, lgp.Matern32(), 160)
    np.testing.assert_array_equal(few, np.arange(100))


def test_another_number_of_rows_compiles_nothing(compilations):
    model = lgp.LatentGP(lgp.Matern32(lengthscale=1.5), lgp.Gaussian(0.05))
    data, key, new = series(model.likelihood, 240), jax.random.key(0), np.linspace(0, 3, 9)
    first = lgp.Data(data.X[:200], data.y[:200])
    posterior = lgp.fit(
        model, first, key=key, method=lgp.ExactGP(lgp.Markov()), learn_hyperparameters=False
    ).posterior
    posterior = posterior.update(data.X[200:220], data.y[200:220], key=key)
    assert posterior.sample_f(new, key=key, number=3).shape == (3, 9)
    compilations.clear()
    posterior = posterior.update(data.X[220:233], data.y[220:233], key=key)
    assert posterior.sample_f(new[:5], key=key, number=3).shape == (3, 5)
    assert compilations == []


def test_a_gpu_joins_many_things_in_groups(monkeypatch):
    assert not elements.join_in_groups(4096)
    monkeypatch.setattr(elements, "on_processor", lambda: False)
    assert elements.join_in_groups(4096)
    assert not elements.join_in_groups(8)
