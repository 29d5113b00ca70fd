import dataclasses
import json
import os
import re
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from numpyro.distributions import Uniform
from safetensors.numpy import load_file, save_file
from scipy.optimize import OptimizeResult, minimize

import latentgp as lgp
from latentgp.extensions.batches.method import posterior_of_search
from latentgp.inference import FitArguments
from latentgp.methods.options import FitOptions
from latentgp.runtime import checkpoint, progress
from latentgp.runtime import compilation_cache as programs
from latentgp.site_inference.methods import base as sites_methods
from latentgp.site_inference.methods.base import converged_sites
from latentgp.site_inference.search import hyperparameters, profiled_bound
from latentgp.validation import as_key, check_arguments, check_bounds, key_of_draws
from problems import BINARY, SMOOTH, X, classification, regression
from slow import slow_parameters

KEY = jax.random.key(0)
DATA, BINARY_DATA = lgp.Data(X, SMOOTH), lgp.Data(X, BINARY)
FEW = lgp.Inducing(points=X[:4])


def same_bits(one, other):
    """Whether two fits agree to the last bit in what they learned and predict."""
    parts = [
        (f.history.bound, f.history.value, *f.posterior.predict_f(X), jax.tree.leaves(f.model))
        for f in (one, other)
    ]
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(parts[0]), jax.tree.leaves(parts[1]), strict=True)
    )


