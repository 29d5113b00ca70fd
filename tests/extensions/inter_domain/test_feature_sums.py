"""Sums over rows of fixed functions stand for the rows: values, gradients, fits, files."""

import jax
import numpy as np
import pytest
from numpyro.distributions import LogNormal

import latentgp as lgp
from latentgp.representations.evidence import log_evidence
from latentgp.sites.gaussian import GaussianSites

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(2, 5, (300, 2))
Y = 40 + np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * GENERATOR.normal(size=len(X))
WEIGHTS = GENERATOR.integers(1, 4, len(X)).astype(float)
ADDITIVE = lgp.Matern32(0.9, 1.3).on(0) + 0.7 * lgp.Matern32(1.5, 2.0).on(1) + lgp.Constant(2.0)
MEANS = {
    "none": lgp.ZeroMean(),
    "constant": lgp.ConstantMean(39.0),
    "linear": lgp.LinearMean([0.5, -2.0], 30.0),
}
KINDS = {
    "splines": (lgp.BSplines(9), ADDITIVE),
    "products": (lgp.BSplines(6), lgp.Matern12(1.0).on(1) * lgp.Matern32(0.8).on(0)),
    "Fourier": (lgp.FourierFeatures(9), ADDITIVE),
    "eigenfunctions": (lgp.HilbertSpace(6), lgp.RBF([0.9, 1.1])),
}


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_and_gradient_are_those_of_the_rows(kind, mean):
    if mean != "linear" and kind != "splines":
        pytest.skip("one prior mean is enough")
    features, kernel = KINDS[kind]
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.2), MEANS[mean])
    sums = lgp.summarise(model, lgp.Data(X, Y, weights=WEIGHTS), features, key=KEY)
    with jax.enable_x64(True):
        ready = lgp.Inducing(features=features, variables=sums.variables)

        def of_rows(model):
            noise = model.likelihood.noise_variance
            residual = Y - model.mean(X)[:, 0]
            linear, precision = WEIGHTS * residual / noise, WEIGHTS / noise
            constant = -0.5 * WEIGHTS * (residual**2 / noise + jax.numpy.log(2 * np.pi * noise))
            sites = GaussianSites(linear[:, None], precision[:, None], constant)
            return log_evidence(ready, model.kernel, X, sites)

        ours = jax.jit(jax.value_and_grad(sums.evidence))(model)
        theirs = jax.jit(jax.value_and_grad(of_rows))(model)
        for one, other in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(sums.posterior(model)[1], ours[0], rtol=1e-9)


def test_a_fit_of_the_sums_is_one_of_the_rows(tmp_path):
    """Side information of zeros takes the rows' own way.

    A search stops where evidence and prior together are flat; the evidence alone, and what lies
    outside of the rows, are not so there, and move with rounding.
    """
    model = lgp.LatentGP(ADDITIVE.parts[0] + ADDITIVE.parts[1], lgp.Gaussian(0.2))
    features = lgp.BSplines(9)
    method = lgp.CollapsedVI(lgp.Inducing(features=features))
    centred = Y - Y.mean()
    rows = lgp.Data(X, centred, noise_variance=np.zeros(len(X)))
    sums = lgp.summarise(model, lgp.Data(X, centred), features, key=KEY)
    kept = lgp.fit(model, sums, key=KEY)
    for start, learn, tolerance in ((kept.model, False, 1e-6), (model, True, 0.2)):
        settings = {"key": KEY, "learn_hyperparameters": learn}
        known = lgp.fit(start, rows, method=method, **settings).posterior
        summed = lgp.fit(start, lgp.Data(X, centred), method=method, **settings).posterior
        of_sums = kept.posterior if learn else lgp.fit(start, sums, **settings).posterior
        for found in (summed, of_sums):
            ours, theirs = found.log_evidence, known.log_evidence
            np.testing.assert_allclose(ours.value, theirs.value, atol=tolerance)
            assert ours.kind == theirs.kind == "lower bound"
            means = found.mean_f(X[:9] + 1), known.mean_f(X[:9] + 1)
            np.testing.assert_allclose(*means, atol=tolerance)
    held = {"likelihood.noise_variance": LogNormal(np.log(2.0), 1e-3)}
    again = lgp.load(lgp.save(sums, tmp_path / "sums"))
    other = lgp.fit(model, again, key=KEY, priors=held)
    np.testing.assert_allclose(other.model.likelihood.noise_variance, 2.0, rtol=0.05)
    assert other.posterior.log_evidence.value < kept.posterior.log_evidence.value


def test_sums_of_a_file_are_those_of_the_rows(tmp_path):
    model = lgp.LatentGP(ADDITIVE, lgp.Gaussian(0.2))
    table = tmp_path / "rows.csv"
    lines = [f"{a!r},{b!r},{y!r}" for (a, b), y in zip(X.tolist(), Y.tolist(), strict=True)]
    table.write_text("\n".join(["a,b,y", *lines]))
    whole = lgp.summarise(model, lgp.Data(X, Y), lgp.BSplines(9), key=KEY)
    read = lgp.summarise(model, lgp.FileRows(table, target="y"), lgp.BSplines(9), key=KEY)
    np.testing.assert_allclose(read.products, whole.products, rtol=1e-9, atol=1e-9)


def test_what_sums_cannot_do_is_refused_in_a_sentence():
    model = lgp.LatentGP(ADDITIVE, lgp.Gaussian(0.2))
    sums = lgp.summarise(model, lgp.Data(X, Y), lgp.BSplines(9), key=KEY)
    with pytest.raises(lgp.InputError, match="ExactGP needs the rows"):
        lgp.fit(model, sums, key=KEY, method=lgp.ExactGP())
    other = lgp.LatentGP(lgp.Matern32().on(0), lgp.Gaussian(0.2))
    with pytest.raises(lgp.InputError, match="another kernel"):
        lgp.fit(other, sums, key=KEY)
    found = lgp.fit(model, sums, key=KEY, learn_hyperparameters=False).posterior
    with pytest.raises(lgp.InputError, match="made with inter-domain"):
        found.update(X[:9], Y[:9], key=KEY)
