from itertools import product

import jax
import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.kernels import FixedEffects, SameGroup
from latentgp.representations import Representation
from latentgp.sites.gaussian import GaussianSites
from latentgp.testing import check_representation
from problems import BINARY, KERNEL, X, classification
from slow import slow_parameters
from without import available

REPRESENTATIONS = available(
    {
        "dense": lambda: (lgp.Dense(), None),
        "inducing, every row": lambda: (lgp.Inducing(points=X), True),
        "inducing, chosen": lambda: (lgp.Inducing(number=4), False),
        "inducing, diagonal": lambda: (lgp.Inducing(number=4, covariance="diagonal"), False),
        "matrix-free, few rows": lambda: (lgp.MatrixFree(tolerance=1e-12), True),
        "neighbours, every row": lambda: (lgp.Neighbours(len(X) - 1), True),
        "neighbours, few": lambda: (lgp.Neighbours(3), False),
        "neighbours of residuals, every row": lambda: (
            lgp.Neighbours(len(X) - 1, inducing=3),
            True,
        ),
        "neighbours of residuals, few": lambda: (lgp.Neighbours(3, inducing=3), False),
        "neighbours of latents, every row": lambda: (lgp.LatentNeighbours(len(X) - 1), True),
        "neighbours of latents, few": lambda: (lgp.LatentNeighbours(3), False),
        "neighbours of latents' residuals, few": lambda: (
            lgp.LatentNeighbours(3, inducing=3),
            False,
        ),
        "random features": lambda: (lgp.RandomFeatures(20), None),
    }
)
LINE = {  # of one column, for representations that take no other
    "shared": lgp.Matern32(variance=1.3).on(0) + lgp.Constant(0.4),
    "own, alike": lgp.PerLatent(
        lgp.Matern52().on(0), lgp.Matern52(lengthscale=0.5, variance=5.0).on(0)
    ),
    "own, different": lgp.PerLatent(
        lgp.Matern12().on(0) * lgp.Cosine(period=2.0).on(0), lgp.Matern32().on(0)
    ),
}
KERNELS = {
    "shared": KERNEL,
    "own, alike": lgp.PerLatent(KERNEL, 5.0 * lgp.RBF(lengthscale=0.5)),
    "own, different": lgp.PerLatent(KERNEL, lgp.Matern52(lengthscale=[0.4, 1.5], variance=0.1)),
}


QUICK = {
    ("dense", "shared"),
    ("dense", "own, different"),
    ("inducing, chosen", "own, different"),
    ("inducing, diagonal", "shared"),
    ("neighbours, few", "own, different"),
    ("neighbours of residuals, few", "own, different"),
    ("random features", "shared"),
    ("random features", "own, different"),
}
PAIRS = [
    pytest.param(*pair, marks=[pytest.mark.slow] * (pair not in QUICK))
    for pair in product(REPRESENTATIONS, KERNELS)
]


