"""Inference on fixed effects beside R: lme4 1.1-31, lmerTest 3.1-3, pbkrtest 0.5.2, emmeans 1.8.4.

Numbers of R are of the tables below, written to CSV, with factors by factor() and

    ctrl <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9, maxfun = 1e5))
    trial <- lmer(y ~ arm * sex + age + (1 | clinic), t, control = ctrl)
    growth <- lmer(y ~ drug * day + (1 + day | subject), t, control = ctrl)

A search for variances ends up to 1e-6 nats a row before the optimum. Tolerances are what that
changes: variances by sqrt(2e-6 N) of their standard errors, which are a third of them or more here.
"""

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.distributions import Normal
from scipy import special, stats
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.extensions.groups.inference import maximum_likelihood, satterthwaite
from latentgp.extensions.groups.inference.contrasts import Contrasts
from latentgp.extensions.groups.inference.design import FixedDesign
from latentgp.extensions.groups.inference.marginal_means import MarginalMeans
from latentgp.extensions.groups.inference.satterthwaite import Satterthwaite, normal_tests
from latentgp.hyperparameters.base import parameters
from latentgp.kernels import FixedEffects, SameGroup
from latentgp.site_inference.search import profiled_bound
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.tables.formula.contrasts import level_weights, term_weights
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder

pytestmark = pytest.mark.usefixtures("x64")

CLOSE = 2e-3
SPARSE = lgp.CollapsedVI(lgp.groups.SparseEffects())


def trial_table() -> pd.DataFrame:
    """108 unbalanced rows: a factor of three levels, one of two, an interaction, a number."""
    rng = np.random.default_rng(7)
    clinic = np.repeat(np.arange(12), 9)
    arm = np.array(["a", "b", "c"])[rng.integers(0, 3, 108)]
    sex = np.array(["f", "m"])[rng.integers(0, 2, 108)]
    age = np.round(rng.uniform(20, 60, 108), 1)
    level, slope = rng.normal(size=12), 0.5 * rng.normal(size=12)
    y = 1.0 + 0.5 * (arm == "b") + 1.0 * (arm == "c") + 0.3 * (sex == "m")
    y = y + 0.4 * ((arm == "c") & (sex == "m")) + 0.02 * age
    y = y + level[clinic] + slope[clinic] * (sex == "m") + 0.7 * rng.normal(size=108)
    names = [f"k{c}" for c in clinic]
    return pd.DataFrame({"y": np.round(y, 3), "arm": arm, "sex": sex, "age": age, "clinic": names})


def growth_table() -> pd.DataFrame:
    """96 balanced rows: random intercepts and slopes of 12 subjects, a factor between them."""
    rng = np.random.default_rng(3)
    subject, day = np.repeat(np.arange(12), 8), np.tile(np.arange(8.0), 12)
    drug = np.array(["low", "none", "high"])[subject % 3]
    y = 10 + 1.5 * day + 2.0 * (drug == "high")
    y = y + (3 * rng.normal(size=12))[subject] + (0.8 * rng.normal(size=12))[subject] * day
    y = np.round(y + 2 * rng.normal(size=96), 3)
    return pd.DataFrame({"y": y, "day": day, "drug": drug, "subject": [f"s{k}" for k in subject]})


TRIAL, GROWTH = "y ~ arm * sex + age + (1 | clinic)", "y ~ drug * day + (1 + day | subject)"


@pytest.fixture(scope="module")
def trial():
    return lgp.TableModel.fit(trial_table(), formula=TRIAL, priors=None, random_state=0)


@pytest.fixture(scope="module")
def growth():
    return lgp.TableModel.fit(
        growth_table(), formula=GROWTH, priors=None, random_state=0, method=SPARSE
    )


# coef(summary(trial, ddf = ...)) and anova(trial, ddf = ...)
COEFFICIENTS = {
    "satterthwaite": (
        [0.36113895, 0.25589418, 0.26552589, 0.27437999, 0.00616704, 0.36492383, 0.36245974],
        [55.06964, 91.92587, 91.02532, 91.57633, 91.3678, 91.0568, 90.98925],
    ),
    "kenward-roger": (
        [0.3616932, 0.25644527, 0.26581983, 0.27486106, 0.00617633, 0.36534311, 0.36284541],
        [54.9162, 91.87515, 90.97011, 91.52386, 91.31429, 91.00175, 90.93387],
    ),
}
TERMS = {
    "satterthwaite": {
        "arm": (2, 92.6047, 28.2384, 2.6613e-10),
        "sex": (1, 91.7490, 10.3141, 0.00182098),
        "age": (1, 91.3678, 12.9627, 0.00051616),
        "arm:sex": (2, 91.0427, 2.7003, 0.07256705),
    },
    "kenward-roger": {
        "arm": (2, 92.5336, 28.15371, 2.8149e-10),
        "sex": (1, 91.6974, 10.27387, 0.00185726),
        "age": (1, 91.3143, 12.92368, 0.00052578),
        "arm:sex": (2, 90.9876, 2.69413, 0.07299418),
    },
}


