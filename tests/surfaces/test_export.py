"""Exported predictors: equal to the library, with NumPy alone."""

import datetime
import inspect
import re
import subprocess
import sys
import warnings
from importlib.util import find_spec, module_from_spec, spec_from_file_location

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.surfaces.export import front, trace, writer
from latentgp.surfaces.export.runtime import special
from latentgp.surfaces.tables.encoder import TableEncoder
from latentgp.surfaces.tables.formula.coding import LevelColumn
from latentgp.surfaces.tables.levels import GAP
from latentgp.surfaces.tables.values import silent
from likelihood_cases import COMPLETE, slow_but_some
from problems import BINARY, KERNEL, SMOOTH, X, classification, regression

POINTS = lgp.Inducing(points=X[:4] + 0.1)
TIMES = X[np.argsort(X[:, 0]), :1]
COUNTS = np.arange(11.0) % 4
CLASSES = np.arange(11.0) % 3
FEW = {"warmup": 20, "draws": 20, "chains": 2}
NEW = np.random.default_rng(1).normal(size=(150, 2))

ENDING = '\n\n\nif __name__ == "__main__"'  # of an exported file

# Runs a file's predictions where nothing but NumPy can be imported; arrays in, arrays out.
ALONE = """
import sys

BARRED = ("jax", "jaxlib", "latentgp", "scipy", "pandas", "equinox", "sklearn")
sys.modules.update(dict.fromkeys(BARRED))
for name in BARRED:
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} could be imported")

from importlib.util import module_from_spec, spec_from_file_location
import numpy as np

path, given, found = sys.argv[1:]
spec = spec_from_file_location("predictor", path)
predictor = sys.modules["predictor"] = module_from_spec(spec)
spec.loader.exec_module(predictor)
given = dict(np.load(given))
X, levels = given.pop("X"), given.pop("levels")
answers = dict(zip(("latent_mean", "latent_variance"), predictor.predict_f(X)))
answers.update(predictor.predict(X, **given))
if predictor.has("quantiles", given):
    answers["quantiles"] = predictor.quantiles(X, levels, **given)
assert not {"jax", "latentgp"} & {name for name, module in sys.modules.items() if module}
np.savez(found, **answers)
"""


def predicted_alone(path, folder, X, levels=(0.05, 0.5, 0.9), **side):
    """Predictions of an exported file in a process that has nothing but NumPy."""
    np.savez(folder / "given.npz", X=X, levels=levels, **side)
    program = [sys.executable, "-I", "-c", ALONE, path]
    files = folder / "given.npz", folder / "found.npz"
    subprocess.run([*map(str, (*program, *files))], check=True)
    return dict(np.load(files[1]))


def loaded(path, name="exported_predictor"):
    """An exported file as a module of this process."""
    spec = spec_from_file_location(name, path)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fitted(model, targets, method, rows=X, learn=False, **side):
    data = lgp.Data(rows, targets, **side)
    settings = {} if not learn else {"learn_hyperparameters": True}
    settings = {"learn_hyperparameters": False} | settings
    return lgp.fit(model, data, method=method, key=jax.random.key(0), **settings).posterior


def close(found, expected, tolerance=1e-10):
    scale = np.max(np.abs(expected), initial=0.0) or 1.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def check(posterior, folder, X=NEW, tolerance=1e-10, **side):
    """The exported predictions are the library's, at the test rows and at others."""
    X = X[:, : posterior.latent_inputs()]
    given = {"inputs": X[:5], **{name: values[:5] for name, values in side.items()}} if side else {}
    exported = posterior.export(folder, tolerance=tolerance, **given)
    assert exported.deviation <= tolerance
    found = predicted_alone(exported.predictor, folder, X, **side)
    predictive = posterior.predict(X, **side)
    mean, variance = posterior.predict_f(X)
    close(found["latent_mean"], mean, tolerance)
    close(found["latent_variance"], variance, tolerance)
    if "probabilities" in found:
        close(found["probabilities"], predictive.probabilities, tolerance)
    else:
        close(found["mean"], predictive.mean, tolerance)
        close(found["variance"], predictive.variance, tolerance)
        close(found["quantiles"], predictive.quantiles([0.05, 0.5, 0.9]), tolerance)
    return exported