def test_a_fit_improves_the_bound_and_says_what_happened():
    result = lgp.fit(regression(), DATA, key=KEY)
    assert result.diagnostics.converged
    assert result.diagnostics.evaluations == len(result.history.value) > 3
    assert result.history.value.max() > result.history.value[0] + 0.1
    assert np.all(np.diff(result.history.seconds) > 0)
    assert result.diagnostics.verdict.startswith("Converged after")
    assert result.posterior.log_evidence.kind == "exact"
    best = result.history.bound[result.history.value.argmax()]
    np.testing.assert_allclose(float(result.posterior.log_evidence), best, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "kind"), [(lgp.CollapsedVI(FEW), "lower bound"), (lgp.ExactGP(), "exact")]
)
def test_the_evidence_is_named_for_what_it_is(method, kind):
    result = lgp.fit(regression(), DATA, key=KEY, method=method, learn_hyperparameters=False)
    assert result.posterior.log_evidence.kind == kind
    assert result.diagnostics.ending == "hyper-parameters were not learned"


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "method", [lgp.Laplace(), lgp.VariationalInference(), lgp.ExpectationPropagation()]
)
def test_targets_that_are_gaussian_after_a_transform_are_exact(method):
    """The log density of log-normal targets is quadratic in f, of their logarithms and 1 / y."""
    kernel, held = lgp.RBF(lengthscale=0.5), {"key": KEY, "learn_hyperparameters": False}
    of_logs = lgp.LatentGP(kernel, lgp.Gaussian(0.2)), DATA
    exact = lgp.fit(*of_logs, method=lgp.ExactGP(), **held)
    positive = lgp.LatentGP(kernel, lgp.LogNormal(0.2)), lgp.Data(X, np.exp(SMOOTH))
    found = lgp.fit(*positive, method=method, **held)
    evidence = found.posterior.log_evidence
    assert evidence.kind == "exact"
    expected = float(exact.posterior.log_evidence) - SMOOTH.sum()
    assert float(evidence) == pytest.approx(expected, abs=1e-8)
    for ours, theirs in zip(*(f.posterior.predict_f(X) for f in (found, exact)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_the_given_model_is_used_as_it_is_when_nothing_is_learned():
    model = regression()
    result = lgp.fit(model, DATA, key=KEY, learn_hyperparameters=False)
    for before, after in zip(jax.tree.leaves(model), jax.tree.leaves(result.model), strict=True):
        np.testing.assert_array_equal(before, after)
    assert len(result.history.value) == 0


def test_frozen_parameters_are_not_learned():
    result = lgp.fit(regression(), DATA, key=KEY, frozen=("likelihood",))
    assert result.model.likelihood.noise_variance == 0.3
    assert result.model.kernel.scale != 1.4


def test_restarts_are_never_worse_than_the_first_run():
    first = lgp.fit(regression(), DATA, key=KEY)
    more = lgp.fit(regression(), DATA, key=KEY, restarts=3)
    assert set(more.history.restart[more.history.restart >= 0]) == {0, 1, 2, 3}
    alone = more.history.restart <= 0
    np.testing.assert_array_equal(more.history.value[alone], first.history.value)
    assert more.history.value.max() >= first.history.value.max()
    chosen = more.history.bound[more.history.value.argmax()]
    np.testing.assert_allclose(float(more.posterior.log_evidence), chosen, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "data", "method"),
    [
        (regression(), DATA, lgp.ExactGP()),
        (classification(), BINARY_DATA, lgp.AugmentedVI(lgp.Inducing(number=4))),
    ],
    ids=["exact", "k-means++"],
)
def test_the_same_key_gives_the_same_bits(model, data, method):
    one, other = (
        lgp.fit(model, data, key=KEY, method=method, restarts=1, max_evaluations=6)
        for _ in range(2)
    )
    assert same_bits(one, other)


@pytest.mark.parametrize(
    ("model", "y", "method"),
    [
        (regression(), SMOOTH, "auto"),
        (classification(), BINARY, lgp.VariationalInference(FEW)),
    ],
    ids=["regression", "classification"],
)
def test_a_second_fit_of_the_same_shape_compiles_nothing(compilations, model, y, method):
    settings = {"key": KEY, "method": method, "max_evaluations": 5}
    jax.clear_caches()
    first = lgp.fit(model, lgp.Data(X, y), **settings)
    first.posterior.predict(X).log_prob(y)
    assert compilations
    compilations.clear()
    other_model = lgp.replace(model, {"kernel.scale": 0.7})
    second = lgp.fit(other_model, lgp.Data(X[::-1] + 0.1, y), **settings)
    second.posterior.predict(X).log_prob(y)
    assert compilations == []


TEN = lgp.Inducing(10)


@pytest.mark.parametrize(
    ("likelihood", "method"),
    [
        pytest.param(
            *(lgp.Gaussian(0.1), lgp.Stochastic(lgp.CollapsedVI(TEN), batch_size=100, epochs=2)),
            marks=pytest.mark.quick,
        ),
        (lgp.Softmax(3), lgp.Stochastic(lgp.VariationalInference(TEN), batch_size=100, epochs=2)),
        (
            lgp.LogisticSoftmax(3),
            lgp.Stochastic(lgp.AugmentedVI(TEN), batch_size=100, epochs=2, classes=2),
        ),
        (lgp.LogisticSoftmax(3), lgp.GibbsSampling(TEN, chains=2, warmup=4, draws=4)),
    ],
    ids=["regression", "classes", "drawn classes", "gibbs"],
)
def test_a_second_fit_of_batches_or_draws_compiles_nothing(compilations, likelihood, method):
    model = lgp.LatentGP(lgp.RBF(), likelihood)
    data = lgp.Data(np.linspace(0, 6, 700), np.arange(700.0) % 3)
    one, other = jax.random.split(KEY)
    lgp.fit(model, data, key=one, method=method)
    compilations.clear()
    lgp.fit(model, data, key=other, method=method)
    assert compilations == []


ROWS = np.random.default_rng(7).uniform(0, 5, (64, 2))
WAVE = np.sin(2 * ROWS[:, 0])
STEPS = (WAVE > 0).astype(float)


@pytest.mark.parametrize(
    ("likelihood", "y", "method"),
    [
        (lgp.Gaussian(0.1), WAVE, lgp.ExactGP()),
        (lgp.Bernoulli(), STEPS, lgp.VariationalInference()),
        (lgp.StudentT(), WAVE, lgp.AugmentedVI(lgp.Inducing(points=ROWS[:10]))),
    ],
)
def test_growing_data_compile_nothing(compilations, likelihood, y, method):
    """Rows up to 64 share their programs: a round of Bayesian optimisation, a learning curve."""
    model = lgp.LatentGP(lgp.RBF([1.0, 1.0]), likelihood)

    def rounds(size):
        data = lgp.Data(ROWS[:size], y[:size])
        posterior = lgp.fit(model, data, key=KEY, method=method, max_evaluations=5).posterior
        paths = posterior.sample_paths(key=KEY, number=4, features=16)
        return posterior.predict(ROWS).mean, paths(ROWS)

    rounds(40)
    compilations.clear()
    for size in (41, 50, 64):
        assert all(np.all(np.isfinite(values)) for values in rounds(size))
    assert compilations == []


@pytest.mark.parametrize(
    ("likelihood", "y", "method"),
    [
        (lgp.Gaussian(0.1), WAVE, lgp.ExactGP()),
        (lgp.Gaussian(0.1), WAVE, lgp.CollapsedVI(lgp.Inducing(points=ROWS[:10]))),
        (lgp.Bernoulli(), STEPS, lgp.VariationalInference()),
        (lgp.Bernoulli(), STEPS, lgp.AugmentedVI()),
        (lgp.Bernoulli(), STEPS, lgp.Laplace()),
        (lgp.Bernoulli(), STEPS, lgp.ExpectationPropagation()),
        (lgp.StudentT(), WAVE, lgp.VariationalInference(lgp.Inducing(points=ROWS[:10]))),
    ],
)
def test_rows_that_fill_up_change_nothing(monkeypatch, likelihood, y, method):
    model, data = lgp.LatentGP(lgp.RBF([1.0, 1.0]), likelihood), lgp.Data(ROWS[:41], y[:41])

    def answers():
        fitted = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
        posterior = fitted.posterior
        evidence = float(posterior.log_evidence)
        mean, variance = posterior.predict_f(ROWS)
        update = posterior.remembered()
        return mean, variance, np.array([evidence]), update.white.linear.sum()[None]

    padded = answers()
    monkeypatch.setattr(lgp.Data, "padded", lgp.Data.divisible)
    for one, other in zip(padded, answers(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("limit", "forgets"), [("65530", False), ("100", True), ("?", False)])
def test_programs_are_forgotten_before_there_are_too_many(
    compilations, monkeypatch, tmp_path, limit, forgets
):
    (tmp_path / "most").write_text(limit)
    monkeypatch.setattr(programs, "_MOST_MAPS", tmp_path / "most")
    lgp.fit(regression(), DATA, key=KEY, learn_hyperparameters=False)
    compilations.clear()
    lgp.fit(regression(), DATA, key=KEY, learn_hyperparameters=False)
    assert bool(compilations) == forgets


def test_a_new_number_of_rows_to_predict_compiles_nothing(compilations):
    posterior = lgp.fit(regression(), DATA, key=KEY, learn_hyperparameters=False).posterior

    def predict(rows):
        predictive = posterior.predict(X[:rows])
        return predictive.mean, predictive.interval(), posterior.mean_f(X[:rows])

    predict(3)
    compilations.clear()
    predict(8)
    predict(0)
    assert compilations == []


def test_a_callback_ends_the_search_and_keeps_the_best_point():
    told = []

    def stop_at_four(progress):
        told.append(progress)
        return progress.evaluations == 4

    result = lgp.fit(regression(), DATA, key=KEY, callback=stop_at_four, restarts=2)
    assert [p.evaluations for p in told] == [1, 2, 3, 4]
    best = np.argmax(result.history.value)
    assert told[-1].best == result.history.bound[best]
    assert not result.diagnostics.converged
    assert "the callback asked for it" in result.diagnostics.verdict


@pytest.mark.parametrize(
    "method", [lgp.ExactGP(), lgp.Stochastic(lgp.CollapsedVI(FEW), batch_size=5, epochs=50)]
)
def test_a_keyboard_interrupt_goes_up_with_the_best_so_far(method):
    told = []

    def interrupt(progress):
        told.append(progress.bound)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        lgp.fit(regression(), DATA, key=KEY, method=method, callback=interrupt)
    result = raised.value.result
    assert len(told) == len(result.history.bound) == 3
    assert not result.diagnostics.converged
    assert "it was interrupted; raise the limit" in result.diagnostics.verdict
    assert np.all(np.isfinite(result.posterior.predict_f(X).mean))


def test_a_keyboard_interrupt_before_anything_is_known_ends_the_fit(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(hyperparameters, "evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lgp.fit(regression(), DATA, key=KEY)


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    line = progress.ProgressLine(1)
    for seconds in (0.5, 1.5, 3.0, 11.6, 12.0):
        line.show(f"after {seconds} s", seconds)
    assert capsys.readouterr().err.splitlines() == ["after 1.5 s", "after 11.6 s"]
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_SECONDS_A_LINE", 0.0)
    lgp.fit(regression(), DATA, key=KEY, verbose=1, max_evaluations=2)
    lgp.fit(regression(), DATA, key=KEY, method=lgp.GibbsSampling(draws=10, warmup=0), verbose=1)
    told = capsys.readouterr().err.splitlines()
    beginning = "learning hyper-parameters in a first run: evaluation 1 of at most 8, bound -"
    assert told[0] == "learning hyper-parameters: getting ready"
    assert told[1].startswith(beginning)
    assert re.search(r"best -\S+ nats, \d+ s, at most about \d+ s left$", told[2])
    assert told[-1].startswith("sampling: sweep 10 of 10, R-hat ")


def test_a_search_that_cannot_go_on_is_judged_by_what_is_left_to_gain(monkeypatch):
    """SciPy's "ABNORMAL: " is never a part of the verdict."""
    honest = minimize
    ending = {}

    def abnormal(*arguments, callback, **settings):
        found = honest(*arguments, callback=lambda intermediate_result: None, **settings)
        found.success, found.message = False, "ABNORMAL: "
        return found

    monkeypatch.setattr("scipy.optimize.minimize", abnormal)
    for many in (1, 1000):
        honest = (lambda f, x, **k: OptimizeResult(fun=f(x)[0], x=x)) if many == 1 else honest
        fitted = lgp.fit(regression(), DATA, key=KEY)
        ending[many] = fitted.diagnostics
        honest = minimize
    assert ending[1000].converged
    assert not ending[1].converged
    assert "because no step along the gradient raised the bound" in ending[1].verdict
    assert "abnormal" not in ending[1].verdict.lower()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"data": (X, SMOOTH)}, r"data must be Data\(X, y\), or FileRows\(...\), got a tuple"),
        ({"model": lgp.RBF()}, r"model must be a LatentGP\(kernel, likelihood\), got a RBF"),
        ({"model": lgp.RBF}, r"model must be a LatentGP\(kernel, likelihood\), got the class RBF"),
        ({"priors": "wek"}, 'priors must be "weak", None'),
    ],
)
def test_arguments_of_another_kind_are_named(arguments, says):
    """Before beartype, which checks annotations in tests alone, can say it."""
    wanted = {"model": regression(), "data": DATA, "priors": "weak"}
    with pytest.raises(lgp.InputError, match=says):
        check_arguments(**wanted | arguments)


