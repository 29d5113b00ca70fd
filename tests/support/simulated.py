"""Every likelihood on one small problem: data from the prior, hyper-parameters as they are."""

import numpy as np
from numpyro.distributions import LogNormal, Uniform

import latentgp as lgp
from latentgp.hyperparameters.base import parameters
from likelihood_cases import COMPLETE, OF_OUTPUTS

INPUTS = np.linspace(0, 18, 30)[:, None]
LENGTHSCALE, VARIANCE = 1.0, 3.0

# By name, with what the rows carry; of several settings of one likelihood the first.
# Least squares have no law of labels whose posterior theirs could be (test_least_squares.py).
LIKELIHOODS = {}
for likelihood, *_, side in [*COMPLETE, *OF_OUTPUTS, (lgp.HeavisideMulticlass(3), None)]:
    if not isinstance(likelihood, lgp.LeastSquares):
        LIKELIHOODS.setdefault(type(likelihood).__name__, (likelihood, side or {}))


def model_of(likelihood):
    """The likelihood's latents with a fixed prior."""
    return lgp.LatentGP(lgp.RBF(LENGTHSCALE, VARIANCE), likelihood)


def _kernels():
    """Kernels of structured inputs by name, each with 30 rows."""
    generator = np.random.default_rng(0)
    group, x = np.arange(30.0) % 6, generator.normal(size=30)
    mixed = np.stack([np.ones(30), x, group, generator.uniform(0, 6, 30)], axis=1)
    effects = lgp.CorrelatedLinear([1.0, 0.5], [0.3]).on(1) * lgp.SameGroup().on(2)
    east, north = (
        generator.uniform(-180, 180, 30),
        np.degrees(np.arcsin(generator.uniform(-1, 1, 30))),
    )
    cells = np.arange(30).reshape(5, 6)
    pairs = [*zip(cells[:-1].ravel(), cells[1:].ravel(), strict=True)]
    pairs += [*zip(cells[:, :-1].ravel(), cells[:, 1:].ravel(), strict=True)]
    areas = np.arange(30.0)[:, None]
    return {
        "mixed model": (
            lgp.FixedEffects([1.0, 1.0]).on(0, 1) + effects + lgp.RBF(LENGTHSCALE).on(3),
            mixed,
        ),
        "OnSphere": (
            lgp.OnSphere(lgp.Matern32(lengthscale=3000.0, variance=VARIANCE)),
            np.stack([east, north], axis=1),
        ),
        "CAR": (lgp.CAR(pairs, variance=VARIANCE, alpha=0.9, areas=30), areas),
        "BYM2": (lgp.BYM2(pairs, variance=VARIANCE, rho=0.7, areas=30), areas),
    }


KERNELS = _kernels()


def mixed_model(likelihood):
    """A model of correlated intercepts and slopes, crossed intercepts and two fixed effects.

    With rows and priors of all its hyper-parameters: 60 rows, 12 groups by 5.
    """
    rows = np.arange(60.0)
    x = np.random.default_rng(0).normal(size=60)
    X = np.stack([rows % 12, rows // 12, np.ones(60), x], axis=1)
    slopes = lgp.CorrelatedLinear([0.5, 0.5], [0.0]).on(3) * lgp.SameGroup().on(0)
    crossed = lgp.Constant(0.5) * lgp.SameGroup().on(1)
    model = lgp.LatentGP(lgp.FixedEffects([4.0, 4.0]).on(2, 3) + slopes + crossed, likelihood)
    variance = LogNormal(np.log(0.5), 0.7)
    laws = {
        path: Uniform(-1.0, 1.0) if "correlation" in path else variance
        for path in parameters(model)
    }
    return model, X, laws