OTHER_KERNEL = lgp.Matern32(0.8).on(0) + 0.5 * lgp.Periodic(period=1.7).on(1) * lgp.Matern(
    order=1.2
)
SOFTMAX = lgp.LatentGP(KERNEL, lgp.Softmax(3), lgp.ConstantMean(0.3))
POISSON = lgp.LatentGP(KERNEL, lgp.Poisson())
OF_TIME = lgp.Matern52(0.7) + lgp.Periodic(period=1.7).on(0) * lgp.Matern12(3.0)
ORDINARY = {
    "exact": lambda: fitted(regression(mean=lgp.LinearMean([0.3, -0.2])), SMOOTH, lgp.ExactGP()),
    "sparse, other kernels": lambda: fitted(
        regression(OTHER_KERNEL), SMOOTH, lgp.CollapsedVI(POINTS)
    ),
    "EP": lambda: fitted(classification(), BINARY, lgp.ExpectationPropagation()),
    "Laplace, classes": lambda: fitted(SOFTMAX, CLASSES, lgp.Laplace()),
    "series": lambda: fitted(
        regression(lgp.Matern52(0.7)), SMOOTH, lgp.ExactGP(lgp.Markov()), TIMES
    ),
    "black box, counts": lambda: fitted(
        POISSON, COUNTS, lgp.BlackBoxVI(components=2, estimator="score", samples=10, steps=2)
    ),
}
SLOW = {
    "Gibbs": lambda: fitted(classification(), BINARY, lgp.GibbsSampling(**FEW)),
    "neighbours": lambda: fitted(regression(), SMOOTH, lgp.ExactGP(lgp.Neighbours(4))),
    "neighbours and points": lambda: fitted(
        regression(), SMOOTH, lgp.ExactGP(lgp.Neighbours(3, inducing=4))
    ),
    "neighbours of latents": lambda: fitted(
        POISSON, COUNTS, lgp.VariationalInference(lgp.LatentNeighbours(4))
    ),
    "random features": lambda: fitted(regression(), SMOOTH, lgp.ExactGP(lgp.RandomFeatures(20))),
    "integrated": lambda: fitted(regression(), SMOOTH, lgp.Integrated(lgp.ExactGP()), learn=True),
    "NUTS": lambda: fitted(regression(), SMOOTH, lgp.NUTS(**FEW), learn=True),
    "augmented, sparse": lambda: fitted(classification(), BINARY, lgp.AugmentedVI(POINTS)),
    "variational, series": lambda: fitted(
        lgp.LatentGP(OF_TIME, lgp.Poisson()),
        COUNTS,
        lgp.VariationalInference(lgp.Markov()),
        TIMES,
    ),
    "two latents": lambda: fitted(
        lgp.LatentGP(KERNEL, lgp.HeteroscedasticGaussian(9.0)), SMOOTH, lgp.AugmentedVI()
    ),
    "coupled": lambda: fitted(SOFTMAX, CLASSES, lgp.Laplace(coupled=True)),
    "outputs": lambda: fitted(
        lgp.LatentGP(KERNEL, lgp.LinearCoregionalisation([[1.0, 0.4], [-0.6, 1.3]], [0.3, 0.5])),
        np.stack([SMOOTH, -SMOOTH], axis=1),
        lgp.VariationalInference(),
    ),
    "mixture": lambda: lgp.Posterior.mixture(
        [fitted(regression(k), SMOOTH, lgp.ExactGP()) for k in (KERNEL, 2 * lgp.RBF(2.0))],
        [0.3, 0.7],
    ),
    "black box": lambda: fitted(classification(), BINARY, lgp.BlackBoxVI(components=2)),
    "splines": lambda: fitted(
        regression(lgp.Matern32(0.8)),
        SMOOTH,
        lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(8))),
        TIMES,
    ),
}


@pytest.mark.parametrize(
    "made",
    [
        *(pytest.param(made, id=name) for name, made in ORDINARY.items()),
        *(pytest.param(made, id=name, marks=pytest.mark.slow) for name, made in SLOW.items()),
    ],
)
def test_a_posterior_is_exported(made, tmp_path):
    check(made(), tmp_path)


@pytest.fixture(scope="module")
def exact():
    return fitted(regression(), SMOOTH, lgp.ExactGP())


@pytest.fixture(scope="module")
def of_size(exact):
    """A posterior for each number of latent functions."""
    two = lgp.LatentGP(KERNEL, lgp.HeteroscedasticGaussian(9.0))
    return {
        1: lambda: exact,
        2: lambda: fitted(two, SMOOTH, lgp.AugmentedVI()),
        3: lambda: fitted(SOFTMAX, CLASSES, lgp.Laplace()),
    }


