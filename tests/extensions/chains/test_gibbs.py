"""Gibbs sampling: the right joint law, and the posteriors that other exact routes give.

Every statistical check comes short, and long under the slow marker.
"""

from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import LogNormal, Normal

import latentgp as lgp
from classes import concrete_classes
from latentgp.extensions.chains.copies import Copies, copies_of
from latentgp.extensions.chains.gibbs import GibbsSampler, GibbsState
from latentgp.extensions.chains.hmc import NUTSSampler
from latentgp.extensions.chains.joint import JointPosition
from latentgp.extensions.chains.target import Position, WhiteTarget
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.representations import Representation
from latentgp.representations.samplers import BlockUpdate
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import rows_of
from latentgp.sites.augmentations import Augmentation, augmentation_of
from latentgp.sites.gaussian import GaussianSites, Rows
from likelihood_cases import AUGMENTED, CarelessDraws, HalfSites
from problems import mean_and_error

KEY = jax.random.key(0)
LIMIT = 4.5  # standard errors: one in 1,500 among a hundred figures
SLOW = pytest.mark.slow
LENGTHS = ["short", pytest.param("long", marks=SLOW)]


class Sampler(NamedTuple):
    """A likelihood and how a Gibbs sampler goes about it."""

    likelihood: lgp.Likelihood
    side: dict[str, float] | None = None
    augmentation: Augmentation | None = None
    update: str | None = None  # of hyper-parameters; they are fixed without one
    representation: Representation = lgp.Dense()
    kind: type[GibbsSampler] = GibbsSampler
    slow: tuple[int, ...] = ()  # rows updated more often

    @property
    def chosen(self):
        return self.augmentation or augmentation_of(self.likelihood)

    @property
    def name(self):
        slow = "slow" if self.slow else None
        parts = [self.likelihood, self.chosen, self.update, slow, self.representation]
        return "-".join(p if isinstance(p, str) else type(p).__name__ for p in parts if p)


PLACES = np.array([[0.0], [0.6], [1.3], [2.5]])
POINTS = lgp.Inducing(points=PLACES)
STUDENT, NOISE = lgp.StudentT(0.6, 5.0), lgp.HeteroscedasticGaussian(2.0)
FIXED = [Sampler(likelihood, side, own) for likelihood, _, side, own in AUGMENTED]
LEARNED = [
    Sampler(STUDENT, update="slice"),
    Sampler(STUDENT, slow=(1, 3)),
    Sampler(lgp.LaplaceNoise(0.7), update="metropolis", slow=(2,)),
    Sampler(STUDENT, update="metropolis"),
    Sampler(NOISE, update="slice"),
    Sampler(NOISE, update="metropolis"),
    Sampler(lgp.NegativeBinomial(1.7), update="slice"),
    Sampler(lgp.ScaledLogisticSoftmax(3, [0.5, 1.0, 2.0]), update="slice"),
    Sampler(lgp.Bernoulli(), update="slice", representation=POINTS),
    Sampler(STUDENT, update="metropolis", representation=POINTS),
]
# Targets of a likelihood that does not add up to one over y cannot be redrawn given f.
REDRAWN = [case for case in FIXED if case.likelihood.is_normalised] + LEARNED
SHORT = (
    "Gaussian-Conjugate-Dense",
    "ScaledLogisticPoisson-PoissonPolyaGamma-Dense",
    "LogisticSoftmax-NegativeMultinomialPolyaGamma-Dense",
    "StudentT-Automatic-slice-Dense",
    "HeteroscedasticGaussian-HeteroscedasticAugmentation-metropolis-Dense",
    "Bernoulli-PolyaGamma-slice-Inducing",
)


def both_lengths(cases):
    """Each case long, and the chosen ones short too."""
    short = [pytest.param(case, "short", id=case.name) for case in cases if case.name in SHORT]
    return short + [
        pytest.param(case, "long", id=f"{case.name}-long", marks=SLOW) for case in cases
    ]


class Size(NamedTuple):
    """Independent chains, and sweeps of each."""

    chains: int
    sweeps: int


SIZES = {"short": Size(600, 20), "long": Size(1500, 30)}
ORIGIN = np.array([0, 0, 1, 2, 3])  # the first row was observed twice


class Joint(NamedTuple):
    """A draw of everything."""

    vector: jax.Array
    f: jax.Array
    y: jax.Array


