"""Inference from batches: what it must equal, where it must come to, and how it resumes."""

import dataclasses
import itertools
import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.batches import loop as batch_loop
from latentgp.extensions.batches.class_subsampling import model_of_some, prior_of_some, some_classes
from latentgp.extensions.batches.loop import Plan
from latentgp.extensions.batches.natural_gradient import StochasticInference
from latentgp.extensions.batches.step_sizes import AdaptiveState
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations.inducing import representation as inducing
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.rows import RowsInMemory
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.site_inference.search.profiled_bound import converge, initial_sites
from latentgp.sites.augmentations import GammaPoissonPolyaGamma
from problems import StudentT
from slow import slow_parameters

KEY = jax.random.key(0)


def table(rows=1200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], rng


def regression(rows=1200):
    X, f, rng = table(rows)
    model = lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0]), lgp.Gaussian(0.05))
    return model, lgp.Data(X, f + 0.2 * rng.normal(size=rows))


def classification(rows=1200):
    X, f, rng = table(rows)
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-2 * f))).astype(float)
    return lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0], variance=2.0), lgp.Bernoulli()), lgp.Data(
        X, y
    )


def three_classes(rows=1200):
    model, data = classification(rows)
    data = lgp.Data(data.X, data.y + (data.X[:, 0] > 1))
    return lgp.LatentGP(model.kernel, lgp.Softmax(3)), data


coupled = partial(lgp.VariationalInference, coupled=True)
CASES = {
    "gaussian": (regression, lgp.CollapsedVI),
    "augmented": (classification, lgp.AugmentedVI),
    "variational": (classification, lgp.VariationalInference),
    "coupled": (three_classes, coupled),
}
EACH = [*(name for name in CASES if name != "coupled"), *slow_parameters("coupled")]


def fits(name, learn, **settings):
    """By batches, and by all rows at once."""
    problem, method = CASES[name]
    model, data = problem()
    whole = method(lgp.Inducing(points=data.X[:25]))
    by_batches = lgp.Stochastic(whole, batch_size=100, **settings)
    return data, [
        lgp.fit(model, data, key=KEY, method=m, learn_hyperparameters=learn)
        for m in (by_batches, whole)
    ]


@pytest.mark.parametrize("name", EACH)
def test_fixed_hyperparameters_come_to_the_posterior_of_all_rows(name):
    schedule = lgp.RobbinsMonro(power=1.0)
    data, (ours, whole) = fits(name, False, epochs=20, tolerance=0.0, schedule=schedule)
    mine, exact = (f.posterior.predict_f(data.X) for f in (ours, whole))
    spread = np.sqrt(exact.variance)
    assert np.sqrt(np.mean(((mine.mean - exact.mean) / spread) ** 2)) < 0.25
    np.testing.assert_allclose(np.sqrt(mine.variance), spread, rtol=0.05)
    gap = whole.posterior.log_evidence.value - ours.posterior.log_evidence.value
    assert -1e-6 < gap < 1.0


@pytest.mark.parametrize("schedule", [None, lgp.Adaptive()])
@pytest.mark.parametrize("name", EACH)
def test_learned_hyperparameters_are_as_good_as_from_all_rows(name, schedule):
    _, (ours, whole) = fits(name, True, epochs=15, schedule=schedule)
    evidences = [f.posterior.log_evidence.value for f in (ours, whole)]
    assert evidences[0] > evidences[1] - 5
    # Expectations over three coupled latents are by quasi-Monte Carlo.
    kind = "approximation" if name == "coupled" else "lower bound"
    assert {f.posterior.log_evidence.kind for f in (ours, whole)} == {kind}
    assert ours.diagnostics.trace_term == pytest.approx(whole.diagnostics.trace_term, rel=0.5)


def parts(problem, method, points=25, covariance="full"):
    """An algorithm with its data on the device, sites of all rows, and the posterior."""
    model, data = problem(300)
    inducing = lgp.Inducing(points=data.X[:points], covariance=covariance)
    algorithm = method(inducing).algorithm(model)
    data = data.to_device()
    sites = initial_sites(algorithm, model, data)
    return algorithm, model, data, algorithm.resume(model, data, sites)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", CASES)
def test_all_rows_as_one_batch_give_the_derivatives_of_all_rows(x64, name, covariance):
    if name == "coupled" and covariance == "diagonal":
        pytest.skip("latents that are coupled have a full covariance")
    algorithm, model, data, state = parts(*CASES[name], covariance=covariance)
    about = state.sites.about(prior_mean(model, data))
    data = data.reweighted(jnp.ones(data.size))

    def same(chunk, marginals):
        return about, jnp.sum(marginals.mean)

    read = algorithm.representation.read_batch(
        state.posterior, state.posterior.white_sites(), data, same, jnp.zeros(())
    )
    whole = algorithm.representation.pull_back(state.posterior, data.X, about)
    mine, theirs = (jax.tree.leaves((r.kernel, r.representation)) for r in (read, whole))
    assert mine
    # What is the same sum, whitened before or after, has other rounding.
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.max(np.abs(other)))


def in_batches(
    algorithm, model, start, total, batches, *, rate=0.02, decay=300.0, schedule=None, spread=None
):
    """The algorithm for batches, and its state at a model's hyper-parameters and a posterior."""
    rate, decay, total, batches = (jnp.asarray(v) for v in (rate, decay, total, batches))
    schedule, space = schedule or lgp.RobbinsMonro(), ParameterSpace(model)
    inference = StochasticInference(algorithm, space, schedule, rate, decay, spread, total, batches)
    return inference, inference.init(jnp.asarray(space.to_vector()), start)


