"""Asynchronous steps: workers by Ray, and the same by workers in this process with known delays."""

import dataclasses
import os
import signal
import sys
import threading

import jax
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.errors import ProcessLost
from latentgp.extensions.batches import asynchronous
from latentgp.extensions.batches import workers as pool
from latentgp.extensions.batches.asynchronous import BatchReader
from latentgp.extensions.batches.natural_gradient import TwoPartInference
from latentgp.extensions.batches.workers import Answer, Workers
from latentgp.rows import RowsInMemory
from slow import slow_parameters

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(80, 2))
X = (X - X.mean(0)) / X.std(0)
STEP = np.where(X[:, 0] > 0, 1.0, -1.0) + 0.2 * GENERATOR.normal(size=len(X))
DATA = lgp.Data(X, STEP)
DEEP = lgp.DeepGP(lgp.RBF(1.5), lgp.Gaussian(0.1), layers=[lgp.Layer(lgp.RBF(1.2), 2)])


def fitted(workers=0, model=DEEP, data=DATA, fit=(), **settings):
    usual = {"features": 20, "batch_size": 20, "epochs": 10, "components": 4, "learning_rate": 0.01}
    method = lgp.RandomFeatureVI(workers=workers, start="given", **(usual | settings))
    return lgp.fit(model, data, key=KEY, method=method, **dict(fit))


class Here(Workers):
    """Workers in this process, of which the next to answer is drawn at random."""

    closed = 0

    def __init__(self, number, function):
        self.number, self.function, self.lost = number, function, 0
        self.asked, self.generator = [], np.random.default_rng(0)

    @property
    def free(self):
        return len(self.asked) < self.number

    @property
    def busy(self):
        return len(self.asked)

    def ask(self, request, label):
        self.asked.append((label, self.function(request)))

    def answer(self):
        label, value = self.asked.pop(self.generator.integers(len(self.asked)))
        return Answer(label, value, False)

    def close(self):
        Here.closed += 1


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(asynchronous, "Workers", Here)
    Here.closed = 0


@pytest.fixture(scope="module")
def end_of_ray():
    yield
    import ray

    ray.shutdown()


@pytest.fixture
def ray(end_of_ray):
    """One that the user has started."""
    import ray

    if not ray.is_initialized():
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    return ray


def process_of(ray, actor):
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))


@pytest.fixture
def actors(monkeypatch):
    """Those that are started while a test runs."""
    found, started = [], Workers._started

    def kept(self):
        found.append(started(self))
        return found[-1]

    monkeypatch.setattr(Workers, "_started", kept)
    return found


