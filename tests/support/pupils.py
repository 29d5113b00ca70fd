"""Rows of pupils, schools and items, kernels of their effects, and Gaussian sites."""

import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.kernels import RBF, CorrelatedLinear, FixedEffects, SameGroup
from latentgp.sites.gaussian import GaussianSites

KEY = jax.random.key(0)
PUPIL, SCHOOL, ITEM, X1, ONE = range(5)


def same(*columns):
    return SameGroup().on(*columns)


FIXED = FixedEffects([10.0, 3.0]).on(ONE, X1)
INTERCEPTS = 0.7 * same(PUPIL) + 0.4 * same(SCHOOL)
SLOPES = CorrelatedLinear([0.7, 0.3], [0.4]).on(X1)
KERNELS = {
    "nested and crossed": FIXED + INTERCEPTS + 0.9 * same(ITEM),
    "slopes": FIXED + SLOPES * same(PUPIL) + SLOPES * same(SCHOOL) + 0.9 * same(ITEM),
    "crossed": FIXED + SLOPES * same(PUPIL) + SLOPES * same(ITEM) + 0.4 * same(SCHOOL, ITEM),
    "pairs of groups": 0.7 * same(PUPIL) + 0.4 * same(SCHOOL) + 0.3 * same(SCHOOL, ITEM),
    "three nested": 0.5 * same(PUPIL, ITEM) + INTERCEPTS,
    "one grouping": 0.7 * same(PUPIL),
    "no grouping": FIXED,
    "smooth beside": FIXED + RBF().on(X1) + 0.7 * same(ITEM) + RBF(0.8).on(X1) * same(SCHOOL),
    "own kernels": lgp.PerLatent(FIXED + INTERCEPTS, 0.7 * same(ITEM)),
}


def rows_of(number=90):
    rng = np.random.default_rng(0)
    pupil = rng.integers(0, 25, number)
    columns = [pupil, pupil // 4, rng.integers(0, 7, number), rng.normal(size=number)]
    return np.column_stack([*columns, np.ones(number)]).astype(float)


def sites_of(number, latents=2):
    rng = np.random.default_rng(1)
    linear = rng.normal(size=(number, latents))
    precision = rng.uniform(0.3, 3.0, (number, latents))
    linear[2], precision[2] = 0.0, 0.0
    return GaussianSites(jnp.asarray(linear), jnp.asarray(precision), jnp.zeros(number))


def new_rows(X):
    """Seen rows, others of their levels, and rows of levels that there are not."""
    new = X[:9].copy()
    new[0, PUPIL] = new[1, PUPIL] = 99
    new[2, SCHOOL], new[3, ITEM], new[4, SCHOOL] = 3, 50, 88
    new[5, PUPIL], new[7, ITEM] = 3, 2
    new[6] = new[5]
    return new
