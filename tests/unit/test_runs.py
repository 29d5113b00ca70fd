"""Runs in the background: progress, pauses, aborts, errors; logs; several at once."""

import json
import threading
import time

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.runtime import blas_threads
from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.progress import Resumable, Run, RunControl
from latentgp.runtime.switch import Switch, obeying
from latentgp.surfaces.evaluation import cross_validation
from method_cases import METHOD_CASES, case_of
from problems import BINARY, SMOOTH, X, classification, regression

KEY = jax.random.key(0)
DATA = lgp.Data(X, SMOOTH)
LONG = 60.0  # seconds that no step here takes


class Gate:
    """A callback that waits at every step until it is let on, and tells when a step is made."""

    def __init__(self):
        self.steps = threading.Semaphore(0)
        self.on = threading.Semaphore(0)

    def __call__(self, progress):
        self.steps.release()
        assert self.on.acquire(timeout=LONG)

    def step(self):
        """Let the run make another step, and wait for it."""
        self.on.release()
        assert self.steps.acquire(timeout=LONG)

    def open(self):
        self.on.release(1_000)


def begun(**settings):
    """A run that has made one step, and its gate."""
    gate = Gate()
    run = lgp.fit(regression(), DATA, key=KEY, callback=gate, blocking=False, **settings)
    assert gate.steps.acquire(timeout=LONG)
    return run, gate


def waited(run):
    while not run.paused:
        assert not run.done
        threading.Event().wait(0.01)


def same_bits(one, other):
    leaves = zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


@pytest.fixture(scope="module")
def whole():
    return lgp.fit(regression(), DATA, key=KEY)


def test_a_run_in_the_background_is_one_in_the_foreground(whole):
    run, gate = begun()
    assert not run.done
    told = run.progress
    assert told.phase == "learning hyper-parameters in a first run"
    assert (told.step, told.total) == (1, 8)
    gate.step()
    gate.step()
    assert run.progress.step == 3
    assert run.progress.seconds_left >= 0
    assert "running, learning hyper-parameters in a first run: 3 of 8" in repr(run)
    with pytest.raises(TimeoutError, match=r"not ended within 0.01 s; ask again later, or abort"):
        run.result(timeout=0.01)
    gate.open()
    assert same_bits(run.result(LONG), whole)
    assert run.done
    assert run.progress == run.progress  # the clock stands still


def test_a_run_is_paused_resumed_and_no_worse_for_it(whole, tmp_path):
    run, gate = begun(checkpoint=tmp_path / "file")
    run.pause()
    gate.open()
    waited(run)
    seen = run.progress
    assert (tmp_path / "file").exists()  # whatever becomes of the process now
    threading.Event().wait(0.1)
    assert run.progress == seen
    assert "paused" in repr(run)
    run.resume()
    found = run.result(LONG)
    assert same_bits(found, whole)


def test_an_aborted_run_gives_the_best_so_far(whole, tmp_path):
    run, gate = begun(checkpoint=tmp_path / "file")
    gate.step()
    run.pause()
    gate.open()
    waited(run)
    run.abort()
    found = run.result(LONG)
    assert len(found.history.bound) == 2
    assert found.diagnostics.ending == "it was aborted"
    assert "ended early because it was aborted" in found.diagnostics.verdict
    assert float(found.posterior.log_evidence) == pytest.approx(found.history.bound.max())
    resumed = lgp.fit(regression(), DATA, key=KEY, checkpoint=tmp_path / "file")
    assert same_bits(resumed, whole)  # nothing that was computed is lost


def test_a_run_that_is_aborted_before_its_first_step_says_so():
    switch = Switch()
    switch.abort()
    with (
        obeying(switch),
        pytest.raises(lgp.RunAborted, match="aborted before its first step, so there is no result"),
    ):
        lgp.fit(regression(), DATA, key=KEY)
    run = lgp.run_in_background(threading.Event().wait, 0.1)
    run.abort()
    run.pause()  # too late
    assert run.result(LONG) is False


@pytest.mark.slow
def test_chains_that_are_aborted_keep_their_draws_and_say_so():
    switch = Switch()
    method = lgp.GibbsSampling(draws=150, warmup=50, chains=2)
    settings = {"key": KEY, "method": method}
    data = lgp.Data(X, BINARY)

    def abort_after(sweeps):
        return lambda progress: switch.abort() if progress.sweeps == sweeps else None

    with obeying(switch):
        found = lgp.fit(classification(), data, callback=abort_after(100), **settings)
    assert found.posterior.f.shape[1] == 50
    assert "The chains ended after 50 of 150 draws because it was aborted." in (
        found.diagnostics.verdict
    )
    switch = Switch()
    with obeying(switch), pytest.raises(lgp.RunAborted, match="before the first draws were made"):
        lgp.fit(classification(), data, callback=abort_after(50), **settings)


def test_an_error_in_the_background_is_raised_in_its_own_words():
    other = lgp.Data(X, BINARY - 0.5)
    run = lgp.fit(classification(), other, key=KEY, blocking=False)
    with pytest.raises(lgp.InputError, match="0 and 1"):
        run.result(LONG)
    assert run.done


def test_runs_at_once_do_not_mix(whole):
    """Each in double precision, with its own progress; what aborts one leaves the other."""
    one, gate = begun()
    other, beside = begun()
    with jax.enable_x64(False):
        gate.step()
    assert (one.progress.step, other.progress.step) == (2, 1)
    other.abort()
    beside.open()
    assert other.result(LONG).diagnostics.ending == "it was aborted"
    gate.open()
    assert same_bits(one.result(LONG), whole)
    assert jax.tree.leaves(one.result().model)[0].dtype == np.float64


