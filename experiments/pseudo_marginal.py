"""Pseudo-marginal chains of hyper-parameters, and classifiers that integrate over them.

Filippone & Girolami (2014), "Pseudo-marginal Bayesian inference for Gaussian processes", IEEE
TPAMI 36(11), 2214-2226: probit classifiers, k = sigma exp(-|x - x'|^2 / (2 tau^2)). They claim that
estimates by expectation propagation (EP) vary less than by Laplace's approximation (LA), that
pseudo-marginal chains (PM) have more effective draws than ancillary augmentation (AA) and surrogate
data (SURR), and that classifiers tell best how sure they are in the order MCMC PM EP, MCMC EP, EP
at its maximum, support vector machine. They call PM generally better by cost, too; by their table 3
AA is better in three of eight cells.

Importance densities are written here as couplings of the library's chains (whose own density is one
variational update from Laplace's). Sites are updated all at once, where the source's EP takes them
in turn, until the squared change of f is below N / 10^4. Hyper-parameters alone move in PM; AA and
SURR move f by elliptical slices.

0. Section 4.1: deviation of the log estimate (figure 2 has no numbers).
1. Tables 1 and 2: inputs uniform in the unit cube, balanced classes, drawn at sigma = 2.08 and
   tau = 0.35 sqrt(d / 2) (the source gives these for d = 2 alone), tau ~ Gamma(1, 1 / sqrt(d)),
   sigma ~ Gamma(1.2, 0.2). Four chains, where the source has ten of 5,000 + 10,000 iterations: so
   effective draws are of all chains together, and by proportion of 10,000 iterations of one; R-hat
   (Gelman & Rubin's, the worst) after 10, 20, 50 and 100 % of the iterations, in place of 1,000 to
   10,000. Where R-hat is above 1.1, sweeps are too few to tell effective draws. Chains start near
   the true hyper-parameters (the source's from the prior). PM EP(64) tunes the proposals of all PM.
   Log sigma has the same posterior in all schemes. Factorisations of N x N matrices are those of a
   proposal: of K, of each update, and two of the Gaussian. Some schemes are left out of N = 200
   unless the run is long.
2. Table 3, each Gibbs update 20 times. PM has one update, so its chain is every 20th draw of
   table 1's PM EP(64). Effective draws are by proportion of 10,000 draws, 200,000 updates.
3. Section 5 (figures 6 and 7 have no numbers): balanced training sets, an isotropic kernel,
   sigma ~ Gamma(1.1, 0.1) as in 4.4. Pima, glass (window or not) and usps (3 or 5); thyroid and
   ionosphere are left out. Inputs of pima and glass are standardised over all rows. "MCMC EP"
   samples hyper-parameters by EP's evidence and f by EP's posterior. "EP ML" is
   `ExpectationPropagation()` without priors. The support vector machine's cost and width are those
   of the best accuracy in cross-validation, its probabilities a sigmoid by another (Platt 1999).
4. Section 4.4 (figures only): pima, `--rows` of its 768, priors as in 3; PM with one draw by LA, as
   published, and with 64 by EP, which tunes; a random walk and ten elliptical slices a sweep of AA
   and SURR, which are ten and three times as long. The source has ten chains of 2,000 + 10,000.
"""

import dataclasses
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from numpyro.distributions import Gamma
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

import latentgp as lgp
from common import COLORS, STYLES, Report, figure, load, paired, parser, standardised, tidy
from latentgp import metrics
from latentgp.extensions.chains.coordinate_maps import DenseCoordinates
from latentgp.extensions.chains.coordinates import ModelAtRows, coordinates_of_sites
from latentgp.extensions.chains.couplings.ancillary import Whitened
from latentgp.extensions.chains.couplings.pseudo_marginal import PseudoMarginal
from latentgp.extensions.chains.couplings.surrogate import Surrogate
from latentgp.extensions.chains.hyperparameters.base import HyperMoved
from latentgp.extensions.chains.hyperparameters.random_walk import HyperRandomWalk
from latentgp.extensions.chains.latents.base import Info, LatentMove, ResidualValue, accepted
from latentgp.extensions.chains.latents.elliptical_slice import EllipticalSlice
from latentgp.extensions.chains.sweep import SweepSampler
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.posteriors.arviz_versions import import_arviz
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.threads import on_all_cores

