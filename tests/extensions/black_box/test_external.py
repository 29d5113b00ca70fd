"""Likelihoods outside of JAX: the same answers as inside, failures told, programs, precision."""

import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import latentgp as lgp
from latentgp.likelihoods.base import Marginals
from latentgp.persistence import register

KEY = jax.random.key(0)
X = np.linspace(0.0, 3.0, 12)
Y = np.array([0.0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0])
DATA = lgp.Data(X, Y)
HELD = {"key": KEY, "learn_hyperparameters": False, "tolerance": 1e-9}
PROGRAM = """
import math, sys
for line in sys.stdin:
    y, f = map(float, line.split())
    print(-math.log1p(math.exp(-(2 * y - 1) * f)))
"""


def logistic(y, f):
    return -np.logaddexp(0, -(2 * y - 1) * f[:, 0])


def logistic_of_one(y, f):
    return -np.log1p(np.exp(-(2 * y - 1) * f[0]))


def model_of(function, **settings):
    return lgp.LatentGP(lgp.RBF(1.0, 2.0), lgp.ExternalLikelihood(function, **settings))


def answers(fit):
    marginals = fit.posterior.predict_f(X + 0.1)
    return np.concatenate([[float(fit.posterior.log_evidence)], *marginals])


@pytest.mark.parametrize(
    "likelihood",
    [
        lgp.ExternalLikelihood(logistic),
        lgp.ExternalLikelihood(logistic_of_one, vectorised=False),
        lgp.ExternalLikelihood(lgp.ExternalProgram([sys.executable, "-c", PROGRAM])),
        lgp.ExternalLikelihood(logistic, timeout=30.0),
    ],
    ids=["NumPy", "one row at a time", "program", "with a limit of time"],
)
def test_answers_are_those_of_the_likelihood_in_jax(likelihood):
    inside = lgp.fit(
        lgp.LatentGP(lgp.RBF(1.0, 2.0), lgp.Bernoulli()), DATA, method=lgp.BlackBoxVI(), **HELD
    )
    outside = lgp.fit(lgp.LatentGP(lgp.RBF(1.0, 2.0), likelihood), DATA, **HELD)
    assert isinstance(outside.diagnostics.method, lgp.BlackBoxVI)
    np.testing.assert_allclose(answers(outside), answers(inside), rtol=1e-6, atol=1e-7)
    new = X + 0.1
    np.testing.assert_allclose(
        outside.posterior.predict(new).log_prob(Y),
        inside.posterior.predict(new).log_prob(Y),
        rtol=1e-6,
    )
    assert likelihood.calls.failed == 0
    assert likelihood.calls.values > 0


@pytest.mark.slow
def test_hyperparameters_are_learned_and_other_methods_take_it():
    random = np.random.default_rng(0)
    inputs = random.uniform(0, 6, 60)
    y = (random.uniform(size=60) < 1 / (1 + np.exp(-3 * np.sin(inputs)))).astype(float)
    data = lgp.Data(inputs, y)
    inside = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    reference = lgp.fit(inside, data, key=KEY, method=lgp.VariationalInference())
    for method in (lgp.BlackBoxVI(), lgp.VariationalInference()):
        fit = lgp.fit(model_of(logistic), data, key=KEY, method=method)
        assert float(fit.posterior.log_evidence) == pytest.approx(
            float(reference.posterior.log_evidence), abs=2e-3
        )
    chains = lgp.EllipticalSlice(chains=2, draws=20, warmup=20)
    fit = lgp.fit(model_of(logistic), data, method=chains, **HELD)
    assert np.isfinite(fit.posterior.predict_f(X).mean).all()


@pytest.mark.parametrize("method", [lgp.NUTS(), lgp.Laplace()])
def test_methods_that_need_a_gradient_say_so(method):
    with pytest.raises(lgp.InputError, match="has no gradient in f, which the method needs"):
        lgp.fit(model_of(logistic), DATA, method=method, **HELD)


def test_double_precision_is_kept_on_the_way():
    seen = []

    def remember(y, f):
        seen.append((y.copy(), f.copy()))
        return f[:, 0]

    with jax.enable_x64(True):
        likelihood = lgp.ExternalLikelihood(remember)
        y, f = jnp.array([1 / 3]), jnp.array([[2 / 3]])
        value = jax.jit(jax.vmap(lambda y, f: likelihood.log_prob(y, f, {})))(y, f)
        assert float(value[0]) == seen[0][1][0, 0] == 2 / 3
        assert seen[0][0][0] == 1 / 3
    single = likelihood.log_prob(jnp.float32(1.0), jnp.array([2 / 3], jnp.float32), {})
    assert single.dtype == jnp.float32
    assert seen[-1][1].dtype == np.float32


