"""Mixtures of Gaussians: the bound and its derivatives, steps, refusals, exact cases."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.expectations import Expectations
from latentgp.extensions.black_box.mixtures.family import GaussianMixture, entropy
from latentgp.extensions.black_box.mixtures.gradient import Free, objective
from latentgp.extensions.black_box.mixtures.natural import nearest_by_rows, stepped
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.sites.gaussian import Rows

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
X = np.linspace(0.0, 3.0, 7)[:, None]
POINTS = np.linspace(0.2, 2.8, 4)[:, None]
COUNTS = np.array([0.0, 1, 3, 2, 1, 0, 4])
WEIGHTS = np.array([1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 1.0])
POISSON = lgp.LatentGP(lgp.RBF(0.8, 1.3), lgp.Poisson(), lgp.ConstantMean(0.2))
STUDENT = lgp.LatentGP(lgp.Matern52(0.8, 1.3), lgp.StudentT(0.5, 4.0))


def bound_of(model, coordinates, representation=None, expectations=None):
    representation = representation or lgp.Inducing(points=POINTS)
    data = lgp.Data(X, COUNTS, weights=WEIGHTS)
    ready = representation.initialise(data.X, data.weights, model.kernel, KEY)
    space = ParameterSpace(model)
    learns = any(path.startswith("likelihood.") for path in space.paths)
    chosen = expectations or Expectations()
    return MixtureBound(space, ready, data.to_device(), chosen, coordinates, learns)


def mixture_of(components, size, diagonal):
    random = np.random.default_rng(1)
    mean = random.normal(size=(components, 1, size))
    precision = np.exp(random.normal(size=(components, 1, size)))
    if not diagonal:
        turn = random.normal(size=(components, 1, size, size))
        precision = np.einsum("kqij,kqlj->kqil", turn, turn) + np.eye(size)
    logs = np.log(random.dirichlet(np.ones(components)))
    return GaussianMixture(*(jnp.asarray(part) for part in (logs, mean, precision)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("diagonal", [False, True])
def test_entropy_is_the_sum_of_overlaps(diagonal):
    mixture = mixture_of(3, 2, diagonal)
    known = mixture.factorised()
    value = entropy(mixture.log_weights, mixture.mean, known.covariance, known.half_log_determinant)
    mean, covariance = np.asarray(mixture.mean[:, 0]), np.asarray(known.covariance[:, 0])
    if diagonal:
        covariance = np.stack([np.diag(own) for own in covariance])
    weights, expected = np.exp(mixture.log_weights), 0.0
    for k in range(3):
        inside = sum(
            weights[j] * multivariate_normal(mean[j], covariance[k] + covariance[j]).pdf(mean[k])
            for j in range(3)
        )
        expected -= weights[k] * np.log(inside)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    # Below the entropy itself, of many draws.
    draws = known.draws(KEY, 40_000)
    logs = known.log_densities(draws) + mixture.log_weights[None, :, None]
    own = -np.mean(jax.scipy.special.logsumexp(logs, axis=1), axis=1) @ weights
    direct = sum(
        w * multivariate_normal(m, S).pdf(np.asarray(draws[0, :, 0]))
        for w, m, S in zip(weights, mean, covariance, strict=True)
    )
    found = jax.scipy.special.logsumexp(logs, axis=1)[0]
    np.testing.assert_allclose(found, np.log(direct), rtol=1e-9)
    assert value < own
    single = entropy(jnp.zeros(1), mixture.mean[:1], known.covariance[:1],
                     known.half_log_determinant[:1])  # fmt: skip
    np.testing.assert_allclose(single, multivariate_normal(mean[0], covariance[0]).entropy())


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("components", [1, 2])
def test_terms_by_chunks_are_those_of_all_rows_at_once(components):
    rows, points = 700, 300  # chunks of 512 rows
    X = RANDOM.uniform(0, 3, (rows, 1))
    data = lgp.Data(X, RANDOM.poisson(1.0, rows), weights=RANDOM.uniform(0, 2, rows))
    bound = bound_of(POISSON, "white", lgp.Inducing(points=RANDOM.uniform(0, 3, (points, 1))))
    bound = dataclasses.replace(bound, data=data.to_device())
    mixture = mixture_of(components, points, diagonal=True)
    at_once = eqx.filter_jit(bound.evaluated)(
        POISSON.likelihood, bound.basis(POISSON), mixture, KEY
    )
    chunks = eqx.filter_jit(bound.terms)(POISSON, mixture, KEY)
    np.testing.assert_allclose(chunks, at_once.terms, rtol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("coordinates", ["white", "values"])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("components", [1, 2])
def test_slopes_are_those_of_differences(coordinates, diagonal, components):
    bound = bound_of(POISSON, coordinates)
    mixture = mixture_of(components, len(POINTS), diagonal)
    basis = eqx.filter_jit(bound.basis)(POISSON)
    at = eqx.filter_jit(bound.evaluated)(POISSON.likelihood, basis, mixture, KEY)

    @jax.jit
    def value(weights, mean, covariance):
        precision = 1 / covariance if diagonal else jnp.linalg.inv(covariance)
        moved = GaussianMixture(jnp.log(weights), mean, precision)
        return bound.evaluated(POISSON.likelihood, basis, moved, KEY).terms.bound

    whole = mixture.weights, mixture.mean, mixture.factorised().covariance
    direction = jax.tree.map(lambda a: jnp.asarray(RANDOM.normal(size=a.shape)), whole)
    if not diagonal:
        turned = direction[2] + jnp.swapaxes(direction[2], 2, 3)
        direction = (*direction[:2], turned)
    if components == 1:
        direction = (jnp.zeros(1), *direction[1:])
    step = 1e-6

    def moved(sign):
        return value(*(a + sign * step * d for a, d in zip(whole, direction, strict=True)))

    found = sum(jnp.vdot(a, d) for a, d in zip(at.slopes, direction, strict=True))
    np.testing.assert_allclose(found, (moved(1) - moved(-1)) / (2 * step), rtol=2e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("model", [POISSON, STUDENT], ids=["Poisson", "Student-t"])
@pytest.mark.parametrize("coordinates", ["white", "values"])
def test_slopes_in_hyperparameters_are_those_of_differences(model, coordinates):
    bound = bound_of(model, coordinates)
    mixture = mixture_of(2, len(POINTS), diagonal=False)
    vector = jnp.asarray(bound.space.to_vector())

    @jax.jit
    def slope_in(vector):
        at = bound.evaluated(model.likelihood, bound.basis(model), mixture, KEY)
        known = mixture.factorised()
        return jax.grad(lambda v: bound.worth(v, known, at.expected, KEY))(vector)

    found = slope_in(vector)

    @jax.jit
    def value(vector):
        own = bound.space.to_model(vector)
        return bound.evaluated(own.likelihood, bound.basis(own), mixture, KEY).terms.bound

    for place in range(len(vector)):
        step = 1e-6 * np.eye(len(vector))[place]
        slope = (value(vector + step) - value(vector - step)) / 2e-6
        np.testing.assert_allclose(found[place], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("spread", ["full", "diagonal", "linear"])
def test_plain_gradients_are_those_of_differences(spread):
    bound = bound_of(STUDENT, "white")
    components = 1 if spread == "linear" else 2
    mixture = mixture_of(components, len(POINTS), spread == "diagonal")
    shape = {"full": (4, 4), "diagonal": (4,), "linear": (7,)}[spread]
    free = Free(
        mixture.log_weights,
        mixture.mean,
        jnp.asarray(0.3 * RANDOM.uniform(size=(components, 1, *shape))),
        jnp.asarray(bound.space.to_vector()),
        jnp.asarray(POINTS),
        spread,
    )
    slope = jax.jit(jax.grad(objective, argnums=1, has_aux=True))(bound, free, KEY)[0]
    direction = jax.tree.map(lambda a: jnp.asarray(RANDOM.normal(size=a.shape)), free)

    def moved(step):
        there = jax.tree.map(lambda a, d: a + step * d, free, direction)
        return jax.jit(objective)(bound, there, KEY)[0]

    found = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, slope, direction)))
    np.testing.assert_allclose(found, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_expectations_by_draws_are_unbiased():
    """Means over keys are unbiased; the score function as a control variate saves variance."""
    model = lgp.LatentGP(lgp.RBF(), lgp.Softmax(3))
    y, random = np.array([0.0, 2.0]), np.random.default_rng(0)
    rows = Rows(jnp.asarray(y), None, {})
    marginals = Marginals(
        jnp.asarray(random.normal(size=(2, 3))), jnp.asarray(random.uniform(0.2, 1, (2, 3)))
    )
    exact = Expectations("reparameterised", 400_000)(model.likelihood, rows, marginals, KEY)
    spread = {}
    for name, expectations in {
        "with": Expectations("score", 32),
        "without": Expectations("score", 32, control=False),
        "gradients": Expectations("reparameterised", 32),
    }.items():
        keys = jax.random.split(KEY, 600)
        own = jax.jit(
            jax.vmap(lambda key, e=expectations: e(model.likelihood, rows, marginals, key))
        )(keys)
        for which in ("value", "in_mean", "in_variance"):
            draws = np.asarray(getattr(own, which))
            error = draws.std(axis=0) / np.sqrt(len(draws))
            away = np.abs(draws.mean(axis=0) - getattr(exact, which)) / error
            assert away.max() < 4.5, (name, which, away)
            spread[name, which] = draws.var(axis=0)
        np.testing.assert_allclose(own.error.mean(axis=0), spread[name, "value"], rtol=0.3)
    # Opposite draws take constants out of the slope in the mean by themselves.
    assert (spread["with", "in_mean"] < 1.01 * spread["without", "in_mean"]).all()
    assert (spread["with", "in_variance"] < 0.6 * spread["without", "in_variance"]).all()
    for which in ("in_mean", "in_variance"):
        assert (spread["gradients", which] < spread["with", which]).all()


@pytest.mark.usefixtures("x64")
def test_a_long_step_on_estimates_stays_among_proper_mixtures():
    bound = bound_of(STUDENT, "white", expectations=Expectations("score", 4))
    for diagonal in (False, True):
        mixture = mixture_of(2, len(POINTS), diagonal)
        basis = eqx.filter_jit(bound.basis)(STUDENT)
        at = eqx.filter_jit(bound.evaluated)(STUDENT.likelihood, basis, mixture, KEY)
        wild = at._replace(slopes=at.slopes._replace(covariance=50 * jnp.abs(at.slopes.covariance)))
        after = jax.jit(lambda at: stepped(at, jnp.ones(()), safely=True))(wild).precision
        eigenvalues = after if diagonal else jnp.linalg.eigvalsh(after)
        assert eigenvalues.min() > 0


GAUSSIAN = lgp.LatentGP(lgp.RBF(0.8, 1.3), lgp.Gaussian(0.2), lgp.ConstantMean(0.3))


@pytest.mark.parametrize(
    "method",
    [
        lgp.BlackBoxVI(),
        lgp.BlackBoxVI(covariance="linear"),
        lgp.BlackBoxVI(coordinates="values"),
        lgp.BlackBoxVI(lgp.Inducing(points=X)),
        lgp.BlackBoxVI(start_variance=0.001, start_means=RANDOM.normal(size=(1, 7, 1))),
    ],
    ids=["dense", "linear", "values", "points at all rows", "from elsewhere"],
)
def test_with_gaussian_noise_it_is_the_exact_posterior(method):
    data = lgp.Data(X, COUNTS, weights=WEIGHTS)
    settings = {"key": KEY, "learn_hyperparameters": False, "tolerance": 1e-10}
    exact = lgp.fit(GAUSSIAN, data, method=lgp.ExactGP(), **settings).posterior
    found = lgp.fit(GAUSSIAN, data, method=method, **settings).posterior
    new = np.linspace(-1, 4, 9)
    np.testing.assert_allclose(float(found.log_evidence), float(exact.log_evidence), rtol=1e-6)
    for one, other in zip(found.predict_f(new), exact.predict_f(new), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def size_of_a_signal(y, f):
    z = jnp.stack([y - f[0], y + f[0]]) / 0.3
    return jax.scipy.special.logsumexp(-0.5 * z**2) - jnp.log(0.3)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize(
    "likelihood",
    [lgp.CustomLikelihood(size_of_a_signal, 1), lgp.StudentT(0.2, 3.0)],
    ids=["two modes", "one mode"],
)
def test_several_linear_covariances_are_as_good_as_full_ones(likelihood, learn):
    """60 rows; the bound with 60 numbers a component is that of 1,830, to a tenth of a nat."""
    generator = np.random.default_rng(0)
    inputs = np.linspace(0, 6, 60)
    signal = 1.2 * np.sin(1.5 * inputs) + 0.2 * generator.standard_t(3, size=60)
    data = lgp.Data(inputs, signal if isinstance(likelihood, lgp.StudentT) else np.abs(signal))
    model = lgp.LatentGP(lgp.RBF(1.0), likelihood)
    settings = {"key": KEY, "learn_hyperparameters": learn}
    full, linear = (
        lgp.fit(model, data, method=lgp.BlackBoxVI(components=2, covariance=own), **settings)
        for own in ("full", "linear")
    )
    assert linear.diagnostics.converged
    lost = float(full.posterior.log_evidence) - float(linear.posterior.log_evidence)
    assert -0.1 < lost < 0.1  # there are several optima
    new = np.linspace(-1, 7, 9)
    for one, other in zip(full.posterior.predict_f(new), linear.posterior.predict_f(new),
                          strict=True):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.02)


@pytest.mark.usefixtures("x64")
def test_linear_covariances_keep_to_a_number_a_row():
    """The nearest change to one of the family is that change, and no row's number gains on it."""
    bound = bound_of(STUDENT, "white")
    mixtures = [mixture_of(2, len(POINTS), diagonal=False) for _ in range(2)]
    mixture = jax.tree.map(lambda *own: jnp.concatenate(own, axis=1), *(m[1:] for m in mixtures))
    mixture = GaussianMixture(mixtures[0].log_weights, *mixture)
    basis = eqx.filter_jit(bound.basis)(STUDENT)
    A = np.concatenate([basis.features, RANDOM.normal(size=basis.features.shape)])
    basis = basis._replace(features=jnp.asarray(A))
    own = jnp.asarray((A * RANDOM.normal(size=(2, 2, 1, A.shape[2]))) @ np.swapaxes(A, 1, 2))
    np.testing.assert_allclose(nearest_by_rows(mixture, basis, own), own, rtol=1e-5, atol=1e-7)
    other = RANDOM.normal(size=own.shape)
    other = jnp.asarray(other + np.swapaxes(other, 2, 3))
    left = other - nearest_by_rows(mixture, basis, other)
    S = mixture.factorised().covariance
    along = jnp.einsum("kqij,qin,qjm->kqnm", S @ left @ S, A, A)
    numbers = jnp.diagonal(along, axis1=2, axis2=3)
    assert jnp.abs(numbers).max() < 1e-6 * jnp.abs(jnp.einsum("kqij,qjn->kqin", S @ other, A)).max()