@pytest.mark.parametrize(
    ("likelihood", "_targets", "_continuous", "side"),
    slow_but_some(COMPLETE, (lgp.StudentT, lgp.Ordinal)),
)
def test_every_likelihood_is_exported(likelihood, _targets, _continuous, side, of_size, tmp_path):
    posterior = of_size[likelihood.latent_size]().with_likelihood(likelihood)
    rows = NEW[:9]
    side = {name: np.full(9, value) for name, value in (side or {}).items()}
    check(posterior, tmp_path, rows, **side)


def test_few_rows_and_none(exact, tmp_path):
    predictor = loaded(exact.export(tmp_path).predictor)
    for rows in (NEW[:1], NEW[:0]):
        mean, variance = predictor.predict_f(rows)
        close(mean, exact.predict_f(rows).mean)
        assert variance.shape == (len(rows),)
        assert predictor.quantiles(rows, 0.5).shape == (len(rows), 1)


def test_wrong_rows_are_refused_in_one_sentence(exact, tmp_path):
    predictor = loaded(exact.export(tmp_path).predictor)
    for rows, complaint in (
        (NEW[:, :1], "X has 1 columns but the model was fitted to 2"),
        ([["a", "b"]], "X must hold numbers"),
        ([[np.nan, 1.0]], "X has NaN or infinity"),
        (np.zeros((2, 2, 2)), "X must have shape"),
    ):
        with pytest.raises(predictor.PredictorError, match=complaint):
            predictor.predict(rows)
    with pytest.raises(predictor.PredictorError, match="reads no per-row 'trials'"):
        predictor.predict(NEW, trials=np.ones(150))
    with pytest.raises(predictor.PredictorError, match="between 0 and 1"):
        predictor.quantiles(NEW, [0.5, 1.0])


def self_test(path):
    return subprocess.run(
        [sys.executable, "-I", str(path), "--self-test"], capture_output=True, text=True
    )


def test_the_self_test_sees_a_changed_constant(exact, tmp_path):
    exported = exact.export(tmp_path)
    whole = self_test(exported.predictor)
    assert whole.returncode == 0
    assert "agrees with latentgp" in whole.stdout
    text = exported.predictor.read_text()
    predictor = loaded(exported.predictor)
    constants = set(re.findall(r"K\d+", inspect.getsource(predictor.PROGRAMS["marginals"])))
    assert len(constants) > 2
    for name in constants:
        if vars(predictor)[name].size:
            changed = tmp_path / "changed.py"
            changed.write_text(text.replace(ENDING, f"\n{name} = {name} * 1.0001 + 1e-4{ENDING}"))
            found = self_test(changed)
            assert found.returncode == 1, name
            assert "DOES NOT AGREE" in found.stdout


def smooth_regressor():
    """Inducing points on smooth targets: variances far below the prior's, with its rounding."""
    rows = np.random.default_rng(0).uniform(0, 10, (80, 1))
    method = lgp.CollapsedVI(lgp.Inducing(15))
    model = {"kernel": lgp.RBF(2.0), "likelihood": lgp.Gaussian(noise_variance=1e-4)}
    settings = {"learn_hyperparameters": False, "random_state": 0}
    return lgp.GPRegressor(**model, method=method, **settings).fit(rows, np.sin(rows[:, 0]))


def test_variances_that_are_not_resolved_are_no_difference(tmp_path):
    regressor = smooth_regressor()
    first = regressor.export(tmp_path / "first")
    more = np.random.default_rng(1).uniform(0, 10, (80, 1))
    second = regressor.partial_fit(more, np.sin(more[:, 0])).export(tmp_path / "second")
    for exported in (first, second):
        assert self_test(exported.predictor).returncode == 0
        text = exported.predictor.read_text()
        for change, status in ((1e-9, 0), (1e-6, 1), (-1e-6, 1)):  # the prior variance is 1
            wrong = f"""
own = PROGRAMS["marginals"]
PROGRAMS["marginals"] = lambda X: (own(X)[0], own(X)[1] + {change})
"""
            changed = text.replace(ENDING, wrong + ENDING)
            (tmp_path / "changed.py").write_text(changed)
            assert self_test(tmp_path / "changed.py").returncode == status
        with pytest.raises(lgp.InputError, match="differs from the library"):
            front._checked(changed, 1e-10)


