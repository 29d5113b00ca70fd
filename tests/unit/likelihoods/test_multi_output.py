"""Several outputs a row: their laws, what is missing, and the exact joint posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.likelihoods import Marginals
from latentgp.numerics.quadrature import hermite_nodes

MIXING = np.array([[1.0, 0.4], [-0.6, 1.3]])
NOISE = np.array([0.3, 0.5])
UNITS = {"centre": [2.0, -1.0], "scale": [0.5, 3.0]}
LIKELIHOODS = [
    lgp.LinearCoregionalisation(MIXING, NOISE, **UNITS),
    lgp.GPRegressionNetwork(MIXING[:, :1], NOISE, **UNITS),
]
Y = np.array([[1.5, 0.3], [2.6, -2.0], [np.nan, 1.0], [2.1, np.nan], [np.nan, np.nan]])


def beliefs(likelihood):
    draws = np.random.default_rng(0).normal(size=(2, len(Y), likelihood.latent_size))
    return Marginals(0.5 * draws[0], 0.1 + 0.3 * draws[1] ** 2)


def at_nodes(likelihood, y, mean, variance):
    """Log p(y | f) at many nodes, shape (N, S), and the nodes' weights."""
    nodes, weights = hermite_nodes(likelihood.latent_size, {2: 100, 3: 30}[likelihood.latent_size])
    f = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    over = jax.vmap(jax.vmap(likelihood.log_prob, (None, 0, None)), (0, 0, None))
    return np.asarray(jax.jit(over, static_argnums=2)(y, f, HashableNothing())), weights


class HashableNothing(dict):
    def __hash__(self):
        return 0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: type(one).__name__)
class TestLaw:
    def test_density_adds_up_to_one_and_missing_outputs_are_integrated_out(self, likelihood):
        mean, variance = beliefs(likelihood)
        grid = likelihood.centre[:, None] + likelihood.scale[:, None] * np.linspace(-13, 13, 131)
        y = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1)
        steps = grid[:, 1] - grid[:, 0]
        for row in range(2):
            f, v = mean[[row]], variance[[row]]
            spread = [np.broadcast_to(a, (y[..., 0].size, a.shape[1])) for a in (f, v)]
            both = likelihood.predictive_log_prob(y.reshape(-1, 2), Marginals(*spread), {})
            density = np.exp(np.asarray(both)).reshape(y.shape[:2])
            np.testing.assert_allclose(density.sum() * steps.prod(), 1, atol=1e-6)
            given = jax.vmap(likelihood.log_prob, (0, None, None))(y.reshape(-1, 2), f[0], {})
            np.testing.assert_allclose(np.exp(given).sum() * steps.prod(), 1, atol=1e-6)
            for output in (0, 1):
                alone = np.where(np.arange(2) == output, y[65, 65], np.nan)[None]
                marginal = likelihood.predictive_log_prob(alone, Marginals(f, v), {})
                known = density.sum(axis=1 - output)[65] * steps[1 - output]
                np.testing.assert_allclose(np.exp(marginal), known, rtol=1e-6)

    def test_expectations_are_those_of_quadrature(self, likelihood):
        f = beliefs(likelihood)
        log_prob, weights = at_nodes(likelihood, Y, *f)
        expected = likelihood.expected_log_prob(Y, f, {})
        np.testing.assert_allclose(expected, log_prob @ weights, rtol=1e-10, atol=1e-10)
        # The loadings of a network are integrated out by fixed points.
        tolerance = 1e-3 if isinstance(likelihood, lgp.GPRegressionNetwork) else 1e-6
        for power in (1.0, 0.4):
            value = likelihood.log_expected_power(Y, f, {}, power, f)
            known = np.log(np.exp(power * log_prob) @ weights)
            np.testing.assert_allclose(value, known, rtol=tolerance, atol=tolerance)

    def test_rows_without_any_output_say_nothing(self, likelihood):
        f = beliefs(likelihood)
        for method in (likelihood.expected_log_prob, likelihood.predictive_log_prob):
            np.testing.assert_allclose(method(Y, f, {})[-1], 0, atol=1e-14)

    def test_gradients_are_finite_where_outputs_are_missing(self, likelihood):
        def total(mixing, f):
            import equinox as eqx

            own = eqx.tree_at(lambda one: one.mixing, likelihood, mixing)
            terms = own.expected_log_prob(Y, f, {})
            return jnp.sum(terms + own.predictive_log_prob(Y, f, {}))

        point = (jnp.asarray(likelihood.mixing), beliefs(likelihood))
        slopes = jax.grad(total, (0, 1))(*point)
        assert all(np.all(np.isfinite(slope)) for slope in jax.tree.leaves(slopes))
        step = 1e-6 * np.ones_like(likelihood.mixing)
        change = total(point[0] + step, *point[1:]) - total(point[0] - step, *point[1:])
        np.testing.assert_allclose(np.sum(slopes[0] * step) * 2, change, rtol=1e-6)

    def test_moments_quantiles_and_draws_agree(self, likelihood):
        mean, variance = marginals = beliefs(likelihood)
        centre, spread = likelihood.predictive_moments(marginals, {})
        levels = np.array([0.05, 0.5, 0.8])
        quantiles = likelihood.predictive_quantiles(levels, marginals, {})
        assert quantiles.shape == (len(Y), 2, 3)
        for index, level in enumerate(levels):
            below = likelihood.predictive_cdf(quantiles[..., index], marginals, {})
            np.testing.assert_allclose(below, np.full((len(Y), 2), level), atol=1e-10)
        count = 20_000
        key_f, key_y = jax.random.split(jax.random.key(0))
        f = mean + np.sqrt(variance) * jax.random.normal(key_f, (count, *mean.shape))
        keys = jax.random.split(key_y, f.shape[:2])
        draw = jax.vmap(jax.vmap(likelihood.sample, (0, 0, None)), (0, 0, None))
        y = np.asarray(draw(keys, f, {}))
        error = np.sqrt(np.asarray(spread) / count)
        assert np.all(np.abs(y.mean(axis=0) - centre) < 5 * error)
        fourth = np.mean((y - y.mean(axis=0)) ** 4, axis=0)
        assert np.all(np.abs(y.var(axis=0) - spread) < 5 * np.sqrt(fourth / count))
        share = np.mean(y[..., None] <= np.asarray(quantiles), axis=0)
        np.testing.assert_allclose(share, np.broadcast_to(levels, share.shape), atol=0.02)


