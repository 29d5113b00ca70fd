"""What the compiled program would take, asked of the compiler: nothing this large is run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.expectations import Expectations
from latentgp.extensions.black_box.mixtures.family import GaussianMixture
from latentgp.extensions.black_box.mixtures.starts import _prior
from latentgp.extensions.black_box.mixtures.summary import _terms
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.site_inference.search.fixed_point import ascend
from latentgp.site_inference.search.profiled_bound import _evaluate_ascended, _evaluate_exact
from latentgp.sites.gaussian import GaussianSites
from problems import classification, regression

N, M, D = 200_000, 200, 3
BLOCK = N * M * 8


def large_problem(method, model):
    algorithm = method.algorithm(model)
    data = lgp.Data(np.zeros((N, D)), np.zeros(N))
    column = jnp.zeros((N, 1))
    return algorithm, data, GaussianSites(column, column, jnp.zeros(N))


def bytes_needed(function, *arguments):
    """Of memory beside the arguments and results of a compiled function."""
    return function.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


POINTS = lgp.Inducing(points=np.random.default_rng(0).normal(size=(M, D)))


@pytest.mark.parametrize(
    ("method", "model"),
    [
        (lgp.CollapsedVI(POINTS), regression()),
        (lgp.AugmentedVI(POINTS), classification()),
        (lgp.VariationalInference(POINTS), classification()),
        (lgp.Laplace(POINTS), classification()),
        (lgp.ExpectationPropagation(POINTS), classification()),
    ],
    ids=["collapsed", "augmented", "variational", "Laplace", "EP"],
)
def test_a_bound_and_its_gradient_need_no_array_of_rows_by_points(x64, method, model):
    algorithm, data, sites = large_problem(method, model)
    space = ParameterSpace(model)
    vector = jnp.asarray(space.to_vector())
    if algorithm.rule.sites_are_fixed(model.likelihood):
        assert bytes_needed(_evaluate_exact, algorithm, space, vector, data, sites) < 0.35 * BLOCK
        return
    ascended = jax.eval_shape(ascend, algorithm, model, data, sites)
    assert bytes_needed(ascend, algorithm, model, data, sites) < 0.35 * BLOCK
    arguments = algorithm, space, vector, data, ascended
    assert bytes_needed(_evaluate_ascended, *arguments) < 0.35 * BLOCK


def test_blocks_that_are_kept_bound_what_updates_need(x64):
    """At the limit: what is kept, and what a pass makes of it; one row more, chunks again."""
    method = lgp.VariationalInference(lgp.Inducing(points=np.zeros((100, D))))
    needed = []
    for rows in (20_971, 20_972):
        algorithm = method.algorithm(classification())
        data, column = lgp.Data(np.zeros((rows, D)), np.zeros(rows)), jnp.zeros((rows, 1))
        sites = GaussianSites(column, column, jnp.zeros(rows))
        needed.append(bytes_needed(ascend, algorithm, classification(), data, sites))
    kept = 2**21 * 8
    assert kept < needed[0] < 6 * kept
    assert needed[1] < needed[0] - kept


def test_kernels_of_a_kind_of_their_own_keep_no_array_of_rows_by_points_by_inputs(x64):
    rows, points, inputs = 20_000, 100, 60
    representation = lgp.Inducing(points=np.zeros((points, inputs)))
    none = GaussianSites.none(jnp.zeros((rows, 1)))
    make = jax.jit(lambda kernel, X: representation.kept(kernel, X, none))
    needed = bytes_needed(make, Turned(jnp.eye(inputs)), np.zeros((rows, inputs)))
    assert needed < 0.5 * rows * points * inputs * 8


class Turned(lgp.Kernel):
    """Of inputs after a linear map, pair by pair."""

    turn: Any

    def __call__(self, x, z):
        return jnp.exp(-0.5 * jnp.sum((self.turn @ (x - z)) ** 2))


def test_the_start_and_the_end_of_a_mixture_need_no_array_of_rows_by_points(x64):
    model, data = classification(), lgp.Data(np.zeros((N, D)), np.zeros(N)).to_device()
    draws = Expectations("score", 100)
    bound = MixtureBound(ParameterSpace(model), POINTS, data, draws, "white", False)
    assert bytes_needed(_prior, bound, model) < 0.1 * BLOCK
    white = jnp.zeros((1, 1, M)), jnp.broadcast_to(jnp.eye(M), (1, 1, M, M))
    mixture, vector = GaussianMixture(jnp.zeros(1), *white), bound.space.to_vector()
    assert (
        bytes_needed(_terms, bound, jnp.asarray(vector), mixture, jax.random.key(0)) < 0.2 * BLOCK
    )


def test_own_kernels_need_no_array_of_rows_by_points(x64):
    def pull_back(representation, kernel, X, sites):
        posterior = representation.condition(kernel, X, sites)
        return representation.pull_back(posterior, X, sites)

    kernel = lgp.PerLatent(lgp.RBF(), lgp.Matern32())
    columns = jnp.zeros((N, 2))
    sites = GaussianSites(columns, columns, jnp.zeros(N))
    compiled = jax.jit(pull_back).lower(POINTS, kernel, np.zeros((N, D)), sites).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.35 * BLOCK


def test_the_measure_would_see_such_an_array(x64):
    """The guard itself: a product that is formed whole is counted."""

    def whole(x, z):
        return jnp.sum(jnp.linalg.qr(jnp.exp(x @ z.T))[1])

    shapes = (jax.ShapeDtypeStruct((N, D), float), jax.ShapeDtypeStruct((M, D), float))
    assert jax.jit(whole).lower(*shapes).compile().memory_analysis().temp_size_in_bytes > BLOCK