@pytest.mark.parametrize(
    ("name", "least", "advice"),
    [
        ("max_evaluations", 1, "learn_hyperparameters=False keeps"),
        ("restarts", 0, "0 runs the search once"),
        ("max_seconds", 0, "None sets no limit"),
    ],
)
def test_options_have_bounds(name, least, advice):
    check_bounds(FitOptions(**{name: least}))
    says = f"{name} must be at least {least}, got {least - 1}; {advice}"
    with pytest.raises(lgp.InputError, match=says):
        lgp.fit(regression(), DATA, key=KEY, **{name: least - 1})


def test_a_kernel_by_name_is_refused_in_words_of_a_user():
    says = "^kernel must be \"auto\", or None to keep the model's, got 'rbf'"
    options = FitArguments(key=KEY)
    options.kernel = "rbf"
    with pytest.raises(lgp.InputError, match=says):
        lgp.fit.__wrapped__(regression(), DATA, options)


def test_draws_need_a_key_and_a_number():
    for key, number, says in ((0, 1, "key must be a random key"), (KEY, 1.5, "number must be")):
        with pytest.raises(lgp.InputError, match=says):
            key_of_draws(key, number)


def test_a_key_may_be_of_the_older_kind_and_is_no_number():
    old, new = (as_key(key) for key in (jax.random.PRNGKey(3), jax.random.key(3)))
    assert old == new
    for wrong in (0, np.zeros(2), jax.random.split(KEY, 2)):
        with pytest.raises(lgp.InputError, match="key must be a random key such as"):
            as_key(wrong)


