import jax
import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.testing import check_method
from problems import (
    BINARY,
    KERNEL,
    SMOOTH,
    Heteroscedastic,
    StudentT,
    X,
    classification,
    regression,
)

POINTS = lgp.Inducing(points=X[:4] + 0.1)
OFFSET = lgp.LinearMean(slope=[0.3, -0.2], intercept=0.4)
CASES = {
    "exact": (lgp.ExactGP(), regression(mean=OFFSET), SMOOTH),
    "exact, classes": (
        lgp.ExactGP(),
        lgp.LatentGP(KERNEL, lgp.LeastSquares(3, 0.1), OFFSET),
        np.arange(11.0) % 3,
    ),
    "collapsed": (lgp.CollapsedVI(POINTS), regression(mean=OFFSET), SMOOTH),
    "augmented, dense": (lgp.AugmentedVI(), classification(mean=OFFSET), BINARY),
    "augmented, sparse": (lgp.AugmentedVI(POINTS), classification(mean=OFFSET), BINARY),
    "augmented, two blocks": (
        lgp.AugmentedVI(),
        lgp.LatentGP(KERNEL, lgp.HeteroscedasticGaussian(9.0), lgp.ConstantMean(-0.3)),
        SMOOTH,
    ),
    "augmented, classes": (
        lgp.AugmentedVI(POINTS),
        lgp.LatentGP(KERNEL, lgp.LogisticSoftmax(3), OFFSET),
        np.arange(11.0) % 3,
    ),
    "variational, dense": (lgp.VariationalInference(), classification(mean=OFFSET), BINARY),
    "variational, sparse": (lgp.VariationalInference(POINTS), classification(mean=OFFSET), BINARY),
    "Student t, dense": (
        lgp.VariationalInference(),
        lgp.LatentGP(KERNEL, StudentT(scale=0.6), OFFSET),
        SMOOTH,
    ),
    "Student t, sparse": (
        lgp.VariationalInference(POINTS),
        lgp.LatentGP(KERNEL, StudentT(scale=0.6), OFFSET),
        SMOOTH,
    ),
    "Laplace, dense": (lgp.Laplace(), classification(mean=OFFSET), BINARY),
    "Laplace, sparse, Student t": (
        lgp.Laplace(POINTS),
        lgp.LatentGP(KERNEL, lgp.StudentT(0.3, 4.0), OFFSET),
        SMOOTH,
    ),
    "Laplace, classes": (
        lgp.Laplace(),
        lgp.LatentGP(KERNEL, lgp.Softmax(3), OFFSET),
        np.arange(11.0) % 3,
    ),
    "EP, dense": (lgp.ExpectationPropagation(), classification(mean=OFFSET), BINARY),
    "EP, sparse, Student t": (
        lgp.ExpectationPropagation(POINTS),
        lgp.LatentGP(KERNEL, lgp.StudentT(0.3, 4.0), OFFSET),
        SMOOTH,
    ),
    "power EP, sparse": (
        lgp.ExpectationPropagation(POINTS, power=0.5),
        lgp.LatentGP(KERNEL, lgp.BernoulliProbit(), OFFSET),
        BINARY,
    ),
    "two latents, dense": (
        lgp.VariationalInference(step_size=0.5),
        lgp.LatentGP(KERNEL, Heteroscedastic(), lgp.ConstantMean(-0.3)),
        SMOOTH,
    ),
    "two latents, sparse": (
        lgp.VariationalInference(POINTS, step_size=0.5),
        lgp.LatentGP(KERNEL, Heteroscedastic(), lgp.ConstantMean(-0.3)),
        SMOOTH,
    ),
}


# One of each kind of method is part of `make quick`.
QUICK = {
    "exact",
    "collapsed",
    "augmented, sparse",
    "variational, dense",
    "Laplace, dense",
    "EP, dense",
}
SLOW = {
    "Student t, dense",
    "two latents, sparse",
    "Laplace, classes",
    "EP, sparse, Student t",
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW) + [pytest.mark.quick] * (c in QUICK))
        for c in CASES
    ],
)
def test_method_conforms(case):
    method, model, y = CASES[case]
    weights = np.where(np.arange(len(y)) == 3, 2.0, 1.0)
    check_method(method, model, lgp.Data(X, y, weights=weights))


def test_equispaced_fourier_functions_conform():
    pytest.importorskip("jax_finufft")
    functions = lgp.fields.EquispacedFourier(tolerance=1e-7, left=1e-7)
    method, smooth = lgp.fields.FourierGP(functions), regression(lgp.RBF(lengthscale=1.0))
    check_method(method, smooth, lgp.Data(X, SMOOTH))


@pytest.mark.always
def test_every_method_is_checked():
    checked = {type(method).__name__ for method, _, _ in CASES.values()} | {"FourierGP"}
    assert checked == concrete_classes(SiteMethod)


class BoldSteps(lgp.AugmentedVI):
    """Says that it takes full closed-form steps, and takes quadrature's."""

    def algorithm(self, model):
        return lgp.VariationalInference(step_size=1.0).algorithm(model)


def test_a_falling_bound_is_caught():
    far = classification(kernel=400.0 * lgp.RBF(0.6))
    with pytest.raises(AssertionError, match="lowers the bound"):
        check_method(BoldSteps(), far, lgp.Data(X, BINARY))


@pytest.mark.parametrize("method", [lgp.ExactGP(), lgp.CollapsedVI(POINTS)])
def test_methods_for_gaussian_noise_refuse_other_likelihoods(method):
    with pytest.raises(lgp.InputError, match="needs Gaussian noise"):
        lgp.fit(classification(), lgp.Data(X, BINARY), key=jax.random.key(0), method=method)


def test_augmented_inference_needs_an_augmentation():
    model = lgp.LatentGP(KERNEL, StudentT())
    with pytest.raises(lgp.InputError, match="needs an augmentation"):
        lgp.fit(model, lgp.Data(X, SMOOTH), key=jax.random.key(0), method=lgp.AugmentedVI())