X = np.sort(np.random.default_rng(0).uniform(0, 10, 25))[:, None]
KERNEL = lgp.PerLatent(lgp.RBF(2.0), lgp.Matern32(1.0))


def drawn(missing=0.0):
    y = np.stack([np.sin(X[:, 0]), 3 + 20 * np.cos(X[:, 0]), X[:, 0]], axis=1)
    generator = np.random.default_rng(1)
    y += generator.normal(size=y.shape) * [0.1, 2.0, 0.3]
    return np.where(generator.uniform(size=y.shape) < missing, np.nan, y)


def exactly(model, y, new=None):
    """The joint normal law of all outputs that are there: log density, and means at new inputs."""
    likelihood, outputs = model.likelihood, y.shape[1]
    places = X if new is None else np.concatenate([X, new])
    grams = np.asarray(model.kernel.symmetric_gram(places))
    prior = np.einsum("pq,qnm,rq->npmr", likelihood.mixing, grams, likelihood.mixing)
    prior *= likelihood.scale[:, None, None] * likelihood.scale
    prior = prior.reshape(len(places) * outputs, -1)
    noise = np.tile(likelihood.noise_variance * likelihood.scale**2, len(X))
    seen = np.flatnonzero(~np.isnan(y).ravel())
    covariance = prior[np.ix_(seen, seen)] + np.diag(noise[seen])
    away = (y - likelihood.centre).ravel()[seen]
    value = multivariate_normal.logpdf(away, cov=covariance)
    if new is None:
        return value
    cross = prior[y.size :][:, seen]
    mean = likelihood.centre + (cross @ np.linalg.solve(covariance, away)).reshape(-1, outputs)
    variance = np.diag(prior[y.size :, y.size :] - cross @ np.linalg.solve(covariance, cross.T))
    return (
        value,
        mean,
        variance.reshape(-1, outputs) + likelihood.noise_variance * (likelihood.scale**2),
    )


