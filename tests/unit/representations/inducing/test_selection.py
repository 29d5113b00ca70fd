import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.representations.inducing.selection import _swapped, select_points

pytestmark = pytest.mark.quick

KEY = jax.random.key(0)


@pytest.mark.parametrize("selection", ["k-means++", "greedy-variance", "k-dpp"])
class TestSelection:
    def test_points_are_distinct(self, x64, selection):
        # A kernel so smooth that 150 rows, met twice, have a numerical rank of about sixteen.
        X = np.repeat(np.linspace(0, 1, 150), 2)[:, None]
        points = select_points(X, None, lgp.RBF(lengthscale=1.0), 60, selection, KEY)
        assert len(np.unique(points, axis=0)) == len(points) == 60

    def test_the_order_of_rows_does_not_matter(self, x64, selection):
        X = np.random.default_rng(0).normal(size=(40, 2))
        one = select_points(X, None, lgp.RBF(), 7, selection, KEY)
        other = select_points(X[::-1], None, lgp.RBF(), 7, selection, KEY)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)  # sums in another order

    def test_all_distinct_rows_if_there_are_no_more(self, x64, selection):
        X = np.array([[0.0], [1.0], [1.0], [2.0]])
        points = select_points(X, None, lgp.RBF(), 5, selection, KEY)
        assert sorted(points.ravel().tolist()) == [0.0, 1.0, 2.0]

    def test_rows_of_weight_zero_are_not_chosen(self, x64, selection):
        X = np.arange(10.0)[:, None]
        weights = (X[:, 0] < 5).astype(float)
        assert select_points(X, weights, lgp.RBF(), 3, selection, KEY).max() < 5


class TestOIPS:
    """Online inducing point selection."""

    KERNEL = lgp.RBF(lengthscale=0.5)

    def test_no_point_resembles_another_and_every_row_resembles_one(self, x64):
        X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
        points = select_points(X, None, self.KERNEL, 300, "oips", KEY, resemblance=0.9)
        among = np.asarray(self.KERNEL.gram(points, points)) - np.eye(len(points))
        assert 5 < len(points) < 150
        assert among.max() < 0.9
        assert np.asarray(self.KERNEL.gram(X, points)).max(axis=1).min() >= 0.9

    def test_earlier_points_stay_and_the_number_is_kept(self, x64):
        X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
        earlier = np.array([[9.0, 9.0], [9.0, 9.1]])
        points = select_points(X, None, self.KERNEL, 300, "oips", KEY, earlier)
        np.testing.assert_array_equal(points[:2], earlier)
        assert len(select_points(X, None, self.KERNEL, 12, "oips", KEY, earlier)) <= 12

    @pytest.mark.parametrize("before", [None, 12])
    def test_where_they_are_too_few_they_are_everywhere(self, x64, before):
        """Not the first ones that come, nor those of earlier rows alone."""
        X = np.random.default_rng(0).uniform(-8, 8, (600, 2))
        earlier = None if before is None else X[X[:, 0] < 0][:before]
        points = select_points(X, None, self.KERNEL, 12, "oips", KEY, earlier)
        assert len(points) == 12
        for side in (X[:, 0] < 0, X[:, 0] > 0, X[:, 1] < 0, X[:, 1] > 0):
            assert np.isin(points[:, 0], X[side, 0]).sum() >= 4
        assert np.abs(points).max() > 6


def test_a_grid_covers_the_rows_with_equal_steps(x64):
    X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    points = select_points(X, None, lgp.RBF(), 30, "grid", KEY)
    assert len(points) == 25
    for column in range(2):
        axis = np.unique(points[:, column])
        np.testing.assert_allclose(axis[[0, -1]], [X[:, column].min(), X[:, column].max()])
        np.testing.assert_allclose(np.diff(axis), np.diff(axis)[0])
    with pytest.raises(lgp.InputError, match="at least 256 points for 8 inputs"):
        select_points(np.ones((3, 8)), None, lgp.RBF(), 100, "grid", KEY)


def test_determinantal_draws_have_the_probabilities_of_their_determinants(x64):
    X = jnp.array([[0.0], [0.3], [0.9], [1.0], [2.5]])
    kernel = lgp.RBF()
    keys = jax.random.split(KEY, 4000)
    drawn = jax.vmap(lambda key: _swapped(kernel, X, jnp.array([0, 1]), key))(keys)
    pairs = list(itertools.combinations(range(5), 2))
    gram = np.asarray(kernel.gram(X, X))
    wanted = np.array([np.linalg.det(gram[np.ix_(pair, pair)]) for pair in pairs])
    found = [np.mean(np.all(np.sort(drawn, axis=1) == pair, axis=1)) for pair in pairs]
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.025)


def test_a_sparse_fit_sees_categories():
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 3, size=300)
    x = generator.uniform(-1, 1, size=300)
    y = np.array([-2.0, 0.0, 2.0])[codes] + 0.1 * generator.normal(size=300)
    kernel = lgp.Categorical().on(1) * lgp.RBF().on(0)
    model = lgp.LatentGP(kernel, lgp.Gaussian(noise_variance=0.1))
    method = lgp.CollapsedVI(lgp.Inducing(15))
    X = np.stack([x, codes], axis=1)
    fitted = lgp.fit(model, lgp.Data(X, y), method=method, key=KEY)
    at_zero = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    np.testing.assert_allclose(fitted.posterior.mean_f(at_zero), [-2, 0, 2], atol=0.2)