def test_reaching_max_evaluations_is_said():
    result = lgp.fit(regression(), DATA, key=KEY, max_evaluations=3)
    assert np.sum(result.history.restart == 0) == 3
    assert not result.diagnostics.converged
    assert "max_evaluations=3" in result.diagnostics.verdict


def test_time_can_be_limited():
    result = lgp.fit(regression(), DATA, key=KEY, max_seconds=0.0)
    assert len(result.history.value) == 1
    assert "max_seconds=0" in result.diagnostics.ending


@pytest.mark.parametrize(
    ("model", "data", "method"),
    [
        (regression(), DATA, lgp.ExactGP()),
        (classification(), BINARY_DATA, lgp.VariationalInference(FEW)),
    ],
    ids=["exact", "variational"],
)
@pytest.mark.parametrize("stop_at", [3, 9])
def test_a_resumed_fit_is_an_uninterrupted_one(tmp_path, model, data, method, stop_at):
    settings = {"key": KEY, "method": method, "max_evaluations": 7, "restarts": 1}
    whole = lgp.fit(model, data, **settings)
    file = tmp_path / "checkpoint.safetensors"
    interrupted = lgp.fit(
        model,
        data,
        checkpoint=file,
        callback=lambda progress: progress.evaluations == stop_at,
        **settings,
    )
    assert len(interrupted.history.value) == stop_at
    resumed = lgp.fit(model, data, checkpoint=file, **settings)
    assert same_bits(resumed, whole)
    again = lgp.fit(model, data, checkpoint=file, **settings)
    assert same_bits(again, whole)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    file.write_bytes(b"not a checkpoint")
    with pytest.raises(lgp.InputError, match=r"cannot be read.*remove it"):
        lgp.fit(regression(), DATA, key=KEY, checkpoint=file)