def geweke(sampler, length):
    """Geweke's (2004) joint-distribution test: differences of means, in standard errors.

    Hyper-parameters and latents drawn from the prior and y given them have the joint law. So
    have the states of a chain that starts at such a draw and takes turns: a sweep, then y given
    f. Each chain gives one difference between averages over its states and over independent
    draws; chains are independent, so nothing has to be known about autocorrelation.
    """
    chains, sweeps = SIZES[length]
    model = lgp.LatentGP(lgp.RBF(0.7, 3.0), sampler.likelihood, lgp.ConstantMean(0.3))
    known = parameters(model)
    space = ParameterSpace(
        model,
        frozen=() if sampler.update else tuple(known),
        priors={
            path: Normal(info.value, 0.5) if "mean" in path else LogNormal(np.log(info.value), 0.3)
            for path, info in known.items()
        },
    )
    centre = space.to_vector()
    spread = np.array([0.5 if "mean" in label else 0.3 for label, _ in space.entries()])
    rule = AugmentationRule(augmentation=sampler.augmentation)
    side = {name: jnp.full(len(ORIGIN), value) for name, value in (sampler.side or {}).items()}
    data = lgp.Data(PLACES, np.zeros(4)).to_device()

    def seeing(y, ready=None):
        return sampler.kind(
            sampler.representation,
            rule,
            space,
            data,
            Copies(Rows(y, None, side), ORIGIN),
            jnp.asarray(centre),
            sampler.update or "slice",
            over_relaxation=0.3,
            known=ready,
            slow=jnp.array(sampler.slow) if sampler.slow else None,
        )

    def observe(vector, f, key):
        draw = space.to_model(vector).likelihood.sample
        return jax.vmap(draw)(jax.random.split(key, len(ORIGIN)), f[ORIGIN], side)

    def from_prior(key):
        key_vector, key_f, key_y = jax.random.split(key, 3)
        vector = centre + spread * jax.random.normal(key_vector, centre.shape)
        own = space.to_model(vector)
        noise = jax.random.normal(key_f, (4, model.likelihood.latent_size))
        f = own.mean(data.X) + lower_cholesky(own.kernel.gram(data.X, data.X)) @ noise
        return Joint(vector, f, observe(vector, f, key_y))

    def turn(ready, joint, key):
        key_sweep, key_y = jax.random.split(key)
        coefficients = (joint.f - space.to_model(joint.vector).mean(data.X)).T
        state = GibbsState(joint.vector, joint.f, coefficients, jnp.log(0.4))
        state, _ = seeing(joint.y, ready).sweep(state, key_sweep)
        joint = Joint(state.vector, state.f, observe(state.vector, state.f, key_y))
        return joint, figures(joint)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def differences(key):
        ready = None if sampler.update else seeing(jnp.zeros(len(ORIGIN)))._sampler(model)

        def chain(key):
            key_prior, key_chain = jax.random.split(key)
            draws = jax.vmap(from_prior)(jax.random.split(key_prior, sweeps + 1))
            independent = jax.vmap(figures)(jax.tree.map(lambda a: a[1:], draws))
            start = jax.tree.map(lambda a: a[0], draws)
            keys = jax.random.split(key_chain, sweeps)
            _, dependent = jax.lax.scan(partial(turn, ready), start, keys)
            return jnp.mean(dependent - independent, axis=0)

        return jax.vmap(chain)(jax.random.split(key, chains))

    return in_standard_errors(np.asarray(differences(jax.random.key(7))))


def figures(joint):
    """What is averaged: first and second moments, y squashed because it may have none."""
    vector, f, y = joint
    squashed = y / (1 + jnp.abs(y))
    products = [f**2, f * jnp.roll(f, 1, 0), f * jnp.roll(f, 1, 1), f[ORIGIN] * squashed[:, None]]
    about_y = [squashed, squashed**2]
    about_vector = [vector, vector**2, vector * jnp.sum(f**2), vector * jnp.sum(squashed**2)]
    return jnp.concatenate([a.ravel() for a in (f, *products, *about_y, *about_vector)])


def in_standard_errors(values):
    """Means of independent rows, in units of their standard errors."""
    error = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    return np.mean(values, axis=0) / np.where(error > 0, error, 1.0)


