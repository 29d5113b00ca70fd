"""Samplers of latent functions and hyper-parameters by effective draws, against published figures.

Filippone, Zhong & Girolami (2013), "A comparative evaluation of stochastic-based inference methods
for Gaussian process models", Machine Learning 93(1): four models (logistic; Cox, that is Poisson;
stochastic volatility; ordinal), n = 100 and 400 rows, d = 2 and 10 inputs, evenly spread in the
unit cube; length-scales tau with log tau even in [-3, -1], variance sigma = exp(2); priors tau ~
Gamma(1, 1) and sigma ~ InverseGamma(1, 1). The figure is the smallest effective sample size (ESS)
of all that is sampled. Table 2 samples f with theta known, tables 3 and 4 theta with f ("SA") or
white coordinates ("AA") known, table 5 both in the logistic model, table 6 both on real sets.

What differs from the source:

* ESS is that of fewer draws, times 20,000 / draws. It is ArviZ's of the mean, of each chain alone.
  "effective" is what was found in the draws: where it is below some ten, the figure beside it is no
  more than an upper bound. Two chains and one data set a cell, not ten and ten.
* Steps are adapted in the warm-up. MH of theta has the covariance that the warm-up saw, not a
  multiple of I. SMMALA of f holds its metric, that of the sites, for all f.
* KHR is the pseudo-marginal coupling of one draw, whose Gaussian has one variational update after
  Laplace's approximation; there f moves by HMC in coordinates of that Gaussian, not by HMC v2.
* SA moves sigma with tau; the source can draw it exactly. Table 4 samples tau and sigma.
* The source's thresholds are not known: ours are at -3, -1, 1 and 3, with noise of one.
* Chains start around the true values, on real sets around tau = sqrt(d).
* Tables 3 to 5 at n = 400 are run with `--rows 100 400` only, which takes hours (`--tables 5` runs
  one; `--share` makes chains of tables 3 and 4 shorter). Table 6 has 100 rows of each set, drawn
  at random, for 768 and 683; SPECT and Ionosphere are not among the data. Its figures are of
  hyper-parameters.

"ours" is the library's default, `MCMC()`. "factorisations" counts evaluations of the density of
hyper-parameters a sweep, as the library reports them; each is some factors, by KHR and "ours" one
more for every Newton step to a mode. "Published operations" of n^3 are Cholesky factors (C),
inverses (I) and products (M) a sweep, l the leapfrog steps. One compiled program serves all data
sets of a shape: the likelihoods are branches of one, and with theta known the kernel is a stored
Gram matrix.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.lines import Line2D
from numpyro.distributions import Gamma, InverseGamma
from scipy.stats import norm

import latentgp as lgp
from common import COLORS, Report, at_once, figure, load, parser, standardised, tidy
from latentgp.extensions.chains.draws import Chains
from latentgp.extensions.chains.hyperparameters.manifold import HyperManifoldMALA
from latentgp.extensions.chains.hyperparameters.random_walk import HyperRandomWalk
from latentgp.extensions.chains.hyperparameters.riemannian import HyperRiemannian
from latentgp.extensions.chains.latents.base import Info, LatentMove, ResidualValue
from latentgp.extensions.chains.latents.hamiltonian import Hamiltonian
from latentgp.extensions.chains.latents.riemannian import RiemannianHamiltonian
from latentgp.extensions.chains.loop import run_chains
from latentgp.extensions.chains.methods.mcmc import COUPLINGS, LATENTS
from latentgp.extensions.chains.sweep import SweepSampler
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Likelihood
from latentgp.numerics.cholesky import jittered_cholesky, lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.posteriors.arviz_versions import import_arviz
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.progress import RunControl

CHAINS, PER, STEPS = 2, 20_000, 10
THRESHOLDS = np.array([-3.0, -1.0, 1.0, 3.0])
EDGES = np.concatenate([[-np.inf], THRESHOLDS, [np.inf]])
PRIORS = {"kernel.lengthscale": Gamma(1.0, 1.0), "kernel.variance": InverseGamma(1.0, 1.0)}
MODELS = {
    "LRG": lgp.Bernoulli(),
    "LCX": lgp.Poisson(),
    "VLT": lgp.StochasticVolatility(),
    "ORD": lgp.Ordinal(THRESHOLDS),
}
AT_ZERO = {  # Fisher information about f there
    "LRG": 0.25,
    "LCX": 1.0,
    "VLT": 2.0,
    "ORD": np.sum(np.diff(norm.pdf(EDGES)) ** 2 / np.diff(norm.cdf(EDGES))),
}


class OneOfFour(Likelihood):
    """A likelihood of `MODELS` by its number, so that all have one compiled program.

    Attributes:
        which: the number.
        information: Fisher information about f at f = 0, of a row.
    """

    is_log_concave: ClassVar[bool] = True

    which: jax.Array
    information: jax.Array

    def log_prob(self, y, f, side):
        branches = [lambda y, f, one=one: one.log_prob(y, f, {}) for one in MODELS.values()]
        return jax.lax.switch(self.which, branches, y, f)


class Still(LatentMove):
    """No move: latent functions, or their white coordinates, are known."""

    def init(self, residual, eps):
        return ResidualValue.at(residual, eps)

    def step(self, residual, state, scale, key):
        return state, Info(jnp.ones_like(scale), jnp.zeros_like(scale))


class HomogeneousHamiltonian(RiemannianHamiltonian):
    """HMC v1: the metric K^-1 + C, C the Fisher information at f = 0."""

    def within(self, target, model, coordinates):
        F = coordinates.factor[0]
        tensor = jnp.eye(len(F)) + model.likelihood.information * (F.T @ F)
        return dataclasses.replace(self, root=lower_cholesky(tensor))


class Given(SweepSampler):
    """Sweeps that start at given latent functions (N, 1), or at given white coordinates (1, N)."""

    f: jax.Array | None = None
    white: jax.Array | None = None

    def init(self, key):
        state = super().init(key)
        at, white = state.at, self.white
        if self.f is not None:  # a centred coupling has prior white coordinates, f = L v
            lower = at.coordinates.whitening.lower[0]
            white = solve_lower(lower, self.f).T
        return state._replace(at=at._replace(eps=at.coordinates.of_white(white)))


OF_LATENTS = {  # move and coupling
    "MH v1": (LATENTS["random-walk"], "whitened"),
    "MH v2": (LATENTS["crank-nicolson"], "whitened"),
    "SMMALA": (LATENTS["mala"], "sites"),
    "ELL-SS": (LATENTS["elliptical-slice"], "whitened"),
    "HMC v1": (HomogeneousHamiltonian(steps=STEPS), "whitened"),
    "HMC v2": (Hamiltonian(steps=STEPS), "whitened"),
    "ours": (LATENTS["rotations"], "sites"),
}
OF_HYPERPARAMETERS = {
    "MH": HyperRandomWalk(),
    "HMC": HyperRiemannian("identity", steps=STEPS),
    "SMMALA": HyperManifoldMALA(),
}
SCHEMES = {  # coupling
    "AA": "whitened",
    "ASIS": "interwoven",
    "KHR": "pseudo-marginal",
    "SA": "centred",
    "SURR": "surrogate",
    "ours": None,
}
OPERATIONS = {  # published: table 1, and what table 5 says
    2: dict.fromkeys(OF_LATENTS, "0") | {"SMMALA": "C", "ours": None},
    3: {"MH": "C", "HMC": "C + l I", "SMMALA": "C + I + d M"},
    4: {"MH": "C", "HMC": "C + d l C", "SMMALA": "C + d C"},
    5: {"AA": "C", "ASIS": "2 C", "KHR": "10 C", "SA": "C", "SURR": "2 C + I"},
}
OPERATIONS[6] = OPERATIONS[5]
SHAPES = ((100, 2), (100, 10), (400, 2), (400, 10))
# Mean and standard deviation of the smallest ESS of 20,000 draws, by shape.
PUBLISHED_LATENTS = {
    "LRG": {
        "MH v1": ("67 (15)", "47 (3)", "22 (7)", "8 (1)"),
        "MH v2": ("204 (35)", "151 (7)", "67 (17)", "30 (2)"),
        "SMMALA": ("756 (284)", "262 (30)", "457 (212)", "48 (5)"),
        "ELL-SS": ("321 (61)", "241 (11)", "104 (25)", "50 (2)"),
        "HMC v1": ("3395 (400)", "5163 (268)", "1352 (380)", "2962 (155)"),
        "HMC v2": ("4004 (577)", "5225 (224)", "1566 (342)", "2995 (129)"),
    },
    "LCX": {
        "MH v1": ("18 (16)", "6 (2)", "6 (5)", "1 (0)"),
        "MH v2": ("23 (24)", "6 (2)", "8 (7)", "1 (0)"),
        "SMMALA": ("217 (155)", "39 (4)", "258 (177)", "7 (1)"),
        "ELL-SS": ("39 (42)", "11 (4)", "11 (11)", "2 (0)"),
        "HMC v1": ("372 (277)", "188 (123)", "199 (200)", "81 (30)"),
        "HMC v2": ("254 (197)", "188 (125)", "64 (37)", "80 (30)"),
    },
    "VLT": {
        "MH v1": ("28 (13)", "10 (2)", "15 (8)", "2 (0)"),
        "MH v2": ("31 (16)", "12 (2)", "16 (8)", "2 (0)"),
        "SMMALA": ("424 (216)", "117 (13)", "418 (127)", "61 (7)"),
        "ELL-SS": ("46 (20)", "18 (4)", "22 (10)", "4 (1)"),
        "HMC v1": ("1494 (667)", "449 (42)", "1384 (392)", "249 (25)"),
        "HMC v2": ("418 (68)", "443 (39)", "183 (31)", "245 (25)"),
    },
    "ORD": {
        "MH v1": ("14 (8)", "6 (2)", "7 (5)", "1 (0)"),
        "MH v2": ("14 (9)", "7 (2)", "7 (5)", "2 (0)"),
        "SMMALA": ("48 (89)", "2 (0)", "107 (156)", "1 (0)"),
        "ELL-SS": ("21 (11)", "10 (2)", "9 (5)", "2 (0)"),
        "HMC v1": ("539 (650)", "472 (39)", "176 (200)", "257 (23)"),
        "HMC v2": ("175 (54)", "483 (37)", "61 (22)", "255 (24)"),
    },
}
PUBLISHED_GIVEN = {  # table 3, "SA", and table 4 by model
    "SA": {
        "MH": ("2024 (144)", "156 (37)", "2124 (125)", "77 (33)"),
        "HMC": ("11325 (915)", "830 (269)", "12556 (661)", "293 (137)"),
        "SMMALA": ("9592 (2052)", "61 (23)", "10241 (2672)", "47 (17)"),
    },
    "LRG": {
        "MH": ("556 (201)", "131 (33)", "512 (177)", "56 (11)"),
        "HMC": ("2572 (1382)", "859 (278)", "2666 (973)", "223 (39)"),
        "SMMALA": ("3833 (2032)", "65 (42)", "6877 (1584)", "47 (21)"),
    },
    "LCX": {
        "MH": ("818 (386)", "6 (4)", "1030 (397)", "3 (1)"),
        "HMC": ("5169 (3297)", "11 (8)", "7145 (3852)", "4 (3)"),
        "SMMALA": ("6158 (2788)", "9 (6)", "8377 (1815)", "6 (4)"),
    },
    "VLT": {
        "MH": ("859 (318)", "22 (6)", "795 (270)", "8 (6)"),
        "HMC": ("5680 (2634)", "48 (20)", "5233 (2482)", "11 (11)"),
        "SMMALA": ("6274 (1896)", "14 (9)", "6950 (2763)", "11 (9)"),
    },
    "ORD": {
        "MH": ("689 (159)", "14 (7)", "552 (168)", "9 (6)"),
        "HMC": ("155 (296)", "14 (11)", "79 (115)", "4 (4)"),
        "SMMALA": ("3356 (1661)", "11 (8)", "2328 (1423)", "19 (27)"),
    },
}
PUBLISHED_SCHEMES = {
    "AA": ("131 (57)", "117 (34)", "94 (38)", "47 (17)"),
    "ASIS": ("138 (63)", "168 (49)", "98 (39)", "60 (25)"),
    "KHR": ("856 (360)", "177 (48)", "481 (219)", "116 (32)"),
    "SA": ("8 (6)", "59 (18)", "5 (2)", "14 (6)"),
    "SURR": ("173 (95)", "90 (32)", "157 (51)", "35 (15)"),
}
REAL = {"Pima": "ratsch_diabetis", "Wisconsin": "breast_wisconsin"}
PUBLISHED_REAL = {  # 768 and 683 rows
    "AA": ("34 (4)", "42 (15)"),
    "ASIS": ("35 (8)", "47 (11)"),
    "KHR": ("153 (14)", "20 (10)"),
    "SA": ("5 (2)", "7 (3)"),
    "SURR": ("76 (10)", "25 (14)"),
}

Known = Callable[..., str | None]  # published figure by set, sampler, n and d


class Size(NamedTuple):
    """How long chains are."""

    draws: int
    warmup: int

    def shorter(self, share: float) -> "Size":
        """A share of them."""
        return Size(*(round(share * number) for number in self))


class Sizes(NamedTuple):
    """What is run, and for how long."""

    models: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]  # of table 2
    small: Size  # table 2, 100 rows
    large: Size  # table 2, 400 rows
    walk: Size  # tables 3 and 4
    slope: Size  # the same, with gradients
    both: Size  # table 5
    real: Size  # table 6
    real_rows: int
    latents: tuple[str, ...]
    moves: tuple[str, ...]  # tables 3 and 4
    schemes: tuple[str, ...]  # tables 5 and 6
    sets: tuple[str, ...]
    jobs: int = 1


FULL = Sizes(
    tuple(MODELS),
    SHAPES,
    *(Size(5000, 1250), Size(1500, 400), Size(2000, 500), Size(600, 200)),
    *(Size(1500, 500), Size(1500, 500)),
    100,
    *map(tuple, (OF_LATENTS, OF_HYPERPARAMETERS, SCHEMES, REAL)),
)
QUICK = Sizes(
    ("LRG", "VLT"),
    ((20, 2),),
    *(Size(500, 200), Size(500, 200), Size(300, 100), Size(100, 50)),
    *(Size(200, 100), Size(100, 50)),
    20,
    ("MH v2", "ELL-SS", "HMC v1"),
    ("MH", "HMC"),
    ("AA", "ours"),
    ("Wisconsin",),
)


class Simulated(NamedTuple):
    """A data set with what it was drawn from."""

    X: np.ndarray
    y: np.ndarray
    lengthscale: np.ndarray
    gram: np.ndarray
    f: np.ndarray
    white: np.ndarray


def simulated(model: str, rows: int, columns: int, seed: int = 0) -> Simulated:
    """Inputs, hyper-parameters and f are the same in all models, as in the source."""
    rng = np.random.default_rng([seed, rows, columns])
    X = rng.uniform(size=(rows, columns))
    lengthscale = np.exp(rng.uniform(-3.0, -1.0, columns))
    squares = np.sum(((X[:, None] - X) / lengthscale) ** 2, axis=2)
    gram = np.exp(2.0 - 0.5 * squares)
    white = rng.normal(size=rows)
    with jax.enable_x64(True):
        f = np.asarray(jittered_cholesky(jnp.asarray(gram)).factor.lower) @ white
        keys = jax.random.split(jax.random.key(seed), rows)
        y = jax.vmap(lambda key, f: MODELS[model].sample(key, f[None], {}))(keys, jnp.asarray(f))
    return Simulated(X, np.asarray(y, float), lengthscale, gram, f, white)


def target_of(
    likelihood: Likelihood,
    kernel: lgp.Kernel,
    X: np.ndarray,
    y: np.ndarray,
    frozen: tuple[str, ...] = (),
) -> WhiteTarget:
    """The target of the chains, hyper-parameters under the source's priors."""
    priors = {} if isinstance(kernel, lgp.Precomputed) else PRIORS
    space = ParameterSpace(lgp.LatentGP(kernel, likelihood), frozen=frozen, priors=priors)
    return WhiteTarget.of(space, lgp.Dense(), lgp.Data(X, y).to_device())