def test_a_checkpoint_that_lacks_something_is_refused(tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    lgp.fit(regression(), DATA, key=KEY, checkpoint=file, max_evaluations=2)
    tensors = load_file(file)
    del tensors["kept.linear"]
    save_file(tensors, file)
    with pytest.raises(lgp.InputError, match="cannot be read"):
        lgp.fit(regression(), DATA, key=KEY, checkpoint=file)


IN_BATCHES = lgp.Stochastic(
    lgp.CollapsedVI(FEW), batch_size=10, epochs=4, tolerance=0.0, learning_rate=0.01
)


@pytest.mark.parametrize(
    "method",
    [lgp.ExactGP(), IN_BATCHES, lgp.GibbsSampling(), lgp.NUTS()],
    ids=["whole", "batches", "gibbs", "nuts"],
)
def test_a_checkpoint_without_a_folder_is_refused_at_once(tmp_path, monkeypatch, method):
    told = []
    monkeypatch.setattr(sites_methods, "learn", lambda *a, **k: told.append(a))
    with pytest.raises(lgp.InputError, match=r"no folder .*nowhere for the checkpoint"):
        lgp.fit(
            *(regression(), DATA),
            key=KEY,
            method=method,
            checkpoint=tmp_path / "nowhere" / "file",
            callback=told.append,
        )
    assert not told


def test_the_seconds_of_a_start_count(monkeypatch):
    learn = sites_methods.learn

    def slowly(*arguments, **settings):
        time.sleep(0.3)
        return learn(*arguments, **settings)

    monkeypatch.setattr(sites_methods, "learn", slowly)
    result = lgp.fit(regression(), DATA, key=KEY, method=IN_BATCHES, max_seconds=0.3)
    assert len(result.history.seconds) == 1
    assert result.history.seconds[0] > 0.3
    assert "max_seconds=0.3 had passed" in str(result.diagnostics)


@pytest.mark.slow
def test_nuts_starts_where_precisions_of_rows_may_be_negative(monkeypatch):
    learn, seen = sites_methods.learn, []

    def watched(algorithm, *arguments, **settings):
        seen.append(algorithm.representation.signed)
        return learn(algorithm, *arguments, **settings)

    monkeypatch.setattr(sites_methods, "learn", watched)
    model = lgp.LatentGP(lgp.RBF(), lgp.StudentT(degrees_of_freedom=4.0, scale=0.3))
    method = lgp.NUTS(draws=2, warmup=2, chains=1)
    lgp.fit(model, lgp.Data(X[:8], SMOOTH[:8]), key=KEY, method=method)
    assert seen == [True]


def test_sites_that_give_no_posterior_are_made_anew():
    method, model = lgp.VariationalInference(FEW), classification()
    with jax.enable_x64(True):
        algorithm, rows = method.algorithm(model), BINARY_DATA.to_device()
        good = converged_sites(algorithm, model, rows, None)
        wild = good.sites._replace(linear=np.nan * good.sites.linear)
        learned = hyperparameters.SearchResult(np.zeros(2), wild, True, "")
        nowhere = good._replace(sites=wild, bound=jax.numpy.full((), np.nan))
        anew = converged_sites(algorithm, model, rows, nowhere)
        assert posterior_of_search(algorithm, model, rows, learned) is None
        improper = good.sites._replace(precision=good.sites.precision - 1e6)
        learned = learned._replace(sites=improper)
        assert posterior_of_search(algorithm, model, rows, learned) is None
    np.testing.assert_allclose(anew.bound, good.bound, rtol=1e-6)


def test_batches_of_gaussian_noise_start_at_the_learned_noise():
    first = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(noise_variance=1e-4))
    there = lgp.replace(first, {"likelihood.noise_variance": 0.5, "kernel.lengthscale": [2.0, 0.7]})
    with jax.enable_x64(True):
        algorithm, rows = lgp.CollapsedVI(FEW).algorithm(first), DATA.to_device()
        sites = profiled_bound.initial_sites(algorithm, first, rows)
        learned = hyperparameters.SearchResult(np.zeros(2), sites, True, "")
        said = posterior_of_search(algorithm, there, rows, learned)
        converged = converged_sites(algorithm, there, rows, None).posterior
    np.testing.assert_allclose(said.white_mean, converged.white_mean, atol=1e-8)
    np.testing.assert_allclose(said.white_lower, converged.white_lower, atol=1e-8)