def test_one_worker_makes_the_steps_of_the_synchronous_loop(ray):
    alone, other = fitted(), fitted(workers=1)
    np.testing.assert_allclose(other.history.value, alone.history.value, rtol=1e-9)
    for ours, theirs in zip(*(f.posterior.predict_f(X) for f in (other, alone)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)
    assert alone.diagnostics.finding("asynchrony") is None
    went = other.diagnostics.finding("asynchrony")
    assert (went.workers, went.lost, went.steps, went.largest_staleness) == (1, 0, 40, 0)
    assert ray.is_initialized()


@pytest.mark.slow
@pytest.mark.slow
def test_training_goes_on_without_a_worker_that_was_killed(ray, actors):
    def kill(progress):
        if progress.steps == 20:
            os.kill(process_of(ray, actors[0]), signal.SIGKILL)

    found = fitted(workers=2, epochs=30, learning_rate=0.02, fit={"callback": kill})
    went = found.diagnostics.finding("asynchrony")
    assert (went.workers, went.lost, went.steps) == (2, 1, 120)
    assert 0 < went.mean_staleness <= went.largest_staleness
    assert "120 steps" in found.diagnostics.verdict
    assert any("died 1 times" in warning for warning in found.diagnostics.warnings)
    assert len(actors) == 3
    assert np.mean(found.history.value[-5:]) > np.mean(found.history.value[:5]) + 20


@pytest.mark.slow
def test_what_was_computed_is_kept_if_all_workers_die(ray, actors, monkeypatch):
    monkeypatch.setattr(pool, "_MOST_DEATHS", 1)

    def kill(progress):
        if progress.steps == 12:
            os.kill(process_of(ray, actors[0]), signal.SIGKILL)

    found = fitted(workers=1, fit={"callback": kill})
    assert "all workers have died" in found.diagnostics.ending
    assert 12 <= found.diagnostics.site_updates < 40
    assert found.diagnostics.finding("asynchrony").lost == 1
    assert np.isfinite(found.posterior.log_evidence.value)


@pytest.mark.slow
def test_four_workers_in_a_ray_of_their_own():
    import ray

    ray.shutdown()
    found = fitted(workers=4, epochs=60, learning_rate=0.02)
    assert not ray.is_initialized()
    went = found.diagnostics.finding("asynchrony")
    assert went.steps == 240
    assert 1 < went.mean_staleness < 6
    # Stale steps gain less: not a tenth of what prompt ones gain.
    alone = fitted(epochs=60, learning_rate=0.02).history.value
    end = alone[-5:].mean()
    assert found.history.value[-5:].mean() > end - 0.1 * (end - alone[0])


@pytest.mark.slow
def test_workers_have_one_thread_and_tell_errors_in_their_own_words(ray):
    def function(request):
        if request == "fail":
            raise lgp.InputError("row 7 is odd; leave it out.")
        return os.environ["NPROC"], os.environ["OMP_NUM_THREADS"], os.environ["JAX_PLATFORMS"]

    workers = Workers(1, function)
    workers.ask("environment", 3)
    assert not workers.free
    assert workers.answer() == (3, ("1", "1", "cpu"), False)
    workers.ask("fail", 4)
    with pytest.raises(lgp.InputError, match=r"^row 7 is odd; leave it out\.$"):
        workers.answer()
    workers.close()


def test_a_worker_is_left_out_that_dies_often(ray, monkeypatch):
    monkeypatch.setattr(pool, "_MOST_DEATHS", 2)
    workers = Workers(1, lambda _: os._exit(1))
    workers.ask(None, 5)
    assert workers.answer() == (5, None, True)
    workers.ask(None, 6)
    with pytest.raises(ProcessLost, match="all workers have died 2 times"):
        workers.answer()
    assert workers.lost == 2
    assert not workers.free


def test_what_cannot_be_handed_on_is_refused(ray):
    with pytest.raises(lgp.InputError, match="cannot be given the model or the rows"):
        Workers(1, threading.Lock().acquire)
    assert ray.is_initialized()


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(lgp.InputError, match=r"pip install latentgp\[ray\]"):
        fitted(workers=2)


@pytest.mark.slow
def test_stale_steps_end_where_prompt_ones_do(here):
    """Natural parameters move by convex combinations, whenever what they move to was read."""
    counts = lgp.Data(X, np.random.default_rng(1).poisson(np.exp(0.5 * X[:, 0])))
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Poisson())
    settings = {
        "model": model,
        "data": counts,
        "frequencies": "fixed",
        "epochs": 300,
        "patience": 1000,
        "fit": {"learn_hyperparameters": False},
    }
    prompt, stale = fitted(**settings), fitted(workers=8, **settings)
    went = stale.diagnostics.finding("asynchrony")
    assert abs(went.mean_staleness - 7) < 0.1
    assert went.largest_staleness > 20
    mean, variance = prompt.posterior.predict_f(X)
    other, width = stale.posterior.predict_f(X)
    assert np.max(np.abs(other - mean) / np.sqrt(variance)) < 0.1
    np.testing.assert_allclose(width, variance, rtol=0.05)


