import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.latents.selection import select_points

KEY = jax.random.key(0)


@pytest.mark.parametrize("selection", ["k-means++", "greedy-variance"])
class TestSelection:
    def test_points_are_distinct(self, x64, selection):
        # A kernel so smooth that 150 rows have a numerical rank of about sixteen.
        X = np.linspace(0, 1, 150)[:, None]
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
        assert points.ravel().tolist() == [0.0, 1.0, 2.0]

    def test_rows_of_weight_zero_are_not_chosen(self, x64, selection):
        X = np.arange(10.0)[:, None]
        weights = (X[:, 0] < 5).astype(float)
        assert select_points(X, weights, lgp.RBF(), 3, selection, KEY).max() < 5


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
