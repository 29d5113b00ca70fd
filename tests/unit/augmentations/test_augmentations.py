"""Augmentations integrate back to their likelihood, and their bounds rise and stay bounds."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm, qmc

import latentgp as lgp
from latentgp.likelihoods import Marginals
from latentgp.numerics.quadrature import hermite_nodes
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import SiteInference, rows_of
from latentgp.site_inference.search.profiled_bound import converge, initial_sites
from latentgp.sites.augmentations import Automatic, augmentation_of, check_completely_monotone
from latentgp.sites.augmentations.heteroscedastic import NoiseAuxiliary
from latentgp.sites.augmentations.polya_gamma import Auxiliary, LogisticPowers
from latentgp.sites.gaussian import GaussianSites, Rows
from likelihood_cases import AUGMENTED, marked
from polya_gamma_law import PolyaGamma
from problems import KERNEL, X

LATENTS = (-1.9, -0.4, 0.8)
STEPS = 1601
SCRAMBLES = 8


def log_integral(log_values, log_w):
    """Log of the integral over w by the trapezoidal rule in log w, along the last axis."""
    return logsumexp(log_values + log_w, axis=-1) + np.log(log_w[1] - log_w[0])


def grid(likelihood, targets, side):
    """Every target with every combination of some latents (each latent its own place)."""
    places = np.stack(np.meshgrid(*[LATENTS] * likelihood.latent_size), axis=-1)
    places = places.reshape(-1, likelihood.latent_size)
    y, index = (g.ravel() for g in np.meshgrid(targets, np.arange(len(places))))
    side = {name: np.full(len(y), value) for name, value in (side or {}).items()}
    return Rows(y, None, side), places[index]


def given(augmentation, f, block, auxiliary):
    """Log p(y, w | f): sites of every value of w (first axis) of every row."""
    sites = jax.vmap(
        lambda w: augmentation.conditional_sites(w, f, block).expected(Marginals.known(f))
    )(auxiliary)
    return np.array(sites).T


def over_scales(likelihood, rows, f):
    """The integral over w of a scale mixture, whose law is known up to a tilt."""
    log_w = np.linspace(-40, 12, STEPS)
    w = np.exp(log_w)
    law = likelihood.auxiliary_law(jnp.full(STEPS, 0.7))
    log_law = law.log_prob(w) + 0.7 * w + likelihood.log_phi(jnp.asarray(0.7))
    wide = jnp.broadcast_to(w[:, None], (STEPS, len(f)))
    values = given(Automatic().bind(likelihood, rows), f, (0,), wide)
    return log_integral(values + np.asarray(log_law), log_w)


def over_polya_gamma(shape, f):
    """Log of the integral of exp(-w f^2 / 2) PG(w | b, 0), for every b and every f."""
    log_w = np.linspace(-12, 7, 801)
    w = np.exp(log_w)
    law = PolyaGamma(jnp.asarray(shape)[:, None], jnp.zeros((len(shape), 1)))
    values = (
        np.asarray(law.log_prob(np.tile(w, (len(shape), 1))))[:, None, :]
        - 0.5 * np.square(f)[:, None] * w
    )
    return log_integral(values, log_w)


def over_counts(augmentation, f, most):
    """The sum over counts, each Pólya-Gamma variable integrated out."""
    size = f.shape[1]
    counts = np.stack(np.meshgrid(*[np.arange(most + 1.0)] * size), axis=-1).reshape(-1, size)
    powers = augmentation.powers()
    first = np.asarray(powers.positive + powers.negative)
    wide = jnp.broadcast_to(counts[:, None, :], (len(counts), *f.shape))
    auxiliary = Auxiliary(wide, jnp.zeros_like(wide))
    total = given(augmentation, f, tuple(range(size)), auxiliary)
    for q in range(size):
        for b in np.unique(first[:, q]):
            of_row = first[:, q] == b
            shapes = b + np.arange(most + 1.0)
            used = shapes > 0  # PG(0, c) is a point mass at zero
            table = np.zeros((most + 1, of_row.sum()))
            table[used] = over_polya_gamma(shapes[used], f[of_row, q])
            total[of_row] += table[counts[:, q].astype(int)].T
    return logsumexp(total, axis=1)


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (lgp.StudentT(0.6, 5.0), [-1.0, 0.5]),
        (lgp.LaplaceNoise(0.7), [-1.0, 0.5]),
        (lgp.MaternNoise(0.7), [-1.0, 0.5]),
        (lgp.BayesianSVM(), [0.0, 1.0]),
    ],
)
def test_a_scale_mixture_integrates_back(x64, likelihood, targets):
    rows, f = grid(likelihood, targets, None)
    known = jax.vmap(likelihood.log_prob)(rows.y, f, {})
    np.testing.assert_allclose(over_scales(likelihood, rows, f), known, atol=1e-10)


@pytest.mark.parametrize(
    ("likelihood", "targets", "side", "most"),
    [
        (lgp.Bernoulli(), [0.0, 1.0], None, 0),
        (lgp.Binomial(), [0.0, 3.0, 5.0], {"trials": 5.0}, 0),
        (lgp.NegativeBinomial(1.7), [0.0, 4.0], None, 0),
        (lgp.ScaledLogisticPoisson(3.3), [0.0, 2.0, 6.0], None, 60),
        pytest.param(lgp.LogisticSoftmax(2), [0.0, 1.0], None, 190, marks=pytest.mark.slow),
        pytest.param(
            lgp.BijectiveLogisticSoftmax(3), [0.0, 1.0, 2.0], None, 190, marks=pytest.mark.slow
        ),
        pytest.param(
            lgp.ScaledLogisticSoftmax(2, [0.5, 2.0]), [0.0, 1.0], None, 190, marks=pytest.mark.slow
        ),
    ],
)
def test_powers_of_the_logistic_function_integrate_back(x64, likelihood, targets, side, most):
    rows, f = grid(likelihood, targets, side)
    known = jax.vmap(likelihood.log_prob)(rows.y, f, rows.side)
    augmentation = augmentation_of(likelihood).bind(likelihood, rows)
    found = over_counts(augmentation, f, most)
    np.testing.assert_allclose(found, known, atol=1e-10)


@pytest.mark.slow
def test_noise_of_the_input_integrates_back(x64):
    """The noise's block: counts and Pólya-Gamma variables, w = 1/2 always for Gaussian noise."""
    likelihood = lgp.HeteroscedasticGaussian(2.0)
    rows, f = grid(likelihood, [-1.0, 0.5], None)
    known = jax.vmap(likelihood.log_prob)(rows.y, f, {})
    augmentation, counts = augmentation_of(likelihood).bind(likelihood, rows), np.arange(60.0)
    wide = jnp.broadcast_to(counts[:, None], (60, len(f)))
    auxiliary = NoiseAuxiliary(jnp.full_like(wide, 0.5), wide, jnp.zeros_like(wide))
    total = given(augmentation, f, (1,), auxiliary)
    total = total + over_polya_gamma(0.5 + counts, f[:, 1]).T
    np.testing.assert_allclose(logsumexp(total, axis=1), known, atol=1e-10)
    half = jnp.full((1, len(f)), 0.5)
    signal = given(augmentation, f, (0,), half)[:, 0]
    np.testing.assert_allclose(signal, known, atol=1e-10)