@pytest.mark.parametrize("degrees", list(COEFFICIENTS))
def test_effects_of_an_unbalanced_trial_are_those_of_r(trial, degrees):
    found = trial.mixed_summary(degrees=degrees)
    error, freedom = COEFFICIENTS[degrees]
    estimate = [0.19468, 0.62884, 1.08196, 0.39525, 0.0222036, -0.27428, 0.50943]
    np.testing.assert_allclose(found.estimate, estimate, rtol=CLOSE)
    np.testing.assert_allclose(found.standard_error, error, rtol=CLOSE)
    np.testing.assert_allclose(found.degrees, freedom, rtol=CLOSE)
    for name, own in trial.term_tests(degrees=degrees).items():
        np.testing.assert_allclose(own[:3], TERMS[degrees][name][:3], rtol=CLOSE)
        assert own.p_value == pytest.approx(TERMS[degrees][name][3], rel=0.02)  # of F's tail
    assert list(trial.term_tests(degrees="normal")) == list(TERMS[degrees])


# coef(summary(growth)), anova(growth); Kenward and Roger's are the same to six digits
@pytest.mark.parametrize("degrees", ["satterthwaite", "kenward-roger"])
def test_effects_of_balanced_slopes_are_those_of_r(growth, degrees):
    found = growth.mixed_summary(degrees=degrees)
    error = [2.393284, 3.384615, 3.384615, 0.4063896, 0.5747217, 0.5747217]
    np.testing.assert_allclose(found.standard_error, error, rtol=4e-3)
    np.testing.assert_allclose(found.degrees, 9, rtol=4e-3)
    terms = growth.term_tests(degrees=degrees)
    table = terms.table()
    np.testing.assert_allclose(table["statistic"], [1.045992, 37.04955, 0.2144562], rtol=8e-3)
    np.testing.assert_allclose(table["denominator"], 9, rtol=4e-3)
    assert table["numerator"].tolist() == [2, 1, 2]
    # f + the mean of z'Sz + s^2 by VarCorr(growth)
    np.testing.assert_allclose(found.r_squared[:2], [0.27822105, 0.93266691], rtol=4e-3)


def test_variance_components_are_those_of_r(trial, growth):
    """VarCorr(trial), VarCorr(growth); shares of variances by hand, as performance::icc has them.

    Searches end 1e-6 nats a row early: by 1.5 % of a standard error, some 0.4 of a variance here.
    """
    found = trial.mixed_summary(degrees="normal")
    (clinic,) = found.components
    variances = clinic.variance[0], found.residual
    np.testing.assert_allclose(variances, [0.543885, 0.524104], rtol=7e-3)
    assert found.intraclass() == pytest.approx({"clinic": 0.509261}, rel=7e-3)
    found = growth.mixed_summary(degrees="normal")
    (subject,) = found.components
    assert subject.effects == ("(Intercept)", "day")
    np.testing.assert_allclose(subject.variance, [21.237294, 0.564956], rtol=7e-3)
    np.testing.assert_allclose(subject.correlation, [[1, 0.326801], [0.326801, 1]], atol=5e-3)
    np.testing.assert_allclose(found.residual, 4.017471, rtol=7e-3)
    assert str(found).splitlines()[3].split()[::3] == ["day", "0.33"]
    formula = "y ~ 1 + (1 | clinic) + (1 | arm)"
    crossed = lgp.TableModel.fit(trial_table(), formula=formula, priors=None, random_state=0)
    shares = crossed.mixed_summary().intraclass()
    assert shares == pytest.approx({"clinic": 0.310597, "arm": 0.296034}, rel=2e-2)


# nlme's Machines: scores of six workers on three machines, three times each. By `ctrl` above
# lmer(score ~ Machine + (0 + Machine | Worker)), and (Machine | Worker): VarCorr, vcov, ranef, and
# predict() of rows (A, 1), (B, 2) and (C, 9), a worker whom the fit never saw
SCORES = """
52 52.8 53.1 51.8 52.8 53.1 60 60.2 58.4 51.1 52.3 50.3 50.9 51.8 51.4 46.4 44.8 49.2
62.1 62.6 64 59.7 60 59 68.6 65.8 69.7 63.2 62.8 62.2 64.8 65 65.4 43.7 44.2 43
67.5 67.2 66.9 61.5 61.7 62.3 70.8 70.6 71 64.1 66.2 64 72.1 72 71.1 62 61.4 60.5
"""
OF_MACHINES = {
    "0 + Machine": (
        ("Machine[A]", "Machine[B]", "Machine[C]"),
        [16.640526, 74.395612, 19.267523],
        [0.802750, 0.622505, 0.770831],
        [0.3119890, 0.1838844, 6.9692217, -1.0238705, -0.8496233, -5.5916014],
    ),
    "Machine": (
        ("(Intercept)", "Machine[B]", "Machine[C]"),
        [16.640526, 34.546697, 13.615024],
        [0.483981, -0.365003, 0.296637],
        [0.3119890, 0.1838844, 6.9692218, -1.0238706, -0.8496234, -5.5916012],
    ),
}


