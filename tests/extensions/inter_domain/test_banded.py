"""Banded algebra against dense algebra, alone and in fits through many splines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.inter_domain import banded
from latentgp.extensions.inter_domain import splines as splines_module
from latentgp.extensions.inter_domain.banded_posterior import BandedPosterior
from latentgp.representations.inducing.posterior import InducingPosterior
from slow import slow_parameters

KEY = jax.random.key(0)


def bands_of(A, width):
    return jnp.stack([jnp.pad(jnp.diagonal(A, -r), (0, r)) for r in range(width)])


def full(bands):
    size = bands.shape[1]
    lower = [jnp.diag(band[: size - r], -r) for r, band in enumerate(bands)]
    return sum(lower) + sum(part.T for part in lower[1:])


def random_bands(width, size, seed):
    rng = np.random.default_rng(seed)
    L = np.tril(rng.normal(size=(size, size))) * (np.subtract.outer(*[np.arange(size)] * 2) < width)
    return bands_of(0.3 * L @ L.T + np.eye(size), width)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", [(3, 20), *slow_parameters((6, 40), (4, 30), (2, 9), (1, 5))])
def test_banded_algebra_is_dense_algebra(case):
    """Values, solves, the inverse within the band, and derivatives by hand."""
    width, size = case
    A, P = (random_bands(width, size, seed) for seed in (0, 1))
    b, right = np.random.default_rng(2).normal(size=(2, size))
    inside = np.add.outer(np.arange(width), np.arange(size)) < size
    lower = banded.factor(A)
    dense = np.linalg.cholesky(full(A))
    np.testing.assert_allclose(lower, bands_of(dense, width), atol=1e-12)
    np.testing.assert_allclose(
        banded.inverse_within(lower), bands_of(np.linalg.inv(full(A)), width), atol=1e-12
    )
    half = banded.solve_factor(lower, jnp.stack([b, right], axis=1))
    np.testing.assert_allclose(
        banded.solve_transposed(lower, half)[:, 1], np.linalg.solve(full(A), right), atol=1e-12
    )
    np.testing.assert_allclose(banded.quadratic(A, b), b @ full(A) @ b, rtol=1e-12)

    def ours(A, P, b):
        traces = banded.solved_trace(A, P), banded.log_determinant(A)
        return jnp.stack([*traces, banded.half_worth(A, b)])

    def theirs(A, P, b):
        A, P = full(A), full(P)
        log_determinant = jnp.linalg.slogdet(A)[1]
        worth = 0.5 * (b @ jnp.linalg.solve(A, b) - log_determinant)
        return jnp.stack([jnp.trace(jnp.linalg.solve(A, P)), log_determinant, worth])

    np.testing.assert_allclose(ours(A, P, b), theirs(A, P, b), rtol=1e-11)
    found, expected = (jax.jacrev(f, argnums=(0, 1, 2))(A, P, b) for f in (ours, theirs))
    for one, other in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one * inside, other * inside, atol=1e-10)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-10)


@pytest.fixture(scope="module", params=["matern 3/2", *slow_parameters("matern 5/2")])
def both(request):
    """Sums of many splines, banded and dense."""
    kernel = {
        "matern 3/2": lgp.Matern32(1.7, 0.4),
        "matern 5/2": 0.5 * lgp.Matern52(lengthscale=0.6),
    }
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, 400)
    data = lgp.Data(X, np.sin(3 * X) + 0.2 * rng.normal(size=400))
    model = lgp.LatentGP(kernel[request.param], lgp.Gaussian(0.05), mean=lgp.ConstantMean(0.1))
    number, found = 120 if request.param == "matern 3/2" else 50, {}
    for name, least in {"banded": 1, "dense": 1_000}.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(splines_module, "_BANDED_FROM", least)
            found[name] = lgp.summarise(model, data, lgp.BSplines(number), key=KEY)
    return model, found


def test_bounds_and_slopes_of_bands_are_those_of_dense_sums(both):
    model, found = both
    splines = len(found["banded"].variables)
    assert found["banded"].products.shape == (3, splines + 3)
    with jax.enable_x64(True):
        own = jax.tree.map(jnp.asarray, model)
        values, slopes = zip(
            *(
                jax.jit(jax.value_and_grad(lambda m, sums=sums: sums.evidence(m)))(own)
                for sums in found.values()
            ),
            strict=True,
        )
    np.testing.assert_allclose(*values, rtol=1e-8)
    for one, other in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_posteriors_of_bands_are_those_of_dense_sums(both):
    """Marginals, joint covariances and what is left open, inside and outside of the rows."""
    model, found = both
    settings = {"key": KEY, "learn_hyperparameters": False}
    own, dense = (lgp.fit(model, sums, **settings).posterior for sums in found.values())
    assert isinstance(own.latent, BandedPosterior)
    assert isinstance(dense.latent, InducingPosterior)
    new = np.array([-2.0, -0.1, 0.0, 0.3, 2.9, 5.99, 6.0, 6.2, 9.0])
    for ours, theirs in zip(own.predict_f(new), dense.predict_f(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(own.mean_f(new), dense.mean_f(new), atol=1e-8)
    np.testing.assert_allclose(own.log_evidence.value, dense.log_evidence.value, rtol=1e-9)
    with jax.enable_x64(True):
        pairs = [
            [f(jax.tree.map(jnp.asarray, p.latent)) for p in (own, dense)]
            for f in (
                lambda latent: latent.covariance(jnp.asarray(new)[:, None]),
                lambda latent: latent.open_variances(jnp.asarray(new)[:, None]),
                lambda latent: latent.kl,
                lambda latent: latent.trace_term,
            )
        ]
        assert own.latent.notes == dense.latent.notes
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_bands_predict_as_the_exact_process():
    X = np.linspace(0, 20, 60)
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.1))
    data, new = lgp.Data(X, np.sin(X)), np.linspace(-1, 21, 7)
    method = lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(300)))
    ours, exact = (
        lgp.fit(model, data, key=KEY, method=m, learn_hyperparameters=False).posterior
        for m in (method, lgp.ExactGP())
    )
    assert isinstance(ours.latent, BandedPosterior)
    for own, truth in zip(ours.predict_f(new), exact.predict_f(new), strict=True):
        np.testing.assert_allclose(own, truth, atol=2e-4)


@pytest.mark.slow
def test_many_splines_of_one_column_are_banded(tmp_path):
    """What is held grows with the number of splines, not with its square; files bring it back."""
    X = np.linspace(0, 30, 500)
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.1))
    method = lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(2_000)))
    result = lgp.fit(
        model, lgp.Data(X, np.sin(X)), key=KEY, method=method, learn_hyperparameters=False
    )
    posterior = lgp.load(lgp.save(result.posterior, tmp_path / "splines.latentgp"))
    assert isinstance(posterior.latent, BandedPosterior)
    held = sum(np.size(leaf) for leaf in jax.tree.leaves(posterior.components))
    assert held < 20 * 2_000
    exact = lgp.fit(model, lgp.Data(X, np.sin(X)), key=KEY, learn_hyperparameters=False).posterior
    new = np.linspace(-1, 31, 9)
    for ours, theirs in zip(posterior.predict_f(new), exact.predict_f(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert posterior.sample_f(new, key=KEY, number=3).shape == (3, 9)
    with pytest.raises(lgp.InputError, match="use sample_f for joint draws"):
        posterior.sample_paths(key=KEY)
    with pytest.raises(lgp.InputError, match=r"no summary .*without groups in the kernel"):
        posterior.update([1.0], [0.0], key=KEY)
