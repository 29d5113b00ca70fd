"""Smooth terms of a formula: products of columns, interactions alone, shrinkage."""

import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.kernels.parts import names_of_parts
from latentgp.setup.priors import scales
from latentgp.surfaces.estimators.additive import AdditiveTerms, Smooth
from latentgp.surfaces.tables.formula.parser import parse
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

N = 200
GENERATOR = np.random.default_rng(0)
X, Z, NOISE = GENERATOR.uniform(size=(3, N))
ADDED, TOGETHER = np.sin(6 * X) + Z**2, 4 * (X - 0.5) * (Z - 0.5)
TABLE = pd.DataFrame({"x": X, "z": 1000 * Z, "u": Z, "noise": NOISE})
TABLE["y"] = ADDED + TOGETHER + 0.2 * GENERATOR.normal(size=N)


def fitted(formula, table=TABLE, **settings):
    return lgp.TableModel.fit(table, formula=formula, random_state=0, **settings)


def moments_of_part(model, number, table=TABLE):
    """Posterior moments of a part of the sum at rows."""
    posterior, rows = model.estimator.posterior_, model.encoder.encode(table)
    unit = np.eye(len(names_of_parts(posterior.model.kernel)))[number]
    return posterior.marginals_of_parts(np.column_stack([rows, np.tile(unit, (len(rows), 1))]))


def test_functions_of_smooth_terms_are_read():
    read = parse("y ~ s(x) + te(x, log(z), kernel=matern52) + ti(x, z, by=g) + w:s(x)").smooth
    assert [term.function for term in read] == ["s", "te", "ti", "s"]
    assert [len(term.inputs) for term in read] == [1, 2, 2, 1]
    assert read[3].times[0].text == "w"
    for formula in ("y ~ te()", "y ~ s(x, k=10)", "y ~ te(a, b, kernel=globe)"):
        with pytest.raises(lgp.InputError):
            parse(formula)


@pytest.mark.parametrize("kernel", ["matern52", *slow_parameters("rbf")])
def test_a_product_does_not_depend_on_units(kernel):
    one, other = (fitted(f"y ~ te(x, {name}, kernel={kernel})") for name in ("z", "u"))
    evidence = [float(m.estimator.posterior_.evidence.value) for m in (one, other)]
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-4)
    away = one.predict(TABLE)["mean"] - ADDED - TOGETHER
    assert np.sqrt(np.mean(away**2)) < 0.1  # noise of 0.2 in 200 rows, some 20 parameters: 0.06


def test_an_interaction_has_no_main_effects():
    model = fitted("y ~ s(x) + s(z) + ti(x, z)")
    kernel = model.estimator.model_.kernel.parts[-1]
    first, second = (part.kernel.points for part in kernel.parts)
    rows = np.zeros((50, len(model.encoder.feature_names)))
    rows[:, 1], rows[:, 2] = first[7, 0], second[:, 0]
    assert np.abs(np.mean(kernel.gram(rows, rows), axis=0)).max() < 1e-10
    mean, variance = moments_of_part(model, 3)
    # averages are over quantiles of the rows
    away = mean - 4 * (X - first.mean()) * (Z - second.mean() / 1000)
    assert np.sqrt(np.mean(away**2)) < 0.1
    assert np.mean(np.abs(away) < 3 * np.sqrt(variance)) > 0.95
    # main effects have the levels of a smooth with none, which the intercept has
    for number, truth in ((1, np.sin(6 * X)), (2, Z**2)):
        mean, _ = moments_of_part(model, number)
        np.testing.assert_allclose(mean, truth - truth.mean(), atol=0.25)
    found = model.coefficients()
    assert abs(found.estimate[0] - TABLE["y"].mean()) < 0.1
    assert found.standard_error[0] < 0.1


@pytest.mark.parametrize("likelihood", slow_parameters("gaussian", "poisson", "logit"))
def test_smooths_of_noise_are_shrunk(likelihood):
    """Without priors of variances some are zero, as with mgcv's select=TRUE.

    A maximum of the evidence is at zero for half of the terms or more (Self & Liang 1987, case 5),
    so that one in 64 sets of six has none. By default less is left of a term in the mean than twice
    the standard error of a line's effect; a smooth that is not shrunk has more than nine, squared.
    """
    f, generator = 2 * ADDED, np.random.default_rng(2)
    p = 1 / (1 + np.exp(-f))
    information = {"gaussian": 4.0, "poisson": np.exp(f).mean(), "logit": np.mean(p * (1 - p))}
    noise = {f"n{k}": generator.normal(size=N) for k in range(6)}
    targets = {
        "gaussian": f + 0.5 * generator.normal(size=N),
        "poisson": generator.poisson(np.exp(f)),
        "logit": (generator.uniform(size=N) < p).astype(int),
    }
    table = TABLE.assign(y=targets[likelihood], **noise)
    formula = "y ~ s(x) + s(z) + " + " + ".join(f"s({name})" for name in noise)
    error = 1 / np.sqrt(N * information[likelihood])

    def spreads(**settings):
        model = fitted(formula, table, likelihood=likelihood, **settings)
        return np.array([np.std(moments_of_part(model, k, table)[0]) for k in range(3, 9)]) / error

    assert np.mean(spreads() ** 2) < 4
    without = spreads(priors=None)
    assert without.min() < 0.01
    assert np.mean(without**2) < 4


@pytest.mark.parametrize("columns", [(0,), (0, 1)])
def test_averages_are_those_of_the_rows_that_merged_ones_stand_for(columns):
    """Each of 50 points stands for two per cent of the rows."""
    rows = np.array([[0.0, 1.0], [1.0, 3.0], [5.0, 2.0]])
    data = lgp.Data(rows, np.arange(3.0), weights=np.array([900.0, 90.0, 10.0]))
    scale = scales(lgp.LatentGP(lgp.RBF(), lgp.Gaussian()), data)
    terms = AdditiveTerms(smooth=(Smooth(columns, function="s"),))
    points = terms.started(data, scale, 1.0).kernel.points
    expected = np.average(rows, axis=0, weights=data.weights)[list(columns)]
    np.testing.assert_allclose(np.mean(points, axis=0), expected, atol=0.02 * 5)