def test_outputs_side_information_and_moments():
    def of_two(y, f, scale):
        apart = (y - f) / scale[:, None]
        return -0.5 * np.sum(apart**2, axis=1) - 2 * np.log(scale) - np.log(2 * np.pi)

    likelihood = lgp.ExternalLikelihood(
        of_two, 2, outputs=2, side=("scale",), moments=lambda f, scale: (f, scale[:, None] ** 2)
    )
    y = np.stack([np.sin(X), np.cos(X)], axis=1)
    data = lgp.Data(X, y, scale=np.full(12, 0.1))
    fit = lgp.fit(lgp.LatentGP(lgp.RBF(1.0, 1.0), likelihood), data, **HELD)
    predicted = fit.posterior.predict(X, scale=np.full(12, 0.1))
    np.testing.assert_allclose(predicted.mean, y, atol=0.1)
    latent = fit.posterior.predict_f(X).variance
    np.testing.assert_allclose(predicted.variance, latent + 0.01, rtol=1e-3)


def test_failures_are_told_and_count_as_the_lowest():
    def fails(y, f):
        values = logistic(y, f)
        values[f[:, 0] > 2.5] = np.nan
        values[f[:, 0] < -4] = -np.inf
        return values

    likelihood = lgp.ExternalLikelihood(fails)
    fit = lgp.fit(lgp.LatentGP(lgp.RBF(1.0, 2.0), likelihood), DATA, **HELD)
    assert np.isfinite(answers(fit)).all()
    assert not fit.diagnostics.converged
    (warning,) = fit.diagnostics.warnings
    assert f"no finite log density for {likelihood.calls.failed} of" in warning
    assert "it gave nan" in warning or "it gave -inf" in warning
    assert "row " in warning
    assert likelihood.calls.failed >= len(likelihood.calls.failures)
    # It keeps away from where nothing is known.
    assert np.abs(fit.posterior.predict_f(X).mean).max() < 2.5


def test_a_density_of_zero_is_zero_in_predictions_and_a_failed_value_is_the_lowest():
    """Uniform noise of half-width 1: errors of a step in the nodes of 121 over 17 deviations."""

    def uniform(y, f):
        return np.where(np.abs(y - f[:, 0]) < 1, -np.log(2), -np.inf)

    def failing(y, f):
        return np.where(np.abs(f[:, 0]) < 1, -1.0 - np.abs(f[:, 0]), np.nan)

    with jax.enable_x64(True):
        y, spread = jnp.array([0.0, 1.5, 3.0, 50.0]), 0.5
        marginals = Marginals(jnp.zeros((4, 1)), spread**2 * jnp.ones((4, 1)))
        exact = np.diff(scipy.stats.norm.cdf((y + np.array([[-1], [1]])) / spread), axis=0)[0] / 2
        known = lgp.ExternalLikelihood(uniform)
        power = known.log_expected_power(y, marginals, {}, 1.0, marginals)
        for found in (known.predictive_log_prob(y, marginals, {}), power):
            np.testing.assert_allclose(np.exp(found), exact, atol=0.5 * 17 / 120 * 0.4)
            assert np.exp(found)[2] < 1e-4
            assert found[3] == -np.inf
        found = lgp.ExternalLikelihood(failing).predictive_log_prob(y, marginals, {})
        assert np.all(found > -2)
        assert known.log_prob(y[0], jnp.array([5.0]), {}) == -np.inf


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        (lambda y, f: 1 / 0, {}, "ZeroDivisionError: division by zero"),
        (lambda y, f: np.zeros(3), {}, r"gave shape \(3,\), not"),
        (lambda y, f: time.sleep(5), {"timeout": 0.05}, "no answer within 0.05 s"),
        (
            lgp.ExternalProgram([sys.executable, "-c", "raise SystemExit('no input')"]),
            {},
            "ended with 1: no input",
        ),
        (lgp.ExternalProgram([sys.executable, "-c", "print(1)"]), {}, "wrote 1 numbers for"),
        (
            lgp.ExternalProgram([sys.executable, "-c", "import time; time.sleep(5)"], timeout=0.2),
            {},
            "no answer within 0.2 s",
        ),
        (lgp.ExternalProgram(["/no/such/program"]), {}, "No such file"),
    ],
)
def test_a_function_that_never_works_is_an_error_in_its_own_words(function, settings, message):
    method = lgp.BlackBoxVI(estimator="score", samples=4, steps=1)
    with pytest.raises(lgp.InputError, match=message):
        lgp.fit(model_of(function, **settings), DATA, method=method, **HELD)