def test_all_rows_as_one_batch_come_to_the_posterior_of_latents_that_are_coupled(x64):
    """From the prior, to that of updates of all rows' sites."""
    algorithm, model, data, state = parts(*CASES["coupled"], points=12)
    prior = algorithm.resume(model, data, algorithm.no_sites(state.sites.linear)).posterior
    inference, start = in_batches(algorithm, model, prior, 300.0, 1.0, rate=0.0)
    rows = data.reweighted(jnp.ones(data.size))

    @jax.jit
    def steps(start):
        def step(_, state):
            said = inference.read(state, rows).white
            white = state.white.towards(said, jnp.asarray(0.7))
            return state._replace(white=white, factor=white.factor())

        return inference.posterior(jax.lax.fori_loop(0, 40, step, start), model)

    found = steps(start)
    enough = dataclasses.replace(algorithm, tolerance=1e-14, max_updates=200)
    whole = converge(enough, model, data, state.sites).posterior
    ours, theirs = (posterior.marginals(data.X) for posterior in (found, whole))
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-6)
    np.testing.assert_allclose(ours.covariance, theirs.covariance, atol=1e-6)
    assert float(found.kl) == pytest.approx(float(whole.kl), abs=1e-6)
    away = theirs.covariance * (1 - jnp.eye(3))
    assert float(jnp.abs(away).max()) > 0.05


def whole_and_batches(x64):
    """An algorithm for batches of 64 of 300 rows, a state, and the epoch's batches, filled up."""
    algorithm, model, data, state = parts(*CASES["variational"])
    inference, state = in_batches(
        algorithm, model, state.posterior, 300.0, 5.0, rate=0.05, decay=200.0
    )
    rows = RowsInMemory(data.reweighted(jnp.linspace(0.5, 1.5, 300)))
    epoch = [jax.tree.map(jnp.asarray, block) for block in rows.epoch((3,), 64)]
    return inference, state, rows.data, epoch


@pytest.mark.slow
def test_batches_of_an_epoch_give_the_bound_of_all_rows_in_the_mean(x64):
    """The last one, filled up with rows of weight zero, too; so do their gradients."""
    inference, state, data, epoch = whole_and_batches(x64)
    whole, total = inference.read(state, data), float(data.total_weight)
    assert np.any(np.asarray(epoch[-1].weights) == 0)
    shares = [float(jnp.sum(batch.weights)) / total for batch in epoch]
    reads = [
        inference.read(state, batch.reweighted(batch.weights / share))
        for batch, share in zip(epoch, shares, strict=True)
    ]
    for told in zip(jax.tree.leaves(whole), *map(jax.tree.leaves, reads), strict=True):
        mean = sum(share * part for share, part in zip(shares, told[1:], strict=True))
        np.testing.assert_allclose(mean, told[0], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [lgp.RobbinsMonro(), lgp.RobbinsMonro(0.9, 10.0)])
def test_batches_that_weigh_more_count_as_much_more(schedule):
    """One row that stands for half of all."""
    X, f, rng = table(400)
    weights = np.ones(400)
    weights[7] = 400.0
    y = f + 0.3 * rng.normal(size=400)
    y[7] += 1.0
    model = lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0]), lgp.Gaussian(4.0))
    data, points = lgp.Data(X, y, weights=weights), lgp.Inducing(points=X[:25])
    batches = lgp.Stochastic(
        lgp.CollapsedVI(points), batch_size=20, epochs=100, tolerance=0.0, schedule=schedule
    )
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    known, found = (
        lgp.fit(model, data, method=method, **settings).posterior.mean_f(X)
        for method in (lgp.CollapsedVI(points), batches)
    )
    light = lgp.fit(
        model, data.reweighted(np.ones(400)), method=lgp.CollapsedVI(points), **settings
    ).posterior.mean_f(X)
    assert np.abs(light - known).max() > 0.5
    np.testing.assert_allclose(found, known, atol=0.05)


class Dented(lgp.RBF):
    """Its derivative at distance zero is no number."""

    def gram(self, X, Z):
        distance = jnp.sqrt(jnp.sum((X[:, None] - Z[None]) ** 2, axis=-1))
        return super().gram(X, Z) * jnp.exp(-0.1 * distance)


def test_a_search_that_cannot_move_has_not_converged():
    X, f, rng = table(200)
    model = lgp.LatentGP(Dented(lengthscale=1.0), lgp.Gaussian(0.1))
    data, points = lgp.Data(X, f + 0.3 * rng.normal(size=200)), lgp.Inducing(points=X[:15])
    method = lgp.Stochastic(lgp.CollapsedVI(points), batch_size=50, learn_points=True)
    told = lgp.fit(
        model, data, key=jax.random.key(0), method=method, learn_hyperparameters=False
    ).diagnostics
    assert not told.converged
    assert told.ending == "no batch led anywhere"
    assert any("steps on batches changed nothing" in warning for warning in told.warnings)


class Brittle(lgp.RBF):
    """A covariance at a variance of one alone."""

    def gram(self, X, Z):
        there = jnp.abs(self.variance - 1) < 1e-9
        return super().gram(X, Z) * jnp.where(there, 1.0, jnp.nan)


