"""Density of Pacific cod in trawls: a smooth function of depth and a Matérn field, Tweedie law.

Source: sdmTMB (Anderson, Ward, English & Barnett, bioRxiv 2022.03.24.485545), whose vignette
"Spatial modeling with sdmTMB" fits `density ~ s(depth)`, `family = tweedie()`, a Matérn field of
order 1 on a mesh of 10 km, by maximum likelihood; its data set `pcod` has 2,143 trawls off British
Columbia, 2003 to 2017. Its figures are printed beside ours.

sdmTMB's range is the distance at which the correlation is about 0.13, sqrt(8 nu) / kappa
(Lindgren, Rue & Lindstrom 2011); a length-scale l here has kappa = sqrt(2 nu) / l, so that the
range is 2 l for every order. Its `s(depth)` is a thin plate spline with a penalty, ours a Matérn
process of order 5/2 in the logarithm of depth with a learned length-scale; its intercept is the
mean of the linear predictor over the rows without the field.

Chosen here: no priors, as sdmTMB has none; Laplace's approximation, as sdmTMB's, by the covariance
of all trawls. The field is linear between the points of a grid of 10 km, which stands for the mesh;
`--grid 0` is the field itself, which varies within 10 km too. By 20 neighbours its log evidence is
off by 6 to 12 nats, and says so. What is said without the field is predicted 10,000 km away, where
trawls say nothing of it. `--rows 400` is a trial run.
"""

import argparse
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import latentgp as lgp

# Estimate, and ends of the 95 % interval where published.
PUBLISHED = {
    "range [km]": (16.39, "9.6 to 28.0"),
    "standard deviation of the field": (1.86, "1.48 to 2.34"),
    "dispersion phi": (12.69, ""),
    "power p": (1.58, ""),
    "intercept": (2.37, "1.96 to 2.78"),
}


