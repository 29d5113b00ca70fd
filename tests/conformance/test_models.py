"""Every likelihood, with every method that takes it, on both representations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.testing import check_copies, check_evidence, check_method
from likelihood_cases import OF_RULES
from problems import KERNEL, X

POINTS = lgp.Inducing(points=X[:4] + 0.1)
METHODS = {
    "augmented": lgp.AugmentedVI,
    "variational": lgp.VariationalInference,
    "Laplace": lgp.Laplace,
    "EP": lgp.ExpectationPropagation,
}
LIKELIHOODS = [*OF_RULES, (lgp.HeavisideMulticlass(3), [0.0, 1.0, 2.0], None)]


def takes(method, likelihood):
    try:
        method().algorithm(lgp.LatentGP(KERNEL, likelihood))
    except lgp.InputError:
        return False
    return True


def pairs(at_every_change):
    """Likelihoods with the methods that take them; those not named are slow."""
    return [
        pytest.param(
            METHODS[name],
            *case,
            id=f"{name}-{type(case[0]).__name__}",
            marks=[pytest.mark.slow] * ((name, type(case[0])) not in at_every_change),
        )
        for case in LIKELIHOODS
        for name in METHODS
        if takes(METHODS[name], case[0])
    ]


def rows_of(targets, side, size, start=0):
    """A few rows that go through the targets, their numbers unlike each other."""
    y = np.asarray(targets, float)[np.arange(size) % len(targets)]
    own = {
        name: np.resize([value, 0.0] if name == "censored" else [value, value + 1], size)
        for name, value in (side or {}).items()
    }
    return lgp.Data(X[start : start + size], y, **own)


WITH_GRADIENT = [
    ("EP", lgp.Poisson),
    ("variational", lgp.Ordinal),
    ("Laplace", lgp.Weibull),
]


def name_of(method):
    return next(name for name in METHODS if METHODS[name] is method)


# Moments of a law with a peak are off by a little; a mode in a flat place is found to 1e-6.
ROUGH = {("EP", lgp.MaternNoise): 2e-5, ("Laplace", lgp.LogNoiseGaussian): 2e-5}


@pytest.mark.parametrize(
    "representation",
    [lgp.Dense(), pytest.param(POINTS, marks=pytest.mark.slow)],
    ids=["dense", "sparse"],
)
@pytest.mark.parametrize(("method", "likelihood", "targets", "side"), pairs(WITH_GRADIENT))
def test_evidence_and_gradient(method, likelihood, targets, side, representation):
    model = lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.2))
    tolerance = ROUGH.get((name_of(method), type(likelihood)), 1e-6)
    data = rows_of(targets, side, 7)
    check_method(method(representation), model, data, tolerance=tolerance)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("likelihood", "targets", "side"), OF_RULES, ids=lambda c: type(c).__name__
)
def test_third_derivatives_are_numbers(likelihood, targets, side):
    """The slope of Laplace's evidence has them, also where rows of several kinds are mixed."""
    data = rows_of(targets, side, 7)
    direction = jnp.ones(likelihood.latent_size)

    def third(y, f, own):
        """Derivative of the curvature along a direction, backwards, as a search has it."""

        def curvature(f):
            slope = jax.grad(lambda f: likelihood.log_prob(y, f, own))
            return direction @ jax.jvp(slope, (f,), (direction,))[1]

        return jax.grad(curvature)(f)

    for size in (-100.0, -8.0, -0.2, 0.3, 8.0, 100.0):
        f = size + 0.01 * jnp.arange(likelihood.latent_size) * jnp.ones((7, 1))
        rows = data.y, f, dict(data.side_information)
        assert np.all(np.isfinite(jax.vmap(third)(*rows))), size
        # Compiled as a whole, constants of a law are rounded in other ways.
        log_prob = jax.jit(jax.vmap(likelihood.log_prob))(*rows)
        assert likelihood.targets not in ("count", "class") or np.all(log_prob <= 0), size


