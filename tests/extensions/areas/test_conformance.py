"""Kernels of areas keep what every kernel must."""

import numpy as np
import pytest

import latentgp as lgp
from classes import concrete_classes
from latentgp.testing import check_kernel

BORDERS = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5)]  # and one area alone
AREAS = np.arange(7.0)[:, None]
CASES = [
    (lgp.CAR(BORDERS, 2.0, 0.7, areas=7), AREAS),
    (lgp.CAR(BORDERS, 2.0, 0.7, areas=7), AREAS[:5]),
    (lgp.ICAR(BORDERS, 2.0, areas=7), AREAS),
    (lgp.BYM2(BORDERS, 2.0, 0.3, areas=7), AREAS),
]


@pytest.mark.parametrize(("kernel", "inputs"), CASES, ids=lambda c: type(c).__name__)
def test_kernel_conforms(kernel, inputs):
    check_kernel(kernel, inputs)


@pytest.mark.always
def test_every_kernel_of_areas_is_checked():
    assert {type(kernel).__name__ for kernel, _ in CASES} == concrete_classes(lgp.kernels.Areal)
