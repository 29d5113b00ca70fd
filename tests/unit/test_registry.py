"""A method that nobody foresaw: one class, one line in the registry, and every door is open."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.choosing.registry import METHODS, Entry, without_points
from latentgp.methods.result import Fit
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.evaluation.comparison import compare
from latentgp.testing import check_posterior

_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (40, 1))
Y = np.sin(2 * X[:, 0]) + 0.2 * _rng.normal(size=40)


class TwoModes(lgp.Method):
    """Two searches, from a short and from a long length-scale, weighted by their evidence."""

    def run(self, problem):
        start = problem.model
        fits = [
            lgp.ExactGP().run(dataclasses.replace(problem, model=lgp.replace(start, {path: scale})))
            for path in [next(p for p in lgp.parameters(start) if "lengthscale" in p)]
            for scale in (0.2, 5.0)
        ]
        values = np.array([float(f.posterior.log_evidence) for f in fits])
        weights = np.exp(values - values.max())
        posterior = lgp.Posterior.mixture([f.posterior for f in fits], weights)
        diagnostics = dataclasses.replace(fits[0].diagnostics, method=self)
        return Fit(posterior.model, posterior, fits[0].history, diagnostics)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(
        METHODS, "two-modes", Entry(TwoModes, "two searches", "Gaussian", without_points)
    )


@pytest.fixture
def frame():
    return pd.DataFrame({"x": X[:, 0], "y": Y})


def test_fit_and_all_answers_of_its_posterior():
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    result = lgp.fit(model, lgp.Data(X, Y), key=jax.random.key(0), method=TwoModes())
    assert len(result.posterior.components.parts) == 2
    check_posterior(result.posterior, X[:5])
    with pytest.raises(lgp.InputError, match="gives no log evidence"):
        _ = result.posterior.log_evidence


def test_an_estimator_by_its_name(tmp_path):
    regressor = lgp.GPRegressor(method="two-modes", random_state=0).fit(X, Y)
    assert isinstance(regressor.method_, TwoModes)
    assert np.mean((regressor.predict(X) - Y) ** 2) < 0.1
    again = lgp.load(regressor.save(tmp_path / "regressor"))
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))
    with pytest.raises(lgp.InputError, match="n_inducing"):
        lgp.GPRegressor(method="two-modes", n_inducing=5).fit(X, Y)
    with pytest.raises(lgp.InputError, match="TwoModes"):
        regressor.partial_fit(X, Y)


def test_compare(frame):
    found = compare(frame, "y", methods=["exact", "two-modes"], likelihoods=["gaussian"])
    assert {row.name for row in found.rows} == {"gaussian, exact", "gaussian, two-modes"}
    assert all(np.isfinite(row.nlpd) for row in found.rows)


def test_the_command_line(frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    out = str(tmp_path / "model")
    runner = CliRunner()
    line = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--out", out]
    fitted = runner.invoke(app, [*line, "--method", "two-modes"], catch_exceptions=False)
    assert fitted.exit_code == 0, fitted.output
    info = runner.invoke(app, ["info", out], catch_exceptions=False)
    assert "TwoModes" in info.output


def test_what_it_cannot_do_is_refused_by_its_capabilities():
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    settings = {"key": jax.random.key(0), "method": TwoModes()}
    with pytest.raises(lgp.InputError, match="TwoModes takes no restarts"):
        lgp.fit(model, lgp.Data(X, Y), restarts=2, **settings)
    with pytest.raises(lgp.InputError, match="TwoModes cannot spread rows"):
        lgp.fit(model, lgp.Data(X, Y), devices=jax.devices(), **settings)
