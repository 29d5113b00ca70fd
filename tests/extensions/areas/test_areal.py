"""Kernels of areas: against dense inverses, scaling, limits, priors, refusals, fits."""

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.sparse import csr_array

import latentgp as lgp
from latentgp.choosing.choice import choose_method
from latentgp.extensions.areas.graphs import adjacency_matrix, components
from latentgp.extensions.chains.posterior import stacked_models
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.setup.priors import scales, weak_priors

# A grid of 3 x 4, a chain of three areas, and two areas alone.
GRID = np.arange(12).reshape(3, 4)
PAIRS = np.concatenate(
    [
        np.column_stack([GRID[:, :-1].ravel(), GRID[:, 1:].ravel()]),
        np.column_stack([GRID[:-1].ravel(), GRID[1:].ravel()]),
        [[12, 13], [14, 13]],
    ]
)
W = adjacency_matrix(PAIRS, 17)
AREAS = np.arange(17.0)[:, None]
CONNECTED = [np.arange(12), np.arange(12, 15)]
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def gram(kernel, X=AREAS, Z=AREAS):
    with jax.enable_x64(True):
        return np.asarray(kernel.gram(X, Z))


def laplacian(alpha=1.0):
    return np.diag(np.maximum(W.sum(axis=0), 1.0)) - alpha * W


@pytest.mark.quick
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99, 0.999])
def test_car_is_the_inverse_of_its_precision(alpha):
    expected = 2.0 * np.linalg.inv(laplacian(alpha))
    kernel = lgp.CAR(W, 2.0, alpha)
    np.testing.assert_allclose(gram(kernel), expected, atol=1e-10)
    rows = RNG.integers(0, 17, 40)[:, None].astype(float)  # by gathering, and by products
    for X, Z in ((rows, rows), (rows[:3], rows), (AREAS[:1], AREAS[:1])):
        own = expected[np.ix_(X[:, 0].astype(int), Z[:, 0].astype(int))]
        np.testing.assert_allclose(gram(kernel, X, Z), own, atol=1e-10)


@pytest.mark.quick
def test_icar_is_the_generalised_inverse():
    expected = np.linalg.pinv(np.diag(W.sum(axis=0)) - W, hermitian=True)
    expected[[15, 16], [15, 16]] = 1.0  # areas without neighbours
    found = gram(lgp.ICAR(W, 2.0, scaled=False))
    np.testing.assert_allclose(found, 2.0 * expected, atol=1e-10)
    for members in CONNECTED:
        np.testing.assert_allclose(found[members].sum(axis=0), 0.0, atol=1e-10)


@pytest.mark.quick
def test_scaled_variances_have_geometric_mean_one_in_every_component():
    found, plain = gram(lgp.ICAR(W)), gram(lgp.ICAR(W, scaled=False))
    assert [len(members) for members in components(W)] == [12, 3, 1, 1]
    for members in CONNECTED:
        own = np.ix_(members, members)
        assert np.exp(np.mean(np.log(np.diagonal(found)[members]))) == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(found[own] / found[own][0, 0], plain[own] / plain[own][0, 0])
    np.testing.assert_allclose(np.diagonal(found)[15:], 1.0)


@pytest.mark.quick
def test_bym2_goes_from_independent_to_structured():
    icar = gram(lgp.ICAR(W))
    np.testing.assert_array_equal(gram(lgp.BYM2(W, 3.0, 0.0)), 3.0 * np.eye(17))
    np.testing.assert_allclose(gram(lgp.BYM2(W, 3.0, 1.0)), 3.0 * icar, atol=1e-12)
    expected = 3.0 * (0.3 * icar + 0.7 * np.eye(17))
    np.testing.assert_allclose(gram(lgp.BYM2(W, 3.0, 0.3)), expected, atol=1e-12)


@pytest.mark.quick
def test_an_adjacency_in_any_form():
    for given in (W.astype(bool), csr_array(W), W.tolist()):
        np.testing.assert_array_equal(adjacency_matrix(given), W)
    both_ways = np.concatenate([PAIRS, PAIRS[:, ::-1], PAIRS[:3]])
    np.testing.assert_array_equal(adjacency_matrix(both_ways, 17), W)