def machines_table() -> pd.DataFrame:
    row = np.arange(54)
    machine, worker = np.array(["A", "B", "C"])[row // 18], row // 3 % 6 + 1
    scores = np.array(SCORES.split(), float)
    return pd.DataFrame({"score": scores, "Machine": machine, "Worker": worker.astype(str)})


@pytest.mark.parametrize(
    ("slopes", "method"),
    [("Machine", "auto"), pytest.param("0 + Machine", SPARSE, marks=pytest.mark.slow)],
)
def test_slopes_of_a_category_are_those_of_lmer(slopes, method, tmp_path):
    formula = f"score ~ Machine + ({slopes} | Worker)"
    settings = {"priors": None, "random_state": 0, "method": method}
    model = lgp.TableModel.fit(machines_table(), formula=formula, **settings)
    effects, variance, correlation, first = OF_MACHINES[slopes]
    found = model.mixed_summary(degrees="normal")
    (worker,) = found.components
    assert worker.effects == effects
    np.testing.assert_allclose(worker.variance, variance, rtol=7e-3)
    pairs = worker.correlation[[1, 2, 2], [0, 0, 1]]
    np.testing.assert_allclose(pairs, correlation, atol=5e-3)
    np.testing.assert_allclose(found.residual, 0.924630, rtol=7e-3)
    np.testing.assert_allclose(found.estimate, [52.355556, 7.966667, 13.916667], rtol=CLOSE)
    np.testing.assert_allclose(found.standard_error, [1.680711, 2.420850, 1.540100], rtol=4e-3)
    own = model.group_effects("Worker")
    assert len(own) == 3
    np.testing.assert_allclose(next(iter(own.values())).estimate, first, atol=0.01)
    rows = pd.DataFrame({"Machine": ["A", "B", "C"], "Worker": ["1", "2", "9"]})
    model.save(tmp_path / "model")
    for each in (model, lgp.load(tmp_path / "model")):
        with pytest.warns(UserWarning, match="groups that training never saw: '9'"):
            predicted = each.predict(rows)
        np.testing.assert_allclose(predicted["mean"], [52.667545, 59.518898, 66.272222], atol=0.01)
        # of machine C the variance of workers and noise, and of the mean over 18 balanced rows
        total = 19.267523 + 0.924630 + (19.267523 + 0.924630 / 3) / 6
        assert predicted["std"][2] ** 2 == pytest.approx(total, rel=7e-3)


def test_a_model_without_groups_has_a_summary_of_fixed_effects():
    """Least squares by hand, whose priors of fixed effects are vague."""
    table = trial_table()
    settings = {"formula": "y ~ arm + age", "random_state": 0}
    found = lgp.TableModel.fit(table, priors=None, **settings).mixed_summary()
    arms = [table["arm"] == level for level in ("b", "c")]
    X, y = np.column_stack([np.ones(108), *arms, table["age"]]).astype(float), table["y"]
    estimate, rest, *_ = np.linalg.lstsq(X, y, rcond=None)
    error = np.sqrt(rest[0] / 104 * np.diagonal(np.linalg.inv(X.T @ X)))
    np.testing.assert_array_less(np.abs(found.estimate - estimate), 2e-3 * error)
    np.testing.assert_allclose(found.standard_error, error, rtol=7e-3)
    np.testing.assert_allclose(found.degrees, 104, rtol=7e-3)
    assert (found.components, found.notes) == ((), ())
    assert "Random effects" not in str(found)
    weak = lgp.TableModel.fit(table, **settings).mixed_summary()
    assert "priors=None is (restricted) maximum likelihood." in str(weak)
    smooth = lgp.TableModel.fit(table, formula="y ~ s(age) - 1", max_evaluations=2)
    with pytest.raises(lgp.InputError, match="groups or fixed effects"):
        smooth.mixed_summary()


def test_dense_and_sparse_rows_have_one_answer(growth):
    dense = lgp.TableModel.fit(growth_table(), formula=GROWTH, priors=None, random_state=0)
    assert isinstance(dense.estimator.method_, lgp.ExactGP)
    left, right = (model.effect_tests().coefficients() for model in (dense, growth))
    np.testing.assert_allclose(left.standard_error, right.standard_error, rtol=4e-3)
    np.testing.assert_allclose(left.degrees, right.degrees, rtol=4e-3)


# as.data.frame(emmeans(trial, ~ arm | sex, lmer.df = ...)) and pairs() of it
MEANS = [1.092574, 1.721409, 2.174535, 1.487825, 1.842381, 3.079219]
DIFFERENCES = [-0.628835, -1.081962, -0.4531265, -0.354556, -1.591394, -1.236838]
OF_LEVELS = {
    "satterthwaite": (
        [0.2899563, 0.2634281, 0.2784497, 0.2848602, 0.2876686, 0.2667862],
        [28.80802, 20.47145, 25.08786, 27.0325, 27.73614, 21.4862],
        [91.92587, 91.02532, 91.10733, 92.68639, 91.41912, 92.91129],
        [0.04161185, 0.0002875185, 0.1425465, 0.3995926, 1.989638e-08, 1.713117e-05],
    ),
    "kenward-roger": (
        [0.2901778, 0.2635354, 0.2785683, 0.2851126, 0.2880955, 0.2668698],
        [28.68206, 20.37165, 24.97253, 26.91141, 27.61307, 21.38277],
        [91.87515, 90.97011, 91.05253, 92.63954, 91.36587, 92.86559],
        [0.0421614, 0.0002923416, 0.1431983, 0.4018123, 2.08303e-08, 1.826973e-05],
    ),
}


def test_degrees_of_freedom_take_the_program_of_the_search(growth, monkeypatch):
    def another(*_):
        pytest.fail("compiled one that makes the posterior alone")

    monkeypatch.setattr(profiled_bound, "_converge_exact", another)
    assert np.all(growth.effect_tests(degrees="satterthwaite").coefficients().degrees > 5)


@pytest.mark.parametrize("degrees", list(OF_LEVELS))
def test_marginal_means_and_differences_are_those_of_emmeans(trial, degrees):
    error, freedom, of_pairs, p = OF_LEVELS[degrees]
    found = trial.marginal_means("arm", "sex", degrees=degrees)
    np.testing.assert_allclose(found.means.estimate, MEANS, rtol=CLOSE)
    np.testing.assert_allclose(found.means.standard_error, error, rtol=CLOSE)
    np.testing.assert_allclose(found.means.degrees, freedom, rtol=CLOSE)
    pairs = found.pairs()
    assert pairs.names[0] == "a - b | sex = f"
    np.testing.assert_allclose(pairs.estimate, DIFFERENCES, rtol=CLOSE)
    np.testing.assert_allclose(pairs.degrees, of_pairs, rtol=CLOSE)
    np.testing.assert_allclose(pairs.p_value, p, rtol=0.02, atol=1e-8)  # SciPy's quadrature


@pytest.mark.slow
def test_curvature_is_refused_where_the_rows_do_not_have_it(monkeypatch):
    """A level that is all zeros, and another table than the one that was fitted."""
    table = trial_table()
    table["y"] = np.random.default_rng(1).poisson(np.exp(0.5 + table["y"] / 3))
    settings = {"method": "laplace", "likelihood": "poisson", "priors": None}
    settings |= {"formula": "y ~ arm + (1 | clinic)", "fixed_effects": "maximise"}
    model, other = lgp.TableModel.fit(table, **settings), table.assign(y=table["y"] + 1)
    with pytest.raises(lgp.InputError, match="not that of the fit"):
        model.mixed_summary(other, degrees="curvature")
    none = table.assign(y=np.where(table["arm"] == "c", 0, table["y"]))
    model = lgp.TableModel.fit(none, **settings)
    assert model.mixed_summary(degrees="curvature").standard_error[-1] > 5  # of logarithms
    monkeypatch.setattr(satterthwaite, "_FLAT", 0.5)
    with pytest.raises(lgp.InputError, match="does not curve in a fixed effect"):
        model.mixed_summary(degrees="curvature")


def test_averages_over_a_factor_count_its_levels_alike(trial):
    found = trial.marginal_means("arm")  # emmeans(trial, ~ arm), pairs(adjust = "holm")
    lower, upper = found.means.interval()
    np.testing.assert_allclose(lower, [0.7583242, 1.257864, 2.106192], rtol=CLOSE)
    np.testing.assert_allclose(upper, [1.822075, 2.305926, 3.147562], rtol=CLOSE)
    p = found.pairs("holm").p_value
    np.testing.assert_allclose(p, [0.01188372, 2.750529e-10, 1.65631e-05], rtol=0.02)
    np.testing.assert_array_equal(found.response()["mean"], found.means.estimate)
    with pytest.raises(lgp.InputError, match="tukey, holm or none"):
        found.pairs("bonferroni")


# VarCorr(update(trial, REML = FALSE)), logLik of it, and the same of growth
def test_maximised_fixed_effects_give_variances_of_greatest_likelihood():
    settings = {"priors": None, "random_state": 0, "fixed_effects": "maximise"}
    model = lgp.TableModel.fit(trial_table(), formula=TRIAL, **settings)
    found = model.mixed_summary()
    assert found.components[0].variance[0] == pytest.approx(0.49449762, rel=2e-3)
    assert found.residual == pytest.approx(0.49165362, rel=2e-3)
    error = [0.34786532, 0.24780791, 0.25715451, 0.26571736, 0.00597244, 0.35341777, 0.35103332]
    np.testing.assert_allclose(found.standard_error, error, rtol=CLOSE)
    assert np.isinf(found.degrees).all()
    value = model.estimator.diagnostics_.finding("greatest likelihood").value
    assert value == pytest.approx(-128.753063, abs=0.02)
    found = lgp.TableModel.fit(
        growth_table(), formula=GROWTH, method=SPARSE, **settings
    ).mixed_summary()
    np.testing.assert_allclose(found.components[0].variance, [15.509485, 0.39980345], rtol=5e-3)
    assert found.residual == pytest.approx(4.01747074, rel=2e-3)


def test_the_last_fit_of_greatest_likelihood_is_judged_too(monkeypatch):
    """Its posterior is the result's: sites that have not settled there are told."""
    made = []

    def fitted(*given, **settings):
        found = lgp.fit(*given, **settings)
        made.append(found)
        return found.warned_before(["Unsettled."]).not_converged() if len(made) == 2 else found

    monkeypatch.setattr(maximum_likelihood, "fit", fitted)
    group = np.arange(40) // 4
    kernel = FixedEffects(1e4).on(0) + lgp.Constant() * SameGroup().on(1)
    data = lgp.Data(np.column_stack([np.ones(40), group]), np.sin(group))
    model, key = lgp.LatentGP(kernel, lgp.Gaussian(0.1)), jax.random.key(0)
    found = lgp.groups.maximised(model, data, key=key, method=lgp.ExactGP(), priors=None)
    assert made[0].diagnostics.converged
    assert not found.diagnostics.converged
    assert "Unsettled." in found.diagnostics.warnings


def test_priors_of_a_mean_have_the_names_of_the_model():
    group = np.arange(40) // 4
    kernel = FixedEffects(1e4).on(0) + lgp.Constant() * SameGroup().on(1)
    data = lgp.Data(np.column_stack([np.arange(40) % 2 - 0.5, group]), np.sin(group) + 3)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.1), lgp.ConstantMean(1.0))
    found = lgp.groups.maximised(
        model,
        data,
        key=jax.random.key(0),
        method=lgp.ExactGP(),
        priors={"mean.value": Normal(0.0, 1e-3)},
    )
    assert "mean.value" in found.priors
    assert abs(found.model.mean.value) < 0.05