@pytest.mark.parametrize("representation", [lgp.Dense(), lgp.Inducing(points=POINTS)])
def test_one_component_by_quadrature_is_variational_inference(representation):
    data = lgp.Data(X, COUNTS, weights=WEIGHTS)
    ours, theirs = (
        lgp.fit(POISSON, data, key=KEY, method=method, tolerance=1e-9)
        for method in (
            lgp.BlackBoxVI(representation),
            lgp.VariationalInference(representation),
        )
    )
    assert ours.diagnostics.converged
    assert ours.posterior.log_evidence.kind == "lower bound"
    np.testing.assert_allclose(
        float(ours.posterior.log_evidence), float(theirs.posterior.log_evidence), rtol=1e-4
    )
    new = np.linspace(-1, 4, 9)
    for one, other in zip(ours.posterior.predict_f(new), theirs.posterior.predict_f(new),
                          strict=True):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=1e-3)
    terms = ours.diagnostics.finding("terms")
    assert terms.bound == pytest.approx(terms.entropy + terms.cross + terms.expected)
    assert terms.entropy == terms.entropy_by_draws


@pytest.mark.slow
def test_great_counts_do_not_lead_astray():
    random = np.random.default_rng(0)
    data = lgp.Data(X, random.poisson(np.exp(6 + np.sin(X[:, 0]))).astype(float))
    model = lgp.LatentGP(lgp.RBF(1.0, 1.0), lgp.Poisson())
    settings = {"key": KEY, "learn_hyperparameters": False}
    theirs = lgp.fit(model, data, method=lgp.VariationalInference(), **settings).posterior
    for method in (lgp.BlackBoxVI(), lgp.BlackBoxVI(estimator="score")):
        ours = lgp.fit(model, data, method=method, **settings).posterior
        np.testing.assert_allclose(ours.predict_f(X).mean, theirs.predict_f(X).mean, atol=0.02)