def test_what_has_no_form_in_numpy_is_refused(exact, tmp_path, monkeypatch):
    monkeypatch.delitem(writer.RULES, "exp")
    with pytest.raises(lgp.InputError, match=r"primitive 'exp'.*stablehlo"):
        exact.export(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_differs_is_refused(exact, tmp_path):
    with pytest.raises(lgp.InputError, match="more than tolerance=1e-20"):
        exact.export(tmp_path, tolerance=1e-20)
    with pytest.raises(lgp.InputError, match="formats must be some of 'numpy', 'stablehlo'"):
        exact.export(tmp_path, formats=("onnx",))


@pytest.mark.slow
def test_draws_whose_random_numbers_have_no_form(tmp_path):
    posterior = fitted(POISSON, COUNTS, lgp.EllipticalSlice(**FEW))
    with pytest.raises(lgp.InputError, match="quantiles=False"):
        posterior.export(tmp_path)
    exported = posterior.export(tmp_path, quantiles=False)
    predictor = loaded(exported.predictor)
    close(predictor.predict(NEW)["variance"], posterior.predict(NEW).variance)
    with pytest.raises(predictor.PredictorError, match="no quantiles"):
        predictor.quantiles(NEW, 0.5)


def test_loops_branches_and_indices_are_written():
    def function(X):
        first = jax.lax.fori_loop(0, 3, lambda i, s: s + X[:, i % 2] * i, jnp.zeros(X.shape[0]))
        second = jax.lax.while_loop(lambda s: jnp.max(s) < 50, lambda s: 2 * s + 1, jnp.abs(first))
        carried, kept = jax.lax.scan(lambda c, x: (c + x.sum(), c * x), 0.5, X, reverse=True)
        third = jax.lax.cond(jnp.sum(X) > 0, lambda a: a[:, ::-1], lambda a: -a, kept)
        order = jnp.argsort(X[:, 0])
        placed = jnp.zeros_like(X).at[order[:2], 1].add(X[:2, 0]).at[0].max(third[0])
        taken = jnp.take_along_axis(X, jnp.argmax(X, axis=1)[:, None], axis=1, mode="clip")
        window = jax.lax.dynamic_slice(X, (order[0], 0), (2, 1))
        changed = jax.lax.dynamic_update_slice(X, window, (order[1], 1))
        padded = jax.lax.pad(X, 0.5, ((1, -1, 1), (0, 2, 0)))
        values = jax.lax.top_k(X.T, 2)[0], jnp.cumsum(X[::-1], axis=0), jnp.cumprod(X, axis=1)
        lower = jnp.linalg.cholesky(X.T @ X + jnp.eye(2))
        solved = jax.scipy.linalg.solve_triangular(lower, X.T, lower=True)
        turned = jax.scipy.linalg.solve_triangular(lower, X.T, lower=True, trans="T")
        whole = jnp.floor(3 * X).astype(int)
        return [
            *(first, second, carried, third, placed, taken, changed, padded, *values, solved),
            *(turned, whole // 2, whole % 3, jnp.einsum("nd,ne,nf->def", X, X, X), order),
            jnp.where(X > 0, jnp.log1p(jnp.abs(X)), jnp.nan_to_num(X / 0)),
            jax.vmap(lambda a, b: jnp.outer(a, b) @ a)(X, X[:, ::-1]),
        ]

    rows = NEW[:7]
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(rows.shape, jnp.float64))
        expected = function(jnp.asarray(rows))
        constants = writer.Constants()
        text = writer.program("program", closed, ["X"], constants)
    module = {**constants.arrays, "np": np}
    exec(f"import math, statistics\n{writer.needed_helpers(text)}\n\n{text}", module)
    with np.errstate(all="ignore"):
        found = module["program"](rows)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-12)
        assert np.asarray(own).dtype.kind == other.dtype.kind


def test_special_functions_are_those_of_scipy():
    from scipy import special as known

    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=200) * 3, [0.0, -0.0, 1e-300, 30.0, -30.0]])
    positive = np.exp(rng.normal(size=300) * 2)
    a, b = np.exp(rng.normal(size=(2, 300)) * 2)
    inside = rng.uniform(-1, 1, 300)
    shares = rng.uniform(0, 1, 300)
    for own, other in (
        (special.erf(x), known.erf(x)),
        (special.erfc(x), known.erfc(x)),
        (special.erf_inv(inside), known.erfinv(inside)),
        (special.erf_inv(1e-9 * inside), known.erfinv(1e-9 * inside)),
        (special.erf_inv([-1.0, 1.0, 1 - 1e-15]), known.erfinv([-1.0, 1.0, 1 - 1e-15])),
        (special.lgamma(positive), known.gammaln(positive)),
        (special.digamma(positive + 2), known.digamma(positive + 2)),
        (special.digamma(-positive - 0.3), known.digamma(-positive - 0.3)),
        (special.zeta(1.5 + a, positive), known.zeta(1.5 + a, positive)),
        (special.polygamma([[0], [1], [4]], b), known.polygamma([[0], [1], [4]], b)),
        (special.incomplete_gamma(a, positive)[0], known.gammainc(a, positive)),
        (special.incomplete_gamma(a, positive)[1], known.gammaincc(a, positive)),
        (special.incomplete_gamma(a, 0 * a)[1], np.ones(300)),
        (special.betainc(a, b, shares), known.betainc(a, b, shares)),
        (special.betainc(a, b, np.round(shares)), np.round(shares)),
    ):
        np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-14)


