"""Point masses beside another law, against SciPy's laws put together by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta, betabinom, nbinom, poisson

import latentgp as lgp
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.quadrature import prediction_nodes

F, SHARE = 0.4, 0.3
RATE = 2.5 * np.exp(F)
ROW = {"exposure": np.array(2.5)}
COUNTS = np.arange(12.0)
BASES = [
    (lgp.Poisson(), poisson(RATE)),
    (lgp.LogNegativeBinomial(1.7), nbinom(1.7, 1.7 / (1.7 + RATE))),
]


def values(law, y, f, side):
    return jax.vmap(lambda y: law.log_prob(y, jnp.asarray(f), side))(jnp.asarray(y))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("base", "known"), BASES)
@pytest.mark.parametrize("own", [None, 0.9])
def test_zeros_of_counts(base, known, own):
    f = [F] if own is None else [F, own]
    odds = SHARE / (1 - SHARE) * np.exp(own or 0.0)
    share = odds / (1 + odds)
    settings = {"inflation": SHARE, "varying": own is not None}
    zero = COUNTS == 0
    inflated = share * zero + (1 - share) * known.pmf(COUNTS)
    found = values(lgp.ZeroInflated(base, **settings), COUNTS, f, ROW)
    np.testing.assert_allclose(found, np.log(inflated), rtol=1e-11)
    hurdle = np.where(zero, share, (1 - share) * known.pmf(COUNTS) / known.sf(0))
    found = values(lgp.Hurdle(base, **settings), COUNTS, f, ROW)
    np.testing.assert_allclose(found, np.log(hurdle), rtol=1e-11)


@pytest.mark.usefixtures("x64")
def test_ends_of_shares():
    law = lgp.ZeroOneInflated(lgp.Beta(6.0), inflation=SHARE, ones=0.2)
    mean = 1 / (1 + np.exp(-F))
    truth = [
        np.log(SHARE * 0.8),
        np.log(SHARE * 0.2),
        np.log1p(-SHARE) + beta(6 * mean, 6 * (1 - mean)).logpdf(0.3),
    ]
    np.testing.assert_allclose(values(law, [0.0, 1.0, 0.3], [F], {}), truth, rtol=1e-12)


LAWS = [
    (lgp.ZeroInflated(lgp.Poisson(), 0.3), 0.0),
    (lgp.ZeroInflated(lgp.LogNegativeBinomial(1.7), 0.3, varying=True), 0.0),
    (lgp.Hurdle(lgp.Poisson(), 0.3), 0.0),
    (lgp.Hurdle(lgp.Poisson(), 0.3), 2.0),
    (lgp.Hurdle(lgp.LogNegativeBinomial(1.7), 0.3, varying=True), 1.0),
    (lgp.Hurdle(lgp.Gamma(2.0), 0.3), 0.0),
    (lgp.ZeroOneInflated(lgp.Beta(6.0), 0.3), 1.0),
]


@pytest.mark.parametrize(("law", "y"), LAWS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_slopes_and_curvatures_at_extreme_latents(law, y, dtype):
    wide = [-600.0, -40.0, 0.0, 40.0]  # counts of a rate of exp(40) have infinite slopes at 600
    if y == 0:
        wide.append(600.0)
    with jax.enable_x64(dtype == jnp.float64):
        near = jnp.array(wide if dtype == jnp.float64 else [-30.0, 0.0, 15.0], dtype)
        f = jnp.stack([near, *[0.3 * near] * (law.latent_size - 1)], axis=1)
        value = jax.vmap(lambda f: law.log_prob(jnp.array(y, dtype), f, {}))(f)
        slope = jax.vmap(jax.grad(lambda f: law.log_prob(jnp.array(y, dtype), f, {})))(f)
        curve = jax.vmap(jax.hessian(lambda f: law.log_prob(jnp.array(y, dtype), f, {})))(f)
    assert value.dtype == slope.dtype == dtype
    for part in (value, slope, curve):
        assert not np.any(np.isnan(part))
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lgp.ZeroInflated(lgp.Gamma()), "ZeroInflated needs a likelihood of counts"),
        (lambda: lgp.ZeroTruncated(lgp.Gaussian()), "ZeroTruncated needs a likelihood of counts"),
        (lambda: lgp.Hurdle(lgp.Softmax(3)), "Hurdle needs a likelihood of one real number or cou"),
    ],
)
def test_bases_that_do_not_do(make, says):
    with pytest.raises(lgp.InputError, match=says):
        make()


@pytest.mark.parametrize(
    ("law", "y", "says"),
    [
        (lgp.ZeroTruncated(lgp.Poisson()), [1.0, 0.0], "ZeroTruncated targets must be at least 1"),
        (lgp.ZeroInflated(lgp.Poisson()), [0.5, 0.0], "Poisson targets must be counts"),
        (lgp.Hurdle(lgp.Gamma()), [0.0, -1.0], "Gamma targets must be positive.*: 1;"),
        (lgp.ZeroOneInflated(lgp.Beta()), [0.0, 1.2], "Beta targets must be strictly.*: 1;"),
    ],
)
def test_targets_that_do_not_fit(law, y, says):
    with pytest.raises(lgp.InputError, match=says):
        law.check_targets(np.array(y))


@pytest.mark.slow
def test_a_fit_tells_zeros_from_low_rates():
    """The share of further zeros moves along the input, the rate does not."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, 400))
    share = 1 / (1 + np.exp(-3 * np.sin(X)))
    y = np.where(rng.uniform(size=400) < share, 0.0, rng.poisson(6.0, 400))
    prior = lgp.PerLatent(lgp.RBF(3.0, 0.5), lgp.RBF(1.5, 4.0))
    model = lgp.LatentGP(
        prior, lgp.ZeroInflated(lgp.Poisson(), varying=True), lgp.ConstantMean(1.0)
    )
    fit = lgp.fit(model, lgp.Data(X, y), key=jax.random.key(0), max_evaluations=40)
    law, latents = fit.model.likelihood, fit.posterior.predict_f(X).mean
    logit = np.log(law.inflation / (1 - law.inflation)) + latents[:, 1]
    assert np.mean(np.abs(1 / (1 + np.exp(-logit)) - share)) < 0.08
    assert np.mean(np.abs(np.exp(latents[:, 0]) - 6.0)) < 1.0