@pytest.mark.slow
def test_what_was_learned_before_a_failure_is_kept():
    calls, most = [], np.inf

    def breaks(y, f):
        calls.append(len(y))
        if len(calls) > most:
            raise RuntimeError("the licence has run out")
        return logistic(y, f)

    method = lgp.BlackBoxVI(estimator="score", steps=60, samples=20)
    good = lgp.fit(model_of(breaks), DATA, method=method, **HELD)
    most = 0.8 * len(calls)
    calls.clear()
    fit = lgp.fit(model_of(breaks), DATA, method=method, **HELD)
    assert "the licence has run out" in fit.diagnostics.verdict
    away = fit.posterior.predict_f(X).mean - good.posterior.predict_f(X).mean
    assert np.abs(away).max() < 0.5


def test_derivatives_of_expectations_are_those_of_the_likelihood_in_jax():
    with jax.enable_x64(True):
        marginals = Marginals(jnp.array([[0.3], [-1.0]]), jnp.array([[0.5], [2.0]]))
        y = jnp.array([1.0, 0.0])

        def slopes(likelihood):
            return jax.jit(
                jax.grad(lambda m: jnp.sum(likelihood.expected_log_prob(y, m, {})))
            )(marginals)  # fmt: skip

        for one, other in zip(
            slopes(lgp.ExternalLikelihood(logistic)), slopes(lgp.Bernoulli()), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lgp.ExternalLikelihood(logistic, 0), "at least one latent"),
        (lambda: lgp.ExternalLikelihood(logistic, timeout=-1.0), "timeout must be above 0"),
        (lambda: lgp.ExternalProgram("ls -l"), "a list of words"),
        (lambda: lgp.ExternalProgram([]), "a list of words"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message):
    with pytest.raises(lgp.InputError, match=message):
        make()


def test_it_is_written_as_code():
    assert repr(lgp.ExternalLikelihood(logistic)) == "ExternalLikelihood(function=logistic)"
    program = lgp.ExternalLikelihood(lgp.ExternalProgram(["./model", "-q"]), 2)
    wanted = "ExternalLikelihood(function=ExternalProgram(['./model', '-q']), latents=2)"
    assert repr(program) == wanted


def test_moments_that_are_missing_are_asked_for():
    fit = lgp.fit(model_of(logistic), DATA, **HELD)
    with pytest.raises(lgp.InputError, match="give moments="):
        _ = fit.posterior.predict(X).mean


@pytest.mark.parametrize("raised", [ValueError("of no use"), SystemExit(3)], ids=repr)
def test_what_further_functions_end_with_is_said(raised):
    """In JAX's words, with its trace, before."""

    def failing(*args, **kwargs):
        raise raised

    further = dict.fromkeys(("moments", "distribution", "draws"), failing)
    predicted = lgp.fit(model_of(normal, **further), WAVE, **HELD).posterior.predict(X)
    said = rf"failed \({type(raised).__name__}: .*\); mend that function"
    with pytest.raises(lgp.InputError, match=f"moments {said}"):
        _ = predicted.mean
    with pytest.raises(lgp.InputError, match=f"distribution {said}"):
        predicted.quantiles([0.5])
    with pytest.raises(lgp.InputError, match=f"draws {said}"):
        predicted.sample(key=KEY)