def test_hyperparameters_that_cannot_move_have_not_converged():
    """They stand still, but not as there is nothing to be gained."""
    _, data = regression(300)
    model = lgp.LatentGP(Brittle(lengthscale=[0.8, 2.0]), lgp.Gaussian(0.05))
    method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(20)), batch_size=100)
    told = lgp.fit(model, data, key=KEY, method=method).diagnostics
    assert not told.converged
    assert told.ending == "most steps on batches could not move the hyper-parameters"
    assert "Hyper-parameters could not move in 18 of 18 steps on batches" in told.warnings[0]
    assert "smaller learning_rate" in told.warnings[0]


@pytest.mark.slow
def test_steps_that_lead_down_have_not_converged():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, (400, 4))
    y = np.sin(2 * X[:, 0] * X[:, 1]) + X[:, 2] + 0.1 * rng.normal(size=400)
    net = eqx.nn.MLP(4, 2, width_size=8, depth=1, activation=jax.nn.tanh, key=jax.random.key(1))
    model = lgp.LatentGP(Deep(net), lgp.Gaussian(0.1))
    method = lgp.Stochastic(
        lgp.CollapsedVI(lgp.Inducing(60)), batch_size=100, epochs=15, learning_rate=0.3
    )
    result = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method)
    assert result.history.bound.max() - float(result.posterior.log_evidence) > 100
    assert not result.diagnostics.converged
    # Which of the two comes of steps this long depends on the last digits.
    assert re.search("led down|could not move", result.diagnostics.verdict)


class Deep(lgp.Kernel):
    """On features that a network makes."""

    net: eqx.nn.MLP
    base: lgp.Kernel = lgp.RBF()

    def __call__(self, x, z):
        return self.base(self.net(x), self.net(z))


@pytest.mark.parametrize(
    ("bounds", "ends"),
    [
        ([4922, 4922, 4922, 4922, 4924, -8704], False),  # kin8nm under a deep kernel
        ([5662, 5691, 5692, 5700, 5710, 5686], False),
        ([5700, 5710, 5692, 5700, 5710, 5686], True),
        ([5700, 5650, 5740, 5690, 5640, 5700], True),  # falls by less than its noise
    ],
)
def test_a_bound_that_falls_is_no_end(bounds, ends):
    assert batch_loop.stands_still(np.array(bounds, float), 5.0, 70.0) == ends


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lgp.Adaptive(window=0.5), "window must be at least 1"),
        (lambda: lgp.Stochastic(epochs=0), "epochs must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(make, says):
    with pytest.raises(lgp.InputError, match=says):
        make()


def test_targets_of_density_zero_have_no_bound_for_batches():
    X, f, _ = table(60)
    model = lgp.LatentGP(lgp.RBF(), lgp.HeavisideMulticlass(3))
    data = lgp.Data(X, np.digitize(f, [-0.5, 0.5]).astype(float))
    method = lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(10)))
    with pytest.raises(lgp.InputError, match="density of zero; use ExpectationPropagation"):
        lgp.fit(model, data, key=jax.random.key(0), method=method)


@pytest.mark.slow
def test_rows_that_fill_a_batch_up_change_nothing(x64):
    inference, state, _, epoch = whole_and_batches(x64)
    filled = epoch[-1]
    real = filled.select(np.asarray(filled.weights) > 0)
    assert real.size < filled.size
    steps = [inference.step(state, batch, jnp.sum(batch.weights)) for batch in (filled, real)]
    for one, other in zip(*map(jax.tree.leaves, steps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_what_rows_say_is_positive_whatever_the_rounding(x64):
    """Of a million rows, where K_mm is as badly conditioned as it may be."""
    X, f, rng = table(1000)
    kernel = lgp.RBF(lengthscale=[8.0, 12.0], variance=400.0)
    model = lgp.LatentGP(kernel, lgp.Bernoulli())
    algorithm = lgp.VariationalInference(lgp.Inducing(points=X[:200])).algorithm(model)
    y = (rng.uniform(size=1000) < 1 / (1 + np.exp(-f))).astype(float)
    data = lgp.Data(X, y, weights=np.full(1000, 1000.0)).to_device()
    sites = initial_sites(algorithm, model, data.reweighted(jnp.ones(1000)))
    posterior = algorithm.resume(model, data.reweighted(jnp.ones(1000)), sites).posterior
    schedule = lgp.RobbinsMonro(power=0.7, delay=100.0)
    inference, state = in_batches(
        algorithm, model, posterior, 1e6, 1000.0, rate=0.05, schedule=schedule
    )
    said = inference.read(state, data).white.precision[0]
    assert np.linalg.eigvalsh(said).min() > -1e-3
    after, info = inference.step(state, data, jnp.asarray(1000.0))
    assert info.share == pytest.approx(100.0**-0.7)
    assert np.all(after.vector != state.vector)


def test_sites_that_batches_made_stay_the_same_factor_under_another_kernel(x64):
    algorithm, _, _, state = parts(*CASES["gaussian"])
    from latentgp.representations.inducing.posterior import WhiteSites

    posterior, representation = state.posterior, algorithm.representation
    other = representation.prior(lgp.RBF(lengthscale=[1.0, 1.5], variance=1.4)).factor
    rng = np.random.default_rng(0)
    root = rng.normal(size=(1, 25, 25))
    white = WhiteSites(jnp.asarray(rng.normal(size=(1, 25))), jnp.asarray(root @ root.mT))
    carried = white.carried(posterior.factor.inverse, other)
    u = posterior.factor.lower[0] @ rng.normal(size=25)

    def log_factor(white, factor):
        v = factor.inverse[0] @ u
        return white.linear[0] @ v - 0.5 * v @ white.precision[0] @ v

    np.testing.assert_allclose(
        log_factor(carried, other), log_factor(white, posterior.factor), rtol=1e-6
    )


def test_negative_precisions_stay_inside_the_cone():
    X, f, rng = table(600)
    y = f + 0.1 * rng.standard_t(2.0, 600)
    model = lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0]), StudentT(scale=0.05))
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(20)),
        batch_size=20,
        epochs=3,
        schedule=lgp.RobbinsMonro(delay=1.0),
    )
    fit = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, learn_hyperparameters=False)
    assert np.isfinite(fit.posterior.log_evidence.value)
    assert np.all(fit.posterior.predict_f(X).variance > 0)