def one_of_four(model: str) -> OneOfFour:
    """The likelihood of a model, in the program of all."""
    return OneOfFour(np.asarray(list(MODELS).index(model)), np.asarray(AT_ZERO[model]))


def sampled(sampler: SweepSampler, size: Size, seed: int) -> Chains:
    """Chains, f kept at all rows; without the summary of a fit, which takes longer than some."""
    lengths = lgp.MCMC(chains=CHAINS, warmup=size.warmup, draws=size.draws)
    rows = np.arange(len(sampler.target.data.y))
    control = RunControl(time.perf_counter(), None, None, 0)
    return run_chains(sampler, lengths, rows, jax.random.key(seed), control)


class Cell(NamedTuple):
    """The smallest ESS in the draws, one a chain, and what else a table has."""

    effective: np.ndarray
    draws: int
    r_hat: float
    acceptance: float
    factorisations: float

    @property
    def scaled(self) -> np.ndarray:
        """Of 20,000 draws."""
        return self.effective * PER / self.draws


def cell(chains: Chains, values: np.ndarray, acceptance: str) -> Cell:
    """Of what is sampled, shape (C, S, variables)."""
    arviz = import_arviz()
    effective = []
    for chain in values:
        ess = arviz.ess(arviz.convert_to_dataset({"x": chain[None]}), method="mean")["x"]
        # ArviZ takes what never moved for independent draws.
        effective.append(float(ess.min()) if np.ptp(chain, axis=0).all() else 0.0)
    r_hat = float(arviz.rhat(arviz.convert_to_dataset({"x": values}), method="split")["x"].max())
    statistics = chains.statistics
    rate, factorisations = statistics[acceptance].mean(), statistics["factorisations"].mean()
    found = np.array(effective), len(values[0]), r_hat, float(rate), float(factorisations)
    return Cell(*found)