def test_batches_start_from_sites_as_they_are_though_negative():
    """A row far off, under heavy tails, has one."""
    data = lgp.Data(X, np.where(np.arange(len(X)) == 3, 8.0, SMOOTH))
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.StudentT(scale=0.3))
    with jax.enable_x64(True):
        algorithm, rows = lgp.VariationalInference(FEW).algorithm(model), data.to_device()
        converged = converged_sites(algorithm.until_converged(), model, rows, None)
        learned = hyperparameters.SearchResult(np.zeros(2), converged.sites, True, "")
        said = posterior_of_search(algorithm, model, rows, learned)
    assert np.min(converged.sites.precision) < 0
    np.testing.assert_allclose(said.white_mean, converged.posterior.white_mean, atol=1e-8)
    np.testing.assert_allclose(said.white_lower, converged.posterior.white_lower, atol=1e-8)


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    def fail(tensors, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    kept = checkpoint.Checkpoint(tmp_path / "file")
    kept.write({"a": np.ones(3)})
    before = (tmp_path / "file").read_bytes()
    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.warns(UserWarning, match="The search goes on.*disk full"):
        kept.write({"a": np.zeros(3)})
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


@pytest.mark.parametrize("method", [lgp.ExactGP(), IN_BATCHES], ids=["whole", "batches"])
def test_a_disk_that_refuses_costs_the_checkpoint_only(tmp_path, monkeypatch, method):
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    file, settings = tmp_path / "file", {"key": KEY, "method": method, "max_evaluations": 5}
    told = []

    def spoil_and_mend(progress):
        told.append(progress)
        if len(told) == 1:
            (tmp_path / "file.partial").mkdir()
        if len(told) == 3:
            (tmp_path / "file.partial").rmdir()

    with pytest.warns(UserWarning, match="cannot be written"):
        spoiled = lgp.fit(
            *(regression(), DATA), checkpoint=file, callback=spoil_and_mend, **settings
        )
    assert same_bits(spoiled, lgp.fit(regression(), DATA, **settings))
    assert load_file(file)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": lgp.Data(X, SMOOTH + 0.1)}, r"another set of rows \(or buffer\)"),
        ({"key": jax.random.key(7)}, "another key"),
        ({"model": lgp.replace(regression(), {"kernel.scale": 0.7})}, "another model"),
        ({"method": lgp.VariationalInference()}, "another kind of method"),
        ({"method": lgp.CollapsedVI(lgp.Inducing(4))}, "another method"),
        ({"frozen": ("likelihood",)}, "another set of learned hyper-parameters"),
        ({"priors": None}, "another prior"),
        (
            {"tolerance": 1e-3, "restarts": 1},
            r"restarts=0 \(not 1\), tolerance=1e-06 \(not 0.001\)",
        ),
    ],
    ids=lambda change: next(iter(change)) if isinstance(change, dict) else "",
)
def test_a_foreign_checkpoint_is_refused_by_what_differs(tmp_path, change, says):
    file = tmp_path / "checkpoint.safetensors"
    settings = {"model": regression(), "data": DATA, "method": lgp.CollapsedVI(FEW), "key": KEY}
    lgp.fit(**settings, checkpoint=file, max_evaluations=2)
    with pytest.raises(lgp.InputError, match=f"was made with {says}; give the same"):
        lgp.fit(**(settings | change), checkpoint=file, max_evaluations=2)


def test_results_are_double_precision_and_no_flag_is_touched():
    before = jax.config.jax_enable_x64
    result = lgp.fit(regression(), DATA, key=KEY, max_evaluations=3)
    predictive = result.posterior.predict(X)
    outputs = [
        *result.posterior.predict_f(X),
        result.posterior.mean_f(X),
        predictive.mean,
        predictive.variance,
        predictive.log_prob(SMOOTH),
        *predictive.interval(),
        predictive.sample(key=KEY),
        result.posterior.sample_f(X, key=KEY),
        *jax.tree.leaves(result.model),
        result.history.bound,
    ]
    assert all(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in outputs)
    assert jax.config.jax_enable_x64 == before
    assert jax.numpy.ones(1).dtype == (np.float64 if before else np.float32)


def test_a_model_that_calls_everything_noise_is_told_so():
    model = regression(kernel=1e-4 * lgp.RBF(), noise_variance=1.0)
    quiet = lgp.fit(model, DATA, key=KEY, learn_hyperparameters=False)
    assert "No signal was found" in quiet.diagnostics.verdict
    loud = lgp.fit(regression(), DATA, key=KEY, learn_hyperparameters=False)
    assert "No signal" not in loud.diagnostics.verdict