def by_hand(table, found):
    """Errors by a Hessian of Laplace's approximation in deviation and effects, clinic by clinic."""
    clinic = table["clinic"].astype("category").cat.codes.to_numpy()
    y, arm = table["y"].to_numpy(), table["arm"].to_numpy()
    design = np.column_stack([np.ones(len(y)), arm == "b", arm == "c"]).astype(float)

    def log_likelihood(place):
        line, u = design @ place[1:], np.zeros(12)

        def sums(values):
            return np.bincount(clinic, values, 12)

        for _ in range(50):  # Newton's steps to the mode of standard normal effects
            mean = np.exp(line + place[0] * u[clinic])
            curvature = sums(place[0] ** 2 * mean) + 1
            u = u + (sums(place[0] * (y - mean)) - u) / curvature
        f = line + place[0] * u[clinic]
        return np.sum(y * f - np.exp(f)) - 0.5 * np.sum(u**2) - 0.5 * np.sum(np.log(curvature))

    place = np.append(np.sqrt(found.components[0].variance), found.estimate)
    steps = 1e-3 * np.eye(4)
    hessian = [
        [
            sum(
                a * b * log_likelihood(place + a * one + b * other)
                for a in (-1, 1)
                for b in (-1, 1)
            )
            for other in steps
        ]
        for one in steps
    ]
    return np.sqrt(np.diagonal(np.linalg.inv(-np.array(hessian) / 4e-6)))[1:]


