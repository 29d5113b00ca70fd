import jax
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.surfaces.tables.model import TableModel

KEY = jax.random.key(0)


def fitted(X, y, kernel, noise=0.1, likelihood=None):
    model = lgp.LatentGP(kernel, likelihood or lgp.Gaussian(noise))
    return lgp.fit(model, lgp.Data(X, y), key=KEY, learn_hyperparameters=False).posterior


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(1).uniform(size=(40, 2))


def test_bands_of_averages_are_those_of_the_joint_law(inputs):
    posterior = fitted(inputs, np.sin(5 * inputs[:, 0]), lgp.RBF([0.4, 0.9]))
    shown = posterior.effects(inputs, draws=4000).dependence("x0", values=[0.2, 0.7])
    with jax.enable_x64(True):
        pure = posterior.as_jax()
        for value, mean, lower, upper in zip(
            [0.2, 0.7], shown.mean, shown.lower, shown.upper, strict=True
        ):
            rows = inputs.copy()
            rows[:, 0] = value
            sd = np.sqrt(pure.covariance(rows).mean())
            np.testing.assert_allclose(mean, pure.mean(rows).mean(), atol=5 * sd / 63)
            np.testing.assert_allclose((upper - lower) / 2, 1.96 * sd, rtol=0.08)
            apart = 1.96 * np.sqrt(np.asarray(pure.variance(rows)).mean())
            assert (upper - lower) / 2 < 0.9 * apart  # not the band of a row's own
    assert shown.each.shape == (40, 2, 1)
    np.testing.assert_allclose(shown.each.mean(axis=0), shown.mean)


def test_slopes_and_contrasts_of_a_line_have_the_closed_form(inputs):
    weights, noise = np.array([2.0, -1.0]), 0.1
    y = inputs @ weights + np.sqrt(noise) * np.random.default_rng(2).normal(size=40)
    posterior = fitted(inputs, y, lgp.Linear([1.0, 1.0]), noise)
    precision = np.eye(2) + inputs.T @ inputs / noise
    mean, covariance = np.linalg.solve(precision, inputs.T @ y / noise), np.linalg.inv(precision)
    effects = posterior.effects(inputs, draws=4000, names=["dose", "age"])
    slope, difference = effects.slope("age"), effects.contrast({"dose": 0.1}, {"dose": 0.6})
    for found, d, scale in [(slope, 1, 1.0), (difference, 0, 0.5)]:
        sd = scale * np.sqrt(covariance[d, d])
        np.testing.assert_allclose(found.mean, scale * mean[d], atol=5 * sd / 63)
        np.testing.assert_allclose(found.std, sd, rtol=0.06)
    assert slope.above_zero[0] < 0.05
    assert difference.above_zero[0] > 0.95


def test_shares_of_a_sum_are_those_of_its_terms(inputs):
    X = np.random.default_rng(3).uniform(size=(400, 3))
    y = 2 * X[:, 0] + X[:, 1]  # variances 4 : 1 : 0
    found = fitted(X, y, lgp.Linear([1.0, 1.0, 1.0]), 1e-4).effects(X).variance_shares()
    np.testing.assert_allclose(found.total[:, 0], [0.8, 0.2, 0.0], atol=0.03)
    np.testing.assert_allclose(found.first[:, 0], [0.8, 0.2, 0.0], atol=0.03)
    assert (found.design_error < 0.05).all()
    inside = found.total_interval[0] - 0.03, found.total_interval[1] + 0.03
    assert ((inside[0] <= found.total) & (found.total <= inside[1])).all()


def test_shares_of_a_product_are_in_all(inputs):
    X = np.random.default_rng(4).uniform(-1, 1, size=(300, 2))
    y = 5 * X[:, 0] * X[:, 1]
    found = fitted(X, y, lgp.RBF([1.0, 1.0], 4.0), 1e-4).effects(X).variance_shares()
    assert (found.first < 0.1).all()
    assert (found.total > 0.8).all()


