"""Deep Gaussian processes by random features: two modes, treatments of frequencies, MNIST, depth.

Cutajar, Bonilla, Michiardi & Filippone (2017), "Random feature expansions for deep Gaussian
processes" (arXiv:1610.04386).

toy (appendix B): 50 targets N(h(h(x)), 0.01), h(x) = 2 x exp(-x^2), two layers of width 1. Beside
them chains with the covariances of the processes themselves: elliptical slices on the hidden
values, the last layer integrated out. Published: chains find two modes, mirror images in the sign
of h, variational inference one of them, with larger predictive deviations. Not published: chains
of weights of features.
sampling (not published on these splits): stochastic gradient Hamiltonian Monte Carlo of weights and
hyper-parameters beside variational inference, paired differences of held-out log densities.
Published: chains predict better than variational inference (Havasi et al. 2018).
calibration (not published): shares of true f in central intervals, f drawn from the model's prior,
of variational inference and of chains.
shallow (not published): the deep model beside the best of ours without hidden layers, first
published 90/10 split where there is one, paired differences of held-out log densities. Published
for kin8nm with two layers by inducing points (Salimbeni & Deisenroth 2017): log density 1.29, root
mean square error 0.0664.
frequencies (figures 2, 6, 7): fixed, variational, resampled, on eeg, by the number of features.
Published: variational best, resampled degrades with more features, fixed improves.
mnist (4.1): 500 frequencies, which are 1,000 features here (cosines and sines), 50 functions of
mean zero, batches of 1,000, Adam with 0.001. Published: 98.04 % with one hidden layer, 97.93 % with
two, 98.2 % with inputs fed again.
depth (4.3): airline delays over a quarter of an hour, in time order, inputs fed. Published (5
million rows of 2008): 78.55 %, 0.4583 nats with two layers; 10 and 20 improve on 2.
beside (not published): one process on the same rows, by 500 points in batches and by 20 neighbours
of the last (or any) 20,000 rows, and two layers, rows in time order and in random order.

Not said and chosen here: seconds in place of iterations, the last layer's posterior ("natural" but
in rows named factorised), width 3 and 100 features for eeg and the airline.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import latentgp as lgp
from common import (
    COLORS,
    Report,
    class_scores,
    figure,
    load,
    log_losses,
    parser,
    standardised,
    tidy,
)

KEY = jax.random.key(0)
PARTS = ["toy", "sampling", "calibration", "shallow", "frequencies", "mnist", "depth", "beside"]
NOISE = 0.01


def h(x):
    """The function that is composed with itself."""
    return 2 * x * np.exp(-(x**2))


def toy(report, quick, axes):
    """Both modes by chains, one by variational inference, and their predictive deviations."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2.5, 2.5, 50))
    centre, spread = x.mean(), x.std()
    x = (x - centre) / spread  # as the layers see it
    y = h(h(x * spread + centre)) + np.sqrt(NOISE) * rng.normal(size=50)
    new = np.linspace(-2, 2, 41)
    truth = h(h(new * spread + centre))
    layers = [lgp.Layer(lgp.RBF(), 1)]
    model = lgp.DeepGP(lgp.RBF(), lgp.Gaussian(NOISE), layers=layers, feed_inputs=False, skip=False)
    slices = {"draws": 100 if quick else 2000, "warmup": 500 if quick else 3000}
    weights = {"draws": 20 if quick else 300, "warmup": 20 if quick else 300}
    gradients = {"draws": 20 if quick else 500, "warmup": 100 if quick else 10_000}
    variational = {
        "frequencies": "fixed",
        "batch_size": 50,
        "epochs": 200 if quick else 6000,
        "tolerance": 0.0,
        "components": 64,
    }
    chains = {"chains": 2 if quick else 8, "components": 1000}
    contestants = [("chains", "-", lgp.DeepMCMC("elliptical-slice", **chains, **slices))]
    for number in (20, 100):
        own = {"features": number, **chains}
        contestants += [
            ("NUTS", number, lgp.DeepMCMC("nuts", **own | {"chains": 4}, **weights)),
            ("SGHMC", number, lgp.DeepMCMC("sghmc", **own, **gradients)),
        ]
        for last in ("factorised", "natural"):
            method = lgp.RandomFeatureVI(features=number, last=last, **variational)
            contestants.append((f"variational, {last}", number, method))
    heads = ["posterior", "features", "inferred sign of h", "mean deviation of f", "ratio", "rmse"]
    rows, deviation = [], None
    for label, number, method in contestants:
        held = {"method": method, "learn_hyperparameters": False}
        fit = lgp.fit(model, lgp.Data(x, y), key=KEY, **held)
        drawn = fit.posterior.sample_f(new[:, None], number=2000, key=KEY)
        positive = np.mean(signs_of(fit.posterior.components, x) > 0)
        wide = drawn.std(0).mean()
        deviation = deviation or wide
        off = np.sqrt(np.mean((drawn.mean(0) - truth) ** 2))
        rows.append([label, number, f"+ in {positive:.0%}", wide, wide / deviation, off])
        if label == "chains":
            edges = np.quantile(drawn, [0.05, 0.95], axis=0)
            axes.plot(new, drawn.mean(0), color=COLORS[0], label=label)
            axes.fill_between(new, *edges, color=COLORS[0], alpha=0.2)
        elif number == 100 and label.startswith("variational"):
            color = COLORS[1 + ("natural" in label)]
            axes.plot(new, drawn.mean(0), color=color, label=label.removeprefix("variational, "))
            axes.plot(new, np.quantile(drawn, [0.05, 0.95], axis=0).T, color=color, lw=0.7)
    axes.plot(x, y, "k.", markersize=3)
    report.table("two layers, 50 rows of h(h(x))", heads, rows)
    tidy(axes, "two layers", "x, standardised", "f")
    axes.legend(fontsize=8)