# Errors by glmer(..., control = glmerControl(tolPwrss = 1e-12)): by default its steps to the mode
# end so early that its finite differences have 0.134508, 0.150101 and 0.141608.
OF_GLMER = [0.134837, 0.150573, 0.142065]


def counts_table() -> pd.DataFrame:
    """The trial with counts for targets."""
    table = trial_table()
    table["y"] = np.random.default_rng(1).poisson(np.exp(0.5 + table["y"] / 3))
    return table


@pytest.mark.slow
def test_estimates_of_counts_are_those_of_glmer_to_three_digits():
    method = lgp.Laplace(lgp.groups.SparseEffects())
    settings = {"method": method, "likelihood": "poisson", "priors": None}
    formula = "y ~ arm + (1 | clinic)"
    model = lgp.TableModel.fit(
        counts_table(), formula=formula, fixed_effects="maximise", **settings
    )
    found = model.mixed_summary(degrees="curvature")
    np.testing.assert_allclose(found.estimate, [0.899007, 0.229346, 0.444595], rtol=3e-4)
    np.testing.assert_allclose(found.components[0].variance, [0.05616625], rtol=3e-4)
    np.testing.assert_allclose(found.standard_error, OF_GLMER, rtol=3e-4)


def test_poisson_variances_are_those_of_laplace():
    """VarCorr(glmer(y ~ arm + (1 | clinic), t, family = poisson))."""
    table = counts_table()
    settings = {"method": "laplace", "likelihood": "poisson", "priors": None}
    model = lgp.TableModel.fit(
        table, formula="y ~ arm + (1 | clinic)", fixed_effects="maximise", **settings
    )
    found = model.mixed_summary()
    assert found.residual is None
    assert found.components[0].variance[0] == pytest.approx(0.05616625, rel=2e-3)
    # sqrt(diag(vcov(..., use.hessian = FALSE))), coef(summary(...))
    np.testing.assert_allclose(found.standard_error, [0.133815, 0.150737, 0.141966], rtol=2.5e-3)
    found = model.mixed_summary(degrees="curvature")
    np.testing.assert_allclose(found.estimate, [0.899007, 0.229346, 0.444595], rtol=2e-3)
    np.testing.assert_allclose(found.standard_error, by_hand(table, found), rtol=1e-3)
    np.testing.assert_allclose(found.standard_error, OF_GLMER, rtol=1e-3)
    assert np.isinf(found.degrees).all()
    means = model.marginal_means("arm")
    response = means.response()
    np.testing.assert_allclose(response["mean"], np.exp(means.means.estimate), rtol=1e-6)
    error = np.exp(means.means.estimate) * means.means.standard_error  # by the slope of exp
    np.testing.assert_allclose(response["standard_error"], error, rtol=1e-6)
    assert found.r_squared is not None
    assert 0 < found.r_squared.marginal < found.r_squared.conditional < 1
    # the rest of counts of mean l is trigamma(l) (Nakagawa, Johnson & Schielzeth 2017)
    variance = found.components[0].variance[0]
    X, posterior = model.encoder.encode(table), model.estimator.posterior_
    line = posterior.model.mean(X)[:, 0] + X[:, :3] @ posterior.coefficients().estimate
    rest = special.polygamma(1, np.mean(np.exp(line + 0.5 * variance)))
    assert found.intraclass()["clinic"] == pytest.approx(variance / (variance + rest), rel=1e-6)
    own, rows = model.estimator, model._fitted(None, None)[1].merged_rows()
    with pytest.raises(lgp.InputError, match="Degrees of freedom are those of Gaussian noise"):
        lgp.groups.satterthwaite(own.posterior_, own.method_, rows, own.priors_)