@pytest.mark.parametrize("repetitions", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_bands_hold_additive_truths(inputs, repetitions):
    kernel = lgp.RBF(0.4).on(0) + lgp.RBF(0.6).on(1)
    grid = np.array([0.25, 0.75])
    wanted = np.concatenate([inputs, np.stack([grid, np.zeros(2)], axis=1)])
    with jax.enable_x64(True):
        parts = [np.asarray(part.gram(wanted, wanted)) for part in kernel.parts]
    roots = [np.linalg.cholesky(part + 1e-9 * np.eye(len(part))) for part in parts]
    rng, held = np.random.default_rng(5), []
    for _ in range(repetitions):
        first, second = (root @ rng.normal(size=len(root)) for root in roots)
        y = (first + second)[:40] + np.sqrt(0.1) * rng.normal(size=40)
        shown = fitted(inputs, y, kernel).effects(inputs, level=0.9).dependence("x0", values=grid)
        truth = first[40:] + second[:40].mean()  # the average over rows at each value
        held.append((shown.lower[:, 0] < truth) & (truth < shown.upper[:, 0]))
    share, error = np.mean(held), np.sqrt(0.09 / repetitions)
    assert abs(share - 0.9) < 4 * error


def test_categories_dates_and_classes_by_name():
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], 80),
            "seen": pd.date_range("2024-01-01", periods=80),
            "dose": rng.uniform(size=80),
        }
    )
    high = (frame["sex"] == "m") & (frame["dose"] > 0.3)
    frame["ill"] = np.where(high, "yes", "no")
    effects = TableModel.fit(frame, "ill", random_state=0).effects(frame, background=20)
    shown = effects.dependence("sex")
    assert shown.outputs == ("P(ill = yes)",)
    assert sorted(shown.values) == ["f", "m"]
    assert not shown.is_ordered
    by_sex = dict(zip(shown.values, shown.mean[:, 0], strict=True))
    assert by_sex["m"] > by_sex["f"] + 0.3
    assert effects.dependence("seen", points=3).is_ordered
    assert "P(ill = yes)" in str(effects.contrast({"sex": "f"}, {"sex": "m"}))
    with pytest.raises(InputError, match="no column 'weight'; take one of sex, seen, dose"):
        effects.dependence("weight")
    with pytest.raises(InputError, match="'sex' holds no numbers; take contrast"):
        effects.slope("sex")


def test_dates_and_numbers_written_in_text_are_no_categories():
    days = pd.date_range("2022-11-01", periods=60)
    dose = np.random.default_rng(8).uniform(size=60).round(2)
    written = [f"{value:.2f}".replace(".", ",") for value in dose]
    frame = pd.DataFrame({"day": days.strftime("%d.%m.%Y"), "dose": written})
    frame["y"] = np.arange(60.0) + 10 * dose
    effects = TableModel.fit(frame, "y", random_state=0).effects(frame, background=20)
    shown = effects.dependence("day", points=4)
    assert shown.values.dtype.kind == "M"
    assert shown.rows()[1][:2] == ["2022-11-20", "y"]
    assert (np.diff(shown.mean[:, 0]) > 10).all()
    assert effects.dependence("dose").values.dtype.kind == "f"
    assert effects.slope("dose").mean.item() == pytest.approx(10, abs=1)
    values = [effects.value_of("day", text) for text in ("05.12.2022", "06.12.2022")]
    moved = effects.contrast({"day": values[0]}, {"day": values[1]})
    assert moved.mean.item() == pytest.approx(1, abs=0.2)  # a day, not the month of May to June
    with pytest.raises(InputError, match="no value of 'day', such as 2022-11-01"):
        effects.value_of("day", "yesterday")


@pytest.mark.slow
def test_scales_and_likelihoods(inputs):
    counts = np.random.default_rng(7).poisson(np.exp(1 + inputs[:, 0]))
    posterior = fitted(inputs, counts, lgp.RBF(0.7), likelihood=lgp.Poisson())
    rates = posterior.effects(inputs).dependence("x0", values=[0.5])
    logs = posterior.effects(inputs, scale="latent").dependence("x0", values=[0.5])
    assert rates.lower > 0
    assert np.exp(logs.mean) < rates.mean  # Jensen
    labels = np.digitize(inputs[:, 0], [0.3, 0.6])
    three = fitted(inputs, labels, lgp.RBF(0.7), likelihood=lgp.Softmax(3))
    shown = three.effects(inputs).dependence("x0", values=[0.1, 0.9])
    np.testing.assert_allclose(shown.mean.sum(axis=1), 1)
    assert shown.mean[0, 0] > 0.5 > shown.mean[1, 0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"draws": 0}, "at least 1"),
        ({"scale": "log"}, "scale must be"),
        ({"names": ["a"]}, "names"),
    ],
)
def test_wrong_settings_are_errors(inputs, settings, said):
    posterior = fitted(inputs, inputs[:, 0], lgp.RBF())
    with pytest.raises(InputError, match=said):
        posterior.effects(inputs, **settings)


def test_a_table_takes_other_names(inputs):
    frame = pd.DataFrame(inputs, columns=["a", "b"])
    posterior = fitted(inputs, inputs[:, 0], lgp.RBF())
    assert posterior.effects(frame).columns == ("a", "b")
    assert posterior.effects(frame, names=["dose", "age"]).columns == ("dose", "age")


def test_a_key_is_no_number(inputs):
    with pytest.raises(InputError, match="key must be a random key"):
        fitted(inputs, inputs[:, 0], lgp.RBF()).effects(inputs, key=0)