BROKEN = W.copy()
BROKEN[0, 1] = 0.0


@pytest.mark.quick
@pytest.mark.parametrize(
    ("adjacency", "areas", "message"),
    [
        (BROKEN, None, "not symmetric: 0 for areas 0 and 1, 1 for 1 and 0"),
        (0.5 * W, None, "entries 0 and 1, got 0.5 for areas 0 and 1"),
        (np.full((2, 2), np.nan), None, "entries 0 and 1, got nan"),
        (W + np.eye(17), None, "Area 0 is its own neighbour"),
        ([(0, 1), (1, 1)], 2, "Area 1 is its own neighbour"),
        (np.zeros((3, 3)), None, "no pair of neighbours"),
        (PAIRS, None, "give areas="),
        (W, 17, "leave areas= out"),
        ([(0, 1.5)], 3, r"whole numbers from 0 to 2, got \[0.0, 1.5\]"),
        ([(0, 3)], 3, r"whole numbers from 0 to 2, got \[0.0, 3.0\]"),
        ("queen", None, "matrix of 0 and 1, or pairs"),
    ],
)
def test_an_adjacency_that_is_none_is_refused(adjacency, areas, message):
    for kind in (lgp.CAR, lgp.ICAR, lgp.BYM2):
        with pytest.raises(lgp.InputError, match=message) as caught:
            kind(adjacency, areas=areas)
        assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_supports():
    with pytest.raises(lgp.InputError, match=r"CAR\.alpha must satisfy"):
        lgp.CAR(W, alpha=1.0)
    with pytest.raises(lgp.InputError, match=r"BYM2\.rho must satisfy"):
        lgp.BYM2(W, rho=1.1)
    with pytest.raises(lgp.InputError, match="between 0 and 1"):
        lgp.BYM2(W).prior_of_rho(probability=1.0)


def test_the_prior_of_rho_is_exponential_in_the_distance(x64):
    """Against the divergence of two Gaussians by dense algebra, and by its own statement."""
    kernel = lgp.BYM2(W)
    R, prior = gram(lgp.ICAR(W)), kernel.prior_of_rho(below=0.3, probability=0.6)

    def distance(rho):
        C = rho * R + (1 - rho) * np.eye(17)
        return np.sqrt(np.trace(C) - 17 - np.linalg.slogdet(C)[1])

    for rho in (1e-6, 0.01, 0.3, 0.9, 0.9999):
        h = 1e-4 * min(rho, 1 - rho)
        slope = (distance(rho + h) - distance(rho - h)) / (2 * h) if rho > 1e-3 else None
        expected = np.log(prior.rate) - prior.rate * distance(rho)
        if slope is None:  # the distance is proportional to rho
            slope = np.sqrt(np.sum((np.linalg.eigvalsh(R) - 1) ** 2) / 2)
        assert float(prior.log_prob(np.asarray(rho))) == pytest.approx(
            expected + np.log(slope), abs=1e-4
        )
    assert float(prior.rate) == pytest.approx(-np.log(0.4) / distance(0.3), rel=1e-9)
    mass = quad(lambda rho: float(np.exp(prior.log_prob(np.asarray(rho)))), 0.0, 0.3)[0]
    assert mass == pytest.approx(0.6, abs=1e-6)
    draws = np.asarray(prior.sample(KEY, (4000,)))
    share = np.mean(draws < 0.3)
    assert abs(share - 0.6) < 4 * np.sqrt(0.24 / 4000)
    assert np.all((draws >= 0) & (draws <= 1))


@pytest.mark.quick
def test_default_priors():
    data = lgp.Data(AREAS, np.ones(17))
    model = lgp.LatentGP(lgp.BYM2(W), lgp.Poisson())
    priors = weak_priors(model, scales(model, data))
    assert float(priors["kernel.variance"].cdf(4.0)) == pytest.approx(1 - np.exp(-1))
    with jax.enable_x64(True):
        assert float(priors["kernel.rho"].rate) == pytest.approx(
            float(lgp.BYM2(W).prior_of_rho().rate)
        )
    car = lgp.LatentGP(lgp.CAR(W), lgp.Poisson())
    assert type(weak_priors(car, scales(car, data))["kernel.alpha"]).__name__ == "Uniform"