MOST_UPDATES = 50
DAMPED = 0.8  # share of an update of all sites at once
CHAINS, PIECE = 4, 25
SAMPLES = 64  # of an estimate, at most
TRUE_TAU, TRUE_SIGMA = 0.35, 2.08
REPEATS = 20
LARGEST_R_HAT = 1.1
LONGER_AT_SIZE = {"AA": 10, "SURR": 3}
LONGER = {"AA": 10}  # times as many sweeps, which are cheap and hang together for longer
# Effective draws mean (deviation), R-hat, acceptance in per cent.
TABLE_1 = {
    (50, 2, "iso"): {
        "PM LA(1)": ("749(73)", "1.00/1.00/1.00/1.00", "23.9(0.4)"),
        "PM LA(16)": ("778(61)", "1.00/1.00/1.00/1.00", "25.1(0.4)"),
        "PM LA(64)": ("752(76)", "1.00/1.00/1.00/1.00", "24.8(0.5)"),
        "PM EP(1)": ("747(100)", "1.00/1.00/1.00/1.00", "24.4(0.5)"),
        "PM EP(16)": ("736(163)", "1.00/1.00/1.00/1.00", "25.0(0.6)"),
        "PM EP(64)": ("793(54)", "1.00/1.00/1.00/1.00", "24.9(0.5)"),
        "AA": ("287(58)", "1.00/1.00/1.00/1.00", "22.7(0.9)"),
        "SURR": ("154(11)", "1.01/1.00/1.00/1.00", "22.4(1.0)"),
    },
    (50, 2, "ARD"): {
        "PM LA(1)": ("131(41)", "1.04/1.05/1.04/1.02", "13.0(3.3)"),
        "PM LA(16)": ("206(21)", "1.05/1.04/1.03/1.01", "16.7(1.2)"),
        "PM LA(64)": ("212(38)", "1.03/1.03/1.02/1.01", "16.6(1.9)"),
        "PM EP(1)": ("208(22)", "1.01/1.00/1.01/1.00", "16.1(1.0)"),
        "PM EP(16)": ("246(23)", "1.00/1.00/1.00/1.00", "19.2(0.7)"),
        "PM EP(64)": ("252(24)", "1.00/1.00/1.00/1.00", "19.9(0.8)"),
        "AA": ("20(9)", "1.12/1.12/1.05/1.03", "20.3(2.6)"),
        "SURR": ("21(6)", "1.11/1.08/1.07/1.05", "21.6(3.3)"),
    },
    (50, 10, "iso"): {
        "PM LA(1)": ("237(147)", "1.25/1.26/1.19/1.08", "18.2(4.6)"),
        "PM LA(16)": ("238(194)", "1.01/1.02/1.03/1.02", "16.9(6.0)"),
        "PM LA(64)": ("348(126)", "1.01/1.01/1.01/1.01", "21.8(2.3)"),
        "PM EP(1)": ("282(47)", "1.02/1.01/1.01/1.00", "19.2(1.4)"),
        "PM EP(16)": ("507(36)", "1.00/1.00/1.00/1.00", "24.7(1.0)"),
        "PM EP(64)": ("583(51)", "1.00/1.00/1.00/1.00", "26.1(0.6)"),
        "AA": ("71(23)", "1.02/1.01/1.02/1.01", "22.8(2.5)"),
        "SURR": ("52(15)", "1.04/1.02/1.02/1.02", "21.8(2.9)"),
    },
    (50, 10, "ARD"): {
        "PM LA(1)": ("19(12)", "1.08/1.09/1.13/1.17", "7.1(4.4)"),
        "PM LA(16)": ("62(30)", "1.04/1.04/1.06/1.11", "17.6(4.9)"),
        "PM LA(64)": ("78(23)", "1.03/1.03/1.01/1.01", "20.2(2.8)"),
        "PM EP(1)": ("63(18)", "1.03/1.03/1.02/1.01", "15.6(1.2)"),
        "PM EP(16)": ("107(12)", "1.01/1.01/1.01/1.01", "24.2(0.5)"),
        "PM EP(64)": ("108(28)", "1.02/1.01/1.01/1.01", "26.3(0.7)"),
        "AA": ("74(6)", "1.03/1.03/1.02/1.02", "22.4(2.7)"),
        "SURR": ("45(5)", "1.03/1.03/1.02/1.01", "21.7(1.7)"),
    },
    (200, 2, "iso"): {
        "PM LA(1)": ("717(31)", "1.00/1.00/1.00/1.00", "31.7(0.5)"),
        "PM LA(16)": ("739(46)", "1.00/1.00/1.00/1.00", "32.6(0.5)"),
        "PM LA(64)": ("730(26)", "1.00/1.00/1.00/1.00", "32.6(0.6)"),
        "PM EP(1)": ("736(47)", "1.00/1.00/1.00/1.00", "32.8(0.5)"),
        "PM EP(16)": ("736(48)", "1.00/1.00/1.00/1.00", "32.7(0.4)"),
        "PM EP(64)": ("721(43)", "1.00/1.00/1.00/1.00", "32.6(0.7)"),
        "AA": ("112(49)", "1.01/1.01/1.01/1.01", "21.6(1.0)"),
        "SURR": ("54(8)", "1.01/1.02/1.01/1.01", "21.5(1.5)"),
    },
    (200, 2, "ARD"): {
        "PM LA(1)": ("318(29)", "1.00/1.00/1.00/1.00", "38.3(0.8)"),
        "PM LA(16)": ("364(20)", "1.00/1.00/1.00/1.00", "43.1(0.5)"),
        "PM LA(64)": ("355(42)", "1.00/1.00/1.00/1.00", "43.6(0.7)"),
        "PM EP(1)": ("349(26)", "1.00/1.00/1.00/1.00", "42.0(0.4)"),
        "PM EP(16)": ("365(21)", "1.00/1.00/1.00/1.00", "43.5(0.5)"),
        "PM EP(64)": ("354(37)", "1.00/1.00/1.00/1.00", "43.9(0.6)"),
        "AA": ("41(8)", "1.07/1.07/1.06/1.04", "23.0(2.3)"),
        "SURR": ("61(9)", "1.02/1.02/1.01/1.01", "22.0(1.9)"),
    },
    (200, 10, "iso"): {
        "PM LA(1)": ("115(53)", "1.03/1.03/1.02/1.04", "27.1(11.3)"),
        "PM LA(16)": ("117(42)", "1.05/1.04/1.03/1.03", "26.8(9.0)"),
        "PM LA(64)": ("145(62)", "1.01/1.01/1.01/1.02", "28.7(8.0)"),
        "PM EP(1)": ("75(35)", "1.03/1.03/1.03/1.02", "18.2(3.7)"),
        "PM EP(16)": ("137(38)", "1.01/1.01/1.01/1.01", "27.6(4.2)"),
        "PM EP(64)": ("130(64)", "1.09/1.09/1.09/1.12", "25.5(10.0)"),
        "AA": ("26(6)", "1.05/1.04/1.03/1.03", "23.7(1.9)"),
        "SURR": ("18(7)", "1.27/1.28/1.24/1.16", "21.5(8.6)"),
    },
    (200, 10, "ARD"): {
        "PM LA(1)": ("27(10)", "1.39/1.33/1.19/1.11", "12.3(2.9)"),
        "PM LA(16)": ("53(18)", "1.08/1.06/1.03/1.02", "18.0(1.9)"),
        "PM LA(64)": ("37(31)", "1.14/1.15/1.17/1.17", "13.2(8.6)"),
        "PM EP(1)": ("26(14)", "1.12/1.09/1.13/1.08", "10.3(3.1)"),
        "PM EP(16)": ("52(13)", "1.20/1.15/1.08/1.04", "17.1(2.1)"),
        "PM EP(64)": ("45(21)", "1.03/1.03/1.03/1.09", "17.4(3.4)"),
        "AA": ("22(7)", "1.10/1.08/1.05/1.03", "21.6(5.5)"),
        "SURR": ("10(3)", "1.07/1.08/1.06/1.05", "20.3(3.9)"),
    },
}
# Effective draws mean (deviation), the same by operations, R-hat.
TABLE_3 = {
    (50, 2, "iso"): {
        "PM": ("9057(243)", "556(15)", "1.00×4"),
        "AA": ("1571(378)", "1571(378)", "1.00×4"),
        "SURR": ("702(98)", "234(33)", "1.00×4"),
    },
    (50, 2, "ARD"): {
        "PM": ("4301(169)", "243(10)", "1.00×4"),
        "AA": ("57(11)", "57(11)", "1.01×4"),
        "SURR": ("64(9)", "21(3)", "1.02/1.02/1.02/1.01"),
    },
    (50, 10, "iso"): {
        "PM": ("7478(333)", "575(26)", "1.00×4"),
        "AA": ("211(22)", "211(22)", "1.01/1.00/1.00/1.00"),
        "SURR": ("133(23)", "44(8)", "1.01/1.01/1.01/1.00"),
    },
    (50, 10, "ARD"): {
        "PM": ("2207(141)", "161(10)", "1.00×4"),
        "AA": ("464(40)", "464(40)", "1.00×4"),
        "SURR": ("207(18)", "69(6)", "1.01/1.01/1.01/1.00"),
    },
    (200, 2, "iso"): {
        "PM": ("8850(301)", "571(19)", "1.00×4"),
        "AA": ("327(142)", "327(142)", "1.01/1.00/1.01/1.00"),
        "SURR": ("234(24)", "78(8)", "1.00×4"),
    },
    (200, 2, "ARD"): {
        "PM": ("5844(166)", "338(10)", "1.00×4"),
        "AA": ("143(22)", "143(22)", "1.01/1.01/1.00/1.00"),
        "SURR": ("339(47)", "113(16)", "1.01/1.01/1.01/1.00"),
    },
    (200, 10, "iso"): {
        "PM": ("737(533)", "55(40)", "1.01×4"),
        "AA": ("37(7)", "37(7)", "1.05/1.05/1.05/1.03"),
        "SURR": ("25(6)", "8(2)", "1.05/1.05/1.01/1.00"),
    },
    (200, 10, "ARD"): {
        "PM": ("363(250)", "28(19)", "1.03/1.03/1.01/1.01"),
        "AA": ("42(8)", "42(8)", "1.03/1.03/1.02/1.01"),
        "SURR": ("22(5)", "7(2)", "1.09/1.07/1.05/1.03"),
    },
}
OPERATIONS = {  # table 2: PM LA, PM EP; of AA 1.0, of SURR 3.0 in all cells
    (50, 2, "iso"): ("8.2(0.2)", "16.3(0.0)"),
    (50, 2, "ARD"): ("8.8(0.2)", "17.7(0.1)"),
    (50, 10, "iso"): ("7.8(0.3)", "13.0(0.1)"),
    (50, 10, "ARD"): ("8.3(0.2)", "13.7(0.1)"),
    (200, 2, "iso"): ("8.7(0.0)", "15.5(0.0)"),
    (200, 2, "ARD"): ("9.3(0.0)", "17.3(0.0)"),
    (200, 10, "iso"): ("7.6(0.2)", "13.3(0.1)"),
    (200, 10, "ARD"): ("7.9(0.2)", "13.2(0.2)"),
}


