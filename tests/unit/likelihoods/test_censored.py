"""Bounds in place of targets, excesses and quantiles, against SciPy's laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import genpareto, lognorm, norm, t, weibull_min

import latentgp as lgp

F, Y, UPPER = 0.4, 1.3, 1.9
BASES = [
    (lgp.Gaussian(0.49), norm(F, 0.7)),
    (lgp.StudentT(0.6, 4.0), t(4.0, F, 0.6)),
    (lgp.LogNormal(0.49), lognorm(0.7, scale=np.exp(F))),
    (lgp.Weibull(1.6), weibull_min(1.6, scale=np.exp(F))),
    (lgp.GeneralisedPareto(0.3), genpareto(0.3, scale=np.exp(F))),
    (lgp.GeneralisedPareto(-0.3), genpareto(-0.3, scale=np.exp(F))),
    (lgp.LaplaceNoise(0.6), None),
    (lgp.MaternNoise(0.6), None),
    (lgp.AsymmetricLaplace(0.6, level=0.8), None),
    (lgp.HeteroscedasticStudentT(2.0, 5.0), None),
]


def of_kind(law, kind, y=Y, upper=UPPER, f=F):
    row = {"censored": jnp.asarray(float(kind)), "upper": jnp.asarray(upper)}
    f = jnp.asarray([f, 0.3][: law.latent_size])
    return float(law.log_prob(jnp.asarray(y), f, row))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("base", "known"), BASES)
@pytest.mark.parametrize("y", [0.2, Y])
def test_every_kind_of_bound(base, known, y):
    law = lgp.Censored(base)
    f = jnp.array([F, 0.3][: base.latent_size])
    low, high = (float(base.cdf(jnp.array(at), f, {})) for at in (y, UPPER))
    if known is not None:
        np.testing.assert_allclose((low, high), known.cdf([y, UPPER]), rtol=1e-10)
        np.testing.assert_allclose(of_kind(law, 0, y), known.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(of_kind(law, -1, y), np.log(low), rtol=1e-9)
    np.testing.assert_allclose(of_kind(law, 1, y), np.log1p(-low), rtol=1e-9)
    np.testing.assert_allclose(of_kind(law, 2, y), np.log(high - low), rtol=1e-8)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("far", [-1e3, -30.0, 30.0, 1e3])
def test_intervals_far_in_the_tails_have_digits_and_slopes(far):
    law = lgp.Censored(lgp.Gaussian(1.0))
    row = {"censored": jnp.array(2.0), "upper": jnp.array(far + 0.5)}

    def value(f):
        return law.log_prob(jnp.array(far), f[None], row)

    near = far if far > 0 else -far - 0.5
    truth = norm.logsf(near) + np.log1p(-np.exp(norm.logsf(near + 0.5) - norm.logsf(near)))
    np.testing.assert_allclose(value(jnp.array(0.0)), truth, rtol=1e-12)
    slope, curve = jax.grad(value)(jnp.array(0.0)), jax.grad(jax.grad(value))(jnp.array(0.0))
    np.testing.assert_allclose(slope, np.sign(far) * near, rtol=0.04)
    assert np.isfinite(curve)


@pytest.mark.usefixtures("x64")
def test_degrees_of_freedom_have_a_slope_in_the_tails():
    row = {"censored": jnp.array(1.0)}

    def value(nu):
        return lgp.Censored(lgp.StudentT(0.6, nu)).log_prob(jnp.array(3.0), jnp.zeros(1), row)

    step = 1e-5
    truth = (t(4.0 + step).logsf(5.0) - t(4.0 - step).logsf(5.0)) / (2 * step)
    np.testing.assert_allclose(jax.grad(value)(jnp.array(4.0)), truth, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_weibull_times_have_their_own_way_and_the_same_answer():
    row = {"censored": jnp.array(1.0)}
    arguments = jnp.array(1.7), jnp.array([F]), row
    own, law = lgp.Weibull(1.6), lgp.Censored(lgp.Weibull(1.6))
    np.testing.assert_allclose(law.log_prob(*arguments), own.log_prob(*arguments), rtol=1e-12)


def test_a_fit_sees_past_the_bounds():
    """Readings of an instrument that has a lowest, a highest and rounded value."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, 150))
    signal = 2 * np.sin(X)
    target = signal + 0.3 * rng.normal(size=150)
    rounded = np.floor(2 * target) / 2
    low, high = target < -1, target > 1
    kind = np.select([low, high], [-1.0, 1.0], 2.0)
    y = np.clip(rounded, -1, 1)
    sides = {"censored": kind, "upper": rounded + 0.5}
    settings = {"random_state": 0, "max_evaluations": 40}
    told = lgp.GPRegressor(likelihood="censored-gaussian", **settings).fit(X[:, None], y, **sides)
    plain = lgp.GPRegressor(**settings).fit(X[:, None], y)
    error, naive = (
        np.sqrt(np.mean((regressor.predict(X[:, None]) - signal) ** 2))
        for regressor in (told, plain)
    )
    assert error < 0.35 < naive
    assert told.side_information_ == ["censored", "upper"]
    lower, upper = told.predict_interval(X[:, None], 0.9)
    assert np.mean((lower < target) & (target < upper)) > 0.8