def test_too_few_inducing_points_are_said():
    x = np.linspace(0, 20, 40)
    model = regression(kernel=lgp.RBF(0.3), noise_variance=0.01)
    method = lgp.CollapsedVI(lgp.Inducing(number=3))
    result = lgp.fit(
        model, lgp.Data(x, np.sin(3 * x)), key=KEY, method=method, learn_hyperparameters=False
    )
    assert "The representation leaves about" in result.diagnostics.verdict


def test_sites_settle_where_further_updates_change_nothing():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 200)
    data = lgp.Data(x, 2 * np.sin(2 * x) + 0.2 * rng.standard_t(3, size=200))
    model = lgp.LatentGP(lgp.RBF(1.0, variance=4.0), lgp.StudentT(0.3))
    usual, further = (
        lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
        for method in (lgp.AugmentedVI(), lgp.AugmentedVI(tolerance=1e-14))
    )
    assert further.diagnostics.site_updates > usual.diagnostics.site_updates
    one, other = (f.posterior.predict_f(x) for f in (usual, further))
    np.testing.assert_array_less(np.abs(one.mean - other.mean), 1e-4 * np.sqrt(other.variance))


def test_rows_that_expectation_propagation_cannot_update_are_said():
    """Counts that say more about f than double precision tells apart from all rows together."""
    x, y = 50.0 * np.arange(3.0), np.array([5e14, 1e15, 10.0])
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Poisson(), lgp.ConstantMean(34.0))
    diagnostics = lgp.fit(
        model,
        lgp.Data(x, y),
        key=KEY,
        method=lgp.ExpectationPropagation(),
        learn_hyperparameters=False,
    ).diagnostics
    assert not diagnostics.converged
    assert "2 row(s) kept a site" in diagnostics.verdict


def test_diagnostics_cannot_be_changed():
    result = lgp.fit(regression(), DATA, key=KEY, learn_hyperparameters=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.diagnostics.converged = True


RESUMED_ELSEWHERE = """
import jax, numpy as np, sys
import latentgp as lgp
X = np.linspace(0, 6, 30)
model = lgp.LatentGP(1.0 * lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
fitted = lgp.fit(
    model,
    lgp.Data(X, np.sin(X)),
    key=jax.random.key(0),
    max_evaluations=int(sys.argv[2]),
    checkpoint=sys.argv[1] if sys.argv[1] else None,
)
print(fitted.diagnostics.evaluations, fitted.posterior.log_evidence.value.hex())
"""


@pytest.mark.slow
def test_a_fit_is_resumed_in_another_process(tmp_path):
    def run(checkpoint, evaluations, seed):
        done = subprocess.run(
            [sys.executable, "-c", RESUMED_ELSEWHERE, str(checkpoint), str(evaluations)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(tmp_path / "checkpoint", 4, seed="1")
    assert run(tmp_path / "checkpoint", 200, seed="2") == run("", 200, seed="3")


KILLED = """
import json, jax, numpy as np, sys, time
import latentgp as lgp
from latentgp.runtime import checkpoint as checkpoints
name, checkpoint, hangs_at = sys.argv[1:]
checkpoints.CHECKPOINT_SECONDS = 0.0
rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (300, 1))
target = (np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=300) > 0).astype(float)
points = lgp.Inducing(points=X[:8])
kernel, classes = lgp.RBF(lengthscale=0.8), np.digitize(X[:, 0], [-2.0, -1.0, 0.0, 1.0])
of_classes = lgp.LatentGP(kernel, lgp.LogisticSoftmax(5))
some = lgp.Stochastic(lgp.AugmentedVI(points), batch_size=50, epochs=8, tolerance=0.0, classes=2)
chains = lgp.GibbsSampling(points, chains=2, draws=150, warmup=50)
scale = 1.5
custom = lgp.LatentGP(
    kernel, lgp.CustomLikelihood(lambda y, f: jax.nn.log_sigmoid(scale * (2 * y - 1) * f[0]))
)
model, y, method = {
    "whole": (lgp.LatentGP(kernel, lgp.Bernoulli()), target, lgp.VariationalInference(points)),
    "classes": (of_classes, classes, some),
    "chains": (lgp.LatentGP(kernel, lgp.Bernoulli()), target, chains),
    "function": (custom, target, lgp.VariationalInference(points)),
}[name]

def run(checkpoint):
    told = []

    def tell(progress):
        told.append(progress)
        if len(told) == int(hangs_at):
            print("hangs", flush=True)
            time.sleep(600)

    fit = lgp.fit(
        model,
        lgp.Data(X, y),
        key=jax.random.key(0),
        method=method,
        learn_hyperparameters=name != "chains",
        max_evaluations=8,
        checkpoint=checkpoint,
        callback=tell,
    )
    return len(told), np.stack(fit.posterior.predict_f(X[:20])).tolist()

print(json.dumps([run(checkpoint), run(None)]))
"""


@pytest.mark.parametrize("name", ["whole", "function", *slow_parameters("classes", "chains")])
def test_a_killed_fit_goes_on_to_the_same_bits(tmp_path, name):
    def start(hangs_at):
        command = [sys.executable, "-c", KILLED, name, tmp_path / "checkpoint", hangs_at]
        return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)

    killed = start(hangs_at=4)
    assert killed.stdout.readline() == "hangs\n"
    killed.kill()
    killed.wait()
    output, _ = start(hangs_at=0).communicate(timeout=200)
    (told, resumed), (told_in_all, whole) = json.loads(output)
    assert told == told_in_all - 3 > 0
    assert resumed == whole


@pytest.mark.slow
@pytest.mark.parametrize("stopped_at", [3, 20, 23])
def test_a_fit_with_thinned_rows_is_resumed(tmp_path, monkeypatch, stopped_at):
    monkeypatch.setattr(hyperparameters, "_THINNED_FROM", 30)
    monkeypatch.setattr(hyperparameters, "_THINNED_ROWS", 16)
    monkeypatch.setattr(hyperparameters, "_THINNED_TOLERANCE", 0.0)
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 2))
    target = (np.sin(2 * inputs[:, 0]) + generator.normal(size=60) > 0).astype(float)
    settings = {
        "key": KEY,
        "method": lgp.VariationalInference(lgp.Inducing(8)),
        "max_evaluations": 24,
    }
    whole = lgp.fit(classification(), lgp.Data(inputs, target), **settings)
    path = tmp_path / "checkpoint"
    lgp.fit(
        classification(),
        lgp.Data(inputs, target),
        callback=lambda progress: progress.evaluations == stopped_at,
        checkpoint=path,
        **settings,
    )
    resumed = lgp.fit(classification(), lgp.Data(inputs, target), checkpoint=path, **settings)
    assert whole.history.restart[0] == hyperparameters.THINNED_RUN
    assert set(whole.history.restart) == {hyperparameters.THINNED_RUN, 0}
    np.testing.assert_array_equal(resumed.history.value, whole.history.value)
    assert resumed.posterior.log_evidence == whole.posterior.log_evidence