@pytest.mark.always
def test_every_choice_of_side_information_is_traced():
    assert trace.side_choices(lgp.Gaussian()) == [(), ("noise_variance",)]
    assert trace.program_for("moments", ("b", "a")) == "moments_given_a_b"


def test_stablehlo_is_read_and_called(exact, tmp_path):
    pytest.importorskip("flatbuffers")
    exported = exact.export(tmp_path, formats=("numpy", "stablehlo"))
    programs = {
        name: jax.export.deserialize(bytearray(path.read_bytes()))
        for name, path in exported.stablehlo.items()
    }
    with jax.enable_x64(True):
        marginals = programs["marginals"].call(jnp.asarray(NEW))
        mean, variance = programs["moments"].call(*marginals)
    close(mean, exact.predict(NEW).mean)
    close(variance, exact.predict(NEW).variance)
    with jax.enable_x64(True):
        known = programs["moments_given_noise_variance"].call(*marginals, jnp.full(150, 0.7))
    close(known[1], exact.predict(NEW, noise_variance=np.full(150, 0.7)).variance)


@pytest.mark.skipif(find_spec("flatbuffers") is not None, reason="flatbuffers is there")
def test_stablehlo_without_its_package_is_refused(exact, tmp_path):
    with pytest.raises(lgp.InputError, match="needs the package flatbuffers"):
        exact.export(tmp_path, formats=("stablehlo",))


NAMES = {"date": "sold 'on'", "text": "цена", "category": '"); raise SystemExit(7) #\n"""'}


def table(rows=40):
    """Numbers, text in another notation, categories, dates, truth values, and gaps."""
    rng = np.random.default_rng(0)
    commas = str.maketrans(",.", ".,")
    prices = [f"€ {v:,.2f}".translate(commas) for v in rng.uniform(1e3, 9e3, rows)]
    frame = pd.DataFrame(
        {
            "size": rng.normal(50, 10, rows),
            NAMES["category"]: rng.choice(["red", "blue", 'зел"ёный'], rows),
            "new": rng.integers(0, 2, rows).astype(bool),
            NAMES["date"]: pd.date_range("2024-01-01", periods=rows, freq="D").astype(str),
            NAMES["text"]: prices,
            "floor": rng.integers(1, 4, rows).astype(float),
            "quarter": [f"{2015 + n // 4}Q{n % 4 + 1}" for n in range(rows)],
            "clock": [f"{n % 24}:{7 * n % 60:02}" for n in range(rows)],
            "wait": pd.to_timedelta(rng.integers(60, 600, rows), "min"),
            "built": [(20231205, 20240105)[n % 2] + n % 20 for n in range(rows)],
        }
    )
    frame.loc[[3, 8], "size"] = None
    frame.loc[[5], NAMES["category"]] = None
    frame["price"] = 2 * frame["size"].fillna(0) + 20 * frame["new"] + rng.normal(size=rows)
    frame["dear"] = np.where(frame["price"] > frame["price"].median(), "dear", "cheap")
    return frame


SETTINGS = {"random_state": 0, "max_evaluations": 3}


@pytest.fixture(scope="module")
def table_model():
    with pytest.warns(UserWarning, match="ended early"):
        return lgp.TableModel.fit(table(), "price", leave_out=["dear"], **SETTINGS)


@pytest.fixture(scope="module")
def of_table(table_model, tmp_path_factory):
    return table_model.export(tmp_path_factory.mktemp("exported")).predictor


