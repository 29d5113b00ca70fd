"""What a fit makes of its problem, and how often."""

import dataclasses
import inspect
import sys
from collections import Counter

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing.choice import treating
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.methods.base import check_method
from latentgp.setup.priors import scales, search_bounds, space_of
from problems import BINARY, SMOOTH, X

pytestmark = pytest.mark.quick

MADE = {
    inspect.unwrap(function).__code__: function.__qualname__
    for function in (
        *(scales, space_of, ParameterSpace.__init__, search_bounds),
        *(treating, check_method),
    )
}


def made_in(call):
    """How often each of the functions above is called."""
    count = Counter()

    def profile(frame, event, _):
        if event == "call" and frame.f_code in MADE:
            count[MADE[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(("kind", "y"), [(lgp.GPRegressor, SMOOTH), (lgp.GPClassifier, BINARY)])
def test_an_estimator_makes_each_part_of_its_problem_once(kind, y):
    own = kind(kernel=lgp.RBF(), max_evaluations=3, random_state=0)
    # Scales once more, for a kernel in the units of the rows.
    assert made_in(lambda: own.fit(X, y)) == dict.fromkeys(MADE.values(), 1) | {"scales": 2}


def test_a_fit_makes_each_part_of_its_problem_once(problem):
    made = made_in(lambda: lgp.fit(*problem, key=jax.random.key(0), max_evaluations=3))
    assert made == {name: 1 for name in MADE.values() if name != "treating"}


@pytest.fixture
def problem():
    return lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)), lgp.Data(X, SMOOTH)


def test_another_model_has_a_space_of_its_own(problem):
    """Also where the first problem has read its own before."""
    seen = []

    class Watched(lgp.ExactGP):
        def run(self, problem):
            other = lgp.LatentGP(lgp.Matern32(3.0), lgp.Gaussian(0.1))
            first, second = problem.space, dataclasses.replace(problem, model=other).space
            seen.extend([first, second, problem.space])
            return super().run(problem)

    lgp.fit(*problem, key=jax.random.key(0), method=Watched(), max_evaluations=2)
    first, second, again = seen
    assert first is again
    assert float(second.known["kernel.lengthscale"].value) == 3.0
    np.testing.assert_allclose(second.to_vector()[0], np.log(3.0))
    assert float(first.known["kernel.lengthscale"].value) != 3.0