def found_by(tasks: list[Callable[[], dict]], jobs: int) -> dict:
    """What the tasks find; a task has what shares a program, so that none is compiled twice."""
    jax.clear_caches()
    return {key: value for found in at_once(tasks, jobs) for key, value in found.items()}


def latents_given_theta(sizes: Sizes) -> dict:
    """Table 2."""

    def task(name: str, rows: int) -> dict:
        move, coupling = OF_LATENTS[name]
        size, found = sizes.small if rows < 400 else sizes.large, {}
        for model in sizes.models:
            for columns in (d for n, d in sizes.shapes if n == rows):
                known = simulated(model, rows, columns)
                numbers = np.arange(float(rows))[:, None]
                kernel = lgp.Precomputed(known.gram)
                target = target_of(one_of_four(model), kernel, numbers, known.y)
                sampler = SweepSampler.of(
                    target,
                    couplings=COUPLINGS[coupling],
                    latents=move,
                    hyperparameters=HyperRandomWalk(),
                    repeats=1,
                    warmup=jnp.asarray(size.warmup),
                    chains=CHAINS,
                )
                chains = sampled(sampler, size, 1)
                own = cell(chains, chains.f[..., 0], "acceptance_rate")
                found[model, name, rows, columns] = own
        return found

    every = {rows: None for rows, _ in sizes.shapes}
    return found_by(
        [lambda n=name, rows=rows: task(n, rows) for rows in every for name in sizes.latents],
        sizes.jobs,
    )