def largest_of_three(rows=1200):
    """Three classes, nearly certain, by the largest of three latent functions."""
    X, f, _ = table(rows)
    latents = np.stack([f, 2 * np.cos(X[:, 1]) - 0.5, -f], axis=1)
    model = lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0]), lgp.RobustMax(3))
    return model, lgp.Data(X, np.argmax(latents, axis=1).astype(float))


@pytest.mark.slow
def test_negative_precisions_do_not_carry_the_mean_off():
    model, data = largest_of_three()
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(points=data.X[:40])), batch_size=40, epochs=8
    )
    losses = []

    def look(progress):
        probabilities = progress.posterior().predict(data.X).probabilities
        own = np.take_along_axis(probabilities, data.y.astype(int)[:, None], axis=1)
        losses.append(-np.mean(np.log(own)))

    lgp.fit(model, data, key=KEY, method=method, callback=look)
    assert max(losses) < 1.5 * max(losses[0], 0.02)
    assert losses[-1] < max(losses[0], 0.03)  # where the start is that good, little is left


def test_half_of_what_is_known_is_kept(x64):
    rng = np.random.default_rng(0)
    root = jnp.asarray(rng.normal(size=(2, 6, 6)))
    known = WhiteSites(jnp.zeros((2, 6)), root @ root.mT)
    least = WhiteSites(known.linear, 0.5 * known.precision - 0.5 * jnp.eye(6))
    for shift, kept in ((1e-6, True), (-1e-6, False)):
        one = jnp.zeros((2, 6, 6)).at[1, 2, 2].set(shift)
        other = WhiteSites(known.linear, least.precision + 1e-9 * jnp.eye(6) + one)
        assert known.keeps_half(other) == kept


def softmax_with_memory(rows, method=lgp.VariationalInference):
    """Three latent functions that share a kernel, after rows that are gone."""
    model, data = three_classes(rows)
    first = method(lgp.Inducing(points=data.X[20:30]))
    converged = lgp.fit(model, data, key=KEY, method=first, learn_hyperparameters=False)
    return model, data, converged.posterior.remembered()


def own_kernels(rows):
    """Two latent functions with kernels of their own."""
    X, f, rng = table(rows)
    kernels = lgp.PerLatent(lgp.RBF(lengthscale=0.8), lgp.RBF(lengthscale=2.0))
    y = f + np.exp(0.3 * X[:, 1] - 1) * rng.normal(size=rows)
    return lgp.LatentGP(kernels, lgp.HeteroscedasticGaussian()), lgp.Data(X, y), None


DERIVATIVES = {
    **{name: (lambda rows, p=p: (*p(rows), None), m) for name, (p, m) in CASES.items()},
    "softmax with memory": (softmax_with_memory, lgp.VariationalInference),
    "coupled with memory": (partial(softmax_with_memory, method=coupled), coupled),
    "kernels of their own": (own_kernels, lgp.VariationalInference),
    "coupled, of their own": (own_kernels, coupled),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("gaussian", "softmax")))
        for name in DERIVATIVES
    ],
)
def test_derivatives_are_those_of_the_bound_wherever_the_sites_are(x64, name):
    """Sites of sixty rows, say, while four hundred are read."""
    problem, method = DERIVATIVES[name]
    model, data, remembered = problem(400)
    inducing = lgp.Inducing(points=data.X[:15], remembered=remembered)
    algorithm = method(inducing).algorithm(model)
    rows = data.reweighted(np.ones(data.size)).to_device()
    start = algorithm.init(model, data.select(np.arange(60)).to_device()).posterior
    inference, state = in_batches(algorithm, model, start, 400.0, 1.0, spread=jnp.ones(2))
    read = inference.read(state, rows)

    @jax.jit
    def bound(vector, points):
        there = inference.carried(state, vector, points)
        return inference.read(there._replace(factor=there.white.factor()), rows).bound

    for slope, place in [(read.gradient, 0), (read.in_centres, 1)]:
        here = [state.vector, state.centres]
        for index in list(np.ndindex(slope.shape))[:6]:
            values = []
            for step in (1e-5, -1e-5):
                moved = list(here)
                moved[place] = here[place].at[index].add(step)
                values.append(float(bound(*moved)))
            measured = (values[0] - values[1]) / 2e-5
            np.testing.assert_allclose(slope[index], measured, rtol=1e-4, atol=1e-3)


