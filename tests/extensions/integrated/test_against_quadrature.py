"""Integrated hyper-parameters against long importance sampling of the same approximate evidence."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import integrated_hyperparameters as experiment
import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace

REFERENCES = json.loads(
    (Path(__file__).parents[2] / "support" / "integrated_reference.json").read_text()
)


@pytest.mark.parametrize("name", REFERENCES)
def test_means_and_deviations_are_those_of_importance_sampling(name):
    model, data, method, priors = experiment.problems(40)[name]
    result = lgp.fit(
        model,
        data,
        key=jax.random.key(0),
        method=method,
        hyperparameters="integrate",
        priors=priors,
    )
    # The reference is of unconstrained values, not in units of their priors as a search has them.
    found, spread = experiment.explored(result.posterior, ParameterSpace(model))
    known = REFERENCES[name]
    assert known["effective"] > 1000
    # What is promised, and two standard errors of the reference.
    error = 2 / np.sqrt(known["effective"])
    deviation = np.array(known["deviation"])
    np.testing.assert_allclose((found - known["mean"]) / deviation, 0, atol=0.1)
    np.testing.assert_allclose(spread / deviation, 1, atol=0.05 + error / np.sqrt(2))
    assert float(result.posterior.log_evidence) == pytest.approx(
        known["log_integral"], abs=0.1 + error
    )