@pytest.mark.slow
def test_draws_and_batches_end_near_quadrature():
    random = np.random.default_rng(2)
    inputs = random.uniform(0, 5, 80)
    y = random.poisson(np.exp(np.sin(inputs))).astype(float)
    data, points = lgp.Data(inputs, y), lgp.Inducing(number=8)
    settings = {"key": KEY, "learn_hyperparameters": False}
    exact = lgp.fit(POISSON, data, method=lgp.BlackBoxVI(points), **settings).posterior
    for changes in (
        {"estimator": "score"},
        {"estimator": "reparameterised"},
        {"batch_size": 20},
        {"estimator": "score", "batch_size": 20, "optimiser": "adadelta", "steps": 1500},
    ):
        method = lgp.BlackBoxVI(points, **{"steps": 300, **changes})
        fit = lgp.fit(POISSON, data, method=method, **settings)
        # A bound: lower than the best one but for the error of an estimate.
        short = float(exact.log_evidence) - float(fit.posterior.log_evidence)
        assert -4 * fit.diagnostics.evidence_error - 0.01 < short < 0.5, (changes, short)
        away = fit.posterior.predict_f(inputs).mean - exact.predict_f(inputs).mean
        assert np.abs(away).max() < 0.2, changes


@pytest.mark.slow
def test_two_components_find_both_modes():
    """With y = |f| + noise either sign of f is as good: one Gaussian takes one of them."""
    folded = lgp.CustomLikelihood(lambda y, f: -0.5 * ((y - jnp.abs(f[0])) / 0.2) ** 2)
    model = lgp.LatentGP(lgp.RBF(1.0, 4.0), folded)
    data = lgp.Data(X, 2.0 + 0.3 * np.sin(X[:, 0]))
    one, two = (
        lgp.fit(
            model, data, key=KEY, learn_hyperparameters=False, method=lgp.BlackBoxVI(components=k)
        )
        for k in (1, 3)
    )
    terms = two.diagnostics.finding("terms")
    weights = np.array(terms.weights)
    means = two.posterior.components.means(X)[:, :, 0]
    up = weights[means.mean(axis=0) > 1].sum()
    assert min(up, 1 - up) > 0.2
    gain = terms.bound_by_draws - one.diagnostics.finding("terms").bound
    assert 0.4 < gain < np.log(2) + 4 * terms.entropy_error + 0.05
    assert two.posterior.log_evidence.value < terms.bound_by_draws
    variance = two.posterior.predict_f(X).variance
    assert (variance > 2 * one.posterior.predict_f(X).variance).all()
    assert "3 components" in two.diagnostics.verdict


