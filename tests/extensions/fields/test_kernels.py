"""Kernels of fields keep what every kernel must, and are the same by every representation."""

from functools import cache

import jax
import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.kernels import (
    AR1,
    Anisotropic,
    Gneiting,
    OnSphere,
    PoweredExponential,
    RandomWalk,
    TemporalDecay,
)
from latentgp.testing import check_kernel

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(6, 3))
TIMES = np.arange(6.0)[:, None]
DECAY = TemporalDecay(0, lengthscale=2.0, smoothness=0.4, power=0.6)
TURNED = Anisotropic.at_angle(lgp.Matern32(0.8, 1.3), angle=160.0, ratio=4.0)
SOLID = Anisotropic(lgp.Matern52(0.8, 1.3), [0.6, -1.0, 0.4, 0.8, -0.5])

CASES = [
    (Anisotropic(lgp.Matern32(0.8, 1.3)), POINTS[:, :2]),
    (TURNED, POINTS[:, :2]),
    (SOLID, POINTS),
    (PoweredExponential(1.2, 0.7, power=1.3), POINTS),
    (Gneiting(lgp.Matern32(0.8, 1.3).on(1, 2), DECAY, 0.7), POINTS),
    (Gneiting(TURNED.on(2, 1), TemporalDecay(0, 2.0, 0.9), 1.0), POINTS),
    (Gneiting(OnSphere(lgp.Matern32(3000.0)).on(1, 2), DECAY, 0.3), POINTS * [1, 50, 30]),
    (AR1(0.6, 1.3), TIMES),
    (AR1(-0.6), TIMES),
    (RandomWalk(1.3, start=-1.0), TIMES + RNG.uniform(0, 0.9, (6, 1))),
]


@pytest.mark.parametrize(("kernel", "inputs"), CASES, ids=lambda c: type(c).__name__)
def test_kernel_conforms(kernel, inputs):
    check_kernel(kernel, inputs)


@pytest.mark.always
def test_every_kernel_of_fields_is_checked():
    ours = {
        name
        for name in concrete_classes(lgp.Kernel)
        if getattr(lgp.kernels, name, None) is not None
        and getattr(lgp.kernels, name).__module__.startswith("latentgp.extensions.fields")
    }
    assert {type(kernel).__name__ for kernel, _ in CASES} == ours


ROWS = 300
PLACES = RNG.uniform(0, 5, (ROWS, 3))
MONTHS = np.repeat(np.arange(50.0), 6)
STATIONS = np.column_stack([MONTHS, np.tile(RNG.uniform(0, 3, (6, 2)), (50, 1))])
GLOBE = np.column_stack(
    [
        RNG.uniform(0, 5, ROWS),
        RNG.uniform(-180, 180, ROWS),
        np.degrees(np.arcsin(RNG.uniform(-1, 1, ROWS))),
    ]
)
GLOBE[:6, 1:] = [[180, 10], [-180, 10], [13, 90], [-70, 90], [25, -90], [25, -90]]
FIELDS = {
    "turned": (TURNED.on(0, 1), PLACES),
    "solid": (SOLID, PLACES),
    "powered": (PoweredExponential(1.2, 0.7, power=1.3), PLACES),
    "gneiting": (CASES[4][0], PLACES),
    "gneiting turned": (CASES[5][0], PLACES),
    "gneiting of the globe": (CASES[6][0], GLOBE),
    "globe": (OnSphere(lgp.Matern32(2000.0)).on(1, 2), GLOBE),
    "great circle": (OnSphere(lgp.Matern12(2000.0), "great-circle").on(1, 2), GLOBE),
    "ar1": (AR1(0.8).on(0) * lgp.Matern32(0.8, 1.3).on(1, 2), STATIONS),
    "alternating": (AR1(-0.6).on(0) * lgp.Matern32(0.8, 1.3).on(1, 2), STATIONS),
    "walk": (RandomWalk(0.05, start=-1.0).on(0) * lgp.Matern32(0.8, 1.3).on(1, 2), STATIONS),
    "sum": (
        AR1(0.8).on(0) * TURNED.on(1, 2)
        + 0.5 * lgp.Matern12(4.0).on(0) * lgp.Matern52(2.0).on(1, 2),
        STATIONS,
    ),
    "nugget": (lgp.Matern32(0.8, 1.3).on(1, 2) + lgp.White(0.4).on(1, 2), STATIONS),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", FIELDS)
def test_covariances_of_places_are_positive_semi_definite(name):
    kernel, X = FIELDS[name]
    with jax.enable_x64(True):
        K = np.asarray(jax.jit(type(kernel).symmetric_gram)(kernel, X))
    np.testing.assert_allclose(K, K.T, atol=1e-12)
    values = np.linalg.eigvalsh(K)
    assert values[0] >= -1e-10 * values[-1]


TARGETS = RNG.normal(size=ROWS)
NEW = 7


@cache
def posterior_by(name, method):
    kernel, X = FIELDS[name]
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.3))
    with jax.enable_x64(True):
        data = lgp.Data(X[:-NEW], TARGETS[:-NEW])
        run = lgp.fit(
            model, data, method=METHODS[method](X[:-NEW]), key=KEY, learn_hyperparameters=False
        )
        at_new = np.stack(run.posterior.predict_f(X[-NEW:]))
    return float(run.posterior.log_evidence), at_new


def stations(X):
    return lgp.CollapsedVI(lgp.SpaceTime(points=np.unique(X[:, 1:], axis=0)))


METHODS = {
    "dense": lambda X: lgp.ExactGP(),
    "inducing": lambda X: lgp.CollapsedVI(lgp.Inducing(points=np.unique(X, axis=0))),
    "neighbours": lambda X: lgp.ExactGP(lgp.Neighbours(len(X) - 1)),
    "latent neighbours": lambda X: lgp.Laplace(lgp.Neighbours(len(X) - 1)),
    "matrix-free": lambda X: lgp.ExactGP(lgp.MatrixFree(tolerance=1e-10)),
    "space-time": stations,
}
PAIRS = [
    (name, method)
    for name, (_, X) in FIELDS.items()
    for method in METHODS
    if method != "dense" and (method != "space-time" or X is STATIONS)
]


@pytest.mark.parametrize(
    ("name", "method"),
    [PAIRS[0], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS[1:])],
)
def test_representations_that_leave_out_nothing_are_as_dense_algebra(name, method):
    evidence, at_new = posterior_by(name, method)
    expected, there = posterior_by(name, "dense")
    assert evidence == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(at_new, there, atol=1e-6)