@pytest.mark.parametrize(
    "name",
    ["zero-inflated-poisson", pytest.param("hurdle-negative-binomial", marks=pytest.mark.slow)],
)
def test_names_of_counts(name):
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0, 6, 200))
    exposure = rng.uniform(1, 4, 200)
    y = np.where(rng.uniform(size=200) < 0.4, 0, rng.poisson(exposure * np.exp(1 + np.sin(X))))
    fitted = lgp.GPCountRegressor(likelihood=name, random_state=0, max_evaluations=40)
    fitted.fit(X[:, None], y, exposure=exposure)
    assert 0.3 < float(fitted.model_.likelihood.inflation) < 0.5
    truth = 0.6 * np.exp(1 + np.sin(X))
    assert np.mean(np.abs(fitted.predict(X[:, None]) - truth)) < 0.2 * truth.mean()


@jax.jit
@jax.vmap
def beta_binomial(y, trials, precision):
    arguments = y, jnp.array([F]), {"trials": trials}
    return lgp.BetaBinomial(precision).log_prob(*arguments), lgp.BetaBinomial(precision).cdf(
        *arguments
    )


@pytest.mark.usefixtures("x64")
def test_beta_binomial():
    sizes = [(t, s, y) for t in (1, 7, 40) for s in (0.4, 4.0, 3e4) for y in range(t + 1)]
    trials, precision, y = np.array(sizes).T
    mean = 1 / (1 + np.exp(-F))
    known = betabinom(trials.astype(int), precision * mean, precision * (1 - mean))
    log_prob, cdf = beta_binomial(y, trials, precision)
    np.testing.assert_allclose(log_prob, known.logpmf(y), atol=1e-9)
    np.testing.assert_allclose(cdf, known.cdf(y), atol=1e-6)
    # Of very many trials it is the beta law itself.
    y = np.array([1e5, 5e5, 9e5])
    cdf = beta_binomial(y, np.full(3, 1e6), np.full(3, 9.0))[1]
    np.testing.assert_allclose(cdf, beta(9 * mean, 9 * (1 - mean)).cdf(y / 1e6), atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "precision",
    [pytest.param(0.4, marks=pytest.mark.slow), 4.0, pytest.param(300.0, marks=pytest.mark.slow)],
)
def test_predictions_of_beta_binomial_counts(precision):
    """Sums of few trials are the averages that many trials take."""
    law, rng = lgp.BetaBinomial(precision), np.random.default_rng(0)
    trials = np.append(rng.integers(1, 400, 7), 1).astype(float)
    y = np.floor(rng.uniform(-1, trials + 2))
    marginals = Marginals(rng.normal(0, 2, (8, 1)), rng.gamma(1.0, 1.0, (8, 1)))
    sums = law.predictive_cdf(y, marginals, {"trials": trials})
    averages = jax.jit(
        jax.vmap(lambda y, f, trials: law.cdf(y, f, {"trials": trials}), in_axes=(None, 0, None))
    )
    nodes, weights = prediction_nodes(1)
    for row, total in enumerate(sums):
        f = marginals.mean[row] + np.sqrt(marginals.variance[row]) * nodes
        expected = weights @ averages(y[row], f, trials[row])
        assert total == pytest.approx(float(expected), abs=2e-6)