class Sites(NamedTuple):
    """Gaussian sites of a probit model, marginals of f, and EP's log evidence.

    On the way `log_evidence` is minus half the log-determinant of I + A W A'.
    """

    linear: Float[Array, "N"]
    precision: Float[Array, "N"]
    mean: Float[Array, "N"]
    variance: Float[Array, "N"]
    log_evidence: Float[Array, ""]
    change: Float[Array, ""]
    updates: Int[Array, ""]


def sites_of(
    features: Float[Array, "M N"], log_mass: Any, log_likelihood: Any, by_moments: Bool[Array, ""]
) -> Sites:
    """Sites by Newton's method (Laplace) or by moments (expectation propagation, all at once).

    Updates start without sites and end where the squared change of the mean is below N / 10^4, as
    the source's do.
    """
    size = features.shape[1]

    def given(linear, precision):
        root = lower_cholesky(jnp.eye(len(features)) + (features * precision) @ features.T)
        half = solve_lower(root, features)
        log_size = jnp.sum(jnp.log(jnp.diagonal(root)))
        return half.T @ (half @ linear), jnp.sum(half**2, axis=0), log_size

    def cavity(at):
        share = 1 - at.precision * at.variance
        return Marginals((at.mean - at.linear * at.variance) / share, at.variance / share)

    def matched(at):
        without = cavity(at)
        slope, in_variance = jax.grad(lambda m: jnp.sum(log_mass(m)))(without)
        curvature = 2 * in_variance - slope**2
        shrunk = 1 + without.variance * curvature
        return (slope - curvature * without.mean) / shrunk, -curvature / shrunk

    def newton(at):
        slope, bend = jax.linearize(jax.grad(lambda f: jnp.sum(log_likelihood(f))), at.mean)
        precision = -bend(jnp.ones(size))
        return slope + precision * at.mean, precision

    def updated(at):
        share = jnp.where(by_moments, DAMPED, 1.0)
        linear, precision = jax.tree.map(
            lambda moments, mode: jnp.where(by_moments, moments, mode), matched(at), newton(at)
        )
        linear = at.linear + share * (linear - at.linear)
        precision = at.precision + share * (precision - at.precision)
        mean, variance, log_size = given(linear, precision)
        change = jnp.sum((mean - at.mean) ** 2)
        return Sites(linear, precision, mean, variance, -log_size, change, at.updates + 1)

    nothing, zero = jnp.zeros(size), jnp.zeros(())
    first = Sites(nothing, nothing, nothing, jnp.sum(features**2, axis=0), zero, jnp.inf + zero, 0)
    found = jax.lax.while_loop(
        lambda at: (at.change > size / 1e4) & (at.updates < MOST_UPDATES), updated, first
    )
    without = cavity(found)
    terms = log_mass(without) + 0.5 * jnp.log(without.variance / found.variance)
    terms += 0.5 * (without.mean**2 / without.variance - found.mean**2 / found.variance)
    log_evidence = found.log_evidence + jnp.sum(terms) + 0.5 * found.linear @ found.mean
    return found._replace(log_evidence=log_evidence)