def signs_of(parts, x):
    """Sign of h in every draw of the hidden layer."""
    if hasattr(parts, "hidden") and isinstance(parts.hidden, np.ndarray):  # at the rows themselves
        return np.sign(parts.hidden[:, :, 0] @ parts.X[:, 0])
    X, model = jnp.asarray(x[:, None]), parts.model

    def seen(hidden):
        return parts.layout.under_last(model, hidden, X)

    take = lambda leaf, k: leaf[k] if len(leaf) > 1 else leaf[0]  # noqa: E731
    each = [jax.tree.map(lambda a, k=k: take(a, k), parts.hidden) for k in range(parts.number)]
    return np.sign([float(x @ np.asarray(seen(hidden))[:, 0]) for hidden in each])


UNITS, RATE, DROPPED = 100, 0.001, 0.5


def network(X, y, X_test, y_test, classes, seconds):
    """Log densities, error and seconds of a network of one hidden layer with dropout.

    As many hidden units as the deep model has features a layer. Predictions are the mixture over
    16 draws of what is dropped (Gal & Ghahramani 2016); the noise of regression is learned.
    """
    key_a, key_b = jax.random.split(KEY)
    columns = X.shape[1]
    theta = {
        "a": jax.random.normal(key_a, (columns, UNITS)) * np.sqrt(2 / columns),
        "b": jax.random.normal(key_b, (UNITS,)) * np.sqrt(1 / UNITS),
        "offset": jnp.zeros(UNITS),
        "centre": jnp.zeros(()),
        "log_noise": jnp.zeros(()),
    }
    adam = optax.adam(RATE)

    def f(theta, x, key):
        hidden = jax.nn.relu(x @ theta["a"] + theta["offset"])
        kept = jax.random.bernoulli(key, 1 - DROPPED, hidden.shape) / (1 - DROPPED)
        return (kept * hidden) @ theta["b"] + theta["centre"]

    def log_densities(theta, x, y, key):
        out = f(theta, x, key)
        if classes:
            return -jax.nn.softplus(jnp.where(y > 0, -out, out))
        return jax.scipy.stats.norm.logpdf(y, out, jnp.exp(theta["log_noise"]))

    @jax.jit
    def steps(theta, state, key):
        def step(carry, key):
            theta, state = carry
            rows = jax.random.randint(key, (200,), 0, len(y))
            loss = lambda t: -jnp.mean(log_densities(t, X[rows], y[rows], key))  # noqa: E731
            ways, state = adam.update(jax.grad(loss)(theta), state)
            return (optax.apply_updates(theta, ways), state), None

        return jax.lax.scan(step, (theta, state), jax.random.split(key, 1000))[0]

    X, y = jnp.asarray(X), jnp.asarray(y)
    state, started, key = adam.init(theta), time.process_time(), KEY
    while time.process_time() - started < seconds:
        key, own = jax.random.split(key)
        theta, state = jax.block_until_ready(steps(theta, state, own))
    keys = jax.random.split(KEY, 16)
    logs = jax.vmap(lambda key: log_densities(theta, X_test, y_test, key))(keys)
    out = jax.vmap(lambda key: f(theta, X_test, key))(keys)
    mean = jnp.mean(jax.nn.sigmoid(out) if classes else out, axis=0)
    densities = np.asarray(jax.nn.logsumexp(logs, axis=0) - np.log(16))
    off = float(np.sqrt(np.mean((mean - y_test) ** 2)))
    return densities, off, time.process_time() - started