# In nats, of two or three rows.
CLOSENESS = {"augmented": 1.0, "variational": 0.2, "Laplace": 0.5, "EP": 0.05}
# Measured where more is lost. A network's functions may all change sign, and one Gaussian sees half
# of them; nor does it see steps, or a function and its log noise that depend on one another.
LOSSES = {
    ("variational", lgp.GPRegressionNetwork): 0.9,
    ("Laplace", lgp.GPRegressionNetwork): 0.9,
    ("variational", lgp.LogNoiseGaussian): 0.5,
    ("variational", lgp.RobustMax): 2.0,
    ("EP", lgp.RobustMax): 0.1,
    ("EP", lgp.HeavisideMulticlass): 0.1,
}


def rows_that_can_be_integrated(likelihood, targets, side):
    return rows_of(targets, side, 3 if likelihood.latent_size == 1 else 2)


@pytest.mark.parametrize(
    ("method", "likelihood", "targets", "side"),
    pairs(
        [
            ("EP", lgp.Poisson),
            ("Laplace", lgp.Poisson),
            ("variational", lgp.Ordinal),
            ("augmented", lgp.StudentT),
        ]
    ),
)
def test_evidence_against_quadrature(method, likelihood, targets, side):
    name = name_of(method)
    model = lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.2))
    rough = likelihood.latent_size > 2 or not likelihood.is_smooth
    check_evidence(
        method(),
        model,
        rows_that_can_be_integrated(likelihood, targets, side),
        closeness=LOSSES.get((name, type(likelihood)), CLOSENESS[name]),
        tolerance=1e-2 if rough else 1e-4,
    )


WITH_NUMBERS = [
    ("augmented", lgp.Binomial),
    ("variational", lgp.Gaussian),
    ("EP", lgp.Poisson),
    ("Laplace", lgp.Weibull),
]


@pytest.mark.parametrize(("method", "likelihood", "targets", "side"), pairs(WITH_NUMBERS))
def test_a_weight_is_a_number_of_copies(method, likelihood, targets, side):
    model = lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.2))
    tolerance = 1e-6 if (name_of(method), type(likelihood)) in ROUGH else 1e-7
    check_copies(method(), model, rows_of(targets, side, 7), tolerance=tolerance)


def one_of_each():
    """Every likelihood once, those slow whose posterior has nothing that others have not."""
    at_every_change = lgp.Weibull, lgp.Ordinal, lgp.Poisson
    return [
        pytest.param(
            *case,
            id=type(case[0]).__name__,
            marks=[pytest.mark.slow] * (not isinstance(case[0], at_every_change)),
        )
        for case in LIKELIHOODS
    ]


@pytest.mark.parametrize(("likelihood", "targets", "side"), one_of_each())
def test_a_saved_posterior_predicts_the_same_bits(likelihood, targets, side, tmp_path):
    data = rows_of(targets, side, 7)
    model = lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.2))
    posterior = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False).posterior
    file = lgp.save(posterior, tmp_path / "posterior.latentgp")
    one, other = (p.predict(data.X, **data.side_information) for p in (posterior, lgp.load(file)))
    np.testing.assert_array_equal(one.log_prob(data.y), other.log_prob(data.y))
    assert np.all(np.isfinite(one.log_prob(data.y)))
    if likelihood.targets == "class":
        np.testing.assert_array_equal(one.probabilities, other.probabilities)
    else:
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(one.variance, other.variance)