def test_student_noise_of_the_input_integrates_back(x64):
    """The signal's block; the noise's has the same w and the counts of the Gaussian one."""
    likelihood = lgp.HeteroscedasticStudentT(2.0, 5.0)
    rows, f = grid(likelihood, [-1.0, 0.5], None)
    known = jax.vmap(likelihood.log_prob)(rows.y, f, {})
    log_w = np.linspace(-40, 12, STEPS)
    law = likelihood.auxiliary_law(jnp.zeros(STEPS)).log_prob(np.exp(log_w))
    wide = jnp.broadcast_to(np.exp(log_w)[:, None], (STEPS, len(f)))
    values = given(augmentation_of(likelihood).bind(likelihood, rows), f, (0,), wide)
    found = log_integral(values + np.asarray(law), log_w)
    np.testing.assert_allclose(found, known, atol=1e-10)


class WithSetting(lgp.GammaPoissonPolyaGamma):
    """An augmentation with a setting of its own."""

    factor: float = 1.0


def test_a_setting_is_bound_to_rows_and_stays_as_it_was():
    setting, rows = WithSetting(0.5), Rows(np.array([0.0, 1.0]), None, {})
    augmented = setting.bind(lgp.LogisticSoftmax(2), rows)
    assert setting == WithSetting(factor=0.5) != augmented
    assert (setting.rows, repr(setting)) == (None, "WithSetting(factor=0.5)")
    assert augmented.rows is rows
    assert repr(augmented) == (
        "WithSetting(factor=0.5, likelihood=LogisticSoftmax(classes=2), "
        "rows=Rows(y=[0.0, 1.0], weights=None, side={}))"
    )
    again = augmented.bind(lgp.LogisticSoftmax(3), rows._replace(y=rows.y[:1]))
    assert (again.likelihood, again.rows.y.size, again.factor) == (lgp.LogisticSoftmax(3), 1, 0.5)


