"""Fixed-lag smoothing of a stream: how far its last answers are from those given all rows.

No source is reproduced; the method is that of Särkkä & Svensson (2023), section 12.4. 600 rows, ten
a length-scale, of a Matérn-3/2 process of variance 1: numbers with noise of variance 0.25, and
classes. The last 200 come in updates of ten. Differences are those of posterior means of f from
those of a fit of all rows, in its posterior standard deviations: where a time leaves the window,
root mean square of the updates, and at the newest time after the last update.
"""

import jax
import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, parser, tidy

KEY = jax.random.key(0)
LAGS = (0.5, 1.0, 2.0, 4.0)  # length-scales
CASES = {
    "number": (lgp.Gaussian(0.25), lgp.ExactGP(lgp.Markov())),
    "class": (lgp.Bernoulli(), lgp.AugmentedVI(lgp.Markov())),
}


def drawn(name, rows):
    """Times and targets."""
    rng = np.random.default_rng(0)
    t = 0.1 * np.arange(rows)
    K = np.asarray(lgp.Matern32()(t[:, None], t[:, None]))
    f = np.linalg.cholesky(K + 1e-9 * np.eye(rows)) @ rng.normal(size=rows)
    if name == "number":
        return t, f + 0.5 * rng.normal(size=rows)
    return t, (rng.uniform(size=rows) < 1 / (1 + np.exp(-f))).astype(float)


def off(posterior, whole, t):
    """Difference of means at a time, in standard deviations."""
    theirs = whole.predict_f([t])
    return (posterior.predict_f([t]).mean[0] - theirs.mean[0]) / np.sqrt(theirs.variance[0])


def main():
    arguments = parser(__doc__, real_data=False).parse_args()
    report = Report("fixed_lag", arguments)
    rows, seen = (300, 250) if arguments.quick else (600, 400)
    table, picture = [], figure(3.4, 2.6)
    ax = picture.subplots()
    for colour, (name, (likelihood, method)) in zip(COLORS, CASES.items(), strict=False):
        t, y = drawn(name, rows)
        model = lgp.LatentGP(lgp.Matern32(), likelihood)
        settings = {"key": KEY, "method": method}

        def fit(number, t=t, y=y, model=model, settings=settings):
            data = lgp.Data(t[:number], y[:number])
            return lgp.fit(model, data, learn_hyperparameters=False, **settings).posterior

        whole, first = fit(rows), fit(seen)
        for lag in LAGS:
            posterior, leaving = first, []
            for start in range(seen, rows, 10):
                new = slice(start, start + 10)
                posterior = posterior.update(t[new], y[new], lag=lag, **settings)
                leaving.append(off(posterior, whole, t[new][-1] - lag + 1e-9))
            newest = abs(off(posterior, whole, t[-1]))
            table.append([name, lag, float(np.sqrt(np.mean(np.square(leaving)))), float(newest)])
            print(f"  {name}, lag {lag:g} done", flush=True)
        ours = [row[2] for row in table if row[0] == name]
        ax.semilogy(LAGS, ours, "o-", color=colour, label=name)
    heads = ["target", "lag, length-scales", "leaving the window", "newest time"]
    report.table("posterior standard deviations from the smoother", heads, table)
    tidy(ax, "Leaving the window", "lag, length-scales", "off, deviations", legend=True)
    report.save(picture)


if __name__ == "__main__":
    main()
