import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.extensions.groups.boosted.boosting import RowSlopes
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.report import write_report

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
BY_EFFECTS = lgp.CollapsedVI(lgp.groups.SparseEffects())
BY_STEPS = lgp.CollapsedVI(lgp.groups.SparseEffects(exact=False))


def sample(rows=2_000, groups=200, seed=0):
    """Inputs, of which the first is the group, targets, and what is expected of them."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(groups, size=rows), rng.uniform(-2, 2, (rows, 3))])
    effect = np.random.default_rng(99).normal(size=groups)
    f = 2 * np.sin(2 * X[:, 1]) + X[:, 2] ** 2 + effect[X[:, 0].astype(int)]
    return X, f + 0.5 * rng.normal(size=rows), f


def model(mean=lgp.ConstantMean(), likelihood=lgp.Gaussian(noise_variance=0.3)):  # noqa: B008
    kernel = 1.0 * lgp.kernels.SameGroup().on(0)
    return lgp.LatentGP(kernel, likelihood, mean=mean)


def booster_of(X, y, **settings):
    settings = {"objective": "regression", "num_leaves": 12, "verbosity": -1, **settings}
    return lightgbm.train(settings, lightgbm.Dataset(X, y), num_boost_round=25)


class TestTrees:
    @pytest.mark.parametrize("settings", [{}, {"linear": False, "max_depth": 3}, {"bagging": 1}])
    def test_are_what_lightgbm_predicts(self, settings):
        X, y, _ = sample(800)
        booster = booster_of(X, y, **settings)
        trees = lgp.groups.Trees.of_booster(booster, lgp.ConstantMean(0.5))
        there = np.concatenate([X, sample(500, seed=1)[0]])
        assert np.allclose(trees(there)[:, 0], booster.predict(there) + 0.5, rtol=0, atol=1e-12)

    def test_are_the_first_ones_of_other_columns(self):
        X, y, _ = sample(800)
        booster = booster_of(X[:, [3, 1]], y)
        trees = lgp.groups.Trees.of_booster(
            booster, lgp.ZeroMean(), columns=(3, 1), inputs=4, number=7
        )
        expected = booster.predict(X[:, [3, 1]], num_iteration=7)
        assert np.allclose(trees(X)[:, 0], expected, rtol=0, atol=1e-12)

    def test_are_not_learned(self):
        X, y, _ = sample(200)
        trees = lgp.groups.Trees.of_booster(booster_of(X, y), lgp.ConstantMean(0.5))
        assert [*lgp.parameters(trees)] == ["base.value"]
        slopes = eqx.filter_grad(lambda own: own(X).sum())(jax.tree.map(jnp.asarray, trees))
        assert float(slopes.base.value) == len(X)
        assert not np.any(slopes.value)

    def test_are_exported(self, tmp_path):
        X, y, _ = sample(100)
        trees = lgp.groups.Trees.of_booster(booster_of(X, y), lgp.ConstantMean(0.5))
        own = lgp.LatentGP(lgp.RBF(1.0).on(1), lgp.Gaussian(0.3), trees)
        fit = lgp.fit(own, lgp.Data(X, y), key=KEY, learn_hyperparameters=False)
        exported = lgp.export_predictor(fit.posterior, tmp_path)
        assert exported.deviation < 1e-9

    def test_refuse_categories_linear_leaves_and_other_inputs(self):
        X, y, _ = sample(400, groups=5)
        for settings in ({"categorical_feature": [0]}, {"zero_as_missing": True}):
            data = lightgbm.Dataset(X, y + 3 * (X[:, 0] == 2), params=settings)
            booster = lightgbm.train({"verbosity": -1, **settings}, data, num_boost_round=20)
            with pytest.raises(lgp.errors.InputError, match="splits categories"):
                lgp.groups.Trees.of_booster(booster, lgp.ZeroMean())
        with pytest.raises(lgp.errors.InputError, match="linear leaves"):
            lgp.groups.Trees.of_booster(booster_of(X, y, linear_tree=True), lgp.ZeroMean())
        trees = lgp.groups.Trees.of_booster(booster_of(X, y), lgp.ZeroMean())
        with pytest.raises(lgp.errors.InputError, match="made for 4 columns"):
            trees(X[:, :2])


class TestSlopes:
    @pytest.mark.parametrize(
        ("likelihood", "method", "tolerance"),
        [
            (lgp.Gaussian(noise_variance=0.3), BY_EFFECTS, 1e-7),
            (lgp.Gaussian(noise_variance=0.3), BY_STEPS, 1e-5),
            (lgp.Poisson(), lgp.Laplace(), 1e-4),
            (lgp.Poisson(), lgp.Laplace(lgp.groups.SparseEffects()), 1e-4),
            (lgp.Poisson(), lgp.VariationalInference(lgp.Dense()), 1e-4),
        ],
    )
    def test_are_those_of_the_evidence_in_the_mean(self, likelihood, method, tolerance):
        X, y, _ = sample(40, groups=8)
        X[:, 3] = np.arange(40)  # which row it is
        y = y if isinstance(likelihood, lgp.Gaussian) else np.round(np.abs(y))
        offset = 0.1 * np.cos(np.arange(40.0))
        own, rows = model(likelihood=likelihood), lgp.Data(X, y)
        slope, curvature, _ = RowSlopes.of(method, own, rows, KEY).slopes(own, offset)
        assert np.all(curvature > 0)

        def evidence(step):
            moved = offset + step
            mean = _steps_of(moved, own.mean)
            there = dataclasses.replace(own, mean=mean)
            found = lgp.fit(there, rows, key=KEY, method=method, learn_hyperparameters=False)
            return found.posterior.log_evidence.value

        for direction in (np.ones(40), np.eye(40)[3], np.sin(np.arange(40.0))):
            h = 1e-3
            numeric = (evidence(h * direction) - evidence(-h * direction)) / (2 * h)
            assert numeric == pytest.approx(slope @ direction, rel=10 * tolerance, abs=tolerance)


def _steps_of(values, base):
    """A mean with a value for each whole number in the last column, as a tree that is a list."""
    n = len(values)
    right = np.where(np.arange(n - 1) == n - 2, 2 * n - 2, np.arange(1, n))
    inner = np.zeros(n - 1), np.arange(n - 1) + 0.5, np.arange(n - 1, 2 * n - 2), right
    leaf = np.arange(n - 1, 2 * n - 1)
    return lgp.groups.Trees(
        base,
        np.full((1, 2 * n - 1), 3.0),
        np.concatenate([inner[1], np.zeros(n)])[None],
        np.concatenate([inner[2], leaf])[None].astype(float),
        np.concatenate([inner[3], leaf])[None].astype(float),
        np.concatenate([np.zeros(n - 1), values])[None],
        columns=4,
        depth=n,
    )


@pytest.fixture(scope="module")
def boosted():
    X, y, _ = sample()
    boosting = lgp.groups.Boosting(learning_rate=0.2, trees=300, leaves=8)
    with jax.enable_x64(True):
        return boosting.fit(model(), lgp.Data(X, y), key=KEY, method=BY_EFFECTS)


class TestBoosting:
    def test_beats_lines_with_groups_and_trees_without(self, boosted):
        X, y, _ = sample()
        there, _, f = sample(1_000, seed=1)

        def error(predicted):
            return np.mean((predicted - f) ** 2)

        own = error(boosted.posterior.mean_f(there))
        lines = model(lgp.LinearMean(np.zeros(4)))
        lines = lgp.fit(lines, lgp.Data(X, y), key=KEY, method=BY_EFFECTS)
        alone = HistGradientBoostingRegressor().fit(X, y)
        assert own < 0.15
        assert own < 0.1 * error(lines.posterior.mean_f(there))
        assert own < 0.5 * error(alone.predict(there))

    def test_has_the_law_that_it_was_drawn_by(self, boosted):
        learned = boosted.model
        assert 0.24 < learned.likelihood.noise_variance < 0.33  # with the errors of trees
        assert learned.kernel.scale == pytest.approx(1.0, rel=0.35)
        there, y, _ = sample(1_000, seed=1)
        lower, upper = boosted.posterior.predict(there).interval(0.9)
        assert 0.86 < np.mean((lower < y) & (y < upper)) < 0.94

    def test_ends_early_and_says_what_is_left_out(self, boosted):
        assert 0 < len(boosted.model.mean.value) < 300
        assert "rows held out" in boosted.diagnostics.notes[0]
        assert "% of them are in their intervals of 90 %" in boosted.diagnostics.notes[0]
        assert "not in the uncertainty" in boosted.diagnostics.notes[1]

    def test_has_what_was_learned_from_the_rows_that_were_not_held_out(self, boosted):
        assert "learned from the others" in boosted.diagnostics.notes[0]
        assert (
            not boosted.history.bound.size
        )  # nothing is learned from rows that trees were fitted to

    def test_learns_from_all_rows_where_none_are_held_out(self):
        X, y, _ = sample(300, groups=20)
        boosting = lgp.groups.Boosting(learning_rate=0.3, trees=12, leaves=4, held_out=0)
        found = boosting.fit(model(), lgp.Data(X, y), key=KEY, method=BY_EFFECTS)
        assert len(found.model.mean.value) == 12
        assert found.history.bound.size

    @pytest.mark.parametrize("held_out", [0.0, 0.2])
    def test_says_that_nothing_could_be_split(self, held_out):
        X, y, _ = sample(30, groups=4)
        for rows in (lgp.Data(X, y), lgp.Data(X * [1, 0, 0, 0], y)):  # too few; constant columns
            boosting = lgp.groups.Boosting(trees=5, held_out=held_out)
            found = boosting.fit(model(), rows, key=KEY, method=BY_EFFECTS)
            assert not found.model.mean.depth
            said = " ".join(found.diagnostics.notes)
            assert "no further split has 20 rows on each side" in said
            assert " 0 of 5 trees" in said or " 0 trees, by the density" in said
        with pytest.raises(lgp.InputError, match="no column beside those of groups"):
            boosting.fit(model(), lgp.Data(X[:, :1], y), key=KEY, method=BY_EFFECTS)

    def test_has_no_empty_leaf_where_curvatures_differ(self):
        X = sample(80, groups=4)[0]
        y = np.sign(X[:, 1])
        # Beside the step no split gains anything, so that rounding could favour an empty leaf.
        data = lgp.Data(X, y, weights=np.where(np.arange(80) < 50, 1.0, 0.3))
        kernel = 1e-10 * lgp.kernels.SameGroup().on(0)
        law = lgp.LatentGP(kernel, lgp.Gaussian(0.3), mean=lgp.ZeroMean())
        boosting = lgp.groups.Boosting(held_out=0.0, trees=10, rows_in_leaf=1)
        asked = {"key": KEY, "method": BY_EFFECTS, "learn_hyperparameters": False}
        found = boosting.fit(law, data, **asked)
        assert np.allclose(found.model.mean(X)[:, 0], (1 - 0.9**10) * y, rtol=0, atol=1e-6)

    def test_is_the_same_when_it_was_saved(self, boosted, tmp_path):
        X, _, _ = sample(50, seed=1)
        again = lgp.load(lgp.save(boosted, tmp_path / "fit"))
        assert np.array_equal(again.posterior.mean_f(X), boosted.posterior.mean_f(X))
        variances = (own.posterior.predict(X).variance for own in (again, boosted))
        assert np.array_equal(*variances)

    def test_counts(self):
        rng = np.random.default_rng(0)
        X, _, f = sample(1_500, groups=50)
        y = rng.poisson(np.exp(0.5 * f))
        boosting = lgp.groups.Boosting(learning_rate=0.2, trees=40, leaves=8)
        method = lgp.VariationalInference(lgp.groups.SparseEffects())
        own = model(likelihood=lgp.Poisson())
        found = boosting.fit(own, lgp.Data(X, y), key=KEY, method=method)
        plain = lgp.fit(own, lgp.Data(X, y), key=KEY, method=method)
        there, _, f = sample(500, groups=50, seed=1)
        errors = [np.mean((fit.posterior.mean_f(there) - 0.5 * f) ** 2) for fit in (found, plain)]
        assert errors[0] < 0.3 * errors[1]

    def test_refuses(self, monkeypatch):
        X, y, _ = sample(30)
        own, rows, softmax = model(), lgp.Data(X, y), model(likelihood=lgp.Softmax(3))
        asked = {"key": KEY, "method": BY_EFFECTS}
        with pytest.raises(lgp.errors.InputError, match="method by sites"):
            lgp.groups.Boosting().fit(own, rows, key=KEY, method="auto")
        with pytest.raises(lgp.errors.InputError, match="one latent function"):
            lgp.groups.Boosting().fit(softmax, rows, **asked)
        with pytest.raises(lgp.errors.InputError, match="held_out"):
            lgp.groups.Boosting(held_out=1e-9).fit(own, rows, **asked)
        with pytest.raises(lgp.errors.InputError, match="learning_rate"):
            lgp.groups.Boosting(learning_rate=0.0)
        place = "latentgp.extensions.groups.boosted.boosting.find_spec"
        monkeypatch.setattr(place, lambda name: None)
        with pytest.raises(lgp.errors.InputError, match="lightgbm"):
            lgp.groups.Boosting().fit(own, rows, **asked)


class TestCrossFit:
    def test_gives_hyperparameters_that_trees_in_sample_would_not(self, tmp_path):
        X, y, _ = sample()
        cross_fit = lgp.groups.CrossFit(HistGradientBoostingRegressor(), columns=(1, 2, 3))
        found = cross_fit.fit(model(), lgp.Data(X, y), key=KEY, method=BY_EFFECTS)
        there, targets, f = sample(1_000, seed=1)
        assert np.mean((found.posterior.mean_f(there) - f) ** 2) < 0.25
        lower, upper = found.posterior.predict(there).interval(0.9)
        assert 0.86 < np.mean((lower < targets) & (targets < upper)) < 0.96
        assert "cross-fitted" in found.diagnostics.notes[0]
        with pytest.raises(lgp.errors.InputError, match="without pickle"):
            lgp.save(found, tmp_path / "fit")

    def test_adds_what_the_regressor_of_all_rows_predicts(self):
        X, y, _ = sample(300)
        found = lgp.groups.CrossFit(LinearRegression()).fit(
            model(), lgp.Data(X, y), key=KEY, method=BY_EFFECTS
        )
        new = X + np.array([1_000, 0, 0, 0])  # groups that no row has
        expected = LinearRegression().fit(X[:, 1:], y).predict(new[:, 1:])
        expected = expected + found.model.mean.base.value
        assert np.allclose(found.posterior.mean_f(new), expected)

    @pytest.mark.parametrize("side", [{"censored": np.eye(60)[0]}, {"entry": -9.0 * np.ones(60)}])
    def test_refuses_bounds_as_targets(self, side):
        X, y, _ = sample(60)
        law = model(likelihood=lgp.Censored(lgp.Gaussian()))
        mean = lgp.groups.CrossFit(LinearRegression())
        with pytest.raises(lgp.InputError, match="takes no bounds for targets, which"):
            mean.fit(law, lgp.Data(X, y, **side), key=KEY, method=BY_EFFECTS)

    def test_refuses(self):
        X, y, _ = sample(30)
        counts = model(likelihood=lgp.Poisson())
        with pytest.raises(lgp.errors.InputError, match="folds"):
            lgp.groups.CrossFit(LinearRegression(), folds=1)
        with pytest.raises(lgp.errors.InputError, match="y less f"):
            lgp.groups.CrossFit(LinearRegression()).fit(counts, lgp.Data(X, abs(y)), key=KEY)


@pytest.fixture
def frame():
    X, y, _ = sample(800, groups=40)
    frame = pd.DataFrame(X[:, 1:], columns=["a", "b", "c"])
    return frame.assign(g=[f"level {int(g)}" for g in X[:, 0]], y=y + 100)


class TestTables:
    def test_a_formula_has_trees_in_place_of_fixed_effects(self, frame, tmp_path):
        formula = "y ~ a + b + c + (1 | g)"
        model = lgp.TableModel.fit(frame[:600], formula=formula, mean="trees", random_state=0)
        lines = lgp.TableModel.fit(frame[:600], formula=formula, random_state=0)
        there = frame[600:]
        errors = [np.mean((own.predict(there)["mean"] - there.y) ** 2) for own in (model, lines)]
        assert errors[0] < 0.3 * errors[1]
        assert any("rows held out" in note for note in model.estimator.diagnostics_.notes)
        again = lgp.load(lgp.save(model, tmp_path / "model"))
        assert np.array_equal(again.predict(there)["mean"], model.predict(there)["mean"])

    def test_effects_and_the_report_are_of_groups_and_trees(self, frame, tmp_path):
        """f bends in a and b by 2 sin(2 a) + b^2, which the process alone knows nothing of."""
        model = lgp.TableModel.fit(
            frame, formula="y ~ a + b + c + (1 | g)", mean="trees", random_state=0
        )
        effects = model.effects(frame)
        found = effects.contrast({"a": -0.8}, {"a": 0.8})
        assert found.mean[0] == pytest.approx(4 * np.sin(1.6), abs=0.5)
        means = effects.dependence("b", values=[-1.8, 0.0, 1.8]).mean[:, 0]
        np.testing.assert_allclose(means[[0, 2]] - means[1], 1.8**2, atol=0.6)
        path = write_report(model, frame, tmp_path / "report.html")
        said = path.read_text()
        assert "The prior mean has" in said
        assert "Trees were fitted to the same rows" in said
        assert "was fitted to all rows, and is not known without one" in said
        with pytest.raises(lgp.errors.InputError, match="not known without one"):
            model.leave_one_out(frame)
        summary = model.mixed_summary()
        assert (summary.names, summary.r_squared) == ((), None)

    def test_a_formula_has_a_regressor_in_place_of_fixed_effects(self, frame, tmp_path):
        formula, there = "y ~ a + b + c + (1 | g)", frame[600:]
        forest = RandomForestRegressor(30, min_samples_leaf=5, random_state=0)
        model = lgp.TableModel.fit(frame[:600], formula=formula, mean=forest, random_state=0)
        alone = forest.fit(frame[["a", "b", "c"]][:600], frame.y[:600])
        found = model.predict(there)
        rest = alone.predict(there[["a", "b", "c"]]) - there.y
        assert np.var(found["mean"] - there.y) < np.var(rest) - 0.5  # effects have a variance of 1
        lower, upper = (found[name] for name in found.columns[-2:])
        assert np.mean((lower < there.y) & (there.y < upper)) > 0.9
        notes = " ".join(model.estimator.diagnostics_.notes)
        assert "predictions of RandomForestRegressor" in notes
        assert "not in the uncertainty of f" in notes
        effects = model.effects(frame)
        moved = [effects.background[["a", "b", "c"]].assign(a=value) for value in (-0.8, 0.8)]
        expected = np.mean(alone.predict(moved[1]) - alone.predict(moved[0]))
        found = effects.contrast({"a": -0.8}, {"a": 0.8})
        # groups are the same in both, up to the jitter of joint draws
        assert found.mean[0] == pytest.approx(expected, abs=5e-3)
        with pytest.raises(lgp.errors.InputError, match="without pickle"):
            lgp.save(model, tmp_path / "model")

    def test_an_estimator_has_a_regressor_whose_settings_are_its_own(self):
        X, y, f = sample(600, groups=40)
        own = lgp.GPRegressor(groups=0, random_state=0)
        own = clone(own).set_params(mean=DecisionTreeRegressor(), mean__max_depth=6)
        own = clone(own).set_params(mean__min_samples_leaf=10)
        assert own.get_params()["mean__max_depth"] == 6
        own.fit(X, y + 100)
        assert own.model_.mean.columns == (1, 2, 3)
        assert np.mean((own.predict(X) - 100 - f) ** 2) < 0.3 * np.var(f)
        with pytest.raises(lgp.errors.InputError, match="y less f"):
            lgp.GPCountRegressor(mean=DecisionTreeRegressor(), groups=0).fit(X, np.round(abs(y)))
        with pytest.raises(lgp.errors.InputError, match="mean must be"):
            lgp.GPRegressor(mean="forest", groups=0).fit(X, y)
        with pytest.raises(lgp.errors.InputError, match="no column beside"):
            own.fit(X[:, :1], y)
        nearest = lgp.GPRegressor(mean=KNeighborsRegressor(), groups=0)
        with pytest.raises(lgp.errors.InputError, match="takes no row weights"):
            nearest.fit(X, y, sample_weight=np.arange(600) % 3 + 1.0)

    def test_an_estimator_has_trees_of_all_but_the_groups(self):
        X, y, _ = sample(600, groups=40)
        regressor = lgp.GPRegressor(mean="trees", groups=0, random_state=0).fit(X, y + 100)
        there, y, _ = sample(500, groups=40, seed=1)
        assert regressor.score(there, y + 100) > 0.85
        assert 0 not in regressor.model_.mean.column[regressor.model_.mean.left > 0]

    def test_by_the_command_line(self, frame, tmp_path):
        frame[:500].to_csv(tmp_path / "table.csv", index=False)
        own = ["fit", tmp_path / "table.csv", "--formula", "y ~ a + b + (1 | g)"]
        own += ["--mean", "trees", "--out", tmp_path / "model"]
        result = CliRunner().invoke(app, [*map(str, own)])
        assert result.exit_code == 0, result.output
        kind = type(lgp.load(tmp_path / "model").estimator.model_.mean)
        assert kind is lgp.groups.Trees