def test_the_limit_of_threads_is_lifted_at_the_end_of_the_last_run():
    def threads():
        every = blas_threads._controller().info()
        return {own["num_threads"] for own in every if own["user_api"] == "blas"}

    before = threads()
    first, second = blas_threads.one_blas_thread(), blas_threads.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == before


def test_what_makes_many_fits_is_aborted_as_a_whole(monkeypatch):
    """Later fits that end at once would make a score of nothing."""
    switch, honest = Switch(), lgp.fit

    def once(*arguments, **settings):
        found = honest(*arguments, **settings)
        switch.abort()
        return found

    monkeypatch.setattr(cross_validation, "fit", once)
    with obeying(switch), pytest.raises(lgp.RunAborted, match="cross-validating, after fold 1,"):
        lgp.cross_validate(regression(), DATA, key=KEY, folds=2, learn_hyperparameters=False)


def test_a_prediction_of_many_rows_is_aborted(whole):
    switch = Switch()
    switch.abort()
    with (
        obeying(switch),
        pytest.raises(lgp.RunAborted, match="after 512 of 1,100 rows of a prediction, so there"),
    ):
        whole.posterior.predict(np.resize(X, (1_100, X.shape[1])))


class TestLogs:
    def test_every_step_is_a_line(self, tmp_path):
        file = tmp_path / "run.jsonl"
        seen = []

        def look(progress):  # a line is there as soon as its step is made
            seen.append(len(file.read_text().splitlines()))

        found = lgp.fit(regression(), DATA, key=KEY, log=file, callback=look, max_evaluations=3)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["event"] for line in lines] == [
            *("begin", "phase", *["step"] * len(found.history.bound), "warning", "end")
        ]
        assert seen == list(range(3, 3 + len(found.history.bound)))
        steps = [line for line in lines if line["event"] == "step"]
        assert [(line["step"], line["total"]) for line in steps[-3:]] == [(1, 3), (2, 3), (3, 3)]
        np.testing.assert_array_equal(
            [line["values"]["bound"] for line in steps], found.history.bound
        )
        assert lines[-1]["ending"] == "max_evaluations=3 were made"
        evidence = found.posterior.log_evidence
        assert lines[-1]["log_evidence"] == [evidence.value, evidence.kind]
        assert lines[-2]["message"] == found.diagnostics.warnings[0]
        assert all(line["time"].endswith("+00:00") for line in lines)

    def test_numbers_that_are_not_finite_are_null_and_lines_are_added(self, tmp_path):
        from latentgp.runtime.run_log import RunLog

        file = tmp_path / "run.jsonl"
        file.write_text('{"event": "of before"}\n')
        log = RunLog(file)
        values = {"bound": np.nan, "R-hat": -np.inf, "step size": np.float64(0.5), "all": [np.inf]}
        log.add("step", values=values)
        log.close()
        first, second = file.read_text().splitlines()
        assert json.loads(first) == {"event": "of before"}

        def refuse(constant):
            raise AssertionError(constant)

        told = json.loads(second, parse_constant=refuse)["values"]
        assert told == {"bound": None, "R-hat": None, "step_size": 0.5, "all": [None]}

    def test_warnings_and_errors_are_logged(self, tmp_path):
        file = tmp_path / "run.jsonl"
        with pytest.raises(lgp.InputError) as refused:
            lgp.fit(classification(), lgp.Data(X, BINARY - 0.5), key=KEY, log=file)
        last = json.loads(file.read_text().splitlines()[-1])
        assert (last["event"], last["kind"]) == ("error", "InputError")
        assert last["message"] == str(refused.value)

    def test_a_log_that_cannot_be_written_is_refused(self, tmp_path):
        with pytest.raises(lgp.InputError, match=r"cannot be written .*name another file"):
            lgp.fit(regression(), DATA, key=KEY, log=tmp_path / "none" / "run.jsonl")


def ended(name, **settings):
    model, data, method = case_of(name)
    return lgp.fit(model, data, key=KEY, method=method, **settings)


OFTEN = {"exact", "integrated"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in OFTEN)) for n in METHOD_CASES],
)
def test_every_method_ends_early_with_what_there_is(name):
    """By a limit of time, an interrupt and an abort: finite predictions, and a reason."""
    told = []

    def interrupt(progress):
        told.append(progress)
        if len(told) >= 2:
            raise KeyboardInterrupt

    def abort(progress):
        if getattr(progress, "draws", True):  # before there are any, there is no result
            switch.abort()

    switch = Switch()
    late = ended(name, max_seconds=1e-9)
    with pytest.raises(KeyboardInterrupt) as raised:
        ended(name, callback=interrupt)
    interrupted = raised.value.result
    with obeying(switch):
        aborted = ended(name, callback=abort)
    for found, why in (late, "max_seconds"), (interrupted, "interrupted"), (aborted, "aborted"):
        means = found.posterior.predict_f(X[:3]).mean
        assert np.all(np.isfinite(means))
        assert not found.diagnostics.converged
        assert why in str(found.diagnostics) or name == "integrated"


class Number(Resumable[int]):
    def to_tensors(self, state):
        return {"number": np.array([state])}

    def from_tensors(self, stored):
        return int(stored["number"][0])


def test_seconds_before_a_checkpoint_count_for_any_run_that_goes_on(tmp_path):
    """A limit of time would begin anew each time that chains are resumed."""
    control = RunControl(time.perf_counter() - 100, checkpoint=Checkpoint(tmp_path / "kept", {}))
    Run(control, Number()).save(3)
    again = Run(control._replace(started=time.perf_counter()), Number())
    assert again.resumed() == 3
    assert 100 <= again.seconds < 200