def theta_given(
    sizes: Sizes, shapes: tuple[tuple[int, int], ...], coupling: Literal["centred", "whitened"]
) -> dict:
    """Tables 3 ("centred", f known) and 4 ("whitened", white coordinates known)."""

    def task(name: str, rows: int, columns: int) -> dict:
        size, found = sizes.walk if name == "MH" else sizes.slope, {}
        centred = coupling == "centred"
        for model in ("LRG",) if centred else sizes.models:  # given f, targets tell nothing
            began, known = time.process_time(), simulated(model, rows, columns)
            kernel = lgp.RBF(lengthscale=known.lengthscale, variance=np.exp(2.0))
            frozen = ("kernel.variance",) if centred else ()
            likelihood = MODELS[model] if centred else one_of_four(model)
            target = target_of(likelihood, kernel, known.X, known.y, frozen)
            sampler = Given.of(
                target,
                couplings=COUPLINGS[coupling],
                latents=Still(),
                hyperparameters=OF_HYPERPARAMETERS[name],
                repeats=1,
                warmup=jnp.asarray(size.warmup),
                chains=CHAINS,
                f=jnp.asarray(known.f)[:, None] if centred else None,
                white=None if centred else jnp.asarray(known.white)[None],
            )
            chains = sampled(sampler, size, 1)
            held, given = (chains.f[..., 0], known.f) if centred else (chains.white, known.white)
            assert np.allclose(held, given, atol=1e-4), "what is known has moved"
            own = cell(chains, chains.vector, "hyperparameter_acceptance_rate")
            found["SA" if centred else model, name, rows, columns] = own
            ess = f"{own.effective.mean():.1f} effective of {own.draws}, R-hat {own.r_hat:.2f}"
            spent = f"{time.process_time() - began:.0f} s"
            print(f"  {model}, {name}, d = {columns}: {ess}, {spent}", flush=True)
        return found

    return found_by(
        [
            lambda name=name, shape=shape: task(name, *shape)
            for shape in shapes
            for name in sizes.moves
        ],
        sizes.jobs,
    )


