"""Markov chains in blocks: settings, refusals, statistics, agreement with quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import latentgp as lgp
from latentgp.extensions.chains import coordinates
from latentgp.extensions.chains.latents.auxiliary_gradient import AuxiliaryGradient
from latentgp.extensions.chains.latents.riemannian import RiemannianHamiltonian
from latentgp.extensions.chains.latents.rotations import ANTITHETIC, Rotations
from latentgp.extensions.chains.methods.mcmc import LATENTS
from latentgp.hyperparameters.space import ParameterSpace

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latents": "gibbs"}, "MCMC.latents must be one of rotations"),
        ({"hyperparameters": "newton"}, "MCMC.hyperparameters must be one of random-walk"),
        ({"coupling": "loose"}, "MCMC.coupling must be one of sites"),
        ({"hyperparameters": "riemannian-hmc"}, 'use coupling="centred", not "sites"'),
        ({"repeats": 0}, "MCMC.repeats must be at least 1"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"prior_proposals": -1}, "prior_proposals must be at least 0"),
        ({"correlation": 1.0}, "correlation must be in"),
        ({"temperatures": 0}, "MCMC.temperatures must be at least 1"),
        ({"temperatures": 4}, "use it with coupling"),
        ({"temperatures": 4, "coupling": "pseudo-marginal", "correlation": 0.5}, "no correlation"),
        ({"temperatures": 4, "coupling": "pseudo-marginal", "samples": 1}, "several samples"),
        (
            {"conjugate_variance": True, "coupling": "whitened", "representation": lgp.Inducing(5)},
            "needs the latents at the rows",
        ),
        (
            {"coupling": "pseudo-marginal", "hyperparameters": "slice"},
            "proposes hyper-parameters and draws together",
        ),
        ({"coupling": "whitened", "hyperparameters": "emulated"}, "emulates the evidence"),
        ({"coupling": "centred", "representation": lgp.Inducing(5)}, "has inducing variables"),
        (
            {"coupling": "interwoven", "representation": lgp.Inducing(5)},
            "needs the latents at the rows",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.MCMC(**settings)


@pytest.mark.parametrize(
    ("method", "likelihood", "message"),
    [
        (lgp.MCMC(), lgp.HeavisideMulticlass(3), "density of zero"),
        (lgp.MCMC(), lgp.RobustMax(3), "step function"),
        (lgp.MCMC(latents="riemannian-hmc"), lgp.LogisticSoftmax(3), "not log-concave"),
    ],
)
def test_likelihoods_that_chains_cannot_follow_are_refused(method, likelihood, message):
    data = lgp.Data(np.arange(4.0), np.array([0.0, 1, 2, 1]))
    with pytest.raises(lgp.InputError, match=message):
        lgp.fit(lgp.LatentGP(lgp.RBF(), likelihood), data, key=KEY, method=method)


@pytest.mark.parametrize(
    ("method", "held", "free"),
    [
        (lgp.MCMC(), (1, 100), (5, 1000)),
        (lgp.MCMC(coupling="partial"), (1, 100), (5, 1000)),
        (lgp.MCMC(latents="random-walk"), (1, 1000), (5, 1000)),
        (lgp.MCMC(coupling="whitened"), (5, 1000), (5, 1000)),
        (lgp.MCMC(lgp.Neighbours(5)), (5, 1000), (5, 1000)),
        (lgp.MCMC(warmup=0, repeats=2), (2, 0), (2, 0)),
    ],
)
def test_moves_and_warm_up_go_by_what_the_chains_draw(method, held, free):
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    spaces = ParameterSpace(model, frozen=tuple(lgp.parameters(model))), ParameterSpace(model)
    for space, expected in zip(spaces, (held, free), strict=True):
        settled = method.settled(space)
        assert (settled.repeats, settled.warmup) == expected


def test_chains_at_held_hyperparameters_make_the_usual_warm_up():
    model, sweeps = lgp.LatentGP(lgp.RBF(), lgp.Poisson()), []
    found = lgp.fit(
        model,
        lgp.Data(np.arange(12.0), np.arange(12.0) % 4),
        key=KEY,
        method=lgp.MCMC(draws=500),
        learn_hyperparameters=False,
        callback=lambda progress: sweeps.append(progress.sweeps) and False,
    )
    assert sweeps[-1] == 600
    assert found.posterior.summary.r_hat < 1.02
    assert found.posterior.summary.least > 400  # of 2,000, nearly independent
    draws = found.posterior.to_arviz().posterior["f"].to_numpy().reshape(4, 500, 12)
    off = draws - draws.mean(axis=(0, 1))
    following = np.mean(off[:, 1:] * off[:, :-1], axis=(0, 1)) / np.mean(off**2, axis=(0, 1))
    assert np.all(following < -0.03)  # of independent ones within 0.02 of zero


@pytest.mark.slow
def test_a_warm_up_shows_progress_and_tunes_the_scales():
    X = np.linspace(0.0, 4.0, 30)
    y = np.random.default_rng(0).poisson(np.exp(np.sin(X)))
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    seen = []
    method = lgp.MCMC(coupling="sites", chains=4, warmup=1000, draws=500)
    fitted = lgp.fit(
        model,
        lgp.Data(X, y.astype(float)),
        key=KEY,
        method=method,
        callback=lambda progress: seen.append(progress) and False,
    )
    sweeps = [progress.sweeps for progress in seen]
    assert sweeps[:3] == [50, 100, 150]
    assert sweeps[-1] == 1500
    assert seen[-1].r_hat < 1.05
    assert np.isnan(seen[0].r_hat)  # in the warm-up
    statistics = fitted.posterior.to_arviz().sample_stats
    # An evaluation has Newton's steps, each with a factorisation, and four more; one a sweep.
    sweeps_kept = statistics.factorisations.size
    diagnostics = fitted.diagnostics
    assert diagnostics.operations == statistics.factorisations.sum()
    assert 5 * sweeps_kept < diagnostics.operations < 20 * sweeps_kept
    assert 0 < diagnostics.effective_an_operation < 1
    # Proposals by the emulator are accepted far more often than the random walk's quarter.
    assert float(statistics.hyperparameter_acceptance_rate.mean()) > 0.4
    assert float(statistics.acceptance_rate.mean()) > 0.45
    assert float(statistics.decrement.max()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("temperatures", [1, 3])
def test_the_estimate_of_the_evidence_tells_its_error(temperatures):
    X = np.linspace(0.0, 4.0, 12)
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    data = lgp.Data(X, np.random.default_rng(0).poisson(np.exp(np.sin(X))).astype(float))
    method = lgp.MCMC(
        coupling="pseudo-marginal",
        samples=4,
        temperatures=temperatures,
        chains=2,
        warmup=50,
        draws=50,
    )
    statistics = lgp.fit(model, data, key=KEY, method=method).posterior.statistics
    assert 0.01 < np.median(statistics["evidence_error"]) < 0.6
    assert statistics["evidence_error"].max() <= 1 + 1e-9
    assert statistics["evidence_error"].shape == (2, 50)


@pytest.mark.parametrize("seed", range(4))
def test_a_rotation_of_one_step_is_a_crank_nicolson_langevin_step(x64, seed):
    """The same proposal and the same acceptance, for beta = cos h."""
    eps = jnp.array([[-1.0, -1.2, -0.6]])

    def residual(e):
        return -0.3 * jnp.sum(jnp.exp(e)) - 0.1 * jnp.sum(e**4)

    scale = jnp.asarray(3.0)
    key = jax.random.key(seed)
    momentum = jax.random.normal(jax.random.split(key, 3)[0], eps.shape)
    beta = jnp.cos(jnp.pi / 2)
    move = Rotations()
    start = move.init(residual, eps)
    _, told = move.step(residual, start, scale, key)
    assert told.evaluations == 1
    end = move.init(
        residual, beta * eps + (1 - beta) * start.slope + jnp.sqrt(1 - beta**2) * momentum
    )

    expected = jnp.exp(
        end.value - 0.5 * jnp.sum(end.eps**2) - start.value + 0.5 * jnp.sum(start.eps**2)
        - 0.5 * jnp.sum((eps - beta * end.eps - (1 - beta) * end.slope) ** 2) / (1 - beta**2)
        + 0.5 * jnp.sum(momentum**2)
    )  # fmt: skip
    np.testing.assert_allclose(told.acceptance, jnp.minimum(1.0, expected), rtol=1e-9)


@pytest.mark.parametrize(("scale", "number"), [(0.1, 25), (0.5, 5), (1.2, 2), (1.9, 1), (5.0, 1)])
def test_the_number_of_rotations_is_the_best_by_the_scale(x64, scale, number):
    """Brute force over the acceptance of normal errors, refusals counted twice."""
    move, scale = Rotations(), jnp.asarray(scale)
    chances = [2 * norm.cdf(-((np.pi / 2 / k / float(scale)) ** 2) / 2) for k in range(1, 33)]
    gains = [a * a / (2 - a) / k for k, a in enumerate(chances, 1)]
    assert np.argmax(gains) + 1 == number
    np.testing.assert_allclose(move.wanted_acceptance(scale), chances[number - 1], rtol=1e-9)


def test_after_more_than_a_quarter_of_a_turn_draws_lie_on_opposite_sides(x64):
    """Where the residual is flat draws have correlation cos h: means are worth three draws each."""

    def autocorrelation(move):
        def step(state, key):
            state = move.step(lambda eps: 0.0 * jnp.sum(eps), state, jnp.asarray(20.0), key)[0]
            return state, state.eps

        start = move.init(lambda eps: 0.0 * jnp.sum(eps), jnp.zeros((1, 50)))
        eps = jax.lax.scan(step, start, jax.random.split(KEY, 2000))[1][200:]
        return float(jnp.mean(eps[1:] * eps[:-1])), float(jnp.mean(eps**2))

    # 90,000 products: a standard error of about 1 / 300
    np.testing.assert_allclose(autocorrelation(Rotations()), (0.0, 1.0), atol=0.02)
    np.testing.assert_allclose(autocorrelation(Rotations(turn=ANTITHETIC)), (-0.5, 1.0), atol=0.02)


@pytest.mark.parametrize(("roughness", "least", "most"), [(0.0, 1, 1), (1.0, 3, 12)])
def test_the_warm_up_finds_how_many_rotations_a_quarter_of_a_turn_needs(
    x64, roughness, least, most
):
    """One where the residual is flat; more the more it is curved, most proposals accepted."""

    def residual(eps):
        return -roughness * jnp.sum(eps**4)

    move, log_scale = Rotations(), jnp.log(0.5)

    @jax.jit
    def step(carry, key):
        state, log_scale, count = carry
        state, told = move.step(residual, state, jnp.exp(log_scale), key)
        off = told.acceptance - move.wanted_acceptance(jnp.exp(log_scale))
        log_scale = jnp.minimum(log_scale + off * (1 + count) ** -0.6, jnp.log(20.0))
        return (state, log_scale, count + 1), (told.evaluations, told.acceptance)

    start = move.init(residual, jnp.zeros((1, 20))), log_scale, 0.0
    _, (numbers, chances) = jax.lax.scan(step, start, jax.random.split(KEY, 600))
    assert least <= np.mean(numbers[300:]) <= most
    assert np.mean(chances[300:]) > 0.6


@pytest.mark.parametrize("name", LATENTS)
def test_states_hold_the_residual(name):
    """The chain's "lp" is made of it: MALA's held the log density of the coordinates, too."""
    move, eps = LATENTS[name], jnp.array([[0.5, -2.0, 1.0]])

    def residual(eps):
        return -jnp.sum(eps**4)

    if name == "auxiliary-gradient":
        move = AuxiliaryGradient(jnp.ones((1, 3)), jnp.eye(3)[None])
    state = move.init(residual, eps)
    assert state.value == residual(eps)
    if not isinstance(move, RiemannianHamiltonian):  # its metric is of a model
        after, _ = move.step(residual, state, jnp.asarray(0.1), KEY)
        np.testing.assert_allclose(after.value, residual(after.eps), rtol=1e-12)


@pytest.mark.parametrize("steps", [40, 1])
def test_modes_that_newtons_method_does_not_reach_are_noted(steps, monkeypatch):
    """Coordinates are another function of the hyper-parameters then; draws have the same law."""
    jax.clear_caches()
    monkeypatch.setattr(coordinates, "_MOST_STEPS", steps)
    X = np.linspace(0.0, 4.0, 12)
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    data = lgp.Data(X, np.exp(3 * np.sin(X)).round())
    method = lgp.MCMC(coupling="sites", chains=2, draws=20, warmup=20)
    notes = lgp.fit(model, data, key=KEY, method=method).diagnostics.notes
    assert any("ended short of the mode" in note for note in notes) == (steps == 1)
    jax.clear_caches()