# Truth, where the search starts, numbers of a row, and by how much (in logarithms) the learned
# parameters of 300 rows may be off: some three standard errors.
LEARNED = [
    (lgp.Gaussian(0.2), lgp.Gaussian(1.0), {"noise_variance": 0.1}, 0.4),
    (lgp.StudentT(0.4, 4.0), lgp.StudentT(1.0, 8.0), {}, 0.8),
    (lgp.LaplaceNoise(0.4), lgp.LaplaceNoise(1.0), {}, 0.3),
    (lgp.MaternNoise(0.4), lgp.MaternNoise(1.0), {}, 0.3),
    (lgp.LogNegativeBinomial(1.5), lgp.LogNegativeBinomial(5.0), {"exposure": 8.0}, 0.5),
    (lgp.NegativeBinomial(4.0), lgp.NegativeBinomial(1.0), {}, 0.6),
    (lgp.Ordinal([-0.8, 0.2, 1.3]), lgp.Ordinal.of(4), {}, 0.4),
    (lgp.Gamma(3.0), lgp.Gamma(1.0), {}, 0.3),
    (lgp.Weibull(2.0), lgp.Weibull(1.0), {"censored": 0.0}, 0.3),
    (lgp.Beta(12.0), lgp.Beta(5.0), {}, 0.4),
    (lgp.ScaledLogisticPoisson(20.0), lgp.ScaledLogisticPoisson(5.0), {}, 0.3),
    (lgp.LogNoiseGaussian(0.3), lgp.LogNoiseGaussian(1.0), {}, 0.4),
    (lgp.AsymmetricLaplace(0.2, level=0.8), lgp.AsymmetricLaplace(1.0, level=0.8), {}, 0.3),
    (lgp.LogNormal(0.2), lgp.LogNormal(1.0), {}, 0.3),
    (lgp.GeneralisedPareto(0.4), lgp.GeneralisedPareto(0.1), {}, 0.7),
    (lgp.Tweedie(1.6, 0.7), lgp.Tweedie(), {}, 0.3),
    (lgp.BetaBinomial(4.0), lgp.BetaBinomial(1.0), {"trials": 12.0}, 0.5),
    (lgp.ZeroInflated(lgp.Poisson(), 0.4), lgp.ZeroInflated(lgp.Poisson()), {"exposure": 8.0}, 0.3),
    (lgp.Hurdle(lgp.Poisson(), 0.4), lgp.Hurdle(lgp.Poisson()), {"exposure": 8.0}, 0.3),
    (lgp.ZeroOneInflated(lgp.Beta(12.0), 0.3), lgp.ZeroOneInflated(lgp.Beta()), {}, 0.4),
    (lgp.HeteroscedasticGaussian(25.0), lgp.HeteroscedasticGaussian(1.0), {}, 0.6),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "start", "side", "tolerance"),
    [
        pytest.param(
            *case,
            id=type(case[0]).__name__,
            marks=[pytest.mark.slow] * (not isinstance(case[0], lgp.Gamma | lgp.Ordinal)),
        )
        for case in LEARNED
    ],
)
def test_parameters_are_recovered(truth, start, side, tolerance):
    data = drawn_from(truth, side)
    fit = lgp.fit(lgp.LatentGP(lgp.RBF(), start), data, key=jax.random.key(0))
    learned, expected = (
        np.asarray(ParameterSpace(likelihood).to_vector())
        for likelihood in (fit.model.likelihood, truth)
    )
    np.testing.assert_allclose(learned, expected, atol=tolerance)


@pytest.mark.slow
def test_a_warp_is_recovered():
    truth = lgp.WarpedGaussian([2.0], [1.5], [-0.5], 0.5)
    data = drawn_from(truth, {}, scale=2.0)
    model = lgp.LatentGP(lgp.RBF(), lgp.WarpedGaussian([0.3], [1.0], [0.0], 0.1))
    learned = lgp.fit(model, data, key=jax.random.key(0)).model.likelihood
    inside = np.quantile(data.y, np.linspace(0.05, 0.95, 19))
    expected = standardised(truth.warp(inside))
    np.testing.assert_allclose(standardised(learned.warp(inside)), expected, atol=0.1)
    assert np.abs(standardised(inside) - expected).max() > 0.2


def standardised(values):
    """Without location and scale, which the latent function takes up."""
    return (values - np.mean(values)) / np.std(values)


def drawn_from(likelihood, side, scale=1.0):
    """Targets of 300 rows whose latents are draws of the prior, times a scale."""
    rows = 300
    generator = np.random.default_rng(7)
    points = np.sort(generator.uniform(0, 10, size=rows))
    with jax.enable_x64(True):
        covariance = np.asarray(lgp.RBF(1.0).gram(points[:, None], points[:, None]))
        zero, size = np.zeros(rows), likelihood.latent_size
        f = generator.multivariate_normal(zero, covariance, size, method="eigh").T
        f = scale * (f - f.mean(axis=0))  # lest its level be taken for that of a threshold
        numbers = {name: np.full(rows, value) for name, value in side.items()}
        keys = jax.random.split(jax.random.key(3), rows)
        y = np.asarray(jax.vmap(likelihood.sample)(keys, jnp.asarray(f), numbers))
    return lgp.Data(points, y, **numbers)