def sampling(report, quick, data_dir, seconds):
    """What chains of weights and hyper-parameters gain over variational inference."""
    for name in ("boston",) if quick else ("boston", "energy"):
        gains, rows = [], []
        for split in range(1 if quick else 2):
            X, y, X_test, y_test, unit = split_of(data_dir, name, split)
            model = deep(X.shape[1], lgp.Gaussian(0.1), layers=1)
            usual = {"features": 100, "batch_size": 200}
            found = {}
            method = lgp.RandomFeatureVI(**usual, epochs=100_000)
            fit, took = fitted(model, X, y, method, 5 if quick else seconds)
            found["variational"] = fit, took
            chains = {"draws": 10, "warmup": 50} if quick else {"draws": 250, "warmup": 5000}
            method = lgp.DeepMCMC("sghmc", **usual, **chains)
            found["SGHMC"] = fitted(fit.model, X, y, method, np.inf)
            kernel = lgp.RBF(np.full(X.shape[1], np.sqrt(X.shape[1])))
            plain = lgp.LatentGP(kernel, lgp.Gaussian(0.1))
            found["one layer, exact"] = fitted(plain, X, y, lgp.ExactGP(), np.inf)
            densities = {}
            for label, (fit, took) in found.items():
                predictive = fit.posterior.predict(X_test)
                densities[label] = predictive.log_prob(y_test) - np.log(unit)
                off = np.sqrt(np.mean((predictive.mean - y_test) ** 2)) * unit
                rows.append([split, label, np.mean(densities[label]), off, took])
            gains.append(densities["SGHMC"] - densities["variational"])
        heads = ["split", "posterior", "log density", "RMSE", "processor seconds"]
        report.table(f"{name}: {len(y)} rows of {X.shape[1]} inputs", heads, rows)
        gain = np.concatenate(gains)
        error = np.std(gain, ddof=1) / np.sqrt(len(gain))
        report.note(f"{name}: chains gain {np.mean(gain):.3f} +- {error:.3f} a row")


def calibration(report, quick):
    """Coverage of variational inference where f and targets are drawn from its own model."""
    X = np.linspace(-1.7, 1.7, 30)[:, None]
    layers = [lgp.Layer(lgp.RBF(1.0), 1)]
    model = lgp.DeepGP(lgp.RBF(0.8), lgp.Gaussian(0.2), layers=layers, feed_inputs=False)
    rng, hits = np.random.default_rng(0), []
    for repetition in range(2 if quick else 20):
        hidden = rng.multivariate_normal(X[:, 0], gram(X[:, 0], 1.0))
        f = rng.multivariate_normal(np.zeros(30), gram(hidden, 0.8))
        data = lgp.Data(X, f + np.sqrt(0.2) * rng.normal(size=30))
        key = jax.random.key(repetition)
        settings = {"key": key, "learn_hyperparameters": False}
        epochs = 50 if quick else 1500
        method = lgp.RandomFeatureVI(features=100, frequencies="fixed", epochs=epochs)
        slices = lgp.DeepMCMC("elliptical-slice", draws=200, chains=2, components=200)
        for own in (method, slices):
            posterior = lgp.fit(model, data, method=own, **settings).posterior
            drawn = posterior.sample_f(X, number=400, key=key)
            hits.append([np.mean(off_middle(drawn, f) <= level) for level in (0.5, 0.9, 0.95)])
    heads = ["intervals", "50 %", "90 %", "95 %"]
    rows = [
        [label, *np.mean(hits[place::2], axis=0)]
        for place, label in enumerate(["variational", "chains"])
    ]
    report.table("two layers, f from the prior: share of true f in central intervals", heads, rows)


def gram(x, lengthscale):
    """Covariance of a process at some places."""
    return np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2) + 1e-9 * np.eye(len(x))