class PriorTwice(GibbsSampler):
    """Updates the likelihood's parameters with their prior counted twice."""

    def _given_f(self, f, vector):
        return super()._given_f(f, vector) + self.space.log_prior(vector)


class ForgetsTheConstants(GibbsSampler):
    """Updates kernel and mean as if the prior mean cost nothing."""

    def _given_sites(self, sites, vector):
        mean = self.space.to_model(vector).mean(self.data.X)
        about = sites.about(jnp.broadcast_to(mean, sites.linear.shape))
        return super()._given_sites(sites, vector) - jnp.sum(about.log_constant)


@pytest.mark.usefixtures("x64")
class TestJointDistribution:
    @pytest.mark.parametrize(("sampler", "length"), both_lengths(REDRAWN))
    def test_sweeps_leave_the_joint_law_as_it_is(self, sampler, length):
        assert np.abs(geweke(sampler, length)).max() < LIMIT

    @pytest.mark.parametrize(
        "sampler",
        [
            Sampler(lgp.Bernoulli(), augmentation=CarelessDraws()),
            pytest.param(Sampler(lgp.Bernoulli(), augmentation=HalfSites()), marks=SLOW),
            pytest.param(Sampler(STUDENT, update="slice", kind=PriorTwice), marks=SLOW),
            pytest.param(Sampler(STUDENT, update="slice", kind=ForgetsTheConstants), marks=SLOW),
        ],
        ids=["tilt", "sites", "prior", "constants"],
    )
    def test_a_wrong_sampler_is_caught(self, sampler):
        assert np.abs(geweke(sampler, "short")).max() > LIMIT

    @pytest.mark.always
    def test_every_augmentation_is_checked_at_every_change(self):
        short = {type(case.chosen).__name__ for case in REDRAWN if case.name in SHORT}
        # This one differs from its parent in expectations alone, which no sweep uses.
        assert short == concrete_classes(Augmentation) - {"GammaPoissonPolyaGamma"}
        assert set(SHORT) <= {case.name for case in REDRAWN}

    @pytest.mark.always
    def test_every_likelihood_is_checked(self):
        redrawn = {type(case.likelihood) for case in REDRAWN}
        assert {type(case[0]) for case in AUGMENTED} - redrawn == {
            lgp.BayesianSVM,
            lgp.LeastSquares,
        }


class Problem(NamedTuple):
    """A model and data drawn from it."""

    model: lgp.LatentGP
    data: lgp.Data


@cache
def problem(name, rows=24):
    """Data drawn from the model."""
    likelihood, _, side, _ = next(c for c in AUGMENTED if type(c[0]).__name__ == name)
    model = lgp.LatentGP(lgp.RBF(0.5, 2.0), likelihood, lgp.ConstantMean(0.3))
    X = np.linspace(0, 4, rows)
    gram = np.exp(-0.5 * (X[:, None] - X) ** 2 / 0.25) + 1e-9 * np.eye(rows)
    noise = np.random.default_rng(1).normal(size=(rows, likelihood.latent_size))
    f = 0.3 + np.sqrt(2.0) * np.linalg.cholesky(gram) @ noise
    side = {key: np.full(rows, value) for key, value in (side or {}).items()}
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(2), rows)
        y = jax.vmap(likelihood.sample)(keys, jnp.asarray(f), side)
    return Problem(model, lgp.Data(X, np.asarray(y), **side))


def fixed_fit(data, method, model):
    """A fit at the hyper-parameters given."""
    return lgp.fit(model, data, key=jax.random.key(5), method=method, learn_hyperparameters=False)


def sampled(name, method):
    """Latents at the rows, shape (C, S, N Q), at fixed hyper-parameters."""
    posterior = fixed_fit(problem(name).data, method, problem(name).model).posterior
    return posterior.f.reshape(*posterior.f.shape[:2], -1)


draws_of = cache(sampled)


def difference(first, second):
    """Of means, and of variances, in standard errors by batch means; shape (2 N Q,)."""
    centre = second.mean(axis=(0, 1))
    (a, a_error), (b, b_error) = (
        mean_and_error(np.concatenate([f, (f - centre) ** 2], axis=2)) for f in (first, second)
    )
    return (a - b) / np.hypot(a_error, b_error)


DRAWS = {"short": 500, "long": 6000}


