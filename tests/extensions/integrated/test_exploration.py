"""Designs, interpolation and integrals, on densities whose moments are known in closed form."""

import itertools

import numpy as np
import pytest
from scipy.special import digamma, gammaln, polygamma

from latentgp.extensions.integrated.design import central_composite, corners, design, lattice
from latentgp.extensions.integrated.exploration import DensityEvaluation, explore
from latentgp.extensions.integrated.interpolation import interpolate

pytestmark = pytest.mark.quick


class LogGamma:
    """Independent logarithms of gamma variables, rotated: skewed, and known in all moments."""

    def __init__(self, size, seed=0):
        self.shapes = np.linspace(1.5, 4.0, size)
        self.rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
        self.evaluations = 0

    def __call__(self, vector):
        self.evaluations += 1
        logs = self.rotation @ vector
        value = float(np.sum(self.shapes * logs - np.exp(logs)))
        return DensityEvaluation(vector, value, self.rotation.T @ (self.shapes - np.exp(logs)))

    @property
    def mode(self):
        return self(self.rotation.T @ np.log(self.shapes))

    @property
    def mean(self):
        return self.rotation.T @ digamma(self.shapes)

    @property
    def deviations(self):
        variances = polygamma(1, self.shapes)
        return np.sqrt(np.diagonal(self.rotation.T @ (variances[:, None] * self.rotation)))

    @property
    def log_integral(self):
        return float(np.sum(gammaln(self.shapes)))


def all_of(density):
    """A density of one place as that of some."""
    return lambda places: [density(place) for place in places]


def moments(places, weights):
    mean = weights @ places
    return mean, np.sqrt(weights @ (places - mean) ** 2)


@pytest.mark.parametrize("size", range(3, 11))
def test_a_central_composite_design_has_the_moments_of_a_normal_law(size):
    points, masses = central_composite(size)
    assert masses.min() > 0
    assert masses.sum() == pytest.approx(1)
    np.testing.assert_allclose(masses @ points, 0, atol=1e-12)
    np.testing.assert_allclose((points.T * masses) @ points, np.eye(size), atol=1e-12)
    radii = np.sqrt(np.sum(points[1:] ** 2, axis=1))
    np.testing.assert_allclose(radii, 1.1 * np.sqrt(size))


@pytest.mark.parametrize(("size", "runs"), [(3, 8), (4, 16), (5, 16), (6, 32), (8, 64), (10, 128)])
def test_corners_are_of_resolution_five_and_as_few_as_tabulated(size, runs):
    columns = corners(size).T
    assert columns.shape == (size, runs)
    for number in (1, 2, 3, 4):
        for chosen in itertools.combinations(columns, number):
            assert np.sum(np.prod(chosen, axis=0)) == 0


def test_a_lattice_ends_at_its_drop_and_begins_at_the_mode():
    points, masses = lattice(2, step=1.0, drop=4.5)
    assert not points[0].any()
    assert len(points) == 29  # of whole numbers, squares of up to nine
    assert 0.5 * np.max(np.sum(points**2, axis=1)) <= 4.5
    np.testing.assert_allclose((points.T * masses) @ points, np.eye(2), atol=0.06)
    assert len(design(2).points) == 13


def test_an_interpolant_goes_through_values_and_gradients():
    target = LogGamma(3)
    mode = target.mode
    points = 0.4 * np.random.default_rng(1).normal(size=(9, 3))
    known = [target(mode.vector + z) for z in points]
    values = np.array([k.value - mode.value for k in known])
    found = interpolate(points, values, np.array([k.gradient for k in known]))
    np.testing.assert_allclose(found(points), values, atol=1e-3)
    step = 1e-4 * np.eye(3)
    slopes = [(found(points + s) - found(points - s)) / 2e-4 for s in step]
    np.testing.assert_allclose(np.transpose(slopes), [k.gradient for k in known], atol=0.02)
    for near in (1.0, 8.0):
        other = interpolate(points, values, np.array([k.gradient for k in known]), near)
        assert other.lengthscale == found.lengthscale
    variances = np.diagonal(found.covariance(np.concatenate([points, points + 1])))
    assert variances[:9].max() < 1e-3 * variances[9:].mean()


@pytest.mark.parametrize("size", range(1, 6))
def test_means_deviations_and_the_integral_of_a_skewed_density(size):
    target = LogGamma(size)
    found = explore(all_of(target), target.mode, lambda: True)
    mean, deviations = moments(found.draws, found.draw_weights)
    np.testing.assert_allclose((mean - target.mean) / target.deviations, 0, atol=0.05)
    np.testing.assert_allclose(deviations / target.deviations, 1, atol=0.05)
    assert found.log_integral == pytest.approx(target.log_integral, abs=0.12)
    # The mixture has the same moments, and not one of the split normal law's.
    own, spread = moments(found.points, found.weights)
    np.testing.assert_allclose((own - mean) / deviations, 0, atol=0.05)
    np.testing.assert_allclose(spread / deviations, 1, atol=0.06)
    assert found.evaluations < 130
    assert (found.left_out, found.flat) == (0, 0)
    assert found.rise == pytest.approx(0, abs=1e-6)


def test_no_more_points_have_a_weight_than_there_is_room_for():
    target = LogGamma(2)
    points = [
        len(explore(all_of(target), target.mode, lambda: True, *most).points) for most in ((), (8,))
    ]
    assert points[1] <= 8 < points[0]


@pytest.mark.slow
def test_units_do_not_matter():
    target = LogGamma(3)
    units = np.array([1e-4, 1.0, 1e5])

    def rescaled(vector):
        found = target(vector / units)
        return DensityEvaluation(vector, found.value, found.gradient / units)

    one = explore(all_of(target), target.mode, lambda: True)
    other = explore(all_of(rescaled), rescaled(target.mode.vector * units), lambda: True)
    for a, b in zip(moments(one.draws, one.draw_weights),
                    moments(other.draws, other.draw_weights), strict=True):  # fmt: skip
        np.testing.assert_allclose(b / units, a, rtol=2e-3, atol=2e-3)
    assert other.log_integral - one.log_integral == pytest.approx(np.log(units).sum(), abs=2e-3)


def test_places_that_fail_are_left_out_and_counted():
    target = LogGamma(2)
    wall = target.mode.vector[0] + 1.5

    def partly(vector):
        return None if vector[0] > wall else target(vector)

    found = explore(all_of(partly), target.mode, lambda: True)
    assert 0 < found.left_out < found.evaluations
    assert np.all(found.points[:, 0] <= wall)
    assert np.isfinite(found.log_integral)
    assert found.weights.sum() == pytest.approx(1)


def test_without_time_the_design_is_evaluated_alone():
    target = LogGamma(3)
    hasty = explore(all_of(target), target.mode, lambda: False)
    assert hasty.evaluations == 6 + 6 + 14
    assert np.isinf(hasty.moved)


def test_a_flat_direction_is_counted():
    def flat(vector):
        return DensityEvaluation(vector, -0.5 * float(vector[0] ** 2), np.array([-vector[0], 0.0]))

    found = explore(all_of(flat), flat(np.zeros(2)), lambda: True)
    assert found.flat == 1


@pytest.mark.slow
def test_a_place_above_the_mode_is_told():
    target = LogGamma(2)
    start = target(target.mode.vector + 1.0)
    found = explore(all_of(target), start, lambda: True)
    assert found.rise == pytest.approx(target.mode.value - start.value, abs=0.5)
    assert found.rise > 1