@pytest.mark.parametrize("optimiser", ["alternating", "natural"])
def test_points_can_be_learned(optimiser):
    data = lgp.Data(X, COUNTS)
    far = lgp.Inducing(points=np.array([[2.6], [2.8], [3.0]]))
    held, learned = (
        lgp.fit(
            POISSON,
            data,
            key=KEY,
            learn_hyperparameters=False,
            method=lgp.BlackBoxVI(far, optimiser=optimiser, learn_points=learn, steps=200),
        )
        for learn in (False, True)
    )
    assert float(learned.posterior.log_evidence) > float(held.posterior.log_evidence) + 0.2
    assert np.abs(learned.posterior.latent.centres - far.points).max() > 0.05


def test_a_mixture_is_saved(tmp_path):
    fit = lgp.fit(POISSON, lgp.Data(X, COUNTS), key=KEY, method=lgp.BlackBoxVI(components=2))
    again = lgp.load(lgp.save(fit, tmp_path / "fit.latentgp"))
    new = np.linspace(0, 3, 5)
    np.testing.assert_array_equal(
        again.posterior.predict(new).mean, fit.posterior.predict(new).mean
    )
    assert again.diagnostics.finding("terms") == fit.diagnostics.finding("terms")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"components": 0}, "components must be at least 1"),
        ({"samples": 5}, "an even number"),
        ({"power": 0.3}, "power must be in"),
        ({"start_variance": 0.0}, "start_variance must be above 0"),
        ({"covariance": "linear", "components": 2, "estimator": "score"}, "by quadrature"),
        ({"covariance": "linear", "components": 2, "optimiser": "adadelta"}, "for natural steps"),
        (
            {"covariance": "linear", "representation": lgp.Inducing(5), "batch_size": 5},
            "is for all rows at once",
        ),
        ({"batch_size": 5}, "use Inducing"),
        ({"learn_points": True}, "needs inducing variables"),
        (
            {"representation": lgp.Inducing(5), "batch_size": 5, "optimiser": "alternating"},
            "looks at all rows",
        ),
        ({"representation": lgp.LatentNeighbours(3)}, "Dense"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.BlackBoxVI(**settings)


@pytest.mark.parametrize(
    ("method", "likelihood", "message"),
    [
        (lgp.BlackBoxVI(), lgp.HeavisideMulticlass(3), "density of zero"),
        (lgp.BlackBoxVI(estimator="reparameterised"), lgp.RobustMax(3), "no informative gradient"),
        (lgp.BlackBoxVI(start_means=np.zeros((2, 7, 3))), lgp.Softmax(3), "must have shape"),
    ],
)
def test_models_that_it_cannot_fit_are_refused(method, likelihood, message):
    data = lgp.Data(X, np.arange(7.0) % 3)
    with pytest.raises(lgp.InputError, match=message):
        lgp.fit(lgp.LatentGP(lgp.RBF(), likelihood), data, key=KEY, method=method)


@pytest.mark.parametrize("optimiser", ["natural", "alternating"])
def test_a_callback_ends_the_search_with_what_there_is(optimiser):
    seen = []
    fit = lgp.fit(
        POISSON,
        lgp.Data(X, COUNTS),
        key=KEY,
        method=lgp.BlackBoxVI(optimiser=optimiser),
        callback=lambda progress: seen.append(progress) or len(seen) == 2,
    )
    assert len(seen) == len(fit.history.bound) == 2
    assert not fit.diagnostics.converged
    assert "the callback asked for it" in fit.diagnostics.verdict
    assert np.isfinite(fit.posterior.predict_f(X).mean).all()