def test_a_batch_that_is_no_number_changes_nothing(x64):
    """It ends, too: halving its share for ever would not."""
    model, data = classification(200)
    algorithm = lgp.VariationalInference(lgp.Inducing(points=data.X[:10])).algorithm(model)
    start = algorithm.init(model, data.to_device()).posterior
    inference, state = in_batches(algorithm, model, start, 200.0, 2.0)
    spoiled = np.array(data.X[:100])
    spoiled[3] = np.nan
    batch = lgp.Data(data.X[:100], data.y[:100], weights=np.ones(100)).to_device()
    step = jax.jit(lambda state, batch: inference.step(state, batch, jnp.sum(batch.weights)))
    fine, _ = step(state, batch)
    batch = eqx.tree_at(lambda d: d.X, batch, jnp.asarray(spoiled))
    after, info = step(state, batch)
    assert float(info.share) == 0
    for one, other in zip(jax.tree.leaves(after[:3]), jax.tree.leaves(state[:3]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(fine.vector, state.vector)


@pytest.mark.slow
def test_a_derivative_that_is_no_number_changes_nothing_either(x64, monkeypatch):
    """Adam would remember it for ever."""
    model, data = classification(200)
    algorithm = lgp.VariationalInference(lgp.Inducing(points=data.X[:10])).algorithm(model)
    start = algorithm.init(model, data.to_device()).posterior
    inference, state = in_batches(algorithm, model, start, 200.0, 1.0, schedule=lgp.Adaptive())
    read = StochasticInference.read

    def spoiled(self, state, batch):
        found = read(self, state, batch)
        return found._replace(gradient=found.gradient.at[0].set(jnp.nan))

    monkeypatch.setattr(StochasticInference, "read", spoiled)
    after, info = inference.step(
        state, data.reweighted(np.ones(200)).to_device(), inference.total_weight
    )
    assert float(info.share) == 0
    for one, other in zip(jax.tree.leaves(after[:7]), jax.tree.leaves(state[:7]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_natural_parameters_move_where_hyper_parameters_cannot(x64):
    model, data = classification(200)
    algorithm = lgp.VariationalInference(lgp.Inducing(points=data.X[:10])).algorithm(model)
    start = algorithm.init(model, data.to_device()).posterior
    batch = data.reweighted(np.ones(200)).to_device()

    def stepped(rate):
        inference, state = in_batches(algorithm, model, start, 200.0, 1.0, rate=rate)
        return state, inference.step(state, batch, inference.total_weight)

    state, (after, info) = stepped(1e4)  # e^10000
    np.testing.assert_array_equal(after.vector, state.vector)
    still, (there, usual) = stepped(0.0)
    np.testing.assert_allclose(info.share, usual.share)
    np.testing.assert_allclose(after.white.precision, there.white.precision, rtol=1e-6)
    assert float(jnp.max(jnp.abs(after.white.linear - still.white.linear))) > 0.1
    np.testing.assert_allclose(after.factor.lower, after.white.factor().lower)


def test_one_row_far_off_does_not_carry_hyper_parameters_away(x64):
    """Adam remembers a derivative for ten steps, and this one is thousands of times the usual."""
    model, data = regression(1200)
    algorithm = lgp.CollapsedVI(lgp.Inducing(points=data.X[:15])).algorithm(model)
    part = data.select(np.arange(100)).to_device()
    start = algorithm.init(model, part).posterior
    inference, state = in_batches(algorithm, model, start, 1200.0, 12.0, rate=0.05, decay=1e9)

    @jax.jit
    def step(state, batch):
        return inference.step(state, batch, jnp.sum(batch.weights))[0]

    def batch(number, shift=0.0):
        rows = data.select(np.arange(100) + 100 * number)
        y = rows.y + shift * (np.arange(100) == 7)
        return lgp.Data(rows.X, y, weights=np.ones(100)).to_device()

    for number in range(24):
        state = step(state, batch(number % 12))
    before, after = state.adam, step(state, batch(0, 300.0)).adam
    usual = np.sqrt(np.asarray(before.nu[0]) / (1 - 0.999**24))
    told = np.abs(np.asarray(after.mu[0]) - 0.9 * np.asarray(before.mu[0])) / 0.1
    assert np.all(told <= 5 * usual * (1 + 1e-9))
    assert np.any(told > 4.9 * usual)


class Stop(Exception):
    pass


def searched(schedule=None, **settings):
    model, data = classification(900)
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(15)),
        batch_size=64,
        epochs=4,
        tolerance=0.0,
        schedule=schedule,
    )
    return lgp.fit(model, data, key=KEY, method=method, **settings)


def searched_adaptively(**settings):
    return searched(lgp.Adaptive(), **settings)


def searched_of_some_classes(**settings):
    model, data = many_classes(900)
    method = lgp.Stochastic(
        lgp.AugmentedVI(lgp.Inducing(10)), batch_size=64, epochs=4, tolerance=0.0, classes=3
    )
    return lgp.fit(model, data, key=KEY, method=method, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["callback", "error"])
@pytest.mark.parametrize("run", [searched, searched_adaptively, searched_of_some_classes])
def test_a_resumed_search_ends_with_the_same_bits(tmp_path, run, ending):
    def ends(progress):
        if progress.steps >= 30 and ending == "error":
            raise Stop
        return progress.steps >= 30

    file = tmp_path / "search"
    if ending == "error":
        with pytest.raises(Stop):
            run(checkpoint=file, callback=ends)
    else:
        cut = run(checkpoint=file, callback=ends)
        assert cut.diagnostics.ending == "the callback asked for it"
    resumed, whole = run(checkpoint=file), run()
    assert len(resumed.history.bound) == len(whole.history.bound) == 4
    for one, other in zip(
        jax.tree.leaves(resumed.posterior), jax.tree.leaves(whole.posterior), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("first", [{"epochs": 2}, {"tolerance": 1e9, "patience": 1}])
def test_a_search_goes_on_under_other_rules_of_stopping(tmp_path, first):
    model, data = regression(600)
    points, file = lgp.CollapsedVI(lgp.Inducing(10)), tmp_path / "search"

    def run(checkpoint, **stopping):
        stopping = {"epochs": 5, "tolerance": 0.0, "patience": 3} | stopping
        method = lgp.Stochastic(points, batch_size=100, **stopping)
        return lgp.fit(model, data, key=KEY, method=method, checkpoint=checkpoint)

    short, resumed, whole = run(file, **first), run(file), run(None)
    assert len(short.history.bound) == 2
    np.testing.assert_array_equal(resumed.history.bound, whole.history.bound)
    for one, other in zip(
        jax.tree.leaves(resumed.posterior), jax.tree.leaves(whole.posterior), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(10)), batch_size=200, epochs=1)
    model, data = regression(400)
    file = tmp_path / "search"
    lgp.fit(model, data, key=KEY, method=method, checkpoint=file)
    with pytest.raises(lgp.InputError, match="made with another set of rows"):
        lgp.fit(model, regression(500)[1], key=KEY, method=method, checkpoint=file)


def test_learned_points_raise_the_bound():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, 1000)
    data = lgp.Data(X, np.sin(2 * X) + 0.2 * rng.normal(size=1000))
    model = lgp.LatentGP(lgp.RBF(lengthscale=0.8), lgp.Gaussian(0.04))
    start = np.linspace(-2.5, 2, 7)[:, None]
    fits = [
        lgp.fit(
            model,
            data,
            key=KEY,
            method=lgp.Stochastic(
                lgp.CollapsedVI(lgp.Inducing(points=start)),
                batch_size=100,
                epochs=20,
                tolerance=0.0,
                patience=20,
                learn_points=learn,
            ),
            learn_hyperparameters=False,
        ).posterior
        for learn in (False, True)
    ]
    np.testing.assert_array_equal(fits[0].latent.centres, start)
    best = lgp.CollapsedVI(lgp.Inducing(points=fits[1].latent.centres))
    best = lgp.fit(model, data, key=KEY, method=best, learn_hyperparameters=False).posterior
    bounds = [float(posterior.log_evidence) for posterior in (*fits, best)]
    assert bounds[1] > bounds[0] + 100
    assert bounds[1] > bounds[2] - 5


def test_a_bound_that_stands_still_ends_the_search():
    model, data = regression(1000)
    method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(25)), batch_size=100, epochs=200)
    fit = lgp.fit(model, data, key=KEY, method=method)
    assert fit.diagnostics.ending == "the bound stood still"
    assert fit.diagnostics.converged
    bounds = fit.history.bound
    assert len(bounds) < 100
    window = max(3, len(bounds) // 4)
    assert bounds[-window:].mean() - bounds[-2 * window : -window].mean() <= 1e-4 * data.size
    assert bounds[-window:].mean() > bounds[:3].mean()


def test_a_round_is_a_second_of_work_and_patience_counts_batches():
    def plan(rows, columns, batch_size=1000):
        return Plan.of(rows, batch_size, 5, 1e-4, 3, columns)

    least, few = plan(1_000_000, 8), plan(1_000_000, 100)
    many, short = plan(1_000_000, 500), plan(40_781, 500)
    assert (least.round_size, least.patience) == (100, 3)
    assert (few.round_size, few.patience) == (20, 15)
    assert (many.round_size, many.patience) == (8, 38)
    assert plan(1_000_000, 200, batch_size=8000).round_size == 6
    assert short.round_size * short.rounds_of(40_781) >= short.batches == 41
    assert short.patience * short.round_size >= 3 * 41
    assert plan(1000, 10_000_000).round_size == 1
    looks = [p.scored_every * p.round_size for p in (least, few, many, short)]
    assert looks == [100, 100, 104, 42]


def test_a_start_through_fewer_points_leads_to_the_same_place(monkeypatch):
    model, data = classification(1200)
    whole = lgp.VariationalInference(lgp.Inducing(points=data.X[:60]))
    method = lgp.Stochastic(whole, batch_size=100, epochs=10)
    evidences = []
    for most in (1000, 20):
        monkeypatch.setattr(inducing, "_COARSE_POINTS", most)
        coarse = inducing.coarse(whole.representation)
        assert len(coarse.points) == min(most, 60)
        posterior = lgp.fit(model, data, key=KEY, method=method).posterior
        assert len(posterior.latent.centres) == 60
        evidences.append(float(posterior.log_evidence))
    assert evidences[0] == pytest.approx(evidences[1], abs=1.0)
    assert evidences[0] != evidences[1]


def test_held_out_rows_end_the_search():
    model, data = classification(1000)
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(15)), batch_size=100, epochs=40, held_out=0.2
    )
    seen = []
    fit = lgp.fit(model, data, key=KEY, method=method, callback=seen.append)
    assert fit.diagnostics.converged
    assert np.all(np.isfinite([progress.held_out for progress in seen]))
    assert len(seen) < 40