@pytest.mark.quick
def test_p_values_of_several_tests():
    found = Contrasts.of("abc", np.array([1.0, 2.0, 3.0]), np.ones(3), np.array([5.0, 5.0, np.inf]))
    plain = [2 * stats.t.sf(1, 5), 2 * stats.t.sf(2, 5), 2 * stats.norm.sf(3)]
    np.testing.assert_allclose(found.p_value, plain)
    holm = found.adjusted("holm", 3).p_value
    np.testing.assert_allclose(holm, [plain[0], 2 * plain[1], 3 * plain[2]])
    two = found.adjusted("tukey", 2).p_value  # of two means the range is the difference
    np.testing.assert_allclose(two, plain, rtol=1e-6)
    far = Contrasts.of("abc", np.array([9.0, 30.0, 99.0]), np.ones(3), np.full(3, 80.0))
    several = far.adjusted("tukey", 3).p_value  # beyond what quadrature resolves too
    assert np.all((several >= far.p_value) & (several <= 3 * far.p_value))
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * stats.t.ppf(0.95, [5, 5, 1e12]))


@pytest.mark.quick
def test_normal_tests_of_a_term_are_chi_squared():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    law = normal_tests(["a", "b"], np.array([1.0, -2.0]), covariance)
    found = law.term_test([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # of rank two
    wald = law.estimate @ np.linalg.solve(covariance, law.estimate)
    assert found[:2] == (2.0, np.inf)
    assert found.statistic == pytest.approx(wald / 2)
    assert found.p_value == pytest.approx(stats.chi2.sf(wald, 2))
    with pytest.raises(lgp.InputError, match="a column for each"):
        law.contrasts([[1.0]])
    means = MarginalMeans(("only",), ("",), np.ones((1, 2)), law, lgp.Gaussian())
    with pytest.raises(lgp.InputError, match="need two levels"):
        means.pairs()


@pytest.mark.quick
@pytest.mark.parametrize("which", [0, 1])
def test_a_known_variance_beside_an_estimated_one(which):
    """E = 10 / 8 + 1 is the mean of the sum of t^2 of 10 and of infinitely many degrees."""
    slopes = np.zeros((1, 2, 2))
    slopes[0, which, which] = np.sqrt(2 / 10)
    law = Satterthwaite(("a", "b"), np.ones(2), np.eye(2), slopes, np.eye(1))
    assert law.term_test(np.eye(2)).denominator == pytest.approx(2 * 2.25 / (2.25 - 2))


@pytest.mark.quick
def test_a_vague_prior_is_taken_off_a_covariance():
    X, prior = np.random.default_rng(0).normal(size=(20, 3)), np.array([4.0, 1.0, 9.0])
    kernel = lgp.kernels.FixedEffects(prior).on(0, 1, 2)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.5))
    fit = lgp.fit(model, lgp.Data(X, X[:, 0]), key=jax.random.key(0), learn_hyperparameters=False)
    found = FixedDesign.of(kernel, 3).effects(fit.posterior, None)
    np.testing.assert_allclose(found.covariance, 0.5 * np.linalg.inv(X.T @ X), rtol=1e-6)
    scaled = FixedDesign.of(4.0 * lgp.kernels.FixedEffects(prior / 4).on(0, 1, 2), 3)
    np.testing.assert_allclose(scaled.prior_variance, prior)