class OneBlock(AugmentationRule):
    """Updates one block and leaves the other latents as they are."""

    block: tuple[int, ...] = (0,)

    def blocks(self, likelihood):
        return (self.block, ())


@partial(jax.jit, static_argnums=1)
def one_update(state, block, augmentation, rows):
    rule = OneBlock(augmentation=augmentation, block=block)
    return SiteInference(lgp.Dense(), rule).step(state, rows)


def log_evidence(model, data):
    """Log evidence of three rows and how far it may be off (quadrature, or Sobol points)."""
    latent_size, rows = model.likelihood.latent_size, len(data.y)
    root = np.linalg.cholesky(model.kernel.gram(data.X, data.X))
    log_prob = jax.vmap(jax.vmap(model.likelihood.log_prob), (None, 0, None))

    @jax.jit
    def log_mean(white, log_weights):
        f = jnp.einsum("nm,smq->snq", root, white.reshape(-1, rows, latent_size))
        values = jnp.sum(log_prob(data.y, f, dict(data.side_information)), axis=1)
        return jax.nn.logsumexp(values + log_weights)

    if latent_size == 1:
        nodes, weights = hermite_nodes(rows, 60)
        return float(log_mean(nodes, np.log(weights))), 1e-6
    values = []
    for seed in range(SCRAMBLES):
        points = qmc.Sobol(rows * latent_size, rng=seed).random(2**14)
        values.append(float(log_mean(norm.ppf(np.clip(points, 1e-12, 1 - 1e-12)), -14 * np.log(2))))
    return np.mean(values), 4 * np.std(values) / np.sqrt(SCRAMBLES)


@pytest.mark.parametrize(
    ("likelihood", "targets", "side", "augmentation"),
    marked(case for case in AUGMENTED if not isinstance(case[0], lgp.Gaussian | lgp.LeastSquares)),
)
def test_each_block_raises_a_bound_below_the_evidence(x64, likelihood, targets, side, augmentation):
    numbers = {name: np.full(3, value) for name, value in (side or {}).items()}
    data = lgp.Data(X[:3], np.resize(targets, 3), **numbers)
    model = lgp.LatentGP(KERNEL, likelihood)
    rows = data.to_device()
    augmentation = augmentation or augmentation_of(likelihood)
    rule = AugmentationRule(augmentation=augmentation)
    state, bounds = SiteInference(lgp.Dense(), rule).init(model, rows), []
    for _ in range(40):
        for block in rule.blocks(likelihood):
            state, info = one_update(state, block, augmentation, rows)
            bounds.append(float(info.bound))
    assert np.diff(bounds).min() >= -1e-12
    assert bounds[-1] - bounds[0] > 1e-6
    evidence, error = log_evidence(model, data)
    assert bounds[-1] < evidence + error
    assert evidence - bounds[-1] < 1.5