def test_bounds_move_with_the_targets():
    """Targets of mean 100 are centred in every fit, and their bounds with them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (60, 1))
    y = np.floor(2 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=60))
    kind = np.where(np.arange(60) % 3, 2.0, 0.0)

    def predictions(level, bound):
        own = {"censored": kind, bound: level + y + (1 if bound == "upper" else -1)}
        stream = lgp.GPRegressor(
            likelihood="censored-gaussian",
            method="variational",
            learn_hyperparameters=False,
            n_inducing=12,
            random_state=0,
        )
        found = []
        for part in (slice(0, 40), slice(40, 60)):
            side = {name: values[part] for name, values in own.items()}
            if bound == "entry":
                side.pop("censored")
            stream.partial_fit(X[part], level + y[part], **side)
            found += stream.predict(X[:5], return_std=True)
        return np.array(found) - level * np.array([[1], [0], [1], [0]])

    for bound in ("upper", "entry"):
        np.testing.assert_allclose(
            predictions(100.0, bound), predictions(0.0, bound), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("base", "side", "says"),
    [
        (lgp.Gaussian(), {"censored": [0.0, 3.0]}, "censored must be 0 .*not 3 as in"),
        (lgp.Gaussian(), {"censored": [0.0, 2.0]}, "upper must be above y where censored is 2"),
        (lgp.Gaussian(), {"censored": [0.0, 2.0], "upper": [9.0, 0.0]}, "upper must be above y"),
        (lgp.LogNormal(), {"noise_variance": [0.1, 0.2]}, "noise_variance"),
    ],
)
def test_rows_that_do_not_fit(base, side, says):
    with pytest.raises(lgp.InputError, match=says):
        lgp.fit(
            lgp.LatentGP(lgp.RBF(), lgp.Censored(base)),
            lgp.Data([0.0, 1.0], [1.0, 2.0], **side),
            key=jax.random.key(0),
        )


def test_bases_without_tails_are_refused():
    with pytest.raises(lgp.InputError, match="Censored needs a likelihood with log_tails"):
        lgp.Censored(lgp.Poisson())


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shape", [-0.4, -1e-6, 0.0, 1e-6, 0.9])
def test_excesses_of_any_shape(shape):
    law, known = lgp.GeneralisedPareto(shape), genpareto(shape, scale=np.exp(F))
    y = known.ppf([0.001, 0.3, 0.99])
    f = jnp.array([F])
    value = jax.vmap(lambda y: law.log_prob(y, f, {}))(jnp.asarray(y))
    np.testing.assert_allclose(value, known.logpdf(y), rtol=1e-9)
    slope = jax.vmap(
        lambda y: jax.grad(lambda k: lgp.GeneralisedPareto(k).log_prob(y, f, {}))(shape)
    )
    assert np.all(np.isfinite(slope(jnp.asarray(y))))
    draws = jax.vmap(lambda key: law.sample(key, f, {}))(jax.random.split(jax.random.key(0), 4000))
    assert abs(np.mean(np.asarray(draws) < known.ppf(0.7)) - 0.7) < 0.03
    if shape < 0:  # beyond the end the latent is pushed up
        beyond = jnp.array(1.5 * known.support()[1])
        assert np.isfinite(law.log_prob(beyond, f, {}))
        assert jax.grad(lambda f: law.log_prob(beyond, f, {}))(f)[0] > 10


@pytest.mark.slow
def test_excesses_with_an_end_and_with_heavy_tails():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, 200))
    for shape in (-0.3, 0.3):
        y = np.exp(np.sin(X)) * np.expm1(shape * rng.exponential(size=200)) / shape
        fitted = lgp.GPRegressor(likelihood="generalised-pareto", random_state=0)
        fitted.fit(X[:, None], y)
        assert abs(float(fitted.model_.likelihood.shape) - shape) < 0.2
        latent = fitted.posterior_.predict_f(X).mean
        assert np.sqrt(np.mean((latent - np.sin(X)) ** 2)) < 0.3


@pytest.mark.parametrize(
    "method", ["variational", pytest.param("augmented", marks=pytest.mark.slow)]
)
def test_a_quantile_has_its_share_of_the_targets_below(method):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, 300))
    y = 2 * np.sin(X) + rng.exponential(0.5 + 0.2 * X)
    for level in (0.5, 0.9):
        law = lgp.AsymmetricLaplace(0.1, level=level)
        fitted = lgp.GPRegressor(likelihood=law, method=method, random_state=0, max_evaluations=30)
        quantile = fitted.fit(X[:, None], y).posterior_.predict_f(X).mean
        assert abs(np.mean(y < quantile) - level) < 0.06


def test_a_level_that_is_none():
    with pytest.raises(lgp.InputError, match=r"level must be in \(0, 1\), got 90"):
        lgp.AsymmetricLaplace(level=90)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("base", "known"), [case for case in BASES if case[1] is not None])
@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.quick
def test_rows_observed_from_a_time_on_have_the_law_of_what_exceeds_it(base, known, kind):
    law, entry = lgp.Censored(base), 0.6
    row = {"censored": jnp.asarray(float(kind)), "upper": jnp.asarray(UPPER)}
    f = jnp.array([F])
    given = law.log_prob(jnp.array(Y), f, row | {"entry": jnp.array(entry)})
    plain = [known.logpdf(Y), known.logsf(Y), np.log(known.cdf(UPPER) - known.cdf(Y))][kind]
    assert float(given) == pytest.approx(plain - known.logsf(entry), rel=1e-10)
    start = row | {"entry": jnp.array(0.0)}
    if isinstance(base, lgp.LogNormal | lgp.Weibull):
        assert float(law.log_prob(jnp.array(Y), f, start)) == pytest.approx(plain, rel=1e-12)
        of_law = jax.grad(lambda own: own.log_prob(jnp.array(Y), f, start))(law)
        assert np.all(np.isfinite(jax.tree.leaves(of_law)))
        curvature = jax.grad(jax.grad(lambda x: law.log_prob(jnp.array(Y), x[None], start)))(f[0])
        assert -np.inf < float(curvature) <= 0


@pytest.mark.quick
@pytest.mark.parametrize("entry", [2.0, -1.0])
def test_rows_that_end_before_they_begin_are_refused(entry):
    law, side = lgp.Censored(lgp.Weibull()), {"entry": np.array([entry, 0.5])}
    with pytest.raises(lgp.InputError, match=r"entry must be at least zero and below y, .*: 0;"):
        law.check_rows(np.ones(2), side)