def gibbs(length, **settings):
    return lgp.GibbsSampling(draws=DRAWS[length], warmup=100, thin=4, **settings)


def nuts(length, **settings):
    return lgp.NUTS(draws=DRAWS[length], warmup=400, **settings)


NAMES = sorted({type(case[0]).__name__ for case in AUGMENTED})


class TestAgreesWithNUTS:
    @pytest.mark.parametrize(
        ("name", "length"),
        [
            pytest.param("LaplaceNoise", "short", marks=SLOW),
            *(pytest.param(n, "long", marks=SLOW) for n in NAMES),
        ],
    )
    def test_gibbs(self, name, length):
        found = difference(draws_of(name, gibbs(length)), draws_of(name, nuts(length)))
        assert np.abs(found).max() < LIMIT

    @pytest.mark.slow
    def test_kernels_of_each_latents_own(self):
        own = lgp.PerLatent(lgp.RBF(0.5, 2.0), lgp.RBF(2.0, 0.5))
        likelihood = lgp.HeteroscedasticGaussian()
        model = lgp.LatentGP(own, likelihood)
        data = problem(type(likelihood).__name__).data
        first, second = (
            fixed_fit(data, method, model).posterior.f for method in (gibbs("short"), nuts("short"))
        )
        first, second = (f.reshape(*f.shape[:2], -1) for f in (first, second))
        assert np.abs(difference(first, second)).max() < LIMIT

    @pytest.mark.slow  # at every change it is the density that is checked
    @pytest.mark.parametrize("name", ["StudentT", "LaplaceNoise"])
    def test_augmented_nuts(self, name):
        augmented = draws_of(name, nuts("long", augmented=True))
        assert np.abs(difference(augmented, draws_of(name, nuts("long")))).max() < LIMIT

    @pytest.mark.parametrize("name", ["StudentT", "LaplaceNoise"])
    def test_without_its_auxiliary_variables_the_augmented_density_is_the_other(self, x64, name):
        model, data = problem(name, rows=2)
        space = ParameterSpace(model, frozen=tuple(parameters(model)))
        rows = data.to_device()
        target = WhiteTarget.of(space, lgp.Dense(), rows)
        plain, augmented = (
            NUTSSampler.of(
                target, copies, warmup=1, target_acceptance=0.8, coupling="whitened"
            ).log_density
            for copies in (None, copies_of(rows_of(data)))
        )
        white, line = jnp.array([[0.4, -1.1]]), jnp.linspace(-25, 25, 1001)

        def density(first, second):
            return augmented(JointPosition(jnp.zeros(0), white, jnp.stack([first, second])))

        values = jax.jit(jax.vmap(jax.vmap(density, (None, 0)), (0, None)))(line, line)
        total = jax.scipy.special.logsumexp(values) + 2 * jnp.log(line[1] - line[0])
        expected = plain(JointPosition(jnp.zeros(0), white, jnp.zeros(0)))
        np.testing.assert_allclose(total, expected, atol=1e-6)


class TestPreciseSites:
    """A scale mixture's auxiliary variable may be very large: that row's site is all but exact."""

    def test_covariances_keep_their_digits(self, x64):
        X, precision = np.linspace(0, 1, 5), np.array([1e12, 0.3, 1e-9, 4.0, 1e7])
        own = lgp.Dense().sampler(lgp.RBF(0.5), X[:, None])
        sites = GaussianSites(jnp.ones((5, 1)), jnp.asarray(precision)[:, None], jnp.zeros(5))
        rows = np.array([0, 2, 4])
        drawn = own.draw(BlockUpdate(sites, (0,), KEY, jnp.zeros((1, 5)), rows=jnp.asarray(rows)))
        exact, resolvent = posterior_in_fractions(np.asarray(own.gram[0]), precision)
        root = np.sqrt(precision[rows])
        found = drawn.covariances
        scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))[:, rows]
        np.testing.assert_allclose(found.with_all[0] / scale, exact[:, rows] / scale, atol=1e-6)
        outside = own.gram[0] - own.gram[0] @ np.linalg.solve(
            own.gram[0] + np.diag(1 / precision), own.gram[0]
        )
        assert np.abs(outside[:, rows] / scale - exact[:, rows] / scale).max() > 1e-5
        shrinkage = root[:, None] * resolvent[np.ix_(rows, rows)] / root
        sizes = np.sqrt(np.outer(np.diag(shrinkage), np.diag(shrinkage)))
        np.testing.assert_allclose(found.shrinkage[0] / sizes, shrinkage / sizes, atol=1e-6)

    @pytest.mark.slow
    def test_noise_far_below_the_prior_does_no_harm(self):
        X = np.linspace(0, 4, 30)
        model = lgp.LatentGP(lgp.RBF(0.7), lgp.LaplaceNoise(scale=1e-5))
        data, method = lgp.Data(X, np.sin(2 * X)), lgp.GibbsSampling(draws=300)
        posterior = fixed_fit(data, method, model).posterior
        assert np.abs(posterior.f[..., 0] - np.sin(2 * X)).max() < 2e-3