ADDITIVE = lgp.Matern32(0.6, 1.5).on(0) + 0.7 * lgp.Matern52(1.1).on(1) + lgp.Constant(0.3)
FEATURES = available(
    {
        "splines": lambda: (lgp.BSplines(8), ADDITIVE),
        "splines, own": lambda: (lgp.BSplines(8), lgp.PerLatent(ADDITIVE, lgp.Matern12(0.8).on(0))),
        "Fourier": lambda: (lgp.FourierFeatures(7), ADDITIVE),
        "eigenfunctions": lambda: (lgp.HilbertSpace(5), KERNELS["own, different"]),
        "windows": lambda: (lgp.MultiScale(5), lgp.RBF([0.7, 1.1], 1.3)),
        "windows, own": lambda: (lgp.MultiScale(5), lgp.PerLatent(lgp.RBF(0.7, 1.3), lgp.RBF(0.5))),
        "harmonics": lambda: (lgp.SphericalHarmonics(20), lgp.ArcCosine()),
        "per part": lambda: (lgp.PerPart(8), ADDITIVE + lgp.FixedEffects(4.0, 0.5).on(0)),
        "per part, own": lambda: (
            lgp.PerPart(5),
            lgp.PerLatent(lgp.RBF(0.7, 1.3), lgp.Linear(0.5)),
        ),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEATURES)
def test_inter_domain_variables_conform(kind):
    features, kernel = FEATURES[kind]
    check_representation(lgp.Inducing(features=features), kernel, X, exact=False)


@pytest.mark.parametrize(("case", "kernel"), PAIRS)
def test_representation_conforms(case, kernel):
    representation, exact = REPRESENTATIONS[case]
    check_representation(representation, KERNELS[kernel], X, exact=exact)


@pytest.mark.parametrize("kernel", ["shared", *slow_parameters("own, alike", "own, different")])
@pytest.mark.parametrize("lanes", [1, *slow_parameters(3)])
def test_markov_conforms(kernel, lanes):
    check_representation(lgp.Markov(lanes=lanes), LINE[kernel], X, exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["shared", "own, different"])
def test_space_time_conforms(kernel):
    product = lgp.Matern32(variance=1.3).on(0) * lgp.Matern52(lengthscale=0.7).on(1)
    kernels = {"shared": product, "own, different": lgp.PerLatent(product, lgp.Matern32().on(0))}
    check_representation(lgp.SpaceTime(4), kernels[kernel], X, exact=False)


GROUPS = np.column_stack([np.arange(len(X)), np.arange(len(X)) % 3, X[:, 0]])
EFFECTS = 0.7 * SameGroup().on(0) + 0.4 * SameGroup().on(1) + FixedEffects([2.0]).on(2)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["shared", "own, different"])
def test_effects_of_groups_conform(kernel):
    kernels = {"shared": EFFECTS, "own, different": lgp.PerLatent(EFFECTS, SameGroup().on(0))}
    check_representation(lgp.groups.SparseEffects(), kernels[kernel], GROUPS, exact=True)


@pytest.mark.always
def test_every_representation_is_checked():
    checked = {type(representation).__name__ for representation, _ in REPRESENTATIONS.values()}
    checked |= {"Markov", "SpaceTime", "SparseEffects"}
    one_latent = {"EquispacedFourier"}  # as a part of `FourierGP`, see `test_methods.py`
    assert checked | one_latent == concrete_classes(Representation)


class WrongGradient(lgp.Inducing):
    def pull_back(self, posterior, X, sites):
        pullback = super().pull_back(posterior, X, sites)
        return pullback._replace(kernel=jax.tree.map(lambda g: 1.01 * g, pullback.kernel))


class ForgetsTheOffset(lgp.Dense):
    def update_sites(self, posterior, X, rows, sites, offset, update):
        return super().update_sites(posterior, X, rows, sites, 0 * offset, update)


class KeepsTooMuch(lgp.Inducing):
    def kept(self, kernel, X, sites):
        blocks = super().kept(kernel, X, sites)
        return blocks._replace(variances=1.01 * blocks.variances)


@pytest.mark.parametrize(
    ("representation", "complaint"),
    [
        (WrongGradient(number=4), "gradient of the log evidence in the kernel"),
        (ForgetsTheOffset(), "update_sites"),
        (KeepsTooMuch(number=4), "what is kept"),
    ],
)
def test_a_wrong_representation_is_caught(representation, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_representation(representation, KERNEL, X)


@pytest.mark.parametrize(
    ("rows", "points", "latents", "kept"),
    [(20_000, 100, 1, True), (21_000, 10, 1, False), (4096, 513, 1, False), (100, 10, 2, False)],
)
def test_blocks_of_few_rows_of_one_latent_function_are_kept(rows, points, latents, kept):
    many = np.zeros((rows, 2))
    representation = lgp.Inducing(points=many[:points])
    sites = GaussianSites.none(np.zeros((rows, latents)))
    given = jax.eval_shape(representation.kept, KERNEL, many, sites)
    shape = (1, points, rows) if kept else many.shape
    assert jax.tree.leaves(given)[0].shape == shape


@pytest.mark.parametrize(
    "method",
    [lgp.Laplace, *slow_parameters(lgp.ExpectationPropagation, lgp.GibbsSampling)],
    ids=lambda m: m.__name__,
)
def test_a_diagonal_covariance_is_refused_where_it_is_of_no_use(method):
    diagonal = lgp.Inducing(number=4, covariance="diagonal")
    with pytest.raises(lgp.InputError, match=r"leave (these|covariance) out"):
        lgp.fit(
            classification(), lgp.Data(X, BINARY), method=method(diagonal), key=jax.random.key(0)
        )
