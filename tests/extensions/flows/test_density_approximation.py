"""Gaussian approximations of models: exact where the posterior is Gaussian."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.flows import MeanField
from problems import BINARY, KERNEL, SMOOTH, X, classification, mean_and_error, regression

KEY = jax.random.key(0)
POINTS = lgp.Inducing(points=X[:4] + 0.1)
DATA = lgp.Data(X, SMOOTH)


@pytest.mark.parametrize(
    ("method", "exact"),
    [
        (lgp.GaussianParticleFlow(), lgp.ExactGP()),
        (lgp.DensityApproximation(coupling="whitened"), lgp.ExactGP()),
        (
            lgp.DensityApproximation(representation=POINTS, coupling="whitened"),
            lgp.CollapsedVI(POINTS),
        ),
    ],
)
def test_gaussian_noise_is_exact(method, exact):
    """Hyper-parameters held: draws of f have the moments of the posterior in closed form."""
    settings = {"key": KEY, "learn_hyperparameters": False}
    found = lgp.fit(regression(), DATA, method=method, **settings)
    own = lgp.fit(regression(), DATA, method=exact, **settings).posterior.predict_f(X)
    f = found.posterior.f.reshape(-1, len(X))
    assert len(f) == 2000
    np.testing.assert_allclose(
        f.mean(axis=0), own.mean, atol=4.5 * np.sqrt(own.variance.max() / len(f))
    )
    np.testing.assert_allclose(f.var(axis=0), own.variance, rtol=4.5 * np.sqrt(2 / len(f)))
    assert found.diagnostics.converged
    assert "Pareto shape of importance weights" in found.diagnostics.verdict


@pytest.mark.slow
def test_hyperparameters_are_approximated_too():
    """In coordinates of sites, against NUTS."""
    model, data = classification(), lgp.Data(X, BINARY)
    found = lgp.fit(model, data, method=lgp.DensityApproximation(), key=KEY)
    assert "and settled" in found.diagnostics.verdict
    chains = lgp.fit(model, data, method=lgp.NUTS(draws=500, warmup=300), key=KEY)
    for path, draws in chains.posterior.hyperparameters.items():
        own = np.log(found.posterior.hyperparameters[path])
        mean, error = mean_and_error(np.log(draws)[..., None])
        spread = np.log(draws).std()
        assert abs(own.mean() - mean) < 4 * error + 0.25 * spread
        assert own.std() == pytest.approx(spread, rel=0.25)


def test_another_approximation_and_a_singular_one():
    settings = {"key": KEY, "learn_hyperparameters": False}
    model, data = classification(), lgp.Data(X, BINARY)
    small = lgp.DensityApproximation(MeanField(samples=5, steps=500), draws=50)
    found = lgp.fit(model, data, method=small, **settings)
    assert found.posterior.f.shape == (4, 50, len(X), 1)
    few = lgp.DensityApproximation(lgp.GaussianParticleFlow(particles=4), draws=50)
    singular = lgp.fit(model, data, method=few, **settings).diagnostics
    assert not singular.converged
    assert "covariance is singular" in singular.verdict


class Stop(Exception):
    pass


SHORT = MeanField(samples=2, steps=70)


def binary(approximation, **settings):
    method = lgp.DensityApproximation(approximation, draws=20)
    settings = {"key": KEY, **settings}
    return lgp.fit(classification(), lgp.Data(X, BINARY), method=method, **settings)


@pytest.mark.parametrize(
    ("approximation", "ending"),
    [
        (SHORT, "callback"),
        pytest.param(SHORT, "error", marks=pytest.mark.slow),
        pytest.param(lgp.GaussianParticleFlow(tolerance=1e-9), "callback", marks=pytest.mark.slow),
        pytest.param(lgp.GaussianParticleFlow(tolerance=1e-9), "error", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, approximation, ending):
    told, file = [], tmp_path / "flow"

    def ends(progress):
        told.append(progress)
        if len(told) == 2 and ending == "error":
            raise Stop
        return len(told) == 2

    if ending == "error":
        with pytest.raises(Stop):
            binary(approximation, checkpoint=file, callback=ends)
    else:
        cut = binary(approximation, checkpoint=file, callback=ends)
        assert "ended early because the callback asked for it" in cut.diagnostics.verdict
        assert not cut.diagnostics.converged
        assert cut.posterior.f.shape == (4, 20, len(X), 1)
    assert told[-1].steps == 40
    resumed = binary(approximation, checkpoint=file, callback=told.append)
    assert told[2].steps == 60
    whole = binary(approximation)
    (work,) = (note for note in whole.diagnostics.notes if " made " in note)
    assert f" made {told[-1].steps} steps" in work
    assert resumed.diagnostics.notes == whole.diagnostics.notes
    for one, other in zip(
        jax.tree.leaves(resumed.posterior), jax.tree.leaves(whole.posterior), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(lgp.InputError, match="made with another key"):
        binary(approximation, checkpoint=file, key=jax.random.key(1))


def test_a_limit_ends_it_and_progress_is_shown(monkeypatch, capsys):
    from latentgp.runtime import progress

    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.0)
    found = binary(SHORT, max_seconds=0.0, verbose=1)
    assert "made 20 steps" in found.diagnostics.verdict
    assert "ended early because max_seconds=0 had passed" in found.diagnostics.verdict
    assert "approximating: " in capsys.readouterr().err


def test_what_is_one_step_is_told_once():
    told = []
    binary(lgp.flows.LaplaceApproximation(), callback=lambda step: told.append(step.phase))
    assert told == ["approximating"]


@pytest.mark.slow
def test_draws_far_out_where_there_is_no_density_are_made_again(monkeypatch):
    from latentgp.extensions.flows import method as density_approximation

    honest, walls = density_approximation._drawn, []

    def walled(flat, points, keys, watched):
        draw, log_density = honest(flat, points, keys, watched)
        walls.append(np.quantile(points[..., 0], 0.9))
        return draw, np.where(points[..., 0] > walls[0], np.nan, log_density)

    usual = next(iter(binary(SHORT).posterior.hyperparameters.values()))
    monkeypatch.setattr(density_approximation, "_drawn", walled)
    found = binary(SHORT)
    assert "10.00% of the draws were where the log density is no finite number" in (
        found.diagnostics.verdict
    )
    assert "weights inf" not in found.diagnostics.verdict
    assert len(walls) > 1
    own = next(iter(found.posterior.hyperparameters.values()))
    assert own.max() < usual.max()
    np.testing.assert_array_equal(np.sum(own == usual), 72)  # of 80


def test_what_it_cannot_do_is_refused():
    step = lgp.LatentGP(KERNEL, lgp.RobustMax(2))
    with pytest.raises(lgp.InputError, match="needs a gradient in f"):
        lgp.fit(step, lgp.Data(X, BINARY), method=lgp.GaussianParticleFlow(), key=KEY)
    with pytest.raises(lgp.InputError, match="blocks of 2 dimensions"):
        lgp.fit(regression(), DATA, method=lgp.GaussianParticleFlow(structure=(1, 1)), key=KEY)


def test_it_is_saved(tmp_path):
    method = lgp.DensityApproximation(MeanField(samples=2, steps=20), draws=10)
    found = lgp.fit(regression(), DATA, method=method, key=KEY, learn_hyperparameters=False)
    again = lgp.load(lgp.save(found, tmp_path / "fit"))
    np.testing.assert_array_equal(again.posterior.f, found.posterior.f)
    assert isinstance(again.diagnostics.method.approximation, MeanField)
