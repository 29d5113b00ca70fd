"""Fixed effects and effects of groups: direct conditioning, variables of each part, estimators."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.surfaces.coefficients import Coefficients, GroupEffects
from slow import slow_parameters

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
ROWS, GROUPS = 80, 5
CLINIC = GENERATOR.integers(0, GROUPS, ROWS)
DOSE = 3 + 2 * GENERATOR.normal(size=ROWS)
EAST = GENERATOR.uniform(0, 3, ROWS)
X = np.column_stack([np.ones(ROWS), DOSE, EAST, CLINIC])
Y = 1 + 0.5 * DOSE + np.sin(EAST) + 0.3 * CLINIC + 0.2 * GENERATOR.normal(size=ROWS)
NAMES = ["one", "dose", "east", "clinic"]
FIXED = lgp.FixedEffects([100.0, 25.0], centre=[0.0, 3.0])
SLOPES = lgp.CorrelatedLinear([0.5, 0.1], [0.4])
LINEAR = FIXED.on(0, 1) + SLOPES.on(1) * lgp.SameGroup().on(3)
SMOOTH = LINEAR + lgp.RBF(1.0).on(2)
NOISE = 0.05


def fitted(kernel, method, y=Y, likelihood=None):
    model = lgp.LatentGP(kernel, lgp.Gaussian(NOISE) if likelihood is None else likelihood)
    data = lgp.Data(X, y)
    return lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False).posterior


def per_part(number=60):
    return lgp.CollapsedVI(lgp.Inducing(features=lgp.PerPart(number)))


def conditioned(kernel, features, prior):
    """Mean and covariance of weights of features whose prior is in the kernel."""
    with jax.enable_x64(True):
        K = np.asarray(kernel.symmetric_gram(X))
    cross = prior @ features.T
    solved = np.linalg.solve(K + NOISE * np.eye(ROWS), np.column_stack([Y, cross.T]))
    return cross @ solved[:, 0], prior - cross @ solved[:, 1:]


@pytest.mark.parametrize(
    ("kernel", "method", "off"),
    [
        (SMOOTH, lgp.ExactGP(), 1e-8),
        (LINEAR, per_part(), 1e-6),
        (SMOOTH, per_part(), 1e-5),
    ],
    ids=["dense", "exact per part", "points"],
)
def test_coefficients_are_those_of_generalised_least_squares(kernel, method, off):
    posterior = fitted(kernel, method)
    found = posterior.coefficients(NAMES)
    centred = X[:, :2] - [0.0, 3.0]
    mean, covariance = conditioned(kernel, centred, np.diag([100.0, 25.0]))
    # With the column of ones the intercept is the value at zero, not at the centre.
    assert found.names == ("one", "dose")
    np.testing.assert_allclose(found.estimate, mean, atol=off)
    np.testing.assert_allclose(found.covariance, covariance, atol=10 * off)
    at_five, error = found.contrast([1.0, 2.0])
    np.testing.assert_allclose(at_five, mean @ [1.0, 2.0], atol=10 * off)
    np.testing.assert_allclose(error**2, [1.0, 2.0] @ covariance @ [1.0, 2.0], atol=100 * off)
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6448536 * found.standard_error, rtol=1e-6)


@pytest.mark.parametrize("method", [lgp.ExactGP(), per_part()], ids=["dense", "per part"])
def test_effects_of_groups_are_those_of_direct_conditioning(method):
    effects = fitted(LINEAR, method).group_effects(3, [*range(GROUPS), 9.0], names=NAMES)
    assert list(effects) == ["intercept", "dose"]
    member = (CLINIC[:, None] == np.arange(GROUPS)).astype(float)
    features = np.concatenate([member, member * DOSE[:, None]], axis=1)
    prior = np.kron(np.asarray(SLOPES.covariance()), np.eye(GROUPS))
    mean, covariance = conditioned(LINEAR, features, prior)
    for own, place in (("intercept", 0), ("dose", GROUPS)):
        of = slice(place, place + GROUPS)
        np.testing.assert_allclose(effects[own].estimate[:-1], mean[of], atol=1e-6)
        errors = np.sqrt(np.diagonal(covariance))[of]
        np.testing.assert_allclose(effects[own].standard_error[:-1], errors, atol=1e-5)
    # Of a group that no row is of, the prior.
    assert effects["intercept"].estimate[-1] == pytest.approx(0.0, abs=1e-9)
    assert effects["dose"].standard_error[-1] == pytest.approx(np.sqrt(0.1), rel=1e-6)
    assert effects["dose"].table().loc["9"].lower < 0


CONTRAST = np.array([1.0, -1.0, 0.0, 0.5, 0.0, 0.25])  # the last of a group that no row is of


def contrast_by_hand(place):
    """Mean and standard error of the contrast of an effect, intercepts before slopes."""
    member = (CLINIC[:, None] == np.arange(GROUPS)).astype(float)
    features = np.concatenate([member, member * DOSE[:, None]], axis=1)
    prior = np.asarray(SLOPES.covariance())
    mean, covariance = conditioned(LINEAR, features, np.kron(prior, np.eye(GROUPS)))
    of, w = slice(place * GROUPS, (place + 1) * GROUPS), CONTRAST[:GROUPS]
    variance = w @ covariance[of, of] @ w + CONTRAST[GROUPS] ** 2 * prior[place, place]
    return w @ mean[of], np.sqrt(variance)


@pytest.mark.parametrize(
    "method",
    [
        lgp.CollapsedVI(lgp.groups.SparseEffects()),
        *slow_parameters(
            lgp.ExactGP(), per_part(), lgp.CollapsedVI(lgp.groups.SparseEffects(exact=False))
        ),
    ],
    ids=["elimination", "dense", "per part", "conjugate gradients"],
)
def test_contrasts_of_groups_are_those_of_direct_conditioning(method):
    effects = fitted(LINEAR, method).group_effects(3, [*range(GROUPS), 9.0], names=NAMES)
    for place, name in enumerate(["intercept", "dose"]):
        mean, error = effects[name].contrast(CONTRAST)
        expected = contrast_by_hand(place)
        np.testing.assert_allclose(mean, expected[0], atol=1e-5)
        np.testing.assert_allclose(error, expected[1], rtol=1e-5)


def test_contrasts_of_several_components_are_by_draws():
    own = fitted(LINEAR, per_part())
    mixture = lgp.Posterior.mixture([own, own], [0.5, 0.5])
    effects = mixture.group_effects(3, [*range(GROUPS), 9.0], names=NAMES)
    mean, error = effects["dose"].contrast(CONTRAST)
    expected = contrast_by_hand(1)
    assert abs(mean - expected[0]) < 4 * expected[1] / np.sqrt(4_000)
    assert error == pytest.approx(expected[1], rel=4 / np.sqrt(2 * 4_000))


def test_contrasts_of_three_classes_have_three():
    likelihood, y = lgp.Softmax(3), CLINIC % 3
    own = fitted(LINEAR, lgp.Laplace(), y.astype(float), likelihood)
    effects = own.group_effects(3, range(GROUPS), names=NAMES)["intercept"]
    mean, error = effects.contrast([1.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(mean, effects.estimate[0], atol=1e-8)
    np.testing.assert_allclose(error, effects.standard_error[0], rtol=1e-6)


def test_variables_of_each_part_lose_nothing_where_parts_have_finite_rank():
    dense, own = fitted(LINEAR, lgp.ExactGP()), fitted(LINEAR, per_part())
    assert own.log_evidence.value == pytest.approx(dense.log_evidence.value, abs=1e-5)
    new = np.column_stack([np.ones(4), [0.0, 2.0, 5.0, 9.0], np.zeros(4), [0, 1, 4, 7]])
    for found, expected in zip(own.predict_f(new), dense.predict_f(new), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        lgp.RBF(1.0).on(2) * lgp.SameGroup().on(3),
        *slow_parameters(
            lgp.RBF(1.0).on(2) + 0.3 * lgp.Linear(0.2).on(1) * lgp.SameGroup().on(3),
            lgp.Constant(0.5) * lgp.White(2.0).on(3) + lgp.RBF(1.0).on(2),
        ),
    ],
)
def test_products_with_groups_are_products_of_variables(kernel):
    dense, own = fitted(kernel, lgp.ExactGP()), fitted(kernel, per_part(40))
    gap = dense.log_evidence.value - own.log_evidence.value
    assert -1e-6 < gap < 1e-3
    np.testing.assert_allclose(own.mean_f(X[:9]), dense.mean_f(X[:9]), atol=1e-4)


def test_functions_of_parts_add_up():
    posterior = fitted(SMOOTH, per_part())
    parts = posterior.parts(X[:7], ["fixed", "groups", "smooth"])
    exact = fitted(SMOOTH, lgp.ExactGP()).parts(X[:7], ["fixed", "groups", "smooth"])
    for name in parts:
        np.testing.assert_allclose(parts[name].mean, exact[name].mean, atol=1e-4)
        np.testing.assert_allclose(parts[name].variance, exact[name].variance, atol=1e-4)
    total = sum(part.mean for part in parts.values())
    np.testing.assert_allclose(total, posterior.mean_f(X[:7]), atol=1e-8)


def test_partial_correlations_are_those_of_two_given_the_others():
    kernel = lgp.CorrelatedLinear([1.0, 4.0, 0.25], [0.3, -0.5, 0.6])
    S = np.asarray(kernel.covariance())
    np.testing.assert_allclose(np.diagonal(S), [1.0, 4.0, 0.25])
    R = S / np.sqrt(np.outer(np.diagonal(S), np.diagonal(S)))
    given_first = (R[1, 2] - R[0, 1] * R[0, 2]) / np.sqrt((1 - R[0, 1] ** 2) * (1 - R[0, 2] ** 2))
    np.testing.assert_allclose([R[0, 1], R[0, 2], given_first], [0.3, -0.5, 0.6])


def test_lines_without_an_intercept_are_x_s_z():
    kernel, rng = lgp.CorrelatedLinear([1.0, 4.0], [0.3], intercept=False), np.random.default_rng(0)
    X, Z = rng.normal(size=(2, 5, 2))
    np.testing.assert_allclose(
        kernel.gram(X, Z), X @ kernel.covariance() @ Z.T, rtol=1e-5, atol=1e-6
    )
    assert "intercept=False" in repr(kernel)


@pytest.mark.quick
def test_coefficients_and_effects_print_their_tables():
    own = Coefficients(("a", "b"), np.arange(2.0), np.eye(2))
    assert repr(own).splitlines()[1].split() == ["a", "0.0", "1.0", "-1.959964", "1.959964"]
    many = GroupEffects(tuple(map(str, range(99))), np.zeros(99), np.ones(99))
    assert len(str(many).splitlines()) < 30


@pytest.mark.slow
def test_estimators_take_a_linear_mean_and_groups():
    settings = {"mean": [1], "groups": {3: [1]}, "learn_hyperparameters": False}
    regressor = lgp.GPRegressor(**settings).fit(X, Y)
    kernel = repr(regressor.model_.kernel)
    assert "FixedEffects(1 coefficients).on(1)" in kernel
    assert "SameGroup().on(3)" in kernel
    assert regressor.coefficients().names == ("1",)
    assert list(regressor.group_effects(3, [0, 1])) == ["intercept", "1"]
    many = lgp.GPRegressor(**settings, n_inducing=10).fit(X, Y)
    assert isinstance(many.method_.representation.features, lgp.PerPart)
    np.testing.assert_allclose(many.predict(X), regressor.predict(X), atol=0.1)
    assert many.coefficients().estimate == pytest.approx(
        regressor.coefficients().estimate, abs=0.02
    )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fitted(lgp.RBF(), lgp.ExactGP()).coefficients(), "has no linear part"),
        (lambda: fitted(LINEAR, lgp.ExactGP()).coefficients(["a"]), "one for each of the 4"),
        (lambda: fitted(LINEAR, lgp.ExactGP()).group_effects(2, [0]), "no effect of groups in col"),
        (lambda: fitted(LINEAR, lgp.ExactGP()).group_effects(7, [0]), "There is no column 7"),
        (
            lambda: (
                fitted(LINEAR, lgp.ExactGP()).group_effects(3, [0, 1])["intercept"].contrast([1.0])
            ),
            "a weight for each of the 2",
        ),
        (
            lambda: GroupEffects(("a",), np.zeros(1), np.ones(1)).contrast([1.0]),
            "belong to no posterior",
        ),
        (
            lambda: fitted(FIXED.on(0, 1) + lgp.Linear().on(1), lgp.ExactGP()).coefficients(),
            "Two linear parts",
        ),
        (lambda: fitted(FIXED.on(0, 1), lgp.ExactGP()).coefficients().contrast([1]), "a weight"),
        (lambda: lgp.FixedEffects(-1.0), "positive variances"),
        (lambda: lgp.CorrelatedLinear([1.0, 1.0], [0.1, 0.2]), "needs 1 partial"),
        (lambda: lgp.GPRegressor(mean="cubic").fit(X, Y), 'mean must be "linear"'),
        (lambda: lgp.GPRegressor(groups="clinic").fit(X, Y), "There is no column 'clinic'"),
        (lambda: lgp.GPRegressor(groups=9).fit(X, Y), "There is no column 9"),
    ],
)
def test_what_has_none_says_so(call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call()


@pytest.mark.slow
def test_intervals_of_coefficients_hold_the_truth():
    """Learned variances of groups and noise; 95 % intervals of the slope, 200 data sets."""
    generator, held = np.random.default_rng(0), 0
    for _ in range(200):
        effects = 0.7 * generator.normal(size=8)
        groups = np.repeat(np.arange(8), 10)
        dose = generator.normal(size=80) + 0.5 * effects[groups]
        y = 2.0 + 0.5 * dose + effects[groups] + 0.4 * generator.normal(size=80)
        inputs = np.column_stack([dose, groups])
        found = lgp.GPRegressor(
            lgp.Constant(1.0), mean=[0], groups=1, representation=lgp.Dense()
        ).fit(inputs, y)
        lower, upper = found.coefficients().interval(0.95)
        held += int(lower[0] < 0.5 < upper[0])
    assert abs(held - 190) < 4 * np.sqrt(200 * 0.95 * 0.05)