@pytest.mark.parametrize("variance", [100.0, 1000.0])
def test_a_wide_prior_does_not_lead_to_a_wide_stationary_point(x64, variance):
    """The bound has several: sites made for the prior's variance stay weak, and nothing is told."""
    inputs = np.random.default_rng(0).normal(size=(60, 2))
    y = np.digitize(inputs[:, 0], np.quantile(inputs[:, 0], [1 / 3, 2 / 3])).astype(float)
    model = lgp.LatentGP(lgp.RBF(3.0, variance=variance), lgp.LogisticSoftmax(classes=3))
    algorithm = lgp.AugmentedVI(tolerance=1e-9, max_updates=2000).algorithm(model)
    data, shape = lgp.Data(inputs, y).to_device(), (60, 3)
    prior = Marginals(jnp.zeros(shape), jnp.full(shape, variance))
    none = GaussianSites.none(prior.mean)
    wide = algorithm.rule.sites(model.likelihood, rows_of(data), prior, none)
    stuck = converge(algorithm, model, data, wide)
    found = converge(algorithm, model, data, initial_sites(algorithm, model, data))
    assert found.bound > stuck.bound + 20
    losses = []
    for posterior in (found.posterior, stuck.posterior):
        mean, spread = posterior.marginals(inputs)
        draws = np.random.default_rng(1).normal(size=(2000, *shape))
        sigmoids = expit(mean + np.sqrt(spread) * draws)
        probabilities = np.mean(sigmoids / sigmoids.sum(axis=2, keepdims=True), axis=0)
        losses.append(-np.mean(np.log(probabilities[np.arange(60), y.astype(int)])))
    assert losses[0] < 0.25
    assert losses[1] > 1.0


class Broken(lgp.LaplaceNoise):
    """Its phi is what `wrong` says."""

    wrong: str = eqx.field(static=True, default="")

    def log_phi(self, r):
        return {
            "factor": lambda: 1 - r,
            "sign": lambda: -(r**2),
            "real": lambda: -jax.scipy.special.gammaln(1 + r),
        }[self.wrong]()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("factor", "log_phi.0. is 1 where"),
        ("sign", "derivative 2 of phi has the wrong sign at r = 0.0001"),
        ("real", "complex arguments"),
    ],
)
def test_what_is_no_scale_mixture_is_told_why(x64, wrong, says):
    with pytest.raises(lgp.InputError, match=says):
        check_completely_monotone(Broken(wrong=wrong))


@pytest.mark.parametrize(
    ("likelihood", "augmentation"),
    [
        (lgp.Bernoulli(), lgp.GammaPoissonPolyaGamma()),
        (lgp.StudentT(), augmentation_of(lgp.Bernoulli())),
        (lgp.LogisticSoftmax(3), augmentation_of(lgp.Bernoulli())),
    ],
)
def test_an_augmentation_of_another_likelihood_is_refused(likelihood, augmentation):
    model, data = lgp.LatentGP(lgp.RBF(), likelihood), lgp.Data([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])
    method = lgp.AugmentedVI(augmentation=augmentation)
    with pytest.raises(lgp.InputError, match="is no augmentation of"):
        lgp.fit(model, data, key=jax.random.key(0), method=method)


@pytest.mark.slow
@pytest.mark.parametrize("representation", [lgp.Dense(), lgp.Inducing(number=4)])
@pytest.mark.parametrize("likelihood", [lgp.StudentT(), lgp.LogisticSoftmax(3)])
def test_the_gap_is_what_the_bound_falls_short_of_the_other(x64, likelihood, representation):
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 12) * 1.0
    data = lgp.Data(generator.normal(size=(12, 1)), y, weights=generator.integers(1, 4, 12) * 1.0)
    model = lgp.LatentGP(lgp.RBF(), likelihood)
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    posterior = lgp.fit(model, data, method=lgp.AugmentedVI(representation), **settings).posterior
    gap = lgp.augmentation_gap(posterior, data)
    marginals = Marginals(*(part.reshape(12, -1) for part in posterior.predict_f(data.X)))
    expected = likelihood.expected_log_prob(data.y, marginals, {}) @ data.weights
    kl = posterior.latent.kl
    error = 0.02 if likelihood.latent_size > 2 else 1e-3  # of 256 points in three dimensions
    np.testing.assert_allclose(
        gap.total, expected - kl - posterior.log_evidence.value, rtol=error, atol=error
    )
    assert np.all(gap.rows >= 0)


def test_every_augmentation_with_counts_is_integrated_back():
    """What the tables above leave out shares the draws, and so the integral, of what is there."""
    kinds = {type(augmentation_of(case[0])) for case in AUGMENTED if case[3] is None}
    powers = {kind.__name__ for kind in kinds if issubclass(kind, LogisticPowers)}
    assert powers == {"PolyaGamma", "PoissonPolyaGamma", "NegativeMultinomialPolyaGamma"}
