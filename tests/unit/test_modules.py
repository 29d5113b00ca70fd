"""Models, methods and their parts print as code, and say which argument was meant."""

import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from numpyro.distributions import constraints
from sklearn.base import clone

import latentgp as lgp

pytestmark = pytest.mark.quick


class Bump(lgp.Kernel):
    """A user's kernel."""

    width: Array = lgp.parameter(constraints.positive, default=1.0)

    def __call__(self, x, z):
        return jnp.exp(-jnp.sum((x - z) ** 2) / self.width)


RBF = "RBF(lengthscale=1.0, variance=1.0)"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (
            2.0 * lgp.RBF(lengthscale=[1.9, 92.0]).on(0, 1) + lgp.Periodic(period=12),
            "2.0 * RBF(lengthscale=[1.9, 92.0], variance=1.0).on(0, 1) + "
            "Periodic(lengthscale=1.0, variance=1.0, period=12.0)",
        ),
        ((lgp.RBF() + lgp.RBF()).on(1), f"({RBF} + {RBF}).on(1)"),
        (2.0 * lgp.RBF() * lgp.RBF(), f"2.0 * {RBF} * {RBF}"),
        (lgp.RBF() * (2.0 * lgp.RBF()), f"{RBF} * (2.0 * {RBF})"),
        (lgp.RBF() * (lgp.RBF() + 1.0), f"{RBF} * ({RBF} + Constant(variance=1.0))"),
        (2.0 * (lgp.RBF() + lgp.RBF()), f"2.0 * ({RBF} + {RBF})"),
        (lgp.PerLatent(lgp.RBF(), 2.0 * lgp.RBF()), f"PerLatent({RBF}, 2.0 * {RBF})"),
        (Bump(0.123456), "Bump(width=0.1235)"),
        (
            lgp.RBF(np.arange(1.0, 27)),
            "RBF(lengthscale=[1.0, 2.0, 3.0, ..., 26.0 (26 numbers)], variance=1.0)",
        ),
        (lgp.Polynomial(3), "Polynomial(degree=3, variance=1.0, offset=1.0)"),
        (lgp.StudentT(), "StudentT(scale=1.0, degrees_of_freedom=4.0)"),
        (lgp.LogisticSoftmax(3), "LogisticSoftmax(classes=3)"),
        (
            lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)),
            f"LatentGP({RBF}, Gaussian(noise_variance=0.1), ZeroMean())",
        ),
        (
            lgp.PerLatentMean(lgp.ZeroMean(), lgp.ConstantMean(3.0)),
            "PerLatentMean(ZeroMean(), ConstantMean(value=3.0))",
        ),
        (lgp.CollapsedVI(), "CollapsedVI(Inducing(number=500))"),
        (
            lgp.VariationalInference(lgp.Inducing(points=np.zeros((50, 2))), step_size=0.3),
            "VariationalInference(Inducing(points=<50 x 2 array>), step_size=0.3)",
        ),
        (lgp.GibbsSampling(draws=5), "GibbsSampling(Dense(), draws=5)"),
    ],
)
def test_printed_as_code_with_its_values(value, code):
    assert repr(value) == code


def test_what_is_printed_makes_the_same_kernel():
    kernel = 2.0 * (lgp.RBF([1.5, 3.0]) + lgp.Linear()) * lgp.Matern32(2.0).on(0) + lgp.White(0.1)
    names = {name: getattr(lgp, name) for name in lgp.__all__}
    again = eval(repr(kernel), names)
    assert jax.tree.structure(again) == jax.tree.structure(kernel)
    assert jax.tree.all(jax.tree.map(np.array_equal, again, kernel))


def test_printing_needs_no_values():
    seen = []
    jax.jit(lambda kernel: seen.append(repr(2.0 * kernel)))(lgp.RBF([1.0, 2.0]))
    assert seen == ["2.0 * RBF(lengthscale=<float32[2]>, variance=<float32[]>)"]
    assert "object" in repr(jax.tree.map(lambda _: object(), lgp.RBF()))
    assert repr(jax.tree.map(jnp.asarray, lgp.RBF(2.0))) == "RBF(lengthscale=2.0, variance=1.0)"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lgp.RBF(length_scale=1), "RBF has no argument length_scale: did you mean length"),
        (lambda: lgp.RBF(lenghtscale=1), "no argument lenghtscale: did you mean lengthscale?"),
        (lambda: lgp.RBF(nu=1), "no argument nu; it has lengthscale, variance"),
        (lambda: Bump(widht=1), "Bump has no argument widht: did you mean width?"),
        (lambda: lgp.StudentT(degree_of_freedom=3), "did you mean degrees_of_freedom?"),
        (lambda: lgp.VariationalInference(stepsize=0.3), "did you mean step_size?"),
        (lambda: lgp.Inducing(numbers=3), "did you mean number?"),
        (lambda: lgp.LatentGP(kernal=lgp.RBF(), likelihood=lgp.Gaussian()), "mean kernel?"),
        (lambda: lgp.GPRegressor(kernal=lgp.RBF()), "GPRegressor has no argument kernal: did you"),
        (lambda: lgp.GPClassifier(n_inducings=3), "did you mean n_inducing?"),
        (lambda: lgp.GPOrdinalClassifier(ordering=3), "did you mean order?"),
        (lambda: lgp.RBF().on(1.5), r"numbers from 0, got \(1.5,\)"),
        (lambda: lgp.RBF().on("age"), "numbers from 0, got 'age'; give whole numbers, such as"),
        (lambda: lgp.RBF().on(["age"]), "numbers from 0"),
        (lambda: lgp.RBF(lengthscale="a"), "RBF.lengthscale must be a number.*got 'a'"),
        (lambda: lgp.RBF() ** 2, r"has no power, got RBF \*\* 2; multiply"),
        (lambda: lgp.Gaussian(0.0), "got 0.0; for targets without noise give a small one"),
    ],
)
def test_slips_are_answered_with_what_was_meant(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()


def test_columns_are_named_one_by_one_or_together():
    for columns in ([0, 1], np.array([0, 1]), (0, 1)):
        assert lgp.RBF().on(columns).dimensions == (0, 1)


def test_estimators_keep_what_scikit_learn_reads_of_them():
    assert list(inspect.signature(lgp.GPRegressor).parameters)[:2] == ["kernel", "likelihood"]
    estimator = lgp.GPOrdinalClassifier(2.0 * lgp.RBF(), order=[1, 2])
    for again in (clone(estimator), pickle.loads(pickle.dumps(estimator))):
        assert repr(again) == repr(estimator)
        assert again.get_params().keys() == estimator.get_params().keys()

    class Own(lgp.GPRegressor):
        def __init__(self, kernel=None, *, extra=3):
            super().__init__(kernel)
            self.extra = extra

    assert clone(Own(extra=4)).extra == 4
    with pytest.raises(lgp.InputError, match="Own has no argument extr: did you mean extra"):
        Own(extr=4)


def test_completion_shows_what_is_imported_when_asked_for():
    lazy = {"GPRegressor", "GPClassifier", "load", "save"}
    lazy |= {"datasets", "metrics", "plots", "tables", "testing"}
    assert set(dir(lgp)) >= {*lazy, *lgp.__all__}


def test_names_of_rooms_are_found_at_the_top_too():
    for room in (lgp.kernels, lgp.likelihoods, lgp.means, lgp.augmentations, lgp.runs):
        for name in room.__all__:
            assert getattr(lgp, name) is getattr(room, name)
    assert lgp.DeepGP is lgp.deep.DeepGP
