"""Searches whose hyper-parameters end at their bounds."""

import jax
import numpy as np

import latentgp as lgp
from latentgp.methods.problem import Problem


def check_bounds_are_told(method, monkeypatch):
    """Length-scales of a straight line are longer than they may be, which warnings say."""

    def near(self, *, allows_little_noise=True):
        vector = self.space.to_vector()
        return vector - 0.05, vector + 0.05

    monkeypatch.setattr(Problem, "bounds", near)
    X = np.linspace(0.0, 3.0, 12)
    model, data = lgp.LatentGP(lgp.RBF(0.4), lgp.Gaussian(0.1)), lgp.Data(X, X)
    found = lgp.fit(model, data, key=jax.random.key(0), method=method).diagnostics
    assert any("kernel.lengthscale is at its upper" in warning for warning in found.warnings)