def test_held_out_rows_are_looked_at_once_in_a_hundred_batches_or_an_epoch(monkeypatch):
    monkeypatch.setattr(batch_loop, "_FEW_BATCHES", 3)
    monkeypatch.setattr(batch_loop, "_FEW_NUMBERS", 0)
    model, data = classification(1000)
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(15)), batch_size=100, epochs=4, held_out=0.1
    )
    seen = []
    lgp.fit(model, data, key=KEY, method=method, callback=seen.append)
    scores = [progress.held_out for progress in seen]
    assert len(scores) == 12
    assert [a != b for a, b in itertools.pairwise(scores)] == [False, False, True] * 3 + [False] * 2


class TestSource:
    def test_an_epoch_has_every_row_once(self):
        data = lgp.Data(np.arange(23.0), np.zeros(23))
        blocks = list(RowsInMemory(data).epoch((1,), 5))
        assert [block.size for block in blocks] == [5] * 5
        real = np.concatenate([b.X[np.asarray(b.weights) > 0, 0] for b in blocks])
        assert sorted(real) == list(range(23))
        assert not np.array_equal(real, np.arange(23))

    def test_the_beginning_can_be_left_out(self):
        source = RowsInMemory(lgp.Data(np.arange(23.0), np.zeros(23)))
        whole, rest = (list(source.epoch((7,), 5, start)) for start in (0, 3))
        for one, other in zip(whole[3:], rest, strict=True):
            np.testing.assert_array_equal(one.X, other.X)

    def test_a_sample_counts_as_all(self):
        data = lgp.Data(np.arange(23.0), np.zeros(23), weights=np.linspace(1, 2, 23))
        assert RowsInMemory(data).sample(7).total_weight == pytest.approx(data.total_weight)


