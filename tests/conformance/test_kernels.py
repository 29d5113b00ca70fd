import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.kernels import ActiveDimensions, Kernel, Product, Scaled, Sum
from latentgp.kernels.parts import PartsOfKernel
from latentgp.testing import check_kernel

POINTS = np.random.default_rng(0).normal(size=(6, 2))
GRAM = POINTS @ POINTS.T + 0.5 * np.eye(6)
PLACES = np.array(
    [[0.0, 0.0], [179.9, 10.0], [-179.9, 10.0], [13.4, 52.5], [13.40001, 52.5], [-70.0, -90.0]]
)
CATEGORIES = np.array([[0, 1], [0, 2], [1, 1], [2, 0], [2, 2], [1, 0]])

FUNCTIONALS = np.concatenate(
    [
        lgp.functionals.values(POINTS[:2, :1]),
        lgp.functionals.derivatives(POINTS[1:3, :1]),
        lgp.functionals.averages(POINTS[3:5, :1], [0.5, 1.5]),
    ]
)

CASES = [
    (lgp.RBF(lengthscale=[0.7, 1.3]), POINTS),
    (lgp.Matern12(0.8, 2.0), POINTS),
    (lgp.Matern32(0.8), POINTS),
    (lgp.Matern52([0.8, 2.0]), POINTS),
    (lgp.Matern(order=1.2), POINTS),
    (lgp.RationalQuadratic(mixing=0.7), POINTS),
    (lgp.Periodic(lengthscale=1.2, period=[1.7, 3.0]), POINTS),
    (lgp.Linear(variance=[0.5, 2.0]), POINTS),
    (lgp.Polynomial(degree=3, variance=0.4, offset=0.7), POINTS),
    (lgp.Constant(2.0), POINTS),
    (lgp.Functionals(lgp.Matern52(0.8), average_along=0), FUNCTIONALS),
    (PartsOfKernel(0.5 * (lgp.RBF(0.7) + lgp.Matern32()), 2), np.hstack([POINTS, POINTS[::-1]])),
    (lgp.MaternHalfInteger(0.8, degree=3), POINTS),
    (lgp.Cosine(period=[1.7, 3.0]), POINTS),
    (lgp.WeightedSum((lgp.RBF().on(0), lgp.Linear().on(1)), [0.5, 2.0]), POINTS),
    (lgp.Precomputed(GRAM), np.arange(6.0)[:, None]),
    (lgp.Precomputed(GRAM[:, :4], np.diagonal(GRAM)), np.arange(5.0)[:, None]),
    (lgp.White(0.5), POINTS),
    (lgp.ArcCosine(order=0, weight_variance=[0.5, 2.0]), POINTS),
    (lgp.ArcCosine(order=1, bias_variance=0.3), POINTS),
    (lgp.Categorical(lengthscale=[0.5, 2.0]), CATEGORIES),
    (lgp.FixedEffects([4.0, 1.0], centre=[0.0, 0.5]), POINTS),
    (lgp.CorrelatedLinear([0.5, 0.2, 0.3], [0.4, -0.2, 0.6]), POINTS),
    (lgp.CorrelatedLinear([0.5, 0.2], [0.4], intercept=False), POINTS),
    (lgp.SameGroup(), CATEGORIES),
    (lgp.kernels.MultipleMembership(2), CATEGORIES),
    (lgp.kernels.MultipleMembership(1), np.abs(POINTS)),
    (lgp.kernels.ZeroAverage(lgp.RBF([0.7, 1.3]), POINTS[:3]), POINTS),
    (lgp.OnSphere(lgp.Matern32(3000.0)), PLACES),
    (lgp.OnSphere(lgp.Matern12(3000.0, 2.0), "great-circle"), PLACES),
    (lgp.OnSphere(lgp.RBF(0.5), radius=1.0), PLACES),
    (
        lgp.kernels.MetricKernel(
            lgp.OnSphere(lgp.Matern32(3000.0, 1.3)).on(2, 0),
            lgp.kernels.OtherColumns((1,), lengthscale=20.0),
        ),
        np.column_stack([PLACES[:, 1], PLACES[::-1, 1], PLACES[:, 0]]),
    ),
    (lgp.kernels.InputWarping.by_scores(lgp.RBF([0.7, 1.3]), np.exp(POINTS), [0]), POINTS),
    (Sum((lgp.RBF(), lgp.Linear())), POINTS),
    (Product((lgp.RBF(), lgp.Linear())), POINTS),
    (Scaled(lgp.RBF(), 0.5), POINTS),
    (ActiveDimensions(lgp.RBF(), (1,)), POINTS),
    (lgp.RBF().on(0) * lgp.Categorical().on(1) + 0.5 * lgp.White(0.1), CATEGORIES),
]


@pytest.mark.parametrize(("kernel", "inputs"), CASES, ids=lambda c: type(c).__name__)
def test_kernel_conforms(kernel, inputs):
    check_kernel(kernel, inputs)


@pytest.mark.always
def test_every_kernel_is_checked():
    assert {type(kernel).__name__ for kernel, _ in CASES} == concrete_classes(Kernel, core=True)


class WrongGram(lgp.RBF):
    def gram(self, X, Z):
        return 1.001 * super().gram(X, Z)


class Indefinite(lgp.RBF):
    def correlation(self, squared_distance):
        return 1 - squared_distance


class InfiniteGradient(lgp.RBF):
    def correlation(self, squared_distance):
        return np.e ** (-(squared_distance**0.5))


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        (WrongGram(), "gram differs from its __call__"),
        (Indefinite(), "eigenvalue"),
        (InfiniteGradient(), "at zero distance is not finite"),
    ],
)
def test_a_wrong_kernel_is_caught(kernel, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_kernel(kernel, POINTS)
