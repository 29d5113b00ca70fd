"""New inputs see rows all round, against brute force and the exact process."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.near import NearRows
from latentgp.extensions.neighbours.search import NOBODY, blocks_of

KERNEL = lgp.Matern12(lengthscale=1.0)


def seen(X, new, number, absent=None):
    absent = np.zeros(len(X), bool) if absent is None else absent
    rows = NearRows(jnp.asarray(X), jnp.asarray(absent), number, False, jnp.asarray(blocks_of(X)))
    near = np.asarray(rows.near(KERNEL, jnp.asarray(new)).rows)[:, 0]
    there = np.asarray(rows.near(KERNEL, jnp.asarray(new)).there)[:, 0]
    return [set(own[real][:-1]) for own, real in zip(near, there, strict=True)]


def directions(steps):
    """Sides of a line, halves of quadrants, octants, orthants of four coordinates."""
    if steps.shape[1] == 2:
        return np.floor(np.arctan2(steps[:, 1], steps[:, 0]) / (np.pi / 4)).astype(int)
    return np.sign(steps) @ 3 ** np.arange(steps.shape[1])


@pytest.mark.parametrize(
    ("inputs", "sides", "each"), [(1, 2, 13), (2, 8, 3), (3, 8, 3), (4, 16, 1)]
)
def test_a_third_are_the_nearest_and_the_others_all_round(inputs, sides, each):
    generator = np.random.default_rng(0)
    X, new = generator.normal(size=(400, inputs)), 0.5 * generator.normal(size=(20, inputs))
    absent = generator.random(400) < 0.2
    found = seen(X, new, 40, absent)
    for x, own in zip(new, found, strict=True):
        order = np.argsort(np.sum((X - x) ** 2, axis=1))
        order = order[~absent[order]]
        nearest = 40 - each * sides
        further = order[nearest:]
        of_further = directions(X[further] - x)
        wanted = [further[of_further == one][:each] for one in set(of_further)]
        assert own == {*order[:nearest], *np.concatenate(wanted)}


@pytest.mark.parametrize("inputs", [1, 2, 3, 4])
def test_the_nearest_of_many_are_among_the_blocks_looked_through(inputs):
    generator = np.random.default_rng(1)
    X = generator.gamma(0.5, size=(6_000, inputs))  # many close together, few far out
    blocks = blocks_of(X)
    assert sorted(blocks[blocks != NOBODY]) == list(range(len(X)))
    new = X[:30] + 0.01 * generator.normal(size=(30, inputs))
    for x, own in zip(new, seen(X, new, 100), strict=True):
        assert set(np.argsort(np.sum((X - x) ** 2, axis=1))[:30]) <= own


def test_predictions_in_a_gap_are_near_those_of_the_exact_process():
    """Nearest rows alone lie on one side of it."""
    places = np.stack(np.meshgrid(*[np.linspace(0, 1, 25)] * 2), axis=-1).reshape(-1, 2)
    away = np.linalg.norm(places - 0.5, axis=1)
    X, new = places[away > 0.3], places[away < 0.25]
    y = np.sin(6 * X[:, 0]) + 2 * X[:, 1]
    model = lgp.LatentGP(lgp.Matern12(lengthscale=1.0, variance=2.0), lgp.Gaussian(1e-3))

    def means(number, representation=None):
        own = representation or lgp.Neighbours(5, number_predicted=number)
        fit = lgp.fit(
            model,
            lgp.Data(X, y),
            method=lgp.ExactGP(own),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        )
        return np.asarray(fit.posterior.predict_f(new).mean)

    exact = means(0, lgp.Dense())
    one_side, all_round = (np.std(means(number) - exact) for number in (31, 32))
    assert all_round < 0.5 * one_side


def test_few_rows_or_many_inputs_have_the_nearest_alone():
    generator = np.random.default_rng(2)
    for shape in ((127, 2), (500, 4)):
        X = generator.normal(size=shape)
        found = lgp.Neighbours(5, number_predicted=32).for_rows(X, None, KERNEL).found
        assert found.blocks is None
    assert lgp.Neighbours(5, number_predicted=32).for_rows(X[:, :2], None, KERNEL).found.blocks.size


def test_places_of_a_town_on_the_globe_see_their_nearest(x64):
    """Thousands of length-scales from the centre of the earth, in single precision on the way."""
    rng = np.random.default_rng(0)
    places = np.array([10.0, 50.0]) + rng.uniform(-0.05, 0.05, (2_000, 2))
    new = np.array([10.0, 50.0]) + rng.uniform(-0.05, 0.05, (20, 2))
    kernel = lgp.OnSphere(lgp.Matern32(0.5))
    rows = NearRows(jnp.asarray(places), jnp.zeros(2_000, bool), 10, False, None)
    near = np.asarray(rows._nearest(kernel, jnp.asarray(new)))
    told = np.argsort(-np.asarray(kernel.gram(new, places)), axis=1)[:, :10]
    np.testing.assert_array_equal(np.sort(near, axis=1), np.sort(told, axis=1))