ODD = {
    "size": [10, None, "55.5", " NA ", float("nan"), "1e1", np.float32(3), True],
    NAMES["category"]: ["red", None, "grün", "", 3.0, " blue ", "red", "?"],
    "new": [True, False, "true", None, "FALSE", np.True_, "True", 1],
    NAMES["date"]: [
        *("2024-01-05", None, "2024-01-05T06:00", "2024-01-05 06:00:01.5", "20240106"),
        *("2024-01-05T06:00+02:00", pd.Timestamp("2024-02-01"), "2024-01-05T06:00:00Z"),
    ],
    NAMES["text"]: ["€ 1.234,50", "1.234,50", 1234.5, "1234", None, "-5,5", "€ 2", "1234.5"],
    "floor": [1, 2, 3, "4", "5.0", None, 2.5, "-1"],
    "quarter": [
        *("2015Q1", "2016-Q2", None, pd.Timestamp("2015-03-01"), "2015-04-01", 20150401),
        *("Q3 2015", "2015Q4"),
    ],
    "clock": ["08:30", "8:30 PM", None, datetime.time(9, 15), 9.25, "25:00", "23:59:59", "0:00"],
    "wait": [
        *(pd.Timedelta(2, "h"), datetime.timedelta(minutes=90), None, "0 days 03:00:00"),
        *("PT45M", 90, "1:30", "-1 days +23:00:00"),
    ],
    "built": [
        *(20240105, "20240105", None, 20240106.0, "2024-01-07", pd.Timestamp("2024-01-05")),
        *(datetime.date(2024, 1, 5), 20240201),
    ],
}


def both(model, predictor, columns):
    """Predictions of the library and of the file, with their warnings or the error."""
    answers = []
    of_library = model.predict, pd.DataFrame(columns)
    for predict, given in (of_library, (predictor.predict_table, columns)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                found = predict(given)
                found = {name: np.asarray(found[name]) for name in found}
            except ValueError as error:
                found = str(error)
        answers.append((found, {str(w.message) for w in seen}))
    return answers


def test_odd_values_of_a_table_are_read_alike(table_model, of_table):
    predictor = loaded(of_table)
    for places in (range(7), [0], [1], [2, 3], [4, 5], [7], [6, 2, 1]):
        columns = {name: [values[i] for i in places] for name, values in ODD.items()}
        (own, told), (found, said) = both(table_model, predictor, columns)
        assert said == told, places
        assert not isinstance(found, str) or found == own
        if not isinstance(own, str):
            assert list(found) == list(own)
            for name in own:
                close(found[name], own[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", "large"),
        ("size", "1_000"),
        ("size", "0x10"),
        ("size", "1,5"),
        ("size", "inf"),
        ("size", float("inf")),
        ("size", "1e999"),
        ("new", "perhaps"),
        (NAMES["date"], "yesterday"),
        (NAMES["date"], "2024-13-01"),
        (NAMES["date"], 5),
        (NAMES["text"], "$ 5"),
        ("quarter", "2015Q5"),
        ("clock", "24:60"),
        ("wait", "soon"),
        ("built", 20241399),
        ("floor", "1e"),
    ],
)
def test_wrong_values_of_a_table_have_the_same_errors(name, value, table_model, of_table):
    columns = {other: [values[0], values[0]] for other, values in ODD.items()}
    columns[name] = [columns[name][0], value]
    (own, _), (found, _) = both(table_model, loaded(of_table), columns)
    assert isinstance(own, str)
    assert found == own


def test_a_missing_column_has_the_same_error(table_model, of_table):
    columns = {name: values[:1] for name, values in ODD.items() if name != "size"}
    (own, _), (found, _) = both(table_model, loaded(of_table), columns)
    assert found == own


def test_a_csv_file_is_predicted_by_numpy_alone(table_model, of_table, tmp_path):
    path = tmp_path / "rows.csv"
    table().drop(columns=["price", "dear"]).to_csv(path, index=False)
    run = [sys.executable, "-I", str(of_table), str(path), "--level", "0.8"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    (tmp_path / "found.csv").write_text(done.stdout)
    found = pd.read_csv(tmp_path / "found.csv")
    expected = table_model.predict(lgp.tables.read_table(path, table_model.read_as_text), 0.8)
    assert list(found) == list(expected)
    for name in expected:
        close(found[name].to_numpy(), expected[name].to_numpy())
    path.write_text("size\n1\n")
    wrong = subprocess.run(run, capture_output=True, text=True)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: the table lacks 9 column(s)")


def test_names_of_columns_are_data(of_table):
    assert NAMES["category"] not in of_table.read_text()  # it would end a text and run
    names = [column["name"] for column in loaded(of_table).ABOUT["encoder"]]
    assert NAMES["category"] in names
    assert NAMES["text"] in names


def test_classes_of_a_table(tmp_path):
    with pytest.warns(UserWarning, match="ended early"):
        model = lgp.TableModel.fit(table(), "dear", leave_out=["price"], **SETTINGS)
    predictor = loaded(model.export(tmp_path).predictor)
    columns = {name: values[:2] for name, values in ODD.items()}
    (own, told), (found, said) = both(model, predictor, columns)
    assert said == told
    ends = ["probability_dear_lower", "probability_dear_upper"]
    assert list(found) == ["prediction", "probability_cheap", "probability_dear", *ends]
    assert (found.pop("prediction") == own["prediction"]).all()
    for name in found:
        close(found[name], own[name])


@pytest.mark.slow
def test_counts_with_exposure_and_series_of_a_table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"day": np.arange(30.0), "shop": ["a", "b", "c"] * 10})
    frame["exposure"] = rng.uniform(1, 3, 30)
    frame["sold"] = rng.poisson(2 * frame["exposure"])
    sides = {"exposure": "exposure"}
    counts = lgp.TableModel.fit(frame, "sold", side_columns=sides, random_state=0)
    predictor = loaded(counts.export(tmp_path / "counts").predictor)
    for columns in (frame, frame.drop(columns="exposure")):
        (own, told), (found, said) = both(counts, predictor, columns.to_dict("list"))
        assert said == told
        for name in own:
            close(found[name], own[name])
    series = lgp.TableModel.fit(frame, "exposure", time="day", by="shop", random_state=0)
    predictor = loaded(series.export(tmp_path / "series").predictor)
    columns = {"day": [3.5, 40, 2], "shop": ["a", "new", "c"]}
    (own, told), (found, said) = both(series, predictor, columns)
    assert said == told
    for name in own:
        close(found[name], own[name])