def test_expectation_propagation_needs_values_alone():
    inside = lgp.LatentGP(lgp.RBF(1.0, 2.0), lgp.Bernoulli())
    method = lgp.ExpectationPropagation()
    fits = [lgp.fit(m, DATA, method=method, **HELD) for m in (inside, model_of(logistic))]
    np.testing.assert_allclose(answers(fits[1]), answers(fits[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "method",
    [
        lgp.BlackBoxVI(),
        lgp.VariationalInference(),
        lgp.ExpectationPropagation(),
        lgp.EllipticalSlice(chains=2, draws=20, warmup=20, thin=1),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_method_tells_of_the_row_that_failed_and_asks_for_numbers_alone(method):
    """Rows are those of the user: here in no order, one of them twice."""
    order = np.array([7, 2, 11, 0, 5, 5, 9, 3, 1, 10, 4, 8, 6])
    place = np.arange(12.0)

    def fails(y, f, place):
        assert np.isfinite(f).all()
        if np.any(place == 9):
            f = np.where(place[:, None] == 9, np.nan, f)
        return logistic(y, f)

    model = lgp.LatentGP(lgp.RBF(1.0, 2.0), lgp.ExternalLikelihood(fails, side=("place",)))
    data = lgp.Data(X[order], Y[order], place=place[order])
    try:
        said = lgp.fit(model, data, method=method, **HELD).diagnostics.verdict
    except lgp.InputError as error:
        said = str(error)
    assert "(row 6, f = " in said
    assert f"{model.likelihood.calls.failed} of {model.likelihood.calls.values} values" in said


def test_rows_that_look_alike_to_the_function_are_all_named():
    fit = lgp.fit(
        model_of(lambda y, f: np.where((y == 0) & (f[:, 0] > 1), np.nan, logistic(y, f))),
        DATA,
        method=lgp.VariationalInference(),
        **HELD,
    )
    assert "one of the rows 0, 3, 7 and 3 more, which have the same target" in (
        fit.diagnostics.verdict
    )


@pytest.mark.parametrize("method", [lgp.BlackBoxVI(), lgp.VariationalInference()])
def test_four_latents_are_taken(method):
    def total(y, f):
        return -0.5 * (y - f.sum(axis=1)) ** 2 / 0.04 - 0.5 * np.log(2 * np.pi * 0.04)

    fit = lgp.fit(model_of(total, latents=4), lgp.Data(X, np.sin(X)), method=method, **HELD)
    total_mean = np.sum(fit.posterior.predict_f(X).mean, axis=1)
    np.testing.assert_allclose(total_mean, np.sin(X), atol=0.2)


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_program_that_leaves_is_a_failed_value(vectorised):
    def leaves(y, f):
        raise SystemExit(3)

    method = lgp.BlackBoxVI(estimator="score", samples=4, steps=1)
    with pytest.raises(lgp.InputError, match="SystemExit: 3"):
        lgp.fit(model_of(leaves, vectorised=vectorised), DATA, method=method, **HELD)


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_interruption_goes_up(timeout):
    def interrupted(y, f):
        raise KeyboardInterrupt

    model = model_of(interrupted, timeout=timeout)
    with pytest.raises(KeyboardInterrupt):
        lgp.fit(model, DATA, method=lgp.VariationalInference(), **HELD)


def test_a_late_call_does_not_keep_the_process():
    host = lgp.ExternalLikelihood(lambda y, f: time.sleep(3), timeout=0.05).host
    before = set(threading.enumerate())
    assert np.isnan(host.values(np.zeros(2), np.zeros((2, 1)), {})[0]).all()
    late = set(threading.enumerate()) - before
    assert late
    assert all(thread.daemon for thread in late)


NOISE = 0.2
WAVE = lgp.Data(X, np.sin(X))
FURTHER = {
    "distribution": lambda y, f: scipy.stats.norm.cdf(y, f[:, 0], NOISE),
    "draws": lambda random, f: f[:, 0] + NOISE * random.normal(size=len(f)),
    "gradient": lambda y, f: (y[:, None] - f) / NOISE**2,
}


def normal(y, f):
    return scipy.stats.norm.logpdf(y, f[:, 0], NOISE)


def exact_wave():
    model = lgp.LatentGP(lgp.RBF(1.0, 2.0), lgp.Gaussian(noise_variance=NOISE**2))
    return lgp.fit(model, WAVE, **HELD).posterior


def test_intervals_and_draws_are_those_of_further_functions():
    new, exact = X + 0.1, exact_wave()
    predicted = lgp.fit(model_of(normal, **FURTHER), WAVE, **HELD).posterior.predict(new)
    levels = [0.05, 0.5, 0.95]
    wanted = exact.predict(new).quantiles(levels)
    np.testing.assert_allclose(predicted.quantiles(levels), wanted, atol=1e-5)
    draws = predicted.sample(key=jax.random.key(1), number=200)
    spread = np.sqrt(exact.predict(new).variance)
    assert np.abs((draws.mean(0) - exact.mean_f(new)) / spread).max() < 0.35
    np.testing.assert_allclose(draws.std(0), spread, rtol=0.3)
    plain = lgp.fit(model_of(normal), WAVE, **HELD).posterior.predict(new)
    with pytest.raises(lgp.InputError, match="give distribution="):
        plain.quantiles(levels)
    with pytest.raises(lgp.InputError, match="give draws="):
        plain.sample(key=KEY)


@pytest.mark.slow
def test_chains_follow_a_gradient_that_is_given():
    method = lgp.NUTS(coupling="whitened", chains=2, draws=100, warmup=200)
    chains = lgp.fit(model_of(normal, **FURTHER), WAVE, method=method, **HELD)
    exact = exact_wave().mean_f(X)
    np.testing.assert_allclose(chains.posterior.predict_f(X).mean, exact, atol=0.1)
    with pytest.raises(lgp.InputError, match="no second derivative"):
        lgp.fit(model_of(normal, **FURTHER), WAVE, method=lgp.Laplace(), **HELD)


def test_a_model_with_a_registered_function_is_saved(tmp_path):
    register(logistic)
    fit = lgp.fit(model_of(logistic), DATA, method=lgp.VariationalInference(), **HELD)
    lgp.save(fit.posterior, tmp_path / "model.latentgp")
    again = lgp.load(tmp_path / "model.latentgp")
    np.testing.assert_allclose(again.predict(X).log_prob(Y), fit.posterior.predict(X).log_prob(Y))