def posterior_in_fractions(gram, precision):
    """(K^-1 + W)^-1 = (I + K W)^-1 K, and (I + K W)^-1, without any rounding, by elimination."""
    size = len(gram)
    K = [[Fraction(float(k)) for k in row] for row in gram]
    W = [Fraction(float(w)) for w in precision]
    one = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    rows = [[K[i][j] * W[j] + one[i][j] for j in range(size)] + K[i] + one[i] for i in range(size)]
    for i in range(size):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(size):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    found = np.array([[float(value) for value in row[size:]] for row in rows])
    return found[:, :size], found[:, size:]


class TestAgreesWithQuadrature:
    @pytest.mark.parametrize("length", LENGTHS)
    def test_a_pseudo_likelihood_with_weights(self, length):
        """The one whose targets cannot be redrawn."""
        X, y, weights = np.array([0.0, 0.5, 1.2, 2.0]), np.array([1.0, 0, 1, 1]), [2, 1, 0, 3]
        kernel = lgp.RBF(0.7, 2.0)
        model = lgp.LatentGP(kernel, lgp.BayesianSVM(), lgp.ConstantMean(0.3))
        posterior = fixed_fit(lgp.Data(X, y, weights=weights), gibbs(length), model).posterior
        places, signs = X[[0, 1, 3]], np.array([1, -1, 1])
        gram = 2 * np.exp(-0.5 * ((places[:, None] - places) / 0.7) ** 2)
        line = np.linspace(-7, 7, 141)
        grid = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
        g = grid - 0.3
        log_prob = -0.5 * np.sum(g @ np.linalg.inv(gram) * g, axis=1)
        log_prob -= 2 * np.maximum(1 - signs * grid, 0) @ np.array([2, 1, 3])
        share = np.exp(log_prob - log_prob.max())
        share /= share.sum()
        mean = share @ grid
        variance = share @ (grid - mean) ** 2
        assert posterior.f.shape == (4, DRAWS[length], 3, 1)
        f = posterior.f[..., 0]
        for draws, expected in ((f, mean), ((f - mean) ** 2, variance)):
            found, error = mean_and_error(draws)
            assert np.abs((found - expected) / error).max() < LIMIT


def power_ep(power):
    """Power EP's posterior with Gaussian noise (Bui, Yan & Turner 2017, 3.4), in the open.

    Power 0 is Titsias' and power 1 is that of FITC (Snelson & Ghahramani 2006).
    """
    upper = covariance(INDUCING, INDUCING)
    cross = covariance(INDUCING, X)
    explained = np.einsum("mn,mn->n", cross, np.linalg.solve(upper, cross))
    noise = 0.2 + power * (VARIANCE - explained)
    inner = np.linalg.inv(upper + (cross / noise) @ cross.T)
    here = covariance(INDUCING, NEW)
    mean = 0.4 + here.T @ inner @ (cross / noise) @ (Y - 0.4)
    lost = np.einsum("mn,mk,kn->n", here, np.linalg.inv(upper) - inner, here)
    return mean, VARIANCE - lost


def covariance(A, B):
    return VARIANCE * np.exp(-0.5 * ((A[:, None] - B) / 0.6) ** 2)


VARIANCE = 1.5
X = np.sort(np.random.default_rng(5).uniform(0, 4, 15))
Y = np.sin(2 * X) + 0.4 * np.random.default_rng(6).normal(size=15)
INDUCING, NEW = np.linspace(0.3, 3.7, 5), np.array([-0.5, 0.7, 1.9, 2.4, 5.0])
REGRESSION = lgp.LatentGP(lgp.RBF(0.6, VARIANCE), lgp.Gaussian(0.2), lgp.ConstantMean(0.4))