def test_an_estimator_is_exported_with_its_labels(tmp_path):
    labels = np.where(BINARY > 0, "yes", "no")
    classifier = lgp.GPClassifier(kernel=KERNEL, learn_hyperparameters=False, random_state=0)
    predictor = loaded(classifier.fit(X, labels).export(tmp_path).predictor)
    found = predictor.predict(NEW)
    close(found["probabilities"], classifier.predict_proba(NEW))
    assert (found["label"] == classifier.predict(NEW)).all()


FORMULA = (
    "price ~ C(grade) * `rooms no.` + new + area + log(area) + gp(I(size / 10), day) "
    "+ (1 + I(size - 50) | town/street)"
)


def of_formula():
    rng = np.random.default_rng(3)
    rows = 60
    frame = pd.DataFrame(
        {
            "grade": rng.integers(9, 12, rows),
            "rooms no.": [f"{v:,.1f}" for v in rng.uniform(900, 3000, rows)],
            "new": rng.integers(0, 2, rows).astype(bool),
            "size": rng.uniform(20, 80, rows),
            "area": rng.lognormal(3, 1, rows),
            "day": pd.date_range("2024-01-01", periods=rows, freq="D").astype(str),
            "town": rng.choice(["York", "Le:eds", "Hull"], rows),
            "street": rng.integers(1, 4, rows),
        }
    )
    frame["price"] = frame["size"] + 3 * frame["grade"] + rng.normal(size=rows)
    frame["first"], frame["second"] = rng.choice(list("abcd"), (2, rows))
    return frame


def test_a_formula_is_exported_with_its_columns(tmp_path):
    more = "(1 | mm(first, second, weights=(grade, size))) + offset(I(size / 9)) + ti(size, area)"
    with pytest.warns(UserWarning, match="ended early"):
        model = lgp.TableModel.fit(of_formula(), formula=f"{FORMULA} + {more}", **SETTINGS)
    exported = model.export(tmp_path, tolerance=1e-8)
    predictor = loaded(exported.predictor)
    odd = of_formula()[:6].drop(columns="price").astype(object)
    odd.loc[1, ["town", "grade"]] = None
    odd.loc[2, ["size", "street"]] = None
    odd.loc[3, ["town", "grade", "street", "first"]] = ["Hull", "10.0", 9, "new"]
    odd.loc[4, ["first", "second"]], odd.loc[5, "second"] = "newer", "new"
    for rows in (odd, odd.assign(area=-1.0), odd.drop(columns="street"), odd.assign(new="x")):
        columns = {name: rows[name].tolist() for name in rows}
        (own, told), (found, said) = both(model, predictor, columns)
        assert told == said
        assert type(own) is type(found)
        if isinstance(own, str):
            assert own == found
            continue
        for name in own:
            close(found[name], own[name], 1e-8)
    names = [name for column in predictor.ABOUT["encoder"] for name in [column["name"]]]
    assert {"town", "town:street", "grade", "size"} <= set(names)