def scheme(name: str, repeats: int, size: Size) -> lgp.MCMC:
    """Chains of f by HMC and theta by MH, or the library's default."""
    length = {"chains": CHAINS, "draws": size.draws, "warmup": size.warmup}
    coupling = SCHEMES[name]
    if coupling is None:
        return lgp.MCMC(**length)
    return lgp.MCMC(
        latents="hmc",
        hyperparameters="random-walk",
        coupling=coupling,
        repeats=repeats,
        samples=1,
        **length,
    )


def of_both(sizes: Sizes, shapes: tuple[tuple[int, int], ...]) -> dict:
    """Table 5."""

    def task(name: str, rows: int, columns: int) -> dict:
        known = simulated("LRG", rows, columns)
        kernel = lgp.RBF(lengthscale=known.lengthscale, variance=np.exp(2.0))
        target = target_of(MODELS["LRG"], kernel, known.X, known.y)
        chains = sampled(scheme(name, 1, sizes.both).sampler(target), sizes.both, 1)
        own = cell(chains, chains.vector, "hyperparameter_acceptance_rate")
        return {("LRG", name, rows, columns): own}

    return found_by(
        [
            lambda name=name, shape=shape: task(name, *shape)
            for shape in shapes
            for name in sizes.schemes
        ],
        sizes.jobs,
    )