class TestSchedules:
    def test_robbins_monro(self):
        schedule = lgp.RobbinsMonro(power=0.7, delay=2.0)
        state, shares = schedule.init(None), []
        for _ in range(3):
            share, state = schedule.share(state, jnp.zeros(1))
            shares.append(float(share))
        np.testing.assert_allclose(shares, np.arange(2.0, 5.0) ** -0.7, rtol=1e-6)

    def test_adaptive_is_long_where_steps_agree_and_short_where_they_are_noise(self):
        schedule = lgp.Adaptive(window=5.0)
        rng = np.random.default_rng(0)
        ends = []
        for signal in (10.0, 0.0):
            state = schedule.init(jnp.zeros(50))
            for _ in range(60):
                share, state = schedule.share(state, jnp.asarray(signal + rng.normal(size=50)))
            assert isinstance(state, AdaptiveState)
            ends.append(float(share))
        assert ends[0] > 0.8
        assert ends[1] < 0.2

    @pytest.mark.parametrize("settings", [{"power": 0.5}, {"power": 1.1}, {"delay": 0.5}])
    def test_what_does_not_converge_is_refused(self, settings):
        with pytest.raises(lgp.InputError, match=r"RobbinsMonro.(power|delay) must be"):
            lgp.RobbinsMonro(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": lgp.VariationalInference()}, "needs inducing variables"),
        ({"batch_size": 0}, "at least 1"),
        ({"held_out": 1.0}, r"in \[0, 1\)"),
        ({"learning_rate": -1.0}, "learning_rate"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.Stochastic(**settings)


@pytest.mark.parametrize("method", [lgp.Laplace, lgp.ExpectationPropagation])
def test_rules_that_keep_rows_are_refused(method):
    with pytest.raises(lgp.InputError, match="keeps sites of every row"):
        lgp.Stochastic(method(lgp.Inducing(5)))


def test_batches_take_no_restarts():
    model, data = regression(100)
    with pytest.raises(lgp.InputError, match="takes no restarts"):
        lgp.fit(model, data, key=KEY, method=lgp.Stochastic(), restarts=1)


def many_classes(rows=900, classes=6):
    X, _, rng = table(rows)
    centres = rng.uniform(-3, 3, (classes, 2))
    y = np.argmin(np.sum((X[:, None] - centres) ** 2, 2) + rng.gumbel(size=(rows, classes)), 1)
    model = lgp.LatentGP(
        lgp.RBF(lengthscale=[1.0, 1.0], variance=3.0), lgp.LogisticSoftmax(classes)
    )
    return model, lgp.Data(X, y.astype(float))


class TestSomeClasses:
    @pytest.mark.parametrize("told", [True, *slow_parameters(False)])
    @pytest.mark.slow
    def test_what_a_step_reads_of_them_is_what_all_classes_say(self, x64, told):
        """Where all are equally certain: at the prior, and where something is known of each."""
        model, data = many_classes()
        data = data.reweighted(np.ones(data.size)).to_device()
        points = lgp.Inducing(points=np.asarray(data.X[:15]))
        some = model_of_some(model, 3, 2)
        rules = [lgp.AugmentedVI(points).algorithm(m) for m in (model, some)]
        total, one = jnp.asarray(float(data.size)), jnp.ones(())
        every, few = (
            StochasticInference(
                rule, ParameterSpace(m), lgp.RobbinsMonro(), one, one, None, total, one
            )
            for rule, m in zip(rules, (model, some), strict=True)
        )
        inference = some_classes(few, model, KEY)
        vector = jnp.asarray(every.space.to_vector())
        root = jax.random.normal(KEY, (15, 15)) / 3
        linear = jnp.linspace(-2.0, 2.0, 15) * told

        def start(inference, rule, model):
            state = inference.init(vector, prior_of_some(rule, model))
            classes = len(state.white.linear)
            white = jnp.tile(linear, (classes, 1)), jnp.tile(root @ root.T * told, (classes, 1, 1))
            white = WhiteSites(*white)
            return state._replace(white=white, factor=white.factor())

        known = start(few, rules[1], some)
        state = inference.init(vector, few.posterior(known, some))
        whole = every.read(start(every, rules[0], model), data)
        mean_gradient = np.zeros(vector.shape)
        draws = list(itertools.combinations(range(6), 3))
        for drawn in draws:
            drawn = jnp.array(drawn[::-1])
            rows = inference.among(state, state.looked_at, data, drawn)
            mine = inference.inference.read(state.looked_at, rows)
            np.testing.assert_allclose(mine.white.linear, whole.white.linear[drawn], rtol=1e-9)
            precision = whole.white.precision[drawn]
            np.testing.assert_allclose(mine.white.precision, precision, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(mine.bound, whole.bound, rtol=1e-9)
            mean_gradient += mine.gradient / len(draws)
        np.testing.assert_allclose(mean_gradient, whole.gradient, rtol=1e-9)

    @pytest.mark.slow
    def test_they_come_to_the_posterior_of_all(self):
        model, data = many_classes()
        points = lgp.Inducing(points=data.X[:15])
        method = lgp.Stochastic(
            lgp.AugmentedVI(points), batch_size=300, epochs=80, classes=3, tolerance=0.0
        )
        settings = {"key": KEY, "learn_hyperparameters": False}
        ours = lgp.fit(model, data, method=method, **settings).posterior
        whole = lgp.fit(model, data, method=lgp.AugmentedVI(points), **settings).posterior
        mine, all_ = (p.predict(data.X[:200]).probabilities for p in (ours, whole))
        assert np.abs(mine - all_).max() < 0.1
        assert np.abs(mine - all_).mean() < 0.02
        assert whole.log_evidence.value - 25 < ours.log_evidence.value

    def test_hyper_parameters_follow(self):
        model, data = many_classes()
        method = lgp.Stochastic(
            lgp.AugmentedVI(lgp.Inducing(points=data.X[:15])), batch_size=300, epochs=30, classes=3
        )
        far = lgp.LatentGP(lgp.RBF(lengthscale=[9.0, 9.0], variance=0.1), model.likelihood)
        held, learned = (
            lgp.fit(far, data, key=KEY, method=method, learn_hyperparameters=learn).posterior
            for learn in (False, True)
        )
        assert learned.log_evidence.value > held.log_evidence.value + 20

    @pytest.mark.parametrize(
        ("parts", "settings", "says"),
        [
            ({"likelihood": lgp.ScaledLogisticSoftmax(6)}, {}, "LogisticSoftmax"),
            ({}, {"classes": 6}, "from 2 to 5"),
            ({"kernel": lgp.PerLatent(*[lgp.RBF()] * 6)}, {}, "all classes share"),
            ({"mean": lgp.PerLatentMean(*[lgp.ZeroMean()] * 6)}, {}, "all classes share"),
            ({}, {"schedule": lgp.Adaptive()}, "RobbinsMonro"),
            ({}, {"learn_points": True}, "learn_points"),
            ({}, {"method": lgp.VariationalInference(lgp.Inducing(5))}, "AugmentedVI"),
            (
                {},
                {"method": lgp.AugmentedVI(lgp.Inducing(5), augmentation=GammaPoissonPolyaGamma())},
                "registered augmentation",
            ),
        ],
    )
    def test_what_has_no_classes_to_draw_is_refused(self, parts, settings, says):
        model, data = many_classes(60)
        parts = {"kernel": model.kernel, "likelihood": model.likelihood} | parts
        settings = {"method": lgp.AugmentedVI(lgp.Inducing(5)), "classes": 3} | settings

        def fitted():
            method = lgp.Stochastic(**settings)
            return lgp.fit(lgp.LatentGP(**parts), data, key=KEY, method=method)

        with pytest.raises(lgp.InputError, match=says):
            fitted()

    def test_a_prior_mean_of_several_inputs_is_shared(self):
        model, data = many_classes(120)
        model = lgp.LatentGP(model.kernel, model.likelihood, lgp.LinearMean(slope=[0.1, -0.1]))
        method = lgp.AugmentedVI(lgp.Inducing(5))
        method = lgp.Stochastic(method, batch_size=60, epochs=2, classes=3)
        bound = lgp.fit(model, data, key=KEY, method=method).posterior.log_evidence.value
        assert np.isfinite(bound)


@pytest.mark.slow
def test_values_given_are_kept_where_few_points_would_lead_astray(monkeypatch):
    """Three points find a sine of many periods to be noise, and batches do not find back."""
    monkeypatch.setattr(inducing, "_COARSE_POINTS", 3)
    X = np.linspace(0, 20, 600)
    chance = 1 / (1 + np.exp(-6 * np.sin(3 * X)))
    y = (np.random.default_rng(0).uniform(size=600) < chance).astype(float)
    model = lgp.LatentGP(lgp.RBF(0.4, variance=4.0), lgp.Bernoulli())
    method = lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(40)), batch_size=100, epochs=4)
    fit = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method)
    assert float(fit.posterior.log_evidence) > -200  # from what three points find, -305


def test_noise_of_repeated_rounded_targets_is_at_least_that_of_rounding():
    X = np.random.default_rng(0).uniform(0, 4, (80, 1))
    X = np.vstack([X, X[:10]])
    model = lgp.LatentGP(lgp.RBF(0.5), lgp.Gaussian(0.2))
    own = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(number=20)), batch_size=40, epochs=40)
    fit = lgp.fit(model, lgp.Data(X, np.floor(X[:, 0])), method=own, key=KEY)
    np.testing.assert_allclose(fit.model.likelihood.noise_variance, 1 / 12)