class OnGrid(lgp.kernels.Kernel):
    """A kernel between the points of a square grid in two dimensions, linear along both."""

    kernel: lgp.kernels.Kernel
    points: Float[np.ndarray, "V 2"]
    spacing: float = eqx.field(static=True)

    @classmethod
    def over(cls, kernel: lgp.kernels.Kernel, places: np.ndarray, spacing: float) -> "OnGrid":
        """At the points that have a place beside them."""
        axes = (
            np.arange(a - spacing, b + spacing, spacing) for a, b in zip(*_box(places), strict=True)
        )
        points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        apart = np.abs(points[:, None] - places[None]).max(axis=2).min(axis=1)
        return cls(kernel, points[apart < spacing], spacing)

    def weights(self, X: Float[Array, "N 2"]) -> Float[Array, "N V"]:
        apart = jnp.abs(X[:, None] - jnp.asarray(self.points)[None]) / self.spacing
        return jnp.prod(jnp.maximum(1 - apart, 0.0), axis=2)

    def __call__(self, x: Float[Array, "2"], z: Float[Array, "2"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N 2"], Z: Float[Array, "M 2"]) -> Float[Array, "N M"]:
        points = jnp.asarray(self.points)
        return self.weights(X) @ self.kernel.gram(points, points) @ self.weights(Z).T

    def diagonal(self, X: Float[Array, "N 2"]) -> Float[Array, "N"]:
        points, weights = jnp.asarray(self.points), self.weights(X)
        return jnp.sum((weights @ self.kernel.gram(points, points)) * weights, axis=1)


def _box(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return places.min(axis=0), places.max(axis=0)


def trawls(folder: Path, rows: int | None) -> tuple[Float[np.ndarray, "N 3"], np.ndarray]:
    """East and north in km, logarithm of depth in m; density in kg / km^2."""
    table = pd.read_csv(folder / "pcod.csv.gz")
    table = table if rows is None else table.sample(rows, random_state=0)
    X = np.column_stack([table["X"], table["Y"], np.log(table["depth"])])
    return X, table["density"].to_numpy()


def without_field(fit: lgp.Fit, depth: Float[np.ndarray, "N"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the linear predictor at depths, the field's variance taken off."""
    away = np.column_stack([np.full((len(depth), 2), 1e4), depth])
    mean, variance = fit.posterior.predict_f(away)
    model: Any = fit.model
    return mean, np.maximum(variance - model.kernel.parts[0].diagonal(away), 0.0)


def drawn(fit: lgp.Fit, X: Float[np.ndarray, "N 3"]) -> Figure:
    """Mean by depth with its interval."""
    low, high = np.quantile(X[:, 2], [0.01, 0.99])
    depth = np.linspace(low, high, 200)
    mean, variance = without_field(fit, depth)
    reach = 1.96 * np.sqrt(variance)
    ax = lgp.plots.prediction_bands(
        None,
        np.exp(depth),
        np.exp(mean),
        np.exp(mean - reach),
        np.exp(mean + reach),
        x_label="depth [m]",
        y_label="density [kg / km²]",
    )
    ax.plot(np.exp(X[:, 2]), np.zeros(len(X)), "|", color="#6E6E6E", markersize=5, alpha=0.3)
    ax.set_xlim(0, np.exp(depth[-1]))
    ax.set_ylim(0, 1.05 * np.exp(mean + reach).max())
    figure: Any = ax.figure
    return figure


def main() -> None:
    """Fit, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of pcod.csv.gz")
    parser.add_argument("--rows", type=int, help="so many trawls drawn at random; all without it")
    parser.add_argument("--grid", type=float, default=10.0, help="spacing in km; 0 for none")
    parser.add_argument("--evaluations", type=int, default=40, help="at most (%(default)s)")
    parser.add_argument("--picture", type=Path, help="folder of depth.png and field.png")
    asked = parser.parse_args()
    X, y = trawls(asked.folder, asked.rows)
    field = lgp.kernels.Matern(lengthscale=10.0, variance=3.0, order=1.0)
    field = OnGrid.over(field, X[:, :2], asked.grid) if asked.grid else field
    depth = lgp.Matern52(lengthscale=0.5, variance=4.0)
    law = lgp.likelihoods.Tweedie(power=1.5, dispersion=10.0)
    where = "kernel.parts[0].kernel" + (".kernel" if asked.grid else "")
    fit = lgp.fit(
        lgp.LatentGP(field.on(0, 1) + depth.on(2), law, lgp.ConstantMean(2.0)),
        lgp.Data(X, y),
        key=jax.random.key(0),
        method=lgp.Laplace(correct_mean=False),
        priors=None,
        frozen=(f"{where}.order",),
        max_evaluations=asked.evaluations,
    )
    print(fit.model, fit.posterior.log_evidence)
    print(fit.diagnostics.verdict)
    model: Any = fit.model
    near = model.kernel.parts[0].kernel
    near = near.kernel if asked.grid else near
    found = {
        "range [km]": 2 * float(near.lengthscale),
        "standard deviation of the field": float(near.variance) ** 0.5,
        "dispersion phi": float(model.likelihood.dispersion),
        "power p": float(model.likelihood.power),
        "intercept": float(without_field(fit, X[:, 2])[0].mean()),
    }
    print(f"\n| {len(y):,} trawls | latentgp | sdmTMB | 95 % interval |\n|---|---|---|---|")
    for name, value in found.items():
        theirs, interval = PUBLISHED[name]
        print(f"| {name} | {value:.2f} | {theirs:.2f} | {interval} |")
    if asked.picture is not None:
        labels = ("east [km]", "north [km]")
        maps = lgp.plots.field_maps(fit.posterior, X, labels=labels, name="log density")
        for name, figure in (("depth", drawn(fit, X)), ("field", maps)):
            print(lgp.plots.save_figure(figure, asked.picture / f"{name}.png", dots_per_inch=80))


if __name__ == "__main__":
    main()