class Estimated(DenseCoordinates):
    """Coordinates whose weight is zero where they are NaN, so that draws can be left out.

    Attributes:
        gaussian: whether the Gaussian law is taken for that of the latents, its evidence too.
    """

    gaussian: Bool[Array, ""]

    def residual(self, target, model, eps):
        value = jnp.where(self.gaussian, 0.0, super().residual(target, model, eps))
        return jnp.where(jnp.any(jnp.isnan(eps)), -jnp.inf, value)


class ByDensity(PseudoMarginal):
    """The pseudo-marginal coupling with the source's importance densities.

    Its settings are arrays, so that one program serves all: to compile one takes longer than to
    run it.

    Attributes:
        used: draws, of the first of `samples`.
        by_moments: expectation propagation; else Laplace.
        gaussian: takes the approximate evidence for the evidence, without any estimate (MCMC EP).
    """

    used: Int[Array, ""] = eqx.field(kw_only=True)
    by_moments: Bool[Array, ""] = eqx.field(kw_only=True)
    gaussian: Bool[Array, ""] = eqx.field(kw_only=True)

    @classmethod
    def of(cls, used: int, *, by_moments: bool = True, gaussian: bool = False) -> "ByDensity":
        kinds = {"by_moments": jnp.asarray(by_moments), "gaussian": jnp.asarray(gaussian)}
        return cls(SAMPLES, used=jnp.asarray(used), **kinds)

    def others(self, eps, key):
        fresh = super().others(eps, key)
        return jnp.where(jnp.arange(1, SAMPLES)[:, None, None] < self.used, fresh, jnp.nan)

    def held(self, target, at, key):
        key_own, key_others = jax.random.split(key)
        eps = jax.random.normal(key_own, at.eps.shape, at.eps.dtype)
        return at._replace(eps=eps, others=self.others(eps, key_others))

    def coordinates(self, target, vector, differentiable=False):
        model, y = target.space.to_model(vector), target.data.y
        likelihood, whitening = model.likelihood, target.whitening(model)

        def log_mass(cavity: Marginals) -> Float[Array, "N"]:
            columns = Marginals(cavity.mean[:, None], cavity.variance[:, None])
            return likelihood.predictive_log_prob(y, columns, {})

        def log_likelihood(f: Float[Array, "N"]) -> Float[Array, "N"]:
            return jax.vmap(lambda y, f: likelihood.log_prob(y, f[None], {}))(y, f)

        found = sites_of(whitening.features[0], log_mass, log_likelihood, self.by_moments)
        columns = found.linear[:, None], found.precision[:, None]
        own = coordinates_of_sites(ModelAtRows.of(target, model), *columns)
        known = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
        known["factorisations"] = own.factorisations + found.updates
        known["log_evidence"] = jnp.where(self.gaussian, found.log_evidence, own.log_evidence)
        return Estimated(**known, gaussian=self.gaussian)


class Alone(ByDensity):
    """The same for hyper-parameters alone: no draw of f is chosen, as none is moved."""

    def selected(self, target, at, key):
        return at


class Walk(HyperRandomWalk):
    """Random walks in turn, with what is held drawn once (each Gibbs update repeated)."""

    repeats: Int[Array, ""]

    def step(self, law, here, scale, key):
        def one(number, carry):
            here, rate, _ = carry
            key_step, key_accept = jax.random.split(jax.random.fold_in(key, number))
            noise = jax.random.normal(key_step, here.vector.shape, here.vector.dtype)
            there = law.at(here.vector + scale * (law.seen.root @ noise))
            taken, info = accepted(here, there, there.value - here.value, key_accept)
            return taken, rate + info.acceptance, there

        start = here, jnp.zeros(()), here
        here, rate, proposed = jax.lax.fori_loop(0, self.repeats, one, start)
        number = self.repeats.astype(float)
        return HyperMoved(here, rate / number, number, proposed)


class Still(LatentMove):
    """No move: hyper-parameters alone are of interest."""

    def init(self, residual, eps):
        return ResidualValue.at(residual, eps)

    def step(self, residual, state, scale, key):
        return state, Info(jnp.ones(()), jnp.zeros(()))


class Slices(EllipticalSlice):
    """Elliptical slices in turn."""

    repeats: Int[Array, ""]

    def step(self, residual, state, scale, key):
        def one(number, carry):
            state, info = super(Slices, self).step(
                residual, carry[0], scale, jax.random.fold_in(key, number)
            )
            return state, Info(info.acceptance, carry[1].evaluations + info.evaluations)

        return jax.lax.fori_loop(0, self.repeats, one, (state, Info(jnp.ones(()), jnp.zeros(()))))


