"""Ascents of mixtures that are stopped and go on."""

import jax
import numpy as np
import pytest

import latentgp as lgp

KEY = jax.random.key(0)
X = np.linspace(0.0, 3.0, 12)[:, None]
MODEL = lgp.LatentGP(lgp.RBF(0.8), lgp.StudentT())
DATA = lgp.Data(X, np.sin(2 * X[:, 0]))
POINTS = lgp.Inducing(points=X[::3] + 0.1)
BATCHES = {"batch_size": 4, "steps": 50}


class Stop(Exception):
    pass


def same_bits(one, other):
    parts = zip(*(jax.tree.leaves(fit.posterior) for fit in (one, other)), strict=True)
    return all(np.array_equal(a, b) for a, b in parts)


def run(method, **settings):
    return lgp.fit(MODEL, DATA, key=KEY, method=method, **settings)


@pytest.mark.parametrize(
    ("method", "at", "ending"),
    [
        (lgp.BlackBoxVI(components=2), 2, "callback"),
        (lgp.BlackBoxVI(components=2), 9, "error"),
        (lgp.BlackBoxVI(POINTS, estimator="score", samples=8, **BATCHES), 1, "callback"),
        (lgp.BlackBoxVI(POINTS, estimator="score", samples=8, **BATCHES), 2, "error"),
        (lgp.BlackBoxVI(POINTS, optimiser="adadelta", learn_points=True, **BATCHES), 1, "callback"),
        (lgp.BlackBoxVI(optimiser="alternating"), 2, "error"),
    ],
)
def test_a_resumed_search_ends_with_the_same_bits(tmp_path, method, at, ending):
    told, file = [], tmp_path / "search"

    def ends(progress):
        told.append(progress)
        if len(told) == at and ending == "error":
            raise Stop
        return len(told) == at

    if ending == "error":
        with pytest.raises(Stop):
            run(method, checkpoint=file, callback=ends)
    else:
        cut = run(method, checkpoint=file, callback=ends)
        assert cut.diagnostics.ending == "the callback asked for it"
        assert not cut.diagnostics.converged
        assert cut.posterior.predict_f(X).variance.shape == (12,)
    assert len(told) == at
    resumed = run(method, checkpoint=file, callback=told.append)
    whole = run(method)
    assert len(told) == len(whole.history.bound)
    np.testing.assert_array_equal(resumed.history.value, whole.history.value)
    assert resumed.diagnostics.site_updates == whole.diagnostics.site_updates
    assert resumed.diagnostics.ending == whole.diagnostics.ending
    assert same_bits(resumed, whole)
    again = run(method, checkpoint=file, callback=told.append)
    assert len(told) == len(whole.history.bound)
    assert same_bits(again, whole)
    assert again.diagnostics.converged == whole.diagnostics.converged


@pytest.mark.parametrize(
    "method",
    [
        lgp.BlackBoxVI(components=2),
        lgp.BlackBoxVI(POINTS, estimator="score", samples=8, **BATCHES),
    ],
)
def test_a_limit_ends_it_with_what_there_is(method, monkeypatch, capsys):
    from latentgp.runtime import progress

    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.0)
    fit = run(method, max_seconds=0.0, verbose=1)
    assert fit.diagnostics.ending == "max_seconds=0 had passed"
    assert len(fit.history.bound) == 1
    assert capsys.readouterr().err.startswith("learning")