@pytest.fixture(scope="module")
def counts():
    """Counts of the areas, two of them without rows, several rows each."""
    effects = np.linalg.cholesky(gram(lgp.BYM2(W, 0.5, 0.7))) @ RNG.normal(size=17)
    areas = RNG.permutation(np.repeat(np.arange(15), 6))
    y = RNG.poisson(10 * np.exp(effects[areas])).astype(float)
    return effects, areas.astype(float)[:, None], y


@pytest.fixture(scope="module")
def fitted(counts):
    _, X, y = counts
    data = lgp.Data(X, y, exposure=np.full(len(y), 10.0))
    model = lgp.LatentGP(lgp.BYM2(W, 0.5, 0.5), lgp.Poisson(), lgp.ConstantMean(0.0))
    return lgp.fit(model, data, key=KEY, method=lgp.Laplace()), data


def test_effects_of_areas_are_found(counts, fitted, tmp_path):
    posterior = fitted[0].posterior
    law = posterior.predict_f(AREAS)
    z = (np.ravel(law.mean) - counts[0]) / np.sqrt(np.ravel(law.variance))
    assert np.max(np.abs(z)) < 4
    assert np.ravel(law.variance)[15:].min() > 5 * np.ravel(law.variance)[:15].max()
    again = lgp.load(lgp.save(posterior, tmp_path / "areas.latentgp"))
    np.testing.assert_array_equal(again.mean_f(AREAS), posterior.mean_f(AREAS))


def test_points_at_all_areas_are_exact(fitted):
    """One inducing point an area gives what one coefficient a row gives."""
    fit, data = fitted
    sparse = lgp.fit(
        fit.posterior.model,
        data,
        key=KEY,
        method=lgp.Laplace(lgp.Inducing(17)),
        learn_hyperparameters=False,
    )
    exact = fit.posterior.predict_f(AREAS)
    found = sparse.posterior.predict_f(AREAS)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-5)
    np.testing.assert_allclose(found.variance, exact.variance, atol=1e-5)


@pytest.mark.quick
def test_auto_takes_a_point_an_area():
    pairs = np.column_stack([np.arange(299), np.arange(1, 300)])
    for kernel in (
        lgp.CAR(pairs, areas=300),
        2.0 * lgp.ICAR(pairs, areas=300).on(0) + lgp.Constant(),
    ):
        method = choose_method(lgp.LatentGP(kernel, lgp.Poisson()), 50_000).method
        assert method.representation == lgp.Inducing(300)
    mixed = lgp.CAR(pairs, areas=300).on(0) + lgp.RBF().on(1)
    method = choose_method(lgp.LatentGP(mixed, lgp.Poisson()), 50_000).method
    assert method.representation == lgp.Inducing(200)


def test_draws_share_the_matrix_of_the_graph(x64):
    model = lgp.LatentGP(lgp.CAR(W) + lgp.Constant(1.0), lgp.Gaussian(1.0))
    space = ParameterSpace(model)
    models = stacked_models(space, space.to_vector() + RNG.normal(size=(5, space.size)))
    car = models.kernel.parts[0]
    assert car.graph.matrix.shape == (1, 17, 17)
    assert car.alpha.shape == (5,)


def test_areas_that_are_not_there_are_refused(fitted):
    for wrong in (-1.0, 0.5, 17.0):
        with pytest.raises(lgp.InputError, match="knows the areas 0 to 16"):
            fitted[0].posterior.predict([wrong])
    kernel = lgp.ICAR(W)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.1))
    with pytest.raises(lgp.InputError, match="reads one column"):
        lgp.fit(model, lgp.Data(np.zeros((3, 2)), np.zeros(3)), key=KEY)
    with pytest.raises(lgp.InputError, match="a kernel over indices"):
        lgp.fit(
            model, lgp.Data(AREAS, np.zeros(17)), key=KEY, method=lgp.ExactGP(lgp.Neighbours(3))
        )
