import jax
import numpy as np
import pytest

import latentgp as lgp

PLANE = [(-1.0, 1.0), (0.0, 5.0)]


def test_each_cell_counts_its_points_and_the_highest_end_belongs_to_the_last():
    data = lgp.bin_points([0.0, 0.9, 1.0, 3.0], 3, (0.0, 3.0))
    np.testing.assert_array_equal(data.y, [2, 1, 1])
    np.testing.assert_allclose(data.X, [[0.5], [1.5], [2.5]])


def test_cells_of_a_plane_agree_with_counting_one_by_one():
    points = np.random.default_rng(0).uniform((-1, 0), (1, 5), (200, 2))
    data = lgp.bin_points(points, (4, 3), PLANE)
    half = np.array([2 / 4, 5 / 3]) / 2
    counted = [np.sum(np.all(np.abs(points - centre) < half, axis=1)) for centre in data.X]
    np.testing.assert_array_equal(data.y, counted)
    np.testing.assert_allclose(data.X.reshape(4, 3, 2)[0, :, 1], [5 / 6, 2.5, 25 / 6])


@pytest.mark.parametrize("bins", [1, 7, (3, 4, 5)])
def test_counts_add_up_to_the_points_and_exposures_to_the_window(bins):
    points = np.random.default_rng(1).uniform(0, 2, (50, 3))
    points[:2] = [0, 0, 0], [2, 2, 2]
    data = lgp.bin_points(points, bins, [(0, 2)] * 3)
    assert data.size == np.prod(np.broadcast_to(bins, 3))
    assert data.y.sum() == 50
    np.testing.assert_allclose(data.side_information["exposure"].sum(), 8.0, rtol=1e-12)


def test_a_window_without_points_has_counts_of_zero():
    for points, window in (([], (0, 1)), (np.zeros((0, 2)), PLANE)):
        assert not lgp.bin_points(points, 3, window).y.any()


@pytest.mark.parametrize("likelihood", [lgp.Poisson(), lgp.LogNegativeBinomial(50.0)])
def test_the_intensity_of_an_inhomogeneous_poisson_process_is_recovered(likelihood):
    def intensity(times):
        return 40 * np.exp(np.sin(times))

    rng = np.random.default_rng(2)
    times = rng.uniform(0, 10, rng.poisson(40 * np.e * 10))
    events = times[rng.uniform(0, 40 * np.e, len(times)) < intensity(times)]
    data = lgp.bin_points(events, 50, (0, 10))
    level = likelihood.latent_centre(data.y, None, data.side_information)
    model = lgp.LatentGP(lgp.RBF(1.0), likelihood, lgp.ConstantMean(level))
    fit = lgp.fit(
        model, data, key=jax.random.key(0), method=lgp.VariationalInference(), max_evaluations=30
    )
    mean, variance = fit.posterior.predict_f(data.X)
    error = mean - np.log(intensity(data.X[:, 0]))
    assert np.sqrt(np.mean(error**2)) < 0.15
    assert np.mean(np.abs(error) < 2 * np.sqrt(variance)) > 0.8


@pytest.mark.parametrize(
    ("points", "bins", "window", "sentence"),
    [
        ([0.5, 2.0], 2, (0, 1), r"points are outside the window in 1 row\(s\).*: 1;"),
        ([[0.0, -0.1]], 2, PLANE, r"points are outside the window in 1 row\(s\).*: 0;"),
        ([0.5, np.nan], 2, (0, 1), r"points has NaN or infinity in 1 row\(s\).*: 1;"),
        ([0.5], 2, (0, np.inf), "window has NaN or infinity"),
        ([0.5], 2, (1, 1), r"window must hold the lowest and a greater highest .*\[\[1.0, 1.0\]\]"),
        ([0.5], 2, (1, 0), "window must hold the lowest and a greater highest"),
        ([0.5], 2, (0, 1, 2), r"shape \(D, 2\)"),
        ([0.5], 2, "ab", "window must be an array of numbers"),
        ([[0.5, 0.5]], 2, (0, 1), r"points have 2 input\(s\) but window has 1"),
        ([0.5], 0, (0, 1), "bins must be a whole number of at least 1, or 1 of them, got 0"),
        ([0.5], 2.5, (0, 1), "bins must be a whole number"),
        ([[0.5, 0.5]], (2, 0), PLANE, "bins must be a whole number"),
        ([[0.5, 0.5]], (2, 2, 2), PLANE, r"or 2 of them, got \(2, 2, 2\)"),
    ],
)
def test_wrong_points_bins_and_windows_are_refused_with_a_sentence(points, bins, window, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.bin_points(points, bins, window)