def test_stale_gradients_climb(here):
    found = fitted(workers=6, epochs=60, learning_rate=0.02)
    assert np.mean(found.history.value[-5:]) > np.mean(found.history.value[:5]) + 20
    assert found.diagnostics.finding("asynchrony").mean_staleness > 4


def stochastic(workers=0, **settings):
    """Of counts with a model whose hyper-parameters move far."""
    rows = np.random.default_rng(2)
    inputs = rows.uniform(-3, 3, (400, 1))
    counts = rows.poisson(np.exp(np.sin(2 * inputs[:, 0])))
    method = lgp.Stochastic(
        lgp.VariationalInference(lgp.Inducing(15)), batch_size=50, epochs=30, workers=workers
    )
    model = lgp.LatentGP(lgp.RBF(3.0), lgp.Poisson())
    method = dataclasses.replace(method, patience=1000, **settings)
    return lgp.fit(model, lgp.Data(inputs, counts), key=KEY, method=method)


@pytest.mark.slow
@pytest.mark.parametrize("learn_points", [False, *slow_parameters(True)])
def test_inducing_variables_by_workers(here, learn_points):
    """White coordinates move with the prior between what a worker read and the step."""
    settings = {"learn_points": learn_points, "learning_rate": 0.03}
    alone, one, six = (stochastic(workers, **settings) for workers in (0, 1, 6))
    np.testing.assert_allclose(one.history.value, alone.history.value, rtol=1e-4)
    bound = alone.posterior.log_evidence.value
    assert abs(six.posterior.log_evidence.value - bound) < 1.5
    assert six.diagnostics.finding("asynchrony").mean_staleness > 4.5


def test_what_workers_cannot_do_is_refused(here):
    with pytest.raises(lgp.InputError, match="leave workers out"):
        lgp.Stochastic(lgp.AugmentedVI(lgp.Inducing(10)), classes=2, workers=2)
    with pytest.raises(lgp.InputError, match="workers"):
        fitted(workers=-1)


def test_a_resumed_search_goes_on(here, tmp_path):
    path = tmp_path / "search"
    whole = fitted(epochs=6, warmup=0.0)
    fitted(workers=1, epochs=3, warmup=0.0, fit={"checkpoint": path})
    found = fitted(workers=1, epochs=6, warmup=0.0, fit={"checkpoint": path})
    np.testing.assert_allclose(found.history.value, whole.history.value, rtol=1e-9)
    assert found.diagnostics.finding("asynchrony").steps == 12


def test_it_can_be_interrupted(here):
    def interrupt(progress):
        if progress.steps == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        fitted(workers=3, fit={"callback": interrupt})
    found = raised.value.result
    assert "interrupted" in found.diagnostics.ending
    assert found.diagnostics.site_updates == 8
    assert Here.closed == 1


class Silent(TwoPartInference):
    """An algorithm that is not asked."""

    seen = estimate = moved = None


def test_batches_are_those_of_the_source_in_any_order(tmp_path):
    """Of files the worker passes over those of others."""
    names = {"y": STEP, "a": X[:, 0], "b": X[:, 1]}
    for place, part in enumerate(np.split(np.arange(80), 4)):
        table = pd.DataFrame({name: column[part] for name, column in names.items()})
        table.to_parquet(tmp_path / f"{place}.parquet")
    for source in (lgp.FileRows(tmp_path, target="y"), RowsInMemory(DATA)):
        reader = BatchReader(Silent(), source, 12, (5,))
        wanted = {epoch: list(source.epoch((5, epoch), 12)) for epoch in (0, 1)}
        for batch in ((0, 0), (0, 3), (0, 4), (0, 1), (1, 2), (1, 6), (0, 6)):
            found = reader._read(batch)
            assert found.X.shape == (12, 2)
            for ours, theirs in zip(
                jax.tree.leaves(found), jax.tree.leaves(wanted[batch[0]][batch[1]]), strict=True
            ):
                np.testing.assert_array_equal(ours, theirs)