@pytest.mark.quick
def test_a_row_of_weight_two_is_two_rows():
    """Kenward and Roger's tests and R^2; rows of weight zero are none."""
    rng, weights = np.random.default_rng(2), np.arange(24.0) % 3
    X = np.column_stack([np.ones(24), rng.normal(size=24), np.arange(24) // 4])
    kernel = lgp.kernels.FixedEffects(1e4).on(0, 1) + 2.0 * lgp.kernels.SameGroup().on(2)
    model, y = lgp.LatentGP(kernel, lgp.Gaussian(0.5)), X[:, 1] + rng.normal(size=24)
    twice = np.repeat(np.arange(24), weights.astype(int))
    found = []
    for data in (lgp.Data(X, y, weights=weights), lgp.Data(X[twice], y[twice])):
        fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        law = lgp.groups.kenward_roger(fit.posterior, data, parameters(model))
        own = law.coefficients()
        shares = lgp.groups.r_squared(fit.posterior, data)
        found.append([*own.standard_error, *own.degrees, *law.f_test(np.eye(2))[:3], *shares])
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("likelihood", "rest"),
    [
        (lgp.Bernoulli(), np.pi**2 / 3),
        (lgp.likelihoods.BernoulliProbit(), 1.0),
        (lgp.Ordinal.of(2), 1.0),
    ],
)
def test_classes_have_a_rest_of_the_variance_of_their_link(likelihood, rest):
    group = np.arange(40) // 8
    kernel = lgp.kernels.FixedEffects(1.0).on(0) + 2.0 * SameGroup().on(1)
    data = lgp.Data(np.column_stack([np.ones(40), group]), np.arange(40.0) % 3 == 0)
    model, method = lgp.LatentGP(kernel, likelihood), lgp.Laplace()
    how = {"method": method, "key": jax.random.key(0), "learn_hyperparameters": False}
    posterior = lgp.fit(model, data, **how).posterior
    summary = lgp.groups.mixed_summary(posterior, ["one", "group"])
    with pytest.raises(lgp.InputError, match="the rows of the fit"):
        summary.intraclass()
    shares = lgp.groups.r_squared(posterior, data)
    found = summary._replace(r_squared=shares).intraclass()
    assert found == pytest.approx({"group": 2 / (2 + rest)})


@pytest.mark.quick
def test_terms_are_deviations_that_sum_to_zero():
    table = pd.DataFrame({"y": np.arange(12.0), "a": list("uvw") * 4, "b": list("pq") * 6})
    table["x"] = np.arange(12.0) ** 2
    encoder = FormulaEncoder.fit(table, "y ~ a * b + x")
    found = term_weights(encoder)
    names = [column.name for column in encoder.fixed]
    assert list(found) == ["a", "b", "x", "a:b"]
    # b at the mean of the levels of a
    weights = np.zeros(len(names))
    weights[names.index("b[T.q]")] = 1.0
    weights[[names.index("a[T.v]:b[T.q]"), names.index("a[T.w]:b[T.q]")]] = 1 / 3
    np.testing.assert_allclose(2 * found["b"][0], weights, atol=1e-9)
    # without an intercept all levels of the first factor have a mean of zero
    alone = FormulaEncoder.fit(table, "y ~ 0 + a")
    np.testing.assert_allclose(term_weights(alone)["a"], np.eye(3), atol=1e-9)
    # whatever is taken of a number, here where it is not defined near zero
    far = FormulaEncoder.fit(table.assign(x=table["x"] + 100), "y ~ a * log(x - 50)")
    slope = [[0, 0, 0, 1, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(term_weights(far)["log(x - 50)"], slope, atol=1e-9)
    # means of numbers count a row of weight w as w rows
    plain = FormulaEncoder.fit(table, "y ~ a + x")
    twice = table.loc[np.repeat(np.arange(12), np.arange(12))]
    weighted = level_weights(plain, table, "a", (), np.arange(12.0)).weights
    np.testing.assert_allclose(weighted, level_weights(plain, twice, "a", ()).weights)
    with pytest.raises(lgp.InputError, match="name a factor twice"):
        level_weights(encoder, table, "a", ("a",))
    with pytest.raises(lgp.InputError, match="'x' is no factor"):
        level_weights(encoder, table, "x", ())
    with pytest.raises(lgp.InputError, match=r"write C\(x\) there for its levels"):
        level_weights(FormulaEncoder.fit(table, "y ~ x + (a | b)"), table, "x", ())


def test_a_file_needs_the_rows_for_degrees_of_freedom(trial, tmp_path):
    table, path = trial_table(), tmp_path / "model"
    trial.save(path)
    read = lgp.load(path)
    assert np.isinf(read.mixed_summary().degrees).all()
    assert "z value" in str(read.mixed_summary())
    with pytest.raises(lgp.InputError, match="give them as frame"):
        read.term_tests()
    assert str(read.mixed_summary(table)) == str(trial.mixed_summary())
    without = pd.concat([table, table[:1].assign(y=np.nan)])
    assert str(read.term_tests(without)) == str(trial.term_tests())
    for ask in (read.term_tests, read.mixed_summary):
        with pytest.raises(lgp.InputError, match="give the rows that were fitted"):
            ask(table[:60])
    table.assign(w=1.0).to_csv(tmp_path / "table.csv", index=False)
    asked = ["marginal-means", f"{path}", f"{tmp_path}/table.csv", "arm", "--by", "sex", "--pairs"]
    asked += ["--weights", "w"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "a - b | sex = f" in said.output


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda model: model.effect_tests(degrees="exact"), "degrees must be one of"),
        (lambda model: model.effect_tests(degrees="curvature"), 'take fixed_effects="maximise"'),
        (lambda model: model.marginal_means("clinic"), "is no factor of the formula"),
    ],
)
def test_refusals(trial, ask, said):
    with pytest.raises(lgp.InputError, match=said):
        ask(trial)


def test_means_over_too_many_cells_are_refused(trial, monkeypatch):
    monkeypatch.setattr("latentgp.surfaces.tables.formula.contrasts._MOST_CELLS", 5)
    with pytest.raises(lgp.InputError, match=r"6 combinations of levels .* leave factors out"):
        trial.marginal_means("arm")


@pytest.mark.parametrize("exact", [False, None])
def test_an_evidence_that_is_estimated_has_no_degrees_of_freedom(exact, monkeypatch):
    """Its curvature is that of probe vectors; summaries go by the normal law."""
    monkeypatch.setattr("latentgp.extensions.groups.design.EffectDesign.is_small", False)
    model = lgp.TableModel.fit(
        trial_table(),
        formula=TRIAL,
        random_state=0,
        method=lgp.CollapsedVI(lgp.groups.SparseEffects(exact=exact, probes=4)),
        max_evaluations=2,
    )
    with pytest.raises(lgp.InputError, match="derivatives of an exact log evidence"):
        model.effect_tests()
    assert np.isinf(model.mixed_summary().degrees).all()


def test_tests_of_greatest_likelihood_are_by_the_normal_law():
    model = lgp.TableModel.fit(
        trial_table(), formula=TRIAL, random_state=0, fixed_effects="maximise", max_evaluations=3
    )
    assert np.isinf(model.effect_tests().coefficients().degrees).all()
    with pytest.raises(lgp.InputError, match="tests are of restricted likelihood"):
        model.effect_tests(degrees="kenward-roger")
    more: Any = model.encoder.encode(trial_table()), trial_table()["y"]
    with pytest.raises(lgp.InputError, match="Further rows integrate over fixed effects"):
        model.estimator.partial_fit(*more)


def test_models_compare_by_rows_where_labels_repeat():
    """Rows with a gap are others though all have the same labels."""
    table = trial_table().set_axis(np.zeros(len(trial_table())))
    table.loc[:, "age"] = np.where(np.arange(len(table)) == 0, np.nan, table["age"])
    table.loc[:, "dose"] = np.where(np.arange(len(table)) == 1, np.nan, 1.0 * np.arange(len(table)))
    settings = {"random_state": 0, "learn_hyperparameters": False}
    models = {
        name: lgp.TableModel.fit(table, formula=f"y ~ {name} + (1 | clinic)", **settings)
        for name in ("age", "dose")
    }
    with pytest.raises(lgp.InputError, match="gaps leave other rows to each model"):
        lgp.TableModel.compare(models, table)
    same = {"age": models["age"], "again": models["age"]}
    assert lgp.TableModel.compare(same, table).difference[1] == 0


def test_a_variance_of_zero_is_held(monkeypatch):
    """lmer drops it too: tests are then those of the model without it."""
    table = growth_table()
    noise = np.random.default_rng(5).normal(size=(6, 16))
    table["y"] = 2.0 * table["day"] + np.ravel(noise - noise.mean(axis=0))
    table["pen"] = [f"p{k}" for k in np.arange(96) % 16]
    model = lgp.TableModel.fit(table, formula="y ~ day + (1 | pen)", priors=None, random_state=0)
    found = model.mixed_summary()
    assert found.components[0].variance[0] < 1e-3
    np.testing.assert_allclose(found.degrees, 94, rtol=0.02)
    assert not found.notes
    place = "latentgp.extensions.groups.inference.satterthwaite._FLAT"
    monkeypatch.setattr(place, 1.0)  # nats, less than the curvature in the noise
    said = "take 1 of 2 directions of the parameters for known"
    assert said in str(model.mixed_summary())
    assert said in str(model.effect_tests())


def test_terms_that_follow_from_others_are_refused():
    """F would be halved by a sum of which the rows say nothing."""
    table = trial_table().query("arm != 'c' or sex != 'm'")
    model = lgp.TableModel.fit(table, formula=TRIAL, random_state=0, learn_hyperparameters=False)
    with pytest.raises(lgp.InputError, match=r"nothing of 'arm\[T.c\]:sex\[T.m\]'"):
        model.term_tests()


def test_rows_in_memory_stay_as_they_were():
    table = trial_table()
    model = lgp.TableModel.fit(table, formula=TRIAL, random_state=0, learn_hyperparameters=False)
    before = str(model.marginal_means("arm"))
    table["age"] = 0.0
    assert str(model.marginal_means("arm")) == before


def test_lines_without_groups_have_the_tests_of_least_squares():
    """Without priors: n - 2 degrees of freedom, rows from memory."""
    table = trial_table()
    model = lgp.TableModel.fit(table, formula="y ~ age", priors=None, random_state=0)
    found, expected = (
        model.effect_tests().coefficients(),
        stats.linregress(table["age"], table["y"]),
    )
    np.testing.assert_allclose(found.degrees, len(table) - 2, rtol=1e-3)
    np.testing.assert_allclose(found.standard_error[1], expected.stderr, rtol=1e-4)
    np.testing.assert_allclose(found.p_value[1], expected.pvalue, rtol=1e-2)
    assert list(model.term_tests()) == ["age"]


def test_tests_of_a_table_without_a_formula_are_refused():
    table = trial_table()
    plain = lgp.TableModel.fit(
        table[["age", "y"]].assign(age=np.arange(108.0)), "y", random_state=0
    )
    with pytest.raises(lgp.InputError):
        plain.marginal_means("arm", frame=table)


def test_a_summary_of_three_classes_has_tests_of_each():
    table = trial_table().assign(y=lambda t: np.array(list("uvw"))[np.digitize(t["y"], [1, 2])])
    settings = {"random_state": 0, "learn_hyperparameters": False}
    model = lgp.TableModel.fit(table, formula="y ~ sex + (1 | clinic)", **settings)
    found = model.mixed_summary()
    assert found.tests.names[:4] == (
        "Intercept [0]",
        "Intercept [1]",
        "Intercept [2]",
        "sex[T.m] [0]",
    )
    assert found.tests.statistic[4] == found.estimate[1, 1] / found.standard_error[1, 1]
    assert "sex[T.m] [2]" in str(found)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learn_hyperparameters": False}, "most probable hyper-parameters"),
        ({"likelihood": "softmax"}, "one latent function"),
    ],
)
def test_refusals_of_greatest_likelihood(settings, said):
    table = trial_table().assign(c=lambda t: t["arm"])
    target = "c" if "likelihood" in settings else "y"
    with pytest.raises(lgp.InputError, match=said):
        lgp.TableModel.fit(
            table, formula=f"{target} ~ sex + (1 | clinic)", fixed_effects="maximise", **settings
        )


def test_coefficients_that_vary_stay_where_fixed_effects_are_maximised():
    age = np.linspace(0.0, 6.0, 80)
    table = pd.DataFrame({"age": age, "dose": np.cos(5 * age), "clinic": np.arange(80) % 5})
    table["y"] = 2 * np.sin(age) * table["dose"] + 0.1 * np.random.default_rng(0).normal(size=80)
    formula = "y ~ dose + dose:gp(age) + (1 | clinic)"
    model = lgp.TableModel.fit(table, formula=formula, fixed_effects="maximise", random_state=0)
    found = model.mixed_summary().residual  # of a noise variance of 0.01, and 1 without gp
    assert found is not None
    assert found < 0.05
    rows: Any = None
    with pytest.raises(lgp.InputError, match="Batches integrate over fixed effects"):
        model.estimator.continue_with(rows)