def test_a_bound_that_is_not_finite_is_an_error():
    kernel = lgp.Polynomial(degree=400, variance=1e3)
    model = lgp.LatentGP(kernel, lgp.Gaussian(noise_variance=0.1))
    with pytest.raises(lgp.InputError, match="not a finite number"):
        lgp.fit(model, lgp.Data(100 * X, SMOOTH), key=KEY, learn_hyperparameters=False)


def test_a_search_led_astray_has_not_converged(monkeypatch):
    honest = hyperparameters.evaluate

    def uphill(*arguments):
        result = honest(*arguments)
        return result._replace(gradient=-result.gradient)

    monkeypatch.setattr(hyperparameters, "evaluate", uphill)
    fitted = lgp.fit(regression(), lgp.Data(X, SMOOTH), key=KEY)
    assert not fitted.diagnostics.converged


def test_more_successes_than_trials_are_refused():
    data = lgp.Data([0.0, 1.0, 2.0], [0.0, 3.0, 5.0], trials=[1.0, 4.0, 4.0])
    with pytest.raises(lgp.InputError, match="row 2 has 5 successes in 4 trial"):
        lgp.fit(lgp.LatentGP(lgp.RBF(), lgp.Binomial()), data, key=KEY)


@pytest.mark.slow
def test_a_search_and_a_sampler_stay_where_the_prior_is():
    model = regression(lgp.RBF(6.0, 4.0))
    for method in (lgp.ExactGP(), lgp.NUTS(chains=1, warmup=30, draws=30)):
        priors = {"kernel.lengthscale": Uniform(5.0, 5.5)}
        found = lgp.fit(model, DATA, key=KEY, method=method, priors=priors)
        values = [found.model.kernel.lengthscale]
        if isinstance(method, lgp.NUTS):
            values = found.posterior.hyperparameters["kernel.lengthscale"]
            assert np.ptp(values) > 0.1
        assert 5 <= np.min(values) <= np.max(values) <= 5.5
        assert found.diagnostics.warnings[0].startswith(
            "kernel.lengthscale was 6, outside the support of its prior (Uniform)"
        )
    found = lgp.fit(model, DATA, key=KEY, learn_hyperparameters=False, priors=priors)
    assert found.model.kernel.lengthscale == 6