def off_middle(drawn, f):
    """Share of the draws that a central interval which ends at f would hold."""
    return 2 * np.abs(np.mean(drawn < f, axis=0) - 0.5)


def split_of(data_dir, name, split=0):
    """Rows to train on and rows held out, standardised by the former; the unit of the targets."""
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
        test = file["split_test_mask"][:, split].astype(bool) if "split_test_mask" in file else None
    if name == "eeg":
        calm = np.all(np.abs(X - np.median(X, 0)) < 1000, axis=1)
        X, y = X[calm], y[calm]
    if test is None:
        test = np.random.default_rng(0).permutation(len(y)) < len(y) // 10
    X_train, X_test = standardised(X[~test], X[test])
    if name == "eeg":
        return X_train, y[~test], X_test, y[test], 1.0
    y_train, y_test = standardised(y[~test], y[test])
    return X_train, y_train, X_test, y_test, float(np.std(y[~test]))


def shallow(report, quick, data_dir, names, seconds):
    """Does depth pay: log densities of held-out rows, one layer and two."""
    for name in names:
        X, y, X_test, y_test, unit = split_of(data_dir, name)
        if quick:
            X, y = X[:1000], y[:1000]
        likelihood = lgp.Bernoulli() if name == "eeg" else lgp.Gaussian(0.1)
        two, one = (deep(X.shape[1], likelihood, layers=layers) for layers in (1, 0))
        kernel = lgp.RBF(np.full(X.shape[1], np.sqrt(X.shape[1])))
        plain = lgp.LatentGP(kernel, likelihood)
        features = lgp.RandomFeatureVI(features=200, batch_size=500, epochs=100_000)
        points = lgp.Inducing(200 if quick else 500)
        if name == "eeg":
            points = lgp.Stochastic(lgp.VariationalInference(points))
        else:
            points = lgp.CollapsedVI(points)
        contestants = [
            ("two layers", two, features),
            ("one layer", one, features),
            ("Inducing(500)", plain, points),
        ]
        if name != "eeg":
            contestants.append(("Neighbours(20)", plain, lgp.ExactGP(lgp.Neighbours(20))))
        found, rows = {}, []
        for label, model, method in contestants:
            fit, took = fitted(model, X, y, method, 5 if quick else seconds)
            predictive = fit.posterior.predict(X_test)
            densities = predictive.log_prob(y_test) - np.log(unit)
            found[label] = densities
            off = np.sqrt(np.mean((predictive.mean - y_test) ** 2)) * unit
            rows.append([label, np.mean(densities), off, took])
            report.note(f"{name}, {label}: {np.mean(densities):.4f}, {took:.0f} s")
        best = max(list(found)[1:], key=lambda label: np.mean(found[label]))
        densities, off, took = network(X, y, X_test, y_test, name == "eeg", 5 if quick else seconds)
        rows.append(["network, dropout 0.5", np.mean(densities) - np.log(unit), off * unit, took])
        gain = found["two layers"] - found[best]
        error = np.std(gain, ddof=1) / np.sqrt(len(gain))
        verdict = "pays" if np.mean(gain) > 2 * error else "does not pay"
        heads = ["model", "log density", "RMSE", "processor seconds"]
        report.table(f"{name}: {len(y)} rows of {X.shape[1]} inputs", heads, rows)
        report.note(f"{name}: depth {verdict}, {np.mean(gain):.4f} +- {error:.4f} over {best}")


def frequencies(report, quick, data_dir, numbers):
    """Three treatments on eeg."""
    X, y = load(data_dir, "eeg")
    calm = np.all(np.abs(X - np.median(X, 0)) < 1000, axis=1)
    X, y = X[calm], y[calm]
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 2 // 3], order[len(y) * 2 // 3 :]
    X_train, X_test = standardised(X[train], X[test])
    rows = []
    for number in (20,) if quick else numbers:
        for treatment in ("fixed", "variational", "resampled"):
            model = deep(X.shape[1], lgp.Bernoulli(), layers=1)
            method = lgp.RandomFeatureVI(
                features=number, frequencies=treatment, batch_size=200, epochs=10_000
            )
            seconds = 5 if quick else 60
            fit, took = fitted(model, X_train, y[train], method, seconds)
            scores = scores_of(fit.posterior, X_test, y[test])
            rows.append([treatment, number, *scores, took])
    heads = ["frequencies", "features", "error", "NLPD", "processor seconds"]
    report.table(f"eeg, {len(train)} rows, two layers of width 3", heads, rows)