WAYS = {
    "truth values": [True, False, True],
    "numbers": [1, 0, 1],
    "text": ["True", "false", "TRUE"],
    "text of numbers": ["1", "0", "1"],
}


@pytest.mark.parametrize("learned", WAYS)
def test_truth_values_are_the_same_levels_however_written(learned, tmp_path):
    frame = pd.DataFrame({"b": WAYS[learned] * 8, "g": list("aabb") * 6})
    frame["y"] = np.tile([0.0, 3.0, 1.0], 8) + 0.01 * np.arange(24) % 0.05
    with pytest.warns(UserWarning, match="ended early"):
        model = lgp.TableModel.fit(frame, formula="y ~ C(b) + (1 | b:g)", **SETTINGS)
    again = lgp.load(lgp.save(model, tmp_path / "model.safetensors"))
    predictor = loaded(model.export(tmp_path, tolerance=1e-8).predictor)
    expected = model.predict(frame[:3])["mean"].to_numpy()
    assert abs(expected[0] - expected[1]) > 0.1
    for written in WAYS.values():
        columns = {"b": written, "g": ["a", "a", "b"]}
        (own, told), (found, said) = both(model, predictor, columns)
        assert told == said == set()
        np.testing.assert_array_equal(own["mean"], expected)
        np.testing.assert_array_equal(again.predict(pd.DataFrame(columns))["mean"], expected)
        close(found["mean"], expected, 1e-8)


def test_truth_values_written_in_two_ways_are_one_level():
    mixed = pd.Series([True, 1, "false", 0, "True"], name="b", dtype=object)
    assert LevelColumn.fit(mixed).levels == ("False", "True")
    assert LevelColumn.fit(mixed.iloc[[1, 3]]).levels == ("0", "1")


@pytest.mark.parametrize(("levels", "is_gap"), [(["1", "2", "-"], True), (["1", "b", "-"], False)])
def test_dashes_among_levels_are_what_they_were_in_training(levels, is_gap, tmp_path):
    frame = pd.DataFrame({"g": levels * 8, "x": np.arange(24.0) % 7})
    frame["y"] = np.tile([0.0, 1.0, 3.0], 8) + 0.1 * frame["x"]
    encoder = TableEncoder.fit(frame[["g", "x"]], levels=["g"])
    (groups,) = encoder.groups
    assert (GAP in groups.labels) == is_gap
    place = groups.labels.index(GAP if is_gap else "-")
    for others in (["-"], ["-", "2"], ["-", "b"]):
        rows = pd.DataFrame({"g": others, "x": 1.0})
        assert encoder.encode(rows, silent)[0, -1] == place
    with pytest.warns(UserWarning, match="ended early"):
        model = lgp.TableModel.fit(frame, formula="y ~ C(g) + (1 | g)", **SETTINGS)
    again = lgp.load(lgp.save(model, tmp_path / "model.safetensors"))
    predictor = loaded(model.export(tmp_path, tolerance=1e-8).predictor)
    for others in (["-", "1"], ["-", "1", "b"], ["1", "c", "-"]):
        columns = {"g": others}
        (own, told), (found, said) = both(model, predictor, columns)
        assert told == said
        np.testing.assert_array_equal(again.predict(pd.DataFrame(columns))["mean"], own["mean"])
        close(found["mean"], own["mean"], 1e-8)


def test_the_command_line_exports(table_model, tmp_path, capsys):
    from typer.testing import CliRunner

    from latentgp.surfaces.cli.app import app

    model = table_model.save(tmp_path / "model.lgp")
    done = CliRunner().invoke(app, ["export", str(model), str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "Predict with: python" in done.output
    assert self_test(tmp_path / "out" / "predictor.py").returncode == 0


def test_whole_times_through_inducing_points_between_them(tmp_path):
    times = np.arange(40.0)
    model = lgp.LatentGP(lgp.fields.AR1(), lgp.Poisson())
    method = lgp.Laplace(lgp.Inducing(10))
    data = lgp.Data(times, (np.sin(times / 3) > 0).astype(int))
    fit = lgp.fit(model, data, key=jax.random.key(0), method=method, learn_hyperparameters=False)
    exported = lgp.export_predictor(fit.posterior, tmp_path)
    assert exported.deviation < 1e-10