def on_real_sets(sizes: Sizes, data_dir) -> dict:
    """Table 6: five moves of f a sweep."""

    def task(name: str, label: str) -> dict:
        X, y = load(data_dir, REAL[label])
        X, y = X[~np.isnan(X).any(axis=1)], (y > 0).astype(float)[~np.isnan(X).any(axis=1)]
        rows = np.random.default_rng(0).permutation(len(y))[: sizes.real_rows]
        (inputs,) = standardised(X[rows])
        start = lgp.RBF(lengthscale=np.full(X.shape[1], X.shape[1] ** 0.5), variance=np.exp(2.0))
        target = target_of(MODELS["LRG"], start, inputs, y[rows])
        chains = sampled(scheme(name, 5, sizes.real).sampler(target), sizes.real, 1)
        own = cell(chains, chains.vector, "hyperparameter_acceptance_rate")
        return {(label, name, len(rows), X.shape[1]): own}

    return found_by(
        [
            lambda name=name, one=one: task(name, one)
            for one in sizes.sets
            for name in sizes.schemes
        ],
        sizes.jobs,
    )


def published(known: dict, name: str, shape: tuple[int, int]) -> str | None:
    """The figure of a sampler at a shape; None where there is none."""
    return known[name][SHAPES.index(shape)] if name in known and shape in SHAPES else None


def told(report: Report, number: int, title: str, found: dict, known: Known) -> None:
    """A table, ours beside what was published."""
    report.table(
        title,
        [
            *("set", "sampler", "n", "d", "min ESS of 20,000 (sd)", "published", "effective"),
            *("R-hat", "acceptance", "factorisations", "published operations"),
        ],
        [
            [
                *key,
                f"{own.scaled.mean():.0f} ({own.scaled.std(ddof=1):.0f})",
                known(*key),
                float(own.effective.mean()),
                own.r_hat,
                own.acceptance,
                own.factorisations,
                OPERATIONS[number].get(key[1]),
            ]
            for key, own in sorted(found.items(), key=lambda item: (item[0][0], item[0][2:]))
        ],
    )


