"""Searches whose start, found on some of the rows, has no bound on all of them."""

import jax
import numpy as np

import latentgp as lgp
from latentgp.runtime import checkpoint
from latentgp.site_inference.search import hyperparameters

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X, NEW = GENERATOR.uniform(size=(600, 2)), GENERATOR.uniform(size=(200, 2))
MODEL = lgp.LatentGP(lgp.RBF([1.0, 1.0]), lgp.Gaussian(0.1))


def smooth(points):
    return (points[:, 0] - 0.4) * (points[:, 1] - 0.6)


DATA = lgp.Data(X, smooth(X))


def test_a_search_steps_back_to_where_there_is_a_bound(tmp_path, monkeypatch):
    """Short searches end where the covariance of all rows has no Cholesky factor."""
    failed, evaluate = [], hyperparameters.evaluate

    def ended(runs, first, opening, data):
        return np.array([10.0, 10.0, 7.0, -30.0]), 0.1

    def counted(*arguments):
        result = evaluate(*arguments)
        failed.append(not np.isfinite(result.value))
        return result

    monkeypatch.setattr(hyperparameters._Runs, "opened", ended)
    monkeypatch.setattr(hyperparameters, "evaluate", counted)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    whole = lgp.fit(MODEL, DATA, key=KEY)
    assert failed[0]
    np.testing.assert_allclose(whole.posterior.predict(NEW).mean, smooth(NEW), atol=1e-4)
    told = []

    def stop(progress):
        told.append(progress)
        return len(told) == 4

    path = tmp_path / "checkpoint"
    lgp.fit(MODEL, DATA, key=KEY, checkpoint=path, callback=stop)
    assert len(told) == 4
    resumed = lgp.fit(MODEL, DATA, key=KEY, checkpoint=path)
    assert resumed.posterior.log_evidence == whole.posterior.log_evidence
