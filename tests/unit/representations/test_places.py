"""Rows of equal inputs share one coefficient of `Dense`: nothing changes but the size."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.site_inference.search.profiled_bound import converge, evaluate, initial_sites
from latentgp.surfaces.evaluation.cavities import cavities

RNG = np.random.default_rng(0)
X = np.repeat(np.linspace(0.0, 4.0, 5), 14)[:, None]  # 70 rows at 5 places
Y = np.sin(X[:, 0]) + (0.1 + 0.2 * X[:, 0]) * RNG.normal(size=len(X))
NOISE = lgp.LatentGP(lgp.RBF(1.0, variance=2.0), lgp.HeteroscedasticGaussian(4.0))
CASES = {
    "coupled": (lgp.VariationalInference(coupled=True), NOISE, Y),
    "single": (lgp.VariationalInference(coupled=False), NOISE, Y),
    "Laplace": (
        lgp.Laplace(),
        lgp.LatentGP(lgp.Matern32(1.0), lgp.Bernoulli()),
        (Y > 0.3).astype(float),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_at_the_same_places(x64, name):
    method, model, y = CASES[name]
    algorithm = method.algorithm(model).until_converged()
    data = lgp.Data(X, y)
    rows = data.padded().to_device()
    space = ParameterSpace(model)
    found = []
    for own in (algorithm.representation, algorithm.representation.at_places(X)):
        used = dataclasses.replace(algorithm, representation=own)
        start = initial_sites(used, model, rows)
        value = evaluate(used, space, jnp.asarray(space.to_vector()), rows, start)
        found.append((converge(used, model, rows, start), value))
    (whole, value), (shared, same) = found
    assert (len(whole.posterior.X), len(shared.posterior.X)) == (128, 64)
    assert float(shared.bound) == pytest.approx(float(whole.bound), abs=1e-6)
    np.testing.assert_allclose(same.gradient, value.gradient, rtol=1e-5, atol=1e-5)
    for one, other in zip(
        *(c.posterior.marginals(jnp.linspace(-1.0, 5.0, 9)[:, None]) for c in (whole, shared)),
        strict=True,
    ):
        np.testing.assert_allclose(other, one, atol=1e-5)
    if model.likelihood.latent_size == 1:
        laws = [
            cavities(
                model,
                c.posterior,
                data,
                algorithm.rule,
                c.sites._replace(
                    **{field: getattr(c.sites, field)[: len(X)] for field in c.sites._fields}
                ),
            )[0]
            for c in (whole, shared)
        ]
        for one, other in zip(*laws, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)


def test_a_fit_has_one_coefficient_a_place():
    _, model, y = CASES["coupled"]
    fit = lgp.fit(
        model,
        lgp.Data(X, y),
        method=lgp.VariationalInference(),
        learn_hyperparameters=False,
        key=jax.random.key(0),
    )
    assert len(fit.posterior.latent.X) == 64


def test_places_are_left_alone_where_programs_would_be_as_large():
    distinct = np.linspace(0.0, 1.0, 66)[:, None]
    assert lgp.Dense().at_places(distinct).places is None
    assert lgp.Dense().at_places(np.repeat(distinct[:30], 2, axis=0)).places is None