class TestThroughInducingPoints:
    @pytest.mark.parametrize("length", LENGTHS)
    @pytest.mark.parametrize("power", [0.0, pytest.param(0.5, marks=SLOW), 1.0])
    def test_gaussian_noise_has_the_posterior_in_closed_form(self, power, length):
        method = lgp.GibbsSampling(
            lgp.Inducing(points=INDUCING[:, None]), draws=2 * DRAWS[length], warmup=0, power=power
        )
        posterior = fixed_fit(lgp.Data(X, Y), method, REGRESSION).posterior
        mean, variance = power_ep(power)
        # Draws are independent, of the inducing variables; what these leave open is added.
        count, found = len(posterior.components.white), posterior.predict_f(NEW)
        left = VARIANCE - np.sum(
            covariance(INDUCING, NEW)
            * np.linalg.solve(covariance(INDUCING, INDUCING), covariance(INDUCING, NEW)),
            axis=0,
        )
        spread = np.sqrt(variance - left)
        assert np.abs((found.mean - mean) / spread).max() < LIMIT / np.sqrt(count)
        ratio = (found.variance - left) / spread**2
        assert np.abs(ratio - 1).max() < LIMIT * np.sqrt(2 / count)

    def test_alpha_zero_is_collapsed_inference(self):
        method = lgp.CollapsedVI(lgp.Inducing(points=INDUCING[:, None]))
        found = fixed_fit(lgp.Data(X, Y), method, REGRESSION).posterior.predict_f(NEW)
        np.testing.assert_allclose(found, power_ep(0.0), atol=1e-8)

    @pytest.mark.slow  # the joint law of such a sampler is checked at every change
    def test_a_point_on_every_row_is_the_dense_sampler(self):
        method = gibbs("long", representation=lgp.Inducing(points=problem("StudentT").data.X))
        found = difference(sampled("StudentT", method), draws_of("StudentT", gibbs("long")))
        assert np.abs(found).max() < LIMIT


class TestWeights:
    METHOD = lgp.GibbsSampling(chains=2, draws=50, warmup=50)

    def draws(self, data):
        return fixed_fit(data, self.METHOD, REGRESSION).posterior.f

    def test_whole_numbers_are_copies(self):
        weights = np.arange(15) % 3 + 1
        copies = lgp.Data(np.repeat(X, weights), np.repeat(Y, weights))
        weighted = lgp.Data(X, Y, weights=weights)
        one, other = self.draws(weighted), self.draws(copies)
        np.testing.assert_array_equal(np.repeat(one, weights, axis=2), other)

    def test_a_target_that_is_missing_has_weight_zero(self):
        missing = np.arange(15) % 4 == 1
        weighted = lgp.Data(X, np.where(missing, 0.0, Y), weights=(~missing).astype(float))
        without = lgp.Data(X[~missing], Y[~missing])
        np.testing.assert_array_equal(self.draws(weighted), self.draws(without))

    def test_a_missing_target_without_weight_is_refused(self):
        with pytest.raises(lgp.InputError, match="y has NaN"):
            lgp.Data(X, np.where(X > 3, np.nan, Y))

    def test_fractions_are_refused_where_rows_are_copied(self):
        with pytest.raises(lgp.InputError, match="whole numbers"):
            fixed_fit(lgp.Data(X, Y, weights=np.full(15, 0.5)), self.METHOD, REGRESSION)

    def test_fractions_are_powers_of_likelihoods_elsewhere(self, x64):
        space = ParameterSpace(REGRESSION, frozen=tuple(parameters(REGRESSION)))
        twice = np.tile(np.arange(15), 2)
        halved = lgp.Data(X[twice], Y[twice], weights=np.full(30, 0.5)).merged()
        whole = lgp.Data(X, Y).merged()
        at = Position(jnp.zeros(0), jnp.linspace(-1, 1, 15)[None])
        one, other = (
            WhiteTarget.of(space, lgp.Dense(), data.to_device())(at) for data in (halved, whole)
        )
        np.testing.assert_allclose(one, other)


def test_nuts_needs_a_warm_up():
    with pytest.raises(lgp.InputError, match="at least 1"):
        lgp.NUTS(warmup=0)