def panel(ax, title: str, found: dict, known: Known) -> None:
    """Ours filled, published hollow, a colour for every set and shape."""
    groups = list(dict.fromkeys((key[0], *key[2:]) for key in found))
    names = list(dict.fromkeys(key[1] for key in found))
    for number, (label, rows, columns) in enumerate(groups):
        color = COLORS[number % len(COLORS)]
        shift = 0.5 * ((number + 0.5) / len(groups) - 0.5)
        for place, name in enumerate(names):
            own = found.get((label, name, rows, columns))
            text = known(label, name, rows, columns)
            if own is not None and own.scaled.mean() > 0:
                ax.plot(place + shift, own.scaled.mean(), "o", color=color, markersize=5)
            if text is not None:
                value = float(text.partition(" ")[0])
                ax.plot(place + shift, value, "D", color=color, markersize=5, fillstyle="none")
    handles = [
        Line2D([], [], marker="o", linestyle="", color=COLORS[number % len(COLORS)])
        for number in range(len(groups))
    ]
    words = [f"{label}, n {rows}, d {columns}" for label, rows, columns in groups]
    ax.set_yscale("log")
    ax.set_ylim(0.5, 1e6)  # room for the legend
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_xticks(range(len(names)), names)
    tidy(ax, title, "", "min ESS of 20,000; hollow: published")
    ax.tick_params(axis="x", rotation=30)
    ax.legend(handles, words, fontsize=6, ncols=2, loc="upper center", edgecolor="none")


def known_latents(label: str, name: str, *shape: int) -> str | None:
    return published(PUBLISHED_LATENTS[label], name, shape)


def known_given(label: str, name: str, *shape: int) -> str | None:
    return published(PUBLISHED_GIVEN[label], name, shape)


def known_schemes(label: str, name: str, *shape: int) -> str | None:
    return published(PUBLISHED_SCHEMES, name, shape)


def known_real(label: str, name: str, *shape: int) -> str | None:
    return PUBLISHED_REAL[name][list(REAL).index(label)] if name in PUBLISHED_REAL else None


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tables", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    arguments.add_argument("--rows", type=int, nargs="+", default=[100], help="of tables 3 to 5")
    arguments.add_argument("--models", nargs="+", choices=MODELS, help="of tables 2 and 4")
    arguments.add_argument("--share", type=float, default=1.0, help="of the draws of 3 and 4")
    arguments = arguments.parse_args()
    report = Report("sampler_comparison", arguments)
    sizes = QUICK if arguments.quick else FULL
    sizes = sizes._replace(
        jobs=arguments.jobs,
        models=tuple(arguments.models or sizes.models),
        walk=sizes.walk.shorter(arguments.share),
        slope=sizes.slope.shorter(arguments.share),
    )
    shapes = tuple(shape for shape in SHAPES if shape[0] in arguments.rows)
    shapes = sizes.shapes if arguments.quick else shapes
    tables: dict[int, tuple[str, Known, Callable[[], dict]]] = {
        2: ("f given theta", known_latents, lambda: latents_given_theta(sizes)),
        3: ("theta given f", known_given, lambda: theta_given(sizes, shapes, "centred")),
        4: ("theta given white f", known_given, lambda: theta_given(sizes, shapes, "whitened")),
        5: ("f and theta", known_schemes, lambda: of_both(sizes, shapes)),
        6: ("real sets, fewer rows", known_real, lambda: on_real_sets(sizes, arguments.data_dir)),
    }
    panels = []
    for number in arguments.tables:
        title, known, run = tables[number]
        with one_blas_thread():
            found = run()
        told(report, number, f"{number}. {title}", found, known)
        for label in sizes.models if number == 2 else (None,):
            own = {key: one for key, one in found.items() if label in (None, key[0])}
            panels.append((f"{number}. {title}" + (f", {label}" if label else ""), own, known))
    rows, columns = -(-len(panels) // 4), min(len(panels), 4)
    drawn = figure(3.9 * columns, 3.5 * rows)
    for place, one in enumerate(panels):
        panel(drawn.add_subplot(rows, columns, place + 1), *one)
    report.save(drawn)


if __name__ == "__main__":
    main()
