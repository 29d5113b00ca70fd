"""Updates of a series that keep a window of rows against fits of all rows."""

from itertools import pairwise

import jax
import numpy as np
import pytest

import latentgp as lgp
from slow import slow_parameters

KEY = jax.random.key(0)
SETTINGS = {"key": KEY, "learn_hyperparameters": False}
EXACT = lgp.ExactGP(lgp.Markov())
KERNELS = {
    "two states": lgp.Matern32(lengthscale=1.5),
    "nine states": lgp.Matern32(lengthscale=1.5) + lgp.Periodic(period=3.0),
    "two series": lgp.Matern32(lengthscale=1.5).on(0) * lgp.White().on(1),
}


def inputs(number, columns):
    """Times in order, with ties, of two series in turns if there are two columns."""
    t = np.sort(np.random.default_rng(0).uniform(0, 20, number))
    t[10:14], t[number // 2] = t[10], t[number // 2 - 1]
    return np.stack([t, np.arange(number) % 2], axis=1)[:, :columns]


def rows(likelihood, number=90, columns=1):
    X, rng = inputs(number, columns), np.random.default_rng(1)
    f = 2 * np.sin(X[:, 0] + X[:, -1] * (columns - 1))
    if isinstance(likelihood, lgp.Gaussian):
        return X, f + 0.2 * rng.normal(size=number)
    return X, (rng.uniform(size=number) < 1 / (1 + np.exp(-f))).astype(float)


def stream(model, X, y, lag, cuts, method=EXACT, watch=None):
    posterior = lgp.fit(model, lgp.Data(X[: cuts[0]], y[: cuts[0]]), method=method, **SETTINGS)
    posterior = posterior.posterior
    for start, end in pairwise(cuts):
        update = {"key": KEY, "lag": lag, "method": method}
        posterior = posterior.update(X[start:end], y[start:end], **update)
        if watch is not None:
            watch(posterior, X[end - 1, 0])
    return posterior


def elements(posterior):
    return sum(np.size(leaf) for leaf in jax.tree.leaves(posterior.components))


@pytest.mark.parametrize(
    "case",
    [
        ("two series", 4.0),
        *slow_parameters(*((name, lag) for name in KERNELS for lag in (4.0, 50.0))),
    ],
)
def test_with_gaussian_noise_a_window_is_smoothed_as_all_rows(case):
    """From the filtered state before it, marginals and evidence are those of all rows."""
    name, lag = case
    columns = 2 if name == "two series" else 1
    model = lgp.LatentGP(KERNELS[name], lgp.Gaussian(0.05))
    X, y = rows(model.likelihood, columns=columns)
    own = stream(model, X, y, lag, (60, 75, 83, 90))
    whole = lgp.fit(model, lgp.Data(X, y), method=EXACT, **SETTINGS).posterior
    new = np.linspace(20.5 - min(lag, 15.0), 22, 12)
    new = np.concatenate([np.stack([new, np.full(12, s)], 1)[:, :columns] for s in range(columns)])
    for ours, theirs in zip(own.predict_f(new), whole.predict_f(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    np.testing.assert_allclose(own.log_evidence.value, whole.log_evidence.value, rtol=1e-10)
    covariances = (np.asarray(p.as_jax().covariance(new[:7])) for p in (own, whole))
    np.testing.assert_allclose(*covariances, atol=1e-6)
    if lag < 10:
        assert own.latent.rows.weights.sum() < 40
        assert own.latent.known == columns
        assert (own.latent.X[:columns, 0] < 20 - lag).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No signal was found")  # in so few rows
def test_what_is_found_at_the_end_of_the_lag_nears_the_smoother():
    """The last marginals of a time before it leaves the window, against those given all rows."""
    model = lgp.LatentGP(KERNELS["two states"], lgp.Gaussian(0.5))
    X, y = rows(model.likelihood)
    whole = lgp.fit(model, lgp.Data(X, y), method=EXACT, **SETTINGS).posterior
    off = {}
    for lag in (0.5, 1.5, 4.5):
        seen = []

        def watch(posterior, now, lag=lag, seen=seen):
            mean, theirs = (p.predict_f([now - lag]).mean[0] for p in (posterior, whole))
            seen.append((mean - theirs) ** 2)

        stream(model, X, y, lag, range(66, 91, 4), watch=watch)
        off[lag] = np.sqrt(np.mean(seen))
    assert off[4.5] < 0.2 * off[1.5] < 0.1 * off[0.5]
    assert off[4.5] < 2e-3


@pytest.mark.filterwarnings("ignore:No signal was found")
@pytest.mark.parametrize(
    "case", [(lgp.Gaussian(0.1), 15), *slow_parameters((lgp.Bernoulli(), 100))]
)
def test_what_is_held_does_not_grow(case):
    likelihood, most = case
    model = lgp.LatentGP(KERNELS["two states"], likelihood)
    t = np.arange(20.0 + most)
    y = (np.sin(t) > 0).astype(float)
    sizes = []
    stream(
        *(model, t[:, None], y, 5.0, range(20, 21 + most)),
        method=lgp.VariationalInference(lgp.Markov()) if most > 50 else EXACT,
        watch=lambda posterior, _: sizes.append(elements(posterior)),
    )
    assert len(sizes) == most
    assert sizes[9] == sizes[-1]


@pytest.mark.parametrize("lags", [(50.0,), *slow_parameters((5.0, 2.0))])
def test_sites_in_the_window_are_made_anew(lags):
    """Pólya-Gamma sites of the window are those of all rows, but for what the lag cuts off."""
    model = lgp.LatentGP(KERNELS["two states"], lgp.Bernoulli())
    X, y = rows(model.likelihood)
    method, cuts = lgp.AugmentedVI(lgp.Markov()), (64, 80, 90)
    whole = lgp.fit(model, lgp.Data(X, y), method=method, **SETTINGS).posterior
    new, off = np.linspace(18.5, 21, 9), []
    for lag in lags:
        own = stream(model, X, y, lag, cuts, method)
        off.append(np.max(np.abs(own.predict_f(new).mean - whole.predict_f(new).mean)))
        if lag == 50.0:
            np.testing.assert_allclose(
                float(own.log_evidence), float(whole.log_evidence), atol=1e-3
            )
    assert off[0] < (1e-6 if len(lags) == 1 else 0.5 * off[1])


def test_other_updates_go_on_from_a_window(tmp_path):
    model = lgp.LatentGP(KERNELS["two states"], lgp.Gaussian(0.05))
    X, y = rows(model.likelihood)
    own = stream(model, X, y, 3.0, (60, 80))
    own = lgp.load(lgp.save(own, tmp_path / "window.latentgp"))
    own = own.update(X[80:85], y[80:85], key=KEY).update(X[85:], y[85:], key=KEY, lag=2.0)
    whole = lgp.fit(model, lgp.Data(X, y), method=EXACT, **SETTINGS).posterior
    for ours, theirs in zip(own.predict_f([19.5]), whole.predict_f([19.5]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    draws = own.sample_f([19.5, 21.0], key=KEY, number=4_000)
    moments = own.predict_f([19.5, 21.0])
    np.testing.assert_allclose(
        draws.mean(0), moments.mean, atol=5 * moments.variance.max() ** 0.5 / 60
    )
    np.testing.assert_allclose(draws.var(0), moments.variance, rtol=0.12)


@pytest.mark.slow
def test_an_estimators_rows_are_in_the_units_of_its_targets():
    X, y = rows(lgp.Gaussian())
    own = lgp.GPRegressor(
        kernel=KERNELS["two states"], method=EXACT, learn_hyperparameters=False
    ).fit(X[:80], y[:80] + 1_000.0)
    plain, kept = (
        own.posterior_.update(X[80:], y[80:] + 1_000.0, key=KEY, lag=lag) for lag in (None, 5.0)
    )
    for ours, theirs in zip(kept.predict_f([19.5]), plain.predict_f([19.5]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_what_a_window_cannot_say_is_refused():
    model = lgp.LatentGP(KERNELS["two states"], lgp.Gaussian(0.05))
    X, y = rows(model.likelihood)
    own = stream(model, X, y, 3.0, (60, 80))
    with pytest.raises(lgp.InputError, match="Row 1 of X is at time 2, but an update with a lag"):
        own.predict([19.0, 2.0])
    for lag in (3.0, None):  # without one too: what came before is no longer known
        with pytest.raises(lgp.InputError, match="rows at time 3, but an update with a lag"):
            own.update([3.0, 21.0], [0.0, 0.0], key=KEY, lag=lag)
    going_on = lgp.ExactGP(lgp.Markov(remembered=own.remembered()))
    with pytest.raises(lgp.InputError, match="rows at time 3, but an update with a lag"):
        lgp.fit(model, lgp.Data([3.0], [0.0]), method=going_on, **SETTINGS)
    with pytest.raises(lgp.InputError, match="no sample paths"):
        own.sample_paths(key=KEY)
    with pytest.raises(lgp.InputError, match="lag must be a positive length"):
        own.update([21.0], [0.0], key=KEY, lag=-1.0)
    with pytest.raises(lgp.InputError, match="of 1 input columns, but"):
        own.update([[21.0, 1.0]], [0.0], key=KEY, lag=3.0)
    dense = lgp.fit(model, lgp.Data(X, y), **SETTINGS).posterior
    with pytest.raises(lgp.InputError, match="lag is for posteriors through"):
        dense.update([21.0], [0.0], key=KEY, lag=3.0)


def test_series_are_refused_before_their_own_states():
    """Of two series one goes on from an earlier time than the other; a new one from any."""
    kernel = lgp.Matern32(lengthscale=1.5).on(0) * lgp.White().on(1)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.05))
    X, y = rows(model.likelihood, columns=2)
    own = stream(model, X, y, 3.0, (60, 90))
    first, second = own.latent.X[:2]
    between = np.array([[0.5 * (first[0] + second[0]), label] for label in (first[1], second[1])])
    early, late = (between[0], between[1]) if first[0] > second[0] else (between[1], between[0])
    own.update(late[None], [0.0], key=KEY)
    own.update([[2.0, 7.0]], [0.0], key=KEY)  # of a series without rows so far
    with pytest.raises(lgp.InputError, match="an update with a lag"):
        own.update(early[None], [0.0], key=KEY)