def scores_of(posterior, X, y):
    """Error and mean negative log density, in pieces."""
    probabilities = np.concatenate(
        [posterior.predict(part).probabilities for part in np.array_split(X, -(-len(X) // 5000))]
    )
    scores = class_scores(y, probabilities)
    return scores["error"], scores["log loss"]


def deep(columns, likelihood, *, layers, width=3, feed=True):
    """RBF layers with one length-scale a column at the root of their number."""

    def kernel(columns):
        return lgp.RBF(np.full(columns, np.sqrt(columns)))

    fed = columns if feed else 0
    hidden = [
        lgp.Layer(kernel(columns if place == 0 else width + fed), width) for place in range(layers)
    ]
    last = kernel(width + fed if layers else columns)
    return lgp.DeepGP(last, likelihood, layers=hidden, feed_inputs=feed)


def fitted(model, X, y, method, seconds):
    """The fit after so many seconds, of the processor or of the device, and these."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    started = clock()
    fit = lgp.fit(
        model,
        lgp.Data(X, y),
        key=KEY,
        method=method,
        callback=lambda _: clock() - started > seconds,
    )
    return fit, clock() - started


def mnist(report, quick, data_dir, seconds):
    """Ten digits: error against time, for at most so many seconds a fit."""
    X, y = load(data_dir, "mnist")
    X = X / 255.0
    kept = 2000 if quick else 60_000
    marks = (20, 40) if quick else (1000, 2000, 4000, 6000, 8000, 10_000, 12_000, 14_000)
    rows = []
    for layers, feed in ((1, False), (1, True), (2, False)):
        method = lgp.RandomFeatureVI(
            features=100 if quick else 1000,
            kind="orthogonal",
            batch_size=1000,
            epochs=30 if quick else 234,
            learning_rate=0.001,
            decay=10_000,
            last="factorised",
            start="given",
            components=50,
        )
        model = deep_of_pixels(layers, 10 if quick else 50, feed)
        train, held = (X[:kept], y[:kept]), (X[60_000:], y[60_000:])
        for steps, took, error, nlpd in curve(model, train, held, method, seconds, marks):
            rows.append([layers, "yes" if feed else "no", steps, took, 100 * (1 - error), nlpd])
            report.note(f"mnist: {rows[-1]}")
    heads = ["hidden layers", "inputs fed", "steps", "seconds", "accuracy, %", "NLPD"]
    report.table(f"mnist, {kept} rows", heads, rows)


def curve(model, train, held, method, seconds, marks):
    """Steps, seconds without these looks, error and NLPD, after so many steps each."""
    started, rows, left = time.perf_counter(), [], list(marks)

    def look(progress):
        nonlocal started
        now, steps = time.perf_counter(), progress.details["steps"]
        over = now - started > seconds
        if steps >= left[0] or over:
            scores = scores_of(progress.details["posterior"](), *held)
            rows.append([steps, now - started, *scores])
            left.pop(0)
            started += time.perf_counter() - now
        return over or not left

    lgp.fit(model, lgp.Data(*train), key=KEY, method=method, callback=look)
    return rows


def deep_of_pixels(layers, width, feed):
    """One length-scale a layer; hidden functions have mean zero."""
    hidden = [lgp.Layer(lgp.RBF(np.sqrt(784)), width)]
    seen = width + 784 * feed
    hidden += [lgp.Layer(lgp.RBF(np.sqrt(seen)), width) for _ in range(layers - 1)]
    last = lgp.RBF(np.sqrt(seen))
    return lgp.DeepGP(last, lgp.Softmax(10), layers=hidden, feed_inputs=feed, skip=False)


def airline(data_dir, quick, order):
    """Rows to train on and later (or other) rows: X, late, X_test, late_test, standardised."""
    with np.load(data_dir / "airline_delay.npz", allow_pickle=False) as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
        years = np.array([int(name[-4:]) for name in file["source_names"]])[file["source_id"]]
    known = np.all(X >= 0, axis=1)
    X, late, years = X[known], (y[known] > 15).astype(float), years[known]
    rows = np.lexsort((X[:, 3], X[:, 1], X[:, 0], years))
    size, held_out = (5000, 2000) if quick else (500_000, 50_000)
    if order == "random":
        rows = np.random.default_rng(0).permutation(rows[: size + held_out])
    train, test = rows[:size], rows[size : size + held_out]
    X_train, X_test = standardised(X[train], X[test])
    return X_train, late[train], X_test, late[test]


def depth(report, quick, data_dir, seconds, numbers):
    """Airline delays in time order, by the number of layers."""
    X_train, late, X_test, late_test = airline(data_dir, quick, "time")
    rows = []
    for layers in (0, 1) if quick else numbers:
        model = deep(8, lgp.Bernoulli(), layers=layers)
        method = lgp.RandomFeatureVI(features=100, batch_size=1000, epochs=1000)
        fit, took = fitted(model, X_train, late, method, 10 if quick else seconds)
        error, nlpd = scores_of(fit.posterior, X_test, late_test)
        bound = fit.posterior.log_evidence.value / len(late)
        rows.append(
            [layers + 1, 100 * (1 - error), nlpd, bound, fit.diagnostics.site_updates, took]
        )
    heads = ["layers", "accuracy, %", "NLPD", "bound a row", "steps", "processor seconds"]
    report.table(f"airline in time order, {len(late)} rows", heads, rows)


def beside(report, quick, data_dir, seconds):
    """Airline delays by two layers, by points and by neighbours, in two orders of rows."""
    features = lgp.RandomFeatureVI(features=100, batch_size=1000, epochs=1000)
    points = lgp.Inducing(100 if quick else 500)
    batches = lgp.Stochastic(
        lgp.VariationalInference(points), batch_size=1000, epochs=1000, learn_points=True
    )
    one = lgp.LatentGP(lgp.RBF(np.full(8, np.sqrt(8.0))), lgp.Bernoulli())
    near = lgp.Laplace(lgp.Neighbours(20))
    contestants = {  # model, method, rows at most
        "two layers": (deep(8, lgp.Bernoulli(), layers=1), features, None),
        "100 points" if quick else "500 points": (one, batches, None),
        "20 neighbours": (one, near, 2000 if quick else 20_000),
    }
    for order in ("time", "random"):
        X, late, X_test, late_test = airline(data_dir, quick, order)
        share = late.mean()
        constant = log_losses(late_test, np.tile([1 - share, share], (len(late_test), 1))).mean()
        majority = 100 * max(late_test.mean(), 1 - late_test.mean())
        rows = [["the share of late flights", len(late), majority, constant, "-"]]
        for name, (model, method, most) in contestants.items():
            last = slice(None) if most is None else slice(len(late) - most, None)
            fit, took = fitted(model, X[last], late[last], method, 10 if quick else seconds)
            error, nlpd = scores_of(fit.posterior, X_test, late_test)
            rows.append([name, len(late[last]), 100 * (1 - error), nlpd, took])
            print(f"  {order}: {rows[-1]}", flush=True)
        heads = ["model", "rows", "accuracy, %", "NLPD", "processor seconds"]
        report.table(f"airline in {order} order", heads, rows)


def main():
    options = parser(__doc__)
    options.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options.add_argument("--seconds", type=float, default=600.0, help="of a processor, a fit")
    sets = ["kin8nm", "power", "eeg", "protein"]
    options.add_argument("--features", nargs="+", type=int, default=[20, 100])
    options.add_argument("--hidden", nargs="+", type=int, default=[0, 1, 9, 19, 29], help="layers")
    options.add_argument("--sets", nargs="+", choices=sets, default=sets)
    arguments = options.parse_args()
    parts, quick = arguments.parts, arguments.quick
    report = Report("_".join(["deep_models", *parts]), arguments)
    drawn = figure(6, 3.6)
    axes = drawn.subplots()
    with jax.enable_x64(True):
        if "toy" in parts:
            toy(report, quick, axes)
    if "sampling" in parts:
        sampling(report, quick, arguments.data_dir, min(arguments.seconds, 20))
    if "calibration" in parts:
        calibration(report, quick)
    if "shallow" in parts:
        names = ["kin8nm"] if quick else arguments.sets
        shallow(report, quick, arguments.data_dir, names, arguments.seconds)
    if "frequencies" in parts:
        frequencies(report, quick, arguments.data_dir, arguments.features)
    if "mnist" in parts:
        mnist(report, quick, arguments.data_dir, arguments.seconds)
    if "depth" in parts:
        depth(report, quick, arguments.data_dir, arguments.seconds, arguments.hidden)
    if "beside" in parts:
        beside(report, quick, arguments.data_dir, arguments.seconds)
    report.save(drawn)


if __name__ == "__main__":
    main()
