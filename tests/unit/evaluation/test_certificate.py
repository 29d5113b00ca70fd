"""Certificates: exact fits are found exact, narrow ones narrow, and claims hold."""

import dataclasses

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.surfaces.cli.app import app

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = np.sort(GENERATOR.uniform(0, 6, 24))
LABELS = (GENERATOR.uniform(size=24) < 1 / (1 + np.exp(-3 * np.sin(X)))).astype(float)
BINARY = lgp.LatentGP(lgp.RBF(1.0, 4.0), lgp.Bernoulli())


def fitted(method, model=BINARY, y=LABELS, **settings):
    settings = {"learn_hyperparameters": False, **settings}
    return lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, **settings)


@pytest.fixture(scope="module")
def narrow():
    return fitted(lgp.AugmentedVI()).certify(seconds=20)


def test_intervals_by_augmentation_are_found_narrow(narrow):
    assert narrow.converged
    assert narrow.coverage.exact + 3 * narrow.coverage.error < 0.9
    assert narrow.most(narrow.predicted) >= np.max(np.abs(narrow.predicted.off))
    text = str(narrow)
    assert text.startswith("AugmentedVI")
    assert "90 % intervals of f hold" in text
    assert "Probabilities are off by" in text
    assert "one coefficient a row" in text


def test_the_exact_posterior_is_found_exact():
    y = np.sin(X) + 0.3 * GENERATOR.normal(size=24)
    result = fitted(lgp.ExactGP(), lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.1)), y)
    found = result.certify(seconds=20, level=0.8)
    assert found.converged
    assert abs(found.coverage.off) < 4 * found.coverage.error
    assert np.all(np.abs(found.latent.off) < 5 * found.latent.error)
    assert "Means of y are off by" in str(found)


def test_chains_that_have_not_converged_certify_nothing(narrow):
    summary = narrow.summary._replace(r_hat=1.4)
    text = str(dataclasses.replace(narrow, summary=summary))
    assert "nothing is certified" in text
    assert "Probabilities" not in text


def test_rows_that_are_not_known_are_asked_for(tmp_path):
    result = fitted(lgp.Laplace())
    again = lgp.load(lgp.save(result, tmp_path / "fit"))
    with pytest.raises(lgp.InputError, match="give data="):
        again.certify(seconds=1)
    with pytest.raises(lgp.InputError, match="level"):
        result.certify(seconds=1, level=1.5)


@pytest.mark.slow
def test_the_command_line_says_it(tmp_path):
    table = tmp_path / "table.csv"
    np.savetxt(table, np.column_stack([X, LABELS]), delimiter=",", header="x,y", comments="")
    asked = ["fit", str(table), "--target", "y", "--out", f"{tmp_path}/model", "--certify", "60"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "intervals of f hold" in said.output
    assert "kernel.lengthscale" in said.output
    assert lgp.load(tmp_path / "model").estimator.certificate_.converged


@pytest.mark.slow
def test_claims_hold_in_nineteen_of_twenty_repetitions():
    """Truth by chains of 80,000 draws, hyper-parameters sampled."""
    result = fitted(lgp.AugmentedVI(), learn_hyperparameters=True)
    method = lgp.MCMC(draws=20_000, warmup=1_000)
    long = fitted(method, result.model, learn_hyperparameters=True).posterior
    mean, variance = result.posterior.predict_f(X)
    reach = 1.6448536 * np.sqrt(variance)
    f = long.f[..., 0]
    coverage, middle = np.mean(np.abs(f - mean) < reach), np.mean(f, axis=(0, 1))
    probabilities = np.mean(1 / (1 + np.exp(-f)), axis=(0, 1))
    off = np.abs(result.posterior.predict(X).probabilities[:, 1] - probabilities)
    right = 0
    for seed in range(20):
        found = result.certify(seconds=30, key=jax.random.key(seed))
        claims = [
            abs(found.coverage.exact - coverage) < found.reach * found.coverage.error,
            np.max(off) < found.most(found.predicted),
            np.all(
                np.abs(found.latent.exact[:, 0] - middle) < found.reach * found.latent.error[:, 0]
            ),
        ]
        for path, own in found.hyperparameters.items():
            truth = np.mean(np.log(long.hyperparameters[path]), axis=(0, 1))
            claims.append(np.all(np.abs(own.exact - truth) < found.reach * own.error))
        right += int(found.converged and all(claims))
    assert right >= 19
