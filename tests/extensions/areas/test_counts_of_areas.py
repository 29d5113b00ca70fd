"""Counts of areas: BYM2 against the same model written out in NumPyro, and its coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions
from numpyro.infer import MCMC, NUTS

import latentgp as lgp

ROWS, COLUMNS = 4, 5
GRID = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
PAIRS = np.concatenate(
    [
        np.column_stack([GRID[:, :-1].ravel(), GRID[:, 1:].ravel()]),
        np.column_stack([GRID[:-1].ravel(), GRID[1:].ravel()]),
    ]
)
SIZE = ROWS * COLUMNS + 1  # and one area alone
AREAS = np.arange(float(SIZE))
EXPOSURE = np.random.default_rng(0).uniform(5, 40, SIZE)
PRIOR_OF_MEAN = distributions.Normal(0.0, 2.0)


def simulated(generator, variance, rho, mean):
    with jax.enable_x64(True):
        kernel = lgp.BYM2(PAIRS, variance, rho, areas=SIZE)
        K = np.asarray(kernel.gram(AREAS[:, None], AREAS[:, None]))
    f = mean + np.linalg.cholesky(K) @ generator.normal(size=SIZE)
    return f, generator.poisson(EXPOSURE * np.exp(f)).astype(float)


def fitted(y, **settings):
    kernel = lgp.BYM2(PAIRS, 0.5, 0.5, areas=SIZE)
    model = lgp.LatentGP(kernel, lgp.Poisson(), lgp.ConstantMean(0.0))
    return lgp.fit(
        model,
        lgp.Data(AREAS, y, exposure=EXPOSURE),
        key=jax.random.key(1),
        priors={"mean.value": PRIOR_OF_MEAN},
        **settings,
    )


def written_out(y):
    """Riebler et al. (2016) by eigenvectors, priors by their formulas."""
    W = np.zeros((SIZE, SIZE))
    W[tuple(PAIRS.T)] = 1.0
    W += W.T
    inside = np.arange(SIZE - 1)
    Q = np.diag(W.sum(axis=0)) - W
    R = np.eye(SIZE)
    R[np.ix_(inside, inside)] = np.linalg.pinv(Q[np.ix_(inside, inside)], hermitian=True)
    R[np.ix_(inside, inside)] /= np.exp(np.mean(np.log(np.diagonal(R)[inside])))
    values, vectors = np.linalg.eigh(R)
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def distance(rho):
        C = rho * R + (1 - rho) * jnp.eye(SIZE)
        return jnp.sqrt(jnp.trace(C) - SIZE - jnp.linalg.slogdet(C)[1])

    rate = -jnp.log(1 / 3) / distance(0.5)

    def model():
        mean = numpyro.sample("mean", PRIOR_OF_MEAN)
        std = numpyro.sample("std", distributions.Exponential(0.5))
        logit = numpyro.sample(
            "logit", distributions.ImproperUniform(distributions.constraints.real, (), ())
        )
        rho = jax.nn.sigmoid(logit)
        slope = jax.grad(distance)(rho) * rho * (1 - rho)
        numpyro.factor("prior", -rate * distance(rho) + jnp.log(slope))
        structured = numpyro.sample("u", distributions.Normal(0, 1).expand([SIZE]))
        own = numpyro.sample("v", distributions.Normal(0, 1).expand([SIZE]))
        effects = std * (jnp.sqrt(rho) * root @ structured + jnp.sqrt(1 - rho) * own)
        f = numpyro.deterministic("f", mean + effects)
        numpyro.sample("y", distributions.Poisson(EXPOSURE * jnp.exp(f)), obs=y)

    chains = MCMC(
        NUTS(model, target_accept_prob=0.95),
        num_warmup=1000,
        num_samples=4000,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(2))
    return {name: np.asarray(v) for name, v in chains.get_samples().items()}


@pytest.mark.slow
def test_bym2_is_the_model_written_out(x64):
    _, y = simulated(np.random.default_rng(1), 0.4, 0.7, 0.3)
    known = written_out(y)
    fit = fitted(y, method=lgp.NUTS(chains=4, warmup=500, draws=1000))
    law = fit.posterior.predict_f(AREAS)
    mean, std = known["f"].mean(axis=0), known["f"].std(axis=0)
    # Of effects; chains of a few hundred effective draws have errors of a twentieth.
    np.testing.assert_allclose((np.ravel(law.mean) - mean) / std, 0.0, atol=0.15)
    np.testing.assert_allclose(np.sqrt(np.ravel(law.variance)) / std, 1.0, atol=0.1)
    models = fit.posterior.components.models
    log_std = 0.5 * np.log(np.asarray(models.kernel.variance))
    assert abs(log_std.mean() - np.log(known["std"]).mean()) < 0.2 * np.log(known["std"]).std()
    rho = np.asarray(models.kernel.rho)
    share = 1 / (1 + np.exp(-known["logit"]))
    assert abs(rho.mean() - share.mean()) < 0.2 * share.std()


@pytest.mark.slow
def test_intervals_of_effects_hold_what_they_say():
    """Share of the areas' true effects in 80 % intervals, hyper-parameters integrated over."""
    generator = np.random.default_rng(3)
    shares = []
    for _ in range(40):
        f, y = simulated(generator, 0.4, generator.uniform(), 0.3)
        law = fitted(y, method=lgp.Laplace(), hyperparameters="integrate").posterior.predict_f(
            AREAS
        )
        z = (f - np.ravel(law.mean)) / np.sqrt(np.ravel(law.variance))
        shares.append(np.mean(np.abs(z) < 1.2816))
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert error < 0.03
    assert abs(np.mean(shares) - 0.8) < 3 * error