SCHEMES = {  # PM EP(64) first, which tunes the others' proposals
    "PM EP(64)": (64, True),
    "PM EP(16)": (16, True),
    "PM EP(1)": (1, True),
    "PM LA(64)": (64, False),
    "PM LA(16)": (16, False),
    "PM LA(1)": (1, False),
    "AA": Whitened(),
    "SURR": Surrogate(),
}


def simulated(rows: int, inputs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in the unit cube, and balanced classes drawn from the model."""
    rng = np.random.default_rng(seed)
    tau = TRUE_TAU * np.sqrt(inputs / 2)
    while True:
        X = rng.uniform(size=(2 * rows, inputs))
        squared = ((X[:, None] - X) ** 2).sum(axis=-1)
        K = TRUE_SIGMA * np.exp(-0.5 * squared / tau**2) + 1e-8 * np.eye(len(X))
        y = np.linalg.cholesky(K) @ rng.normal(size=len(X)) + rng.normal(size=len(X)) > 0
        if min(y.sum(), (~y).sum()) >= rows // 2:
            chosen = np.concatenate([np.flatnonzero(y == c)[: rows // 2] for c in (False, True)])
            return X[chosen], y[chosen].astype(float)


def target_of(rows: int, inputs: int, kind: str) -> WhiteTarget:
    """The target of simulated data.

    Inputs of an isotropic kernel have ten columns, of which some may be zero: one program for all.
    """
    X, y = simulated(rows, inputs, seed=inputs)
    tau = TRUE_TAU * np.sqrt(inputs / 2)
    if kind == "iso":
        X = np.pad(X, ((0, 0), (0, 10 - inputs)))
    lengthscale = tau if kind == "iso" else np.full(inputs, tau)
    model = lgp.LatentGP(lgp.RBF(lengthscale, variance=TRUE_SIGMA), lgp.BernoulliProbit())
    space = ParameterSpace(model, priors=priors(inputs, Gamma(1.2, 0.2)))
    return WhiteTarget.of(space, lgp.Dense(), lgp.Data(X, y).to_device())


def priors(inputs: int, of_variance: Gamma) -> dict[str, Gamma]:
    """The source's laws of tau and sigma."""
    return {"kernel.lengthscale": Gamma(1.0, inputs**-0.5), "kernel.variance": of_variance}


def chains_of(
    target: WhiteTarget, coupling: Any, latents: LatentMove, warmup: int, repeats: int = 1
) -> SweepSampler:
    """Chains of random walks."""
    return SweepSampler(
        target,
        couplings=(coupling,),
        latents=latents,
        hyperparameters=Walk(jnp.asarray(repeats)),
        repeats=1,
        warmup=jnp.asarray(warmup),
        chains=CHAINS,
        fixed=None,
    )


def sampler_of(
    target: WhiteTarget, scheme: str, warmup: int, repeats: int = 1, slices: int = 1
) -> SweepSampler:
    """The chains of a scheme; `slices` moves of f for each of the repeats."""
    coupling = SCHEMES[scheme]
    latents = Still()
    if isinstance(coupling, tuple):
        coupling = Alone.of(coupling[0], by_moments=coupling[1])
    else:
        latents = Slices(jnp.asarray(slices * repeats))
    return chains_of(target, coupling, latents, warmup, repeats)


@jax.jit
def start(sampler: SweepSampler, keys: Key[Array, "C"]) -> Any:
    return jax.vmap(lambda key: sampler.init(key))(keys)


@jax.jit
def advance(sampler: SweepSampler, states: Any, keys: Key[Array, "C"]) -> Any:
    """States after some sweeps, and of each the hyper-parameters, the acceptance and the cost."""

    def sweep(state, key):
        state, told = sampler.step(state, key)
        rates = told["hyperparameter_acceptance_rate"], told["factorisations"]
        return state, (state.at.vector, *rates)

    def chain(state, key):
        return jax.lax.scan(sweep, state, jax.random.split(key, PIECE))

    return jax.vmap(chain)(states, keys)


class Run(NamedTuple):
    """Chains: the state at their end, all hyper-parameters, mean acceptance and cost of a sweep."""

    states: Any
    vectors: Float[np.ndarray, "C S P"]
    acceptance: float
    operations: float
    seconds: float  # of the processor, a sweep of all chains; the first ones, which compile, aside

    def effective(self, number: float = 10_000) -> str | None:
        """Effective draws of so many, the worst hyper-parameter; None where R-hat forbids it."""
        if not self.r_hat(100) < LARGEST_R_HAT:
            return None
        draws = self.vectors.shape[0] * self.vectors.shape[1]
        return (
            f"{number * worst(import_arviz().ess, np.min, self.vectors, method='mean') / draws:.0f}"
        )

    def r_hat(self, share: int) -> float:
        """R-hat after a share of the sweeps, in per cent."""
        part = self.vectors[:, : max(4, self.vectors.shape[1] * share // 100)]
        return worst(import_arviz().rhat, np.max, part, method="identity")

    @property
    def r_hats(self) -> str:
        """R-hat after 10, 20, 50 and 100 % of the sweeps."""
        return "/".join(f"{self.r_hat(share):.2f}" for share in (10, 20, 50, 100))


def worst(diagnostic: Any, choose: Any, vectors: np.ndarray, **settings: Any) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):  # of parts in which nothing moved
        values = diagnostic(import_arviz().convert_to_dataset({"x": vectors}), **settings)
    return float(choose(values["x"].values))


def run(sampler: SweepSampler, states: Any, sweeps: int, seed: int, *, tunes: bool = False) -> Run:
    """Chains, half of them on each of two threads."""
    halves, kept, clock = (slice(0, CHAINS // 2), slice(CHAINS // 2, CHAINS)), [], []
    for piece in range(-(-sweeps // PIECE)):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), piece), CHAINS)

        def half(own: slice, states=states, keys=keys) -> Any:
            parts = jax.tree.map(lambda leaf: leaf[own], (states, keys))
            return jax.block_until_ready(advance(sampler, *parts))

        parts = on_all_cores(half, halves, alone=int(piece == 0))
        states, told = jax.tree.map(lambda *both: jnp.concatenate(both), *parts)
        states = sampler.tuned(states) if tunes else states
        kept.append(jax.tree.map(np.asarray, told))
        clock.append(time.process_time())
    vectors, acceptance, operations = (np.concatenate(c, axis=1) for c in zip(*kept, strict=True))
    seconds = (clock[-1] - clock[0]) / PIECE / max(1, len(clock) - 1)
    return Run(states, vectors, float(acceptance.mean()), float(operations.mean()), seconds)


class Length(NamedTuple):
    """Sweeps of a chain, warm-up and kept, kept ones of repeated updates, and what is run."""

    warmup: int
    draws: int
    repeated: int
    schemes: tuple[str, ...] = tuple(SCHEMES)


AT_SIZE = Length(50, 100, 0, ("PM EP(64)", "PM LA(1)", "AA", "SURR"))


def runs_of(
    target: WhiteTarget, length: Length, slices: int = 1, longer: Mapping[str, int] = LONGER
) -> dict[str, Run]:
    """Chains by scheme."""
    tuned, runs = None, {}
    for number, scheme in enumerate(length.schemes):
        is_pm, times = scheme.startswith("PM"), longer.get(scheme, 1)
        sampler = sampler_of(target, scheme, times * length.warmup, slices=slices)
        states = start(sampler, jax.random.split(jax.random.key(number), CHAINS))
        given = is_pm and tuned is not None
        if given:
            states = states._replace(adaptation=tuned)
        warm = run(sampler, states, times * length.warmup, number, tunes=not given)
        tuned = warm.states.adaptation if is_pm and tuned is None else tuned
        runs[scheme] = run(sampler, warm.states, times * length.draws, 100 + number)
    return runs


def repeated_of(target: WhiteTarget, length: Length, runs: dict[str, Run]) -> dict[str, Run]:
    """Those of repeated updates."""
    long = runs["PM EP(64)"]
    repeated = {"PM": long._replace(vectors=long.vectors[:, ::REPEATS])}
    for scheme in ("AA", "SURR"):
        sampler = sampler_of(target, scheme, length.warmup, REPEATS)
        draws = LONGER.get(scheme, 1) * length.repeated
        repeated[scheme] = run(sampler, runs[scheme].states, draws, 200)
    return repeated


def efficiency(
    report: Report, lengths: dict[int, Length], kinds: tuple[tuple[int, str], ...]
) -> None:
    """Tables 1 to 3."""
    first, second, third = [], [], []
    for rows, d, kind in [(rows, *kind) for rows in lengths for kind in kinds]:
        cell, label = (rows, d, kind), f"{rows}, {d}, {kind}"
        target = target_of(*cell)
        runs = runs_of(target, lengths[rows])
        repeated = repeated_of(target, lengths[rows], runs)
        for scheme, (ess, r_hats, rate) in TABLE_1[cell].items():
            if scheme in runs:
                own = runs[scheme]
                log_sigma = own.vectors[..., -1]
                first.append(
                    [
                        *(label, scheme, own.effective(), ess, own.r_hats, r_hats),
                        *(f"{100 * own.acceptance:.1f}", rate),
                        f"{log_sigma.mean():.2f} ({log_sigma.std():.2f})",
                    ]
                )
        costs = {name: runs[f"PM {name}(1)"].operations for name in ("LA", "EP")}
        costs |= {name: runs[name].operations for name in ("AA", "SURR")}
        published = *OPERATIONS[cell], "1.0", "3.0"
        for (name, cost), theirs in zip(costs.items(), published, strict=True):
            second.append([label, name, f"{cost:.1f}", theirs])
        for scheme, (ess, ess_by_cost, r_hats) in TABLE_3[cell].items():
            own, cost = repeated[scheme], costs["EP" if scheme == "PM" else scheme]
            by_cost = own.effective(10_000 / cost)
            shown = own.effective(), ess, by_cost, ess_by_cost
            third.append([label, scheme, *shown, own.r_hats, r_hats])
    sizes = "; ".join(
        f"N = {rows}: {CHAINS} x {own.draws} after {own.warmup} sweeps"
        for rows, own in lengths.items()
    )
    repeated_sizes = "; ".join(
        f"N = {rows}: {CHAINS} x {own.repeated}, PM {-(-own.draws // REPEATS)}"
        for rows, own in lengths.items()
    )
    more = "AA ten times as many"
    heads = "N, d, kernel", "scheme", "effective of 10,000", "published (mean, sd)"
    report.table(
        f"1. table 1, chains of hyper-parameters ({sizes}; {more})",
        [*heads, "R-hat", "published", "accepted %", "published ", "log sigma: mean (sd)"],
        first,
    )
    report.table(
        "1. table 2, factorisations of N x N matrices a proposal",
        [*heads[:2], "factorisations", "published O(N^3) operations (sd)"],
        second,
    )
    report.table(
        f"2. table 3, each Gibbs update {REPEATS} times ({repeated_sizes}; {more})",
        [*heads, "by factorisation", "published", "R-hat", "published "],
        third,
    )


@partial(jax.jit, static_argnames="repetitions")
def log_weights(target: WhiteTarget, coupling: ByDensity, repetitions: int) -> Float[Array, "R 64"]:
    """Log weights of importance samples at the target's own hyper-parameters."""
    own = coupling.coordinates(target, target.centre, None)
    eps = jax.random.normal(jax.random.key(0), (repetitions, SAMPLES, 1, len(target.data.y)))
    of_each = jax.vmap(lambda eps: own.residual(target, target.space.model, eps))
    return jax.lax.map(of_each, eps)


def spread_of_estimates(report: Report, rows: tuple[int, ...], repetitions: int) -> None:
    """Standard deviation of the log estimate of the evidence at the true hyper-parameters."""
    table = []
    for number in rows:
        target, row = target_of(number, 2, "iso"), [number]
        for by_moments in (False, True):
            logs = log_weights(target, ByDensity.of(1, by_moments=by_moments), repetitions)
            for samples in (1, SAMPLES):
                row.append(float(jnp.std(jax.scipy.special.logsumexp(logs[:, :samples], axis=1))))
        table.append(row)
    report.table(
        f"0. section 4.1, deviation of the log estimate over {repetitions} repetitions, in nats",
        ["N", "LA(1)", "LA(64)", "EP(1)", "EP(64)"],
        table,
    )


def of_real_data(report: Report, data_dir: Path, rows: int, length: Length) -> None:
    """Section 4.4: chains of pima; ten moves of f a sweep of AA and SURR."""
    X, y, inputs = real(data_dir, "pima")
    chosen = np.random.default_rng(0).permutation(len(y))[:rows]
    X, y = X[chosen], y[chosen]
    model = lgp.LatentGP(lgp.RBF(lengthscale=inputs**0.5), lgp.BernoulliProbit())
    space = ParameterSpace(model, priors=priors(inputs, Gamma(1.1, 0.1)))
    data = lgp.Data(X[:, :inputs], y).to_device()
    target = WhiteTarget.of(space, lgp.Dense(), data)
    table = []
    for scheme, own in runs_of(target, length, slices=10, longer=LONGER_AT_SIZE).items():
        made, effective = own.vectors.shape[0] * own.vectors.shape[1], own.effective()
        each = own.seconds / CHAINS
        moments = [
            f"{own.vectors[..., p].mean():.3f} ({own.vectors[..., p].std():.3f})" for p in (0, 1)
        ]
        table.append(
            [
                *(scheme, made, effective, own.r_hats, f"{100 * own.acceptance:.1f}"),
                *(own.operations, each),
                effective and 10_000 * each / float(effective),
                *moments,
            ]
        )
        report.note(f"  {scheme}: {each:.3f} s a sweep of a chain, R-hat {own.r_hats}")
    report.table(
        f"4. section 4.4, pima, {len(y)} rows, {CHAINS} chains after {length.warmup} sweeps",
        [
            *("scheme", "draws", "effective of 10,000", "R-hat", "accepted %", "factorisations"),
            *("s a sweep", "s an effective draw"),
            *("log tau: mean (sd)", "log sigma: mean (sd)"),
        ],
        table,
    )


class Published(lgp.MCMC):
    """The source's chains with predictions: PM EP, or those of EP's own evidence."""

    gaussian: bool = False

    def sampler(self, target: WhiteTarget) -> SweepSampler:
        coupling = ByDensity.of(self.samples, gaussian=self.gaussian)
        return chains_of(target, coupling, Slices(jnp.asarray(1)), self.warmup)


METHODS = "MCMC PM EP", "MCMC EP", "EP ML", "SVM"
SCORES = "capacity accuracy", "capacity AUC", "log loss"
DATA_SETS = "pima", "glass", "usps"
WIDEST = 256  # inputs; the others' get columns of zeros, so that one program serves all


def real(data_dir: Path, name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Inputs, classes 0 and 1, and how many inputs there are before columns of zeros."""
    files = {"pima": "ratsch_diabetis", "glass": "glass", "usps": "usps_3v5"}
    X, y = load(data_dir, files[name])
    _, first = np.unique(X, axis=0, return_index=True)
    X, y = X[np.sort(first)], y[np.sort(first)]
    # The first three of the six kinds of glass are of windows.
    y = y < 3 if name == "glass" else y > 0
    X, inputs = X if name == "usps" else standardised(X)[0], X.shape[1]
    return np.pad(X, ((0, 0), (0, WIDEST - inputs))), y.astype(float), inputs


def probabilities(
    name: str, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, inputs: int, draws: int, seed: int
) -> np.ndarray:
    """Class probabilities of new rows by a method, shape (N, 2)."""
    if name == "SVM":
        return of_svm(X, y, X_new, inputs, seed)
    model = lgp.LatentGP(lgp.RBF(lengthscale=inputs**0.5), lgp.BernoulliProbit())
    method, laws = lgp.ExpectationPropagation(), None
    if name != "EP ML":
        gaussian = name == "MCMC EP"
        samples = 1 if gaussian else SAMPLES
        chains = {"chains": CHAINS, "draws": draws, "warmup": draws}
        method = Published(samples=samples, gaussian=gaussian, **chains)
        laws = priors(inputs, Gamma(1.1, 0.1))
    data = lgp.Data(X, y)
    result = lgp.fit(model, data, key=jax.random.key(seed), method=method, priors=laws)
    return result.posterior.predict(X_new).probabilities


def of_svm(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, inputs: int, seed: int) -> np.ndarray:
    """Probabilities of a support vector machine, by a sigmoid of its decision values."""
    folds_of = StratifiedKFold(min(5, len(y) // 2), shuffle=True, random_state=seed)
    grid = {"C": 10.0 ** np.arange(-1, 4), "gamma": 0.5 / inputs * 4.0 ** np.arange(-2, 3)}
    best = GridSearchCV(SVC(), grid, cv=folds_of).fit(X, y).best_estimator_
    platt = CalibratedClassifierCV(best, method="sigmoid", cv=folds_of, ensemble=False)
    return platt.fit(X, y).predict_proba(X_new)


def capacities(y: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Accuracy and area under the ROC, averaged over the share of rows left undecided.

    For rho = 0, 0.01, ..., 0.5 rows with |p - 1/2| < rho are undecided. A capacity is the area
    under the score of the others against the share of these, divided by their largest share
    (section 5.3, after Ferri & Hernández-Orallo 2004). Where nothing is left, or one class for the
    ROC, the curve has no point.
    """
    undecided, accuracies, areas = [], [], []
    for rho in np.arange(51) / 100:
        kept = np.abs(p - 0.5) >= rho - 1e-12
        if not kept.any():
            break
        own, probability = y[kept] == 1, p[kept]
        undecided.append(1 - kept.mean())
        accuracies.append(np.mean((probability > 0.5) == own))
        areas.append(roc_auc_score(own, probability) if 0 < own.mean() < 1 else np.nan)
    return mean_height(undecided, accuracies), mean_height(undecided, areas)


def mean_height(share: list[float], score: list[float]) -> float:
    """Area under scores against shares, by its width; the first score where that is zero."""
    known = np.isfinite(score)
    if not known.any():
        return np.nan
    x, height = np.asarray(share)[known], np.asarray(score)[known]
    width = x[-1] - x[0]
    return float(np.trapezoid(height, x) / width) if width > 0 else float(height[0])


def classifiers(
    report: Report, data_dir: Path, sizes: tuple[int, ...], sets: int, draws: int
) -> dict[tuple[str, int, str], np.ndarray]:
    """Scores (sets, 3) by data set, training size and method; on at most 300 other rows."""
    found, table = {}, []
    for size in sizes:
        for name in DATA_SETS:
            X, y, inputs = real(data_dir, name)
            for seed in range(sets):
                rng = np.random.default_rng(seed)
                order = rng.permutation(len(y))
                of_class = [order[y[order] == c][: size // 2] for c in (0, 1)]
                train = np.concatenate(of_class)
                rest = order[~np.isin(order, train)][:300]
                for method in METHODS:
                    p = probabilities(method, X[train], y[train], X[rest], inputs, draws, seed)
                    scores = *capacities(y[rest], p[:, 1]), metrics.log_loss(y[rest], p)
                    found.setdefault((name, size, method), []).append(scores)
    found = {key: np.array(scores) for key, scores in found.items()}
    for (name, size, method), scores in found.items():
        row = [f"{name}, {size}", method]
        reference = found[name, size, METHODS[0]]
        for own, theirs in zip(scores.T, reference.T, strict=True):
            mean, error = paired(own - theirs)
            row += [
                float(own.mean()),
                None if method == METHODS[0] else f"{mean:+.4f} ± {error:.4f}",
            ]
        table.append(row)
    heads = [head for score in SCORES for head in (score, f"{score} less PM EP's")]
    report.table(
        f"3. section 5, {sets} balanced training sets of each size, {CHAINS} x {draws} draws",
        ["data, N", "method", *heads],
        table,
    )
    summary = []
    for method in METHODS[1:]:
        keys = [key for key in found if key[2] == method]
        row = [method]
        for score in range(len(SCORES)):
            away = [found[key][:, score] - found[*key[:2], METHODS[0]][:, score] for key in keys]
            mean, error = paired(np.concatenate(away))
            row += [f"{mean:+.4f} ± {error:.4f}"]
        summary.append(row)
    report.table(
        "3. differences from MCMC PM EP over all sizes and data sets (errors as if independent)",
        ["method", *SCORES],
        summary,
    )
    return found


def drawn_scores(found: dict[tuple[str, int, str], np.ndarray], sizes: tuple[int, ...]):
    """Capacity scores against the number of training rows."""
    result = figure(11, 6)
    axes = result.subplots(2, len(DATA_SETS), squeeze=False)
    for column, name in enumerate(DATA_SETS):
        for row in (0, 1):
            ax = axes[row, column]
            for number, method in enumerate(METHODS):
                scores = np.array([found[name, size, method][:, row] for size in sizes])
                error = scores.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
                place = np.array(sizes) * 1.03 ** (number - 1.5)  # side by side
                look = {
                    "color": COLORS[number],
                    "linestyle": STYLES[number],
                    "marker": "os^D"[number],
                }
                ax.errorbar(place, scores.mean(axis=1), error, label=method, ms=4, lw=1.4, **look)
            ax.set_xscale("log")
            ax.set_xticks(sizes, [str(size) for size in sizes])
            ax.minorticks_off()
            tidy(ax, name, "training rows", SCORES[row])
    lines = axes[0, 0].get_legend_handles_labels()
    result.legend(*lines, loc="outside upper center", ncols=len(METHODS), fontsize=9, frameon=False)
    return result


PARTS = "estimates", "chains", "classifiers", "pima"
KINDS = (2, "iso"), (2, "ARD"), (10, "iso"), (10, "ARD")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--long", action="store_true", help="ten times as many sweeps")
    arguments.add_argument("--rows", type=int, default=768, help="of `pima`, at most")
    arguments.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = arguments.parse_args()
    report = Report("pseudo_marginal", arguments)
    quick, times = arguments.quick, 10 if arguments.long else 1
    few = SCHEMES if times > 1 else ("PM EP(64)", "PM EP(1)", "PM LA(1)", "AA", "SURR")
    lengths = {
        50: Length(300 * times, 1000 * times, 50 * times),
        200: Length(100 * times, 200 * times, 25 * times, tuple(few)),
    }
    if quick:
        lengths = {50: Length(100, 100, 25)}
    with jax.enable_x64(True), one_blas_thread():
        if "estimates" in arguments.parts:
            spread_of_estimates(report, tuple(lengths), 500)
        if "chains" in arguments.parts:
            efficiency(report, lengths, KINDS[:1] if quick else KINDS)
        if "pima" in arguments.parts:
            at_size = Length(25, 50, 0, ("PM EP(64)", "AA")) if quick else AT_SIZE
            of_real_data(report, arguments.data_dir, 60 if quick else arguments.rows, at_size)
    if "classifiers" in arguments.parts:
        sizes, sets, draws = ((20,), 3, 100) if quick else ((10, 20, 40), 6, 200 * times)
        found = classifiers(report, arguments.data_dir, sizes, sets, draws)
        report.save(drawn_scores(found, sizes))


if __name__ == "__main__":
    main()