def conditioned(model, y, method="auto"):
    return lgp.fit(
        model, lgp.Data(X, y), key=jax.random.key(0), method=method, learn_hyperparameters=False
    ).posterior


@pytest.mark.usefixtures("x64")
class TestCoregionalisation:
    NEW = np.array([[0.3], [4.0], [12.0]])

    def test_orthogonal_mixing_makes_it_exact(self):
        noise = np.array([0.1, 0.2, 0.4])
        columns = np.linalg.qr(np.array([[1.0, 0.3], [-0.5, 1.0], [0.2, 0.8]]))[0]
        mixing = np.sqrt(noise)[:, None] * columns * [3.0, 1.5]
        likelihood = lgp.LinearCoregionalisation(
            mixing, noise, centre=[0.0, 3.0, 5.0], scale=[1.0, 15.0, 3.0]
        )
        model, y = lgp.LatentGP(KERNEL, likelihood), drawn()
        posterior = conditioned(model, y)
        evidence, mean, variance = exactly(model, y, self.NEW)
        np.testing.assert_allclose(float(posterior.log_evidence), evidence, rtol=1e-6)
        predictive = posterior.predict(self.NEW)
        np.testing.assert_allclose(predictive.mean, mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(predictive.variance, variance, rtol=1e-5)

    @pytest.mark.parametrize(
        "method",
        [lgp.VariationalInference(), lgp.Laplace(), lgp.ExpectationPropagation()],
        ids=repr,
    )
    def test_coupled_sites_are_exact_and_white_latents_are_a_nugget_that_outputs_share(
        self, method
    ):
        y = drawn(missing=0.3)
        likelihood = lgp.LinearCoregionalisation(
            [[1.0, 0.5, 0.4], [-0.6, 1.3, 0.5], [0.2, 0.7, 0.6]],
            [0.02, 0.03, 0.05],
            scale=[1, 9, 3],
        )
        kernel = lgp.PerLatent(lgp.RBF(2.0), lgp.Matern32(1.0) + lgp.White(0.2), lgp.White())
        model = lgp.LatentGP(kernel, likelihood)
        posterior = conditioned(model, y, method)
        places = np.concatenate([X, self.NEW])  # rows of the fit lack outputs that others tell of
        evidence, mean, variance = exactly(model, y, places)
        assert posterior.log_evidence.kind == "exact"
        np.testing.assert_allclose(float(posterior.log_evidence), evidence, rtol=1e-10)
        predictive = posterior.predict(places)
        np.testing.assert_allclose(predictive.mean, mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(predictive.variance, variance, rtol=1e-8)

    def test_gradient_of_the_exact_evidence(self):
        y = drawn(missing=0.3)
        likelihood = lgp.LinearCoregionalisation.for_targets(y, latents=2)
        model = lgp.LatentGP(KERNEL, likelihood)
        data, method = lgp.Data(X, y), lgp.VariationalInference()
        slope = jax.grad(lambda model: lgp.log_evidence(model, data, method))(model).likelihood
        step = 1e-5 * np.array([[1.0, -2.0], [0.5, 1.0], [-1.0, 0.3]])
        ends = [
            exactly(
                lgp.LatentGP(
                    KERNEL,
                    lgp.LinearCoregionalisation(
                        likelihood.mixing + sign * step,
                        likelihood.noise_variance * np.exp(sign * 1e-5),
                        centre=likelihood.centre,
                        scale=likelihood.scale,
                    ),
                ),
                y,
            )
            for sign in (1, -1)
        ]
        known = np.sum(slope.mixing * step)
        known += 1e-5 * np.sum(slope.noise_variance * likelihood.noise_variance)
        np.testing.assert_allclose((ends[0] - ends[1]) / 2, known, rtol=1e-5)

    def test_outputs_of_one_function_need_no_coupling(self):
        y, noise = drawn(missing=0.2), [0.2, 0.3, 0.4]
        likelihood = lgp.LinearCoregionalisation([[1.0], [0.5], [-0.3]], noise, scale=[1, 9, 3])
        model = lgp.LatentGP(lgp.PerLatent(lgp.RBF(1.5) + lgp.White(0.3)), likelihood)
        posterior = conditioned(model, y)
        evidence, mean, variance = exactly(model, y, X)
        assert posterior.log_evidence.kind == "exact"
        np.testing.assert_allclose(float(posterior.log_evidence), evidence, rtol=1e-10)
        np.testing.assert_allclose(posterior.predict(X).mean, mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(posterior.predict(X).variance, variance, rtol=1e-8)

    def test_independent_latents_give_a_lower_bound_and_the_exact_mean(self):
        y = drawn(missing=0.3)
        likelihood = lgp.LinearCoregionalisation.for_targets(y, latents=2)
        model = lgp.LatentGP(KERNEL, likelihood)
        posterior = conditioned(model, y, lgp.VariationalInference(coupled=False))
        evidence, mean, _ = exactly(model, y, self.NEW)
        assert evidence - 5 < float(posterior.log_evidence) < evidence
        # Of a normal law the best independent one has the same mean.
        predictive = posterior.predict(self.NEW)
        np.testing.assert_allclose(predictive.mean, mean, rtol=1e-3, atol=1e-3)
        latent = posterior.predict_f(self.NEW).variance
        assert np.all(latent < self.exact_variances_of_f(model, y) * (1 + 1e-6))

    def exact_variances_of_f(self, model, y):
        grams = np.asarray(model.kernel.symmetric_gram(np.concatenate([X, self.NEW])))
        seen = np.flatnonzero(~np.isnan(y).ravel())
        mixing = model.likelihood.mixing
        # Of every output that is there with every latent function, in units of scale.
        cross = np.einsum("pq,qnm->qmnp", mixing, grams[:, : len(X), len(X) :])
        cross = cross.reshape(len(mixing[0]), len(self.NEW), -1)[:, :, seen]
        prior = np.einsum("pq,qnm,rq->npmr", mixing, grams[:, : len(X), : len(X)], mixing)
        covariance = prior.reshape(y.size, y.size)[np.ix_(seen, seen)]
        covariance += np.diag(np.tile(model.likelihood.noise_variance, len(X))[seen])
        known = np.einsum("qms,qms->mq", cross @ np.linalg.inv(covariance), cross)
        return np.diagonal(grams, axis1=1, axis2=2)[:, len(X) :].T - known

    def test_one_output_of_one_function_is_a_plain_gaussian_model(self):
        y, noise = drawn()[:, :1], 0.3
        mixed = lgp.LinearCoregionalisation([[1.0]], noise)
        several = conditioned(lgp.LatentGP(lgp.RBF(1.5), mixed), y)
        one = conditioned(lgp.LatentGP(lgp.RBF(1.5), lgp.Gaussian(noise)), y[:, 0])
        np.testing.assert_allclose(float(several.log_evidence), float(one.log_evidence), rtol=1e-9)
        np.testing.assert_allclose(
            several.predict(self.NEW).variance[:, 0], one.predict(self.NEW).variance, rtol=1e-9
        )

    @pytest.mark.slow
    def test_a_network_whose_weights_do_not_vary_is_a_coregionalisation(self):
        y, mixing = drawn(missing=0.2), np.array([[1.0], [-0.4], [0.7]])
        still = [lgp.RBF(1.0, 1e-14)] * 3
        network = lgp.LatentGP(
            lgp.PerLatent(lgp.RBF(2.0), *still), lgp.GPRegressionNetwork(mixing, 0.2)
        )
        plain = lgp.LatentGP(lgp.RBF(2.0), lgp.LinearCoregionalisation(mixing, 0.2))
        network, plain = conditioned(network, y), conditioned(plain, y)
        evidences = float(network.log_evidence), float(plain.log_evidence)
        np.testing.assert_allclose(*evidences, rtol=1e-6)
        densities = [one.predict(X).log_prob(y) for one in (network, plain)]
        np.testing.assert_allclose(*densities, rtol=1e-6, atol=1e-6)

    def test_weights_are_copies_where_outputs_are_missing(self):
        y = drawn()
        y[::2, 0] = y[3] = np.nan
        counts = 1.0 + np.arange(len(X)) % 2
        again = np.repeat(np.arange(len(X)), counts.astype(int))
        weighted = lgp.Data(X, y, weights=counts).merged()
        copied = lgp.Data(X[again], y[again]).merged()
        assert weighted.size == len(X) - 1
        for one, other in zip(jax.tree.leaves(weighted), jax.tree.leaves(copied), strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.slow
    def test_draws_of_a_sampler(self):
        y = drawn(missing=0.2)
        likelihood = lgp.LinearCoregionalisation.for_targets(y, latents=2)
        model = lgp.LatentGP(KERNEL, likelihood)
        method = lgp.NUTS(chains=2, warmup=200, draws=400)
        posterior = conditioned(model, y, method)
        _, mean, variance = exactly(model, y, self.NEW)
        predictive = posterior.predict(self.NEW)
        spread = np.sqrt(variance)
        assert np.all(np.abs(predictive.mean - mean) < 0.25 * spread)
        np.testing.assert_allclose(predictive.variance, variance, rtol=0.3)
        lower, upper = predictive.interval(0.9)
        assert lower.shape == upper.shape == (3, 3)
        assert np.all((lower < predictive.mean) & (predictive.mean < upper))
        key = jax.random.key(1)
        assert predictive.sample(key=key, number=5).shape == (5, 3, 3)
        assert posterior.sample_y(self.NEW, key=key, number=5).shape == (5, 3, 3)
        assert predictive.log_prob(y[:3]).shape == (3,)


class TestEstimator:
    @pytest.fixture(scope="class")
    def targets(self):
        return drawn(missing=0.2)

    @pytest.fixture(scope="class")
    def fitted(self, targets):
        return lgp.GPRegressor(random_state=0, max_evaluations=30).fit(X, targets)

    @pytest.mark.slow
    def test_shapes(self, fitted, targets):
        mean, deviation = fitted.predict(X[:4], return_std=True)
        assert mean.shape == deviation.shape == (4, 3)
        np.testing.assert_allclose(fitted.predict(X[:4]), mean)
        assert fitted.sample_y(X[:4], n_samples=7).shape == (4, 3, 7)
        assert fitted.log_predictive_density(X, targets).shape == (len(X),)
        lower, upper = fitted.predict_interval(X[:4], 0.5)
        assert np.all((lower < mean) & (mean < upper))

    def test_it_learns(self, fitted, targets):
        away = (fitted.predict(X) - targets) / np.nanstd(targets, axis=0)
        assert np.nanmean(away**2) < 0.1

    def test_a_missing_output_is_known_from_the_nugget_that_others_of_its_row_share(self):
        generator = np.random.default_rng(3)
        shared = np.sin(X[:, 0]) + generator.normal(size=len(X))
        y = shared[:, None] * [1.0, -2.0, 0.5] + 0.05 * generator.normal(size=(len(X), 3))
        hidden = np.where((np.arange(len(X)) % 3 == 1)[:, None] * [1, 0, 0], np.nan, y)
        fitted = lgp.GPRegressor(random_state=0, max_evaluations=30).fit(X, hidden)
        assert all("White" in repr(kernel) for kernel in fitted.model_.kernel.each)
        assert fitted.posterior_.log_evidence.kind == "exact"
        mean, deviation = fitted.predict(X, return_std=True)
        away = (mean - y)[np.isnan(hidden)]
        assert np.sqrt(np.mean(away**2)) < 0.15  # of 0.7 by places alone
        assert np.all(np.abs(away) < 4 * deviation[np.isnan(hidden)])

    def test_a_kernel_of_the_users_own_gets_no_nugget(self, targets):
        fitted = lgp.GPRegressor(lgp.RBF(2.0), random_state=0, max_evaluations=30)
        fitted.fit(X, targets)
        assert all(isinstance(kernel, lgp.RBF) for kernel in fitted.model_.kernel.each)

    def test_other_units_of_the_outputs_change_nothing_else(self, targets):
        factor, shift = np.array([1e6, 1e-6, -3.0]), np.array([1e7, 0.0, 4.0])
        # One evaluation, because a search magnifies the rounding.
        one, other = (lgp.GPRegressor(random_state=0, max_evaluations=1) for _ in range(2))
        with pytest.warns(UserWarning, match="ended early"):
            one.fit(X, targets)
        with pytest.warns(UserWarning, match="ended early"):
            other.fit(X, factor * targets + shift)
        back = (other.predict(X) - shift) / factor
        np.testing.assert_allclose(back, one.predict(X), rtol=1e-9, atol=1e-9)

    def test_it_is_saved_and_loaded(self, fitted, tmp_path):
        again = lgp.load(fitted.save(tmp_path / "model"))
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))

    @pytest.mark.slow
    def test_a_network_is_fitted(self, targets):
        network = lgp.GPRegressor(likelihood="regression-network", max_evaluations=5)
        with pytest.warns(UserWarning, match="ended early"):
            network.fit(X, targets)
        assert network.model_.likelihood.latent_size == 4
        assert np.all(np.isfinite(network.predict(X)))


HARD = {
    "one row": lambda X, y: (X[:1], y[:1]),
    "two rows": lambda X, y: (X[:2], y[:2]),
    "every row twice": lambda X, y: (np.repeat(X, 2, axis=0), np.repeat(y, 2, axis=0)),
    "rows that disagree": lambda X, y: (np.concatenate([X, X]), np.concatenate([y, -y])),
    "constant inputs": lambda X, y: (np.ones_like(X), y),
    "constant outputs": lambda X, y: (X, np.ones_like(y)),
    "an output seen once": lambda X, y: (
        X,
        np.where(np.arange(len(y))[:, None] * [0, 1, 0], np.nan, y),
    ),
    "an outlier": lambda X, y: (X, np.where(y == y[3, 1], 1e6, y)),
    "inputs of a million": lambda X, y: (1e6 * X, y),
    "inputs far away": lambda X, y: (X + 1e8, y),
    "units far apart": lambda X, y: (X, y * [1e12, 1.0, 1e-12]),
    "equal outputs": lambda X, y: (X, np.repeat(y[:, :1], 3, axis=1)),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", HARD.values(), ids=HARD)
def test_hard_inputs_have_finite_answers(case):
    inputs, outputs = case(X, drawn())
    fitted = lgp.GPRegressor(random_state=0, max_evaluations=10).fit(inputs, outputs)
    mean, deviation = fitted.predict(inputs[:3], return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(deviation > 0)
    assert np.all(np.isfinite(fitted.log_predictive_density(inputs[:3], outputs[:3])))


PLAIN, KEY = lgp.LatentGP(lgp.RBF(), lgp.Gaussian()), jax.random.key(0)


class TestErrors:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda y: lgp.Data(X, np.full((25, 2), np.inf)), "infinity in 25 row"),
            (lambda y: lgp.Data(X, y[:5]), "one row for each of X's 25"),
            (lambda y: lgp.GPRegressor().fit(X, np.full((25, 2), np.nan)), "missing in every row"),
            (
                lambda y: lgp.GPRegressor().fit(X, np.where([1, 0, 1], y, np.nan)),
                r"missing in all rows of column\(s\) \[1\]",
            ),
            (lambda y: lgp.fit(PLAIN, lgp.Data(X, y[:, :1]), key=KEY), r"shape \(rows,\), got"),
            (lambda y: lgp.GPRegressor(likelihood="student-t").fit(X, y), "is of one output"),
            (lambda y: lgp.GPRegressor(likelihood=lgp.Gaussian()).fit(X, y), "needs y of shape"),
            (lambda y: lgp.LinearCoregionalisation.for_targets(y, 4), "1 to 3 latents"),
            (lambda y: lgp.LinearCoregionalisation.for_targets(y[:, 0]), "shape"),
            (lambda y: lgp.LinearCoregionalisation([1.0, 2.0]), r"shape \(outputs, latents\)"),
            (lambda y: lgp.LinearCoregionalisation([[1.0]], [1.0, 2.0]), "one for each of 1"),
            (lambda y: lgp.LinearCoregionalisation([[1.0]], scale=0.0), "scale must be positive"),
        ],
    )
    def test_message(self, call, message):
        with pytest.raises(lgp.InputError, match=message):
            call(drawn())

    def test_targets_of_a_prediction(self):
        model = lgp.LatentGP(lgp.RBF(), lgp.LinearCoregionalisation([[1.0], [2.0], [0.1]]))
        predictive = conditioned(model, drawn()).predict(X[:2])
        with pytest.raises(lgp.InputError, match=r"needs y of shape \(rows, 3\)"):
            predictive.log_prob([[1.0, 2.0], [1.0, 2.0]])
