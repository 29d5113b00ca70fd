"""Advice on the law of targets."""

import numpy as np
import pytest

import latentgp as lgp
from latentgp.surfaces.estimators.laws import logarithms_ahead

X = np.random.default_rng(0).uniform(0, 3, (120, 1))
ERROR = 0.5 * np.random.default_rng(1).normal(size=120)


def test_evidence_of_logarithms_has_its_jacobian():
    """Whatever the unit of the targets, and higher where these are log-normal."""
    skewed, plain = np.exp(X[:, 0] + ERROR), 10 + X[:, 0] + ERROR
    ahead = logarithms_ahead(lgp.Data(X, skewed))
    assert ahead > 20
    np.testing.assert_allclose(logarithms_ahead(lgp.Data(X, 1e3 * skewed)), ahead, rtol=1e-6)
    assert abs(logarithms_ahead(lgp.Data(X, plain))) < 10
    assert logarithms_ahead(lgp.Data(X, np.full(120, 2.0))) == -np.inf


@pytest.mark.parametrize("skewed", [True, False])
def test_positive_skewed_targets_are_advised(skewed):
    y = np.exp(X[:, 0] + ERROR) if skewed else 10 + X[:, 0] + ERROR
    fit = lgp.GPRegressor("rbf", random_state=0)
    if not skewed:
        assert not any("skewed" in said for said in fit.fit(X, y).diagnostics_.warnings)
        return
    with pytest.warns(UserWarning, match="Targets are positive and skewed.*'log-normal'"):
        fit.fit(X, y)
