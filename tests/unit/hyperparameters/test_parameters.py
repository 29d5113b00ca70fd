import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import (
    Beta,
    Gamma,
    HalfNormal,
    LeftTruncatedDistribution,
    Levy,
    LogNormal,
    LogUniform,
    Normal,
    Pareto,
    Poisson,
    RightTruncatedDistribution,
    TransformedDistribution,
    TruncatedNormal,
    Uniform,
    constraints,
)
from numpyro.distributions.transforms import AffineTransform, PowerTransform
from scipy import stats

import latentgp as lgp
from latentgp.hyperparameters.base import Parametrised, parameter
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.hyperparameters.summary import lengthscales
from latentgp.hyperparameters.supports import check_prior
from latentgp.posteriors.hyperparameters import entries_of
from problems import X, regression

pytestmark = pytest.mark.quick

MODEL = lgp.LatentGP(
    lgp.RBF(lengthscale=[0.5, 2.0]) + 0.3 * lgp.Matern(order=2.0).on(1), lgp.Gaussian(0.1)
)
PATHS = [
    "kernel.parts[0].lengthscale",
    "kernel.parts[0].variance",
    "kernel.parts[1].kernel.kernel.lengthscale",
    "kernel.parts[1].kernel.kernel.variance",
    "kernel.parts[1].kernel.kernel.order",
    "kernel.parts[1].scale",
    "likelihood.noise_variance",
]


def test_parameters_are_listed_by_path():
    assert list(lgp.parameters(MODEL)) == PATHS
    assert lgp.parameters(MODEL)[PATHS[-1]].role == "noise_variance"


def test_replace_changes_what_is_named_and_nothing_else():
    changed = lgp.replace(MODEL, {PATHS[0]: [1.0, 3.0], PATHS[-1]: 0.7})
    values = {path: info.value.tolist() for path, info in lgp.parameters(changed).items()}
    expected = {path: info.value.tolist() for path, info in lgp.parameters(MODEL).items()}
    assert values == expected | {PATHS[0]: [1.0, 3.0], PATHS[-1]: 0.7}


def test_vector_round_trip(x64):
    space = ParameterSpace(MODEL)
    vector = space.to_vector() + np.linspace(-0.5, 0.5, space.size)
    assert space.size == len(vector) == 8
    np.testing.assert_allclose(space.to_vector(space.to_model(jnp.asarray(vector))), vector)
    assert [label for label, _ in space.entries()][:3] == [
        f"{PATHS[0]}[0]",
        f"{PATHS[0]}[1]",
        PATHS[1],
    ]


def test_entries_of_a_matrix_are_named_by_row_and_column(x64):
    space = ParameterSpace(lgp.LinearCoregionalisation(mixing=np.ones((2, 3))))
    labels = [label for label, _ in space.entries() if label.startswith("mixing")]
    assert labels == [f"mixing[{i}, {j}]" for i in range(2) for j in range(3)]
    assert {*labels} <= {label for label, _ in entries_of({"mixing": np.ones((4, 2, 3))})}


def test_a_period_is_no_lengthscale():
    kernel = lgp.RBF(lengthscale=5.0).on(0) * lgp.Periodic(period=0.5).on(0)
    assert lengthscales(kernel, 2).tolist() == [5.0, np.inf]


def test_frozen_parameters_stay(x64):
    space = ParameterSpace(MODEL, frozen=("kernel.parts[1]", PATHS[-1]))
    assert space.paths == tuple(PATHS[:2])
    moved = space.to_model(jnp.asarray(space.to_vector()) + 1.0)
    before, after = lgp.parameters(MODEL), lgp.parameters(moved)
    for path in PATHS:
        same = np.array_equal(before[path].value, after[path].value)
        assert same == (path not in space.paths)


def test_a_path_is_not_the_beginning_of_a_longer_name():
    with pytest.raises(lgp.InputError, match="no parameter"):
        ParameterSpace(MODEL, frozen=("kern",))


def test_everything_frozen_leaves_an_empty_vector():
    assert ParameterSpace(MODEL, frozen=("kernel", "likelihood")).to_vector().shape == (0,)


def test_log_prior_is_the_density_with_the_change_of_variables(x64):
    kernel = lgp.RBF(lengthscale=0.7, variance=1.3)
    priors = {"lengthscale": LogNormal(0.2, 0.5), "variance": Gamma(2.0, 3.0)}
    space = ParameterSpace(kernel, priors=priors)
    expected = (
        priors["lengthscale"].log_prob(0.7)
        + np.log(0.7)
        + priors["variance"].log_prob(1.3)
        + np.log(1.3)
    )
    np.testing.assert_allclose(space.log_prior(jnp.asarray(space.to_vector())), expected)


def test_a_log_normal_prior_peaks_at_its_median(x64):
    space = ParameterSpace(lgp.RBF(), priors={"lengthscale": LogNormal(np.log(3.0), 0.5)})
    at_median = jnp.asarray(space.to_vector(lgp.RBF(lengthscale=3.0)))
    slope = jax.grad(space.log_prior)(at_median)
    np.testing.assert_allclose(slope, 0.0, atol=1e-12)


def test_priors_of_frozen_parameters_do_not_count(x64):
    priors = {"variance": LogNormal(0.0, 1.0)}
    space = ParameterSpace(lgp.RBF(), frozen=("variance",), priors=priors)
    assert space.log_prior(jnp.asarray(space.to_vector())) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: lgp.replace(MODEL, {"kernel.lenghtscale": 1.0}),
        lambda: ParameterSpace(MODEL, priors={"kernel.lenghtscale": LogNormal(0.0, 1.0)}),
        lambda: ParameterSpace(MODEL, frozen=("kernel.lenghtscale",)),
        lambda: lgp.fit(
            regression(),
            lgp.Data(X, X[:, 0]),
            key=jax.random.key(0),
            frozen=("kernel.lenghtscale",),
        ),
    ],
)
def test_a_wrong_path_is_answered_with_the_right_ones(call):
    with pytest.raises(lgp.InputError, match=r'no parameter "kernel.lenghtscale".*noise_variance'):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: lgp.RBF(lengthscale=-1.0),
        lambda: lgp.RBF(lengthscale=[1.0, 0.0]),
        lambda: lgp.RBF(variance=np.nan),
        lambda: lgp.Gaussian(noise_variance=0.0),
        lambda: lgp.Matern(order=60.0),
        lambda: -1.0 * lgp.RBF(),
    ],
)
def test_values_outside_their_support_are_refused(call):
    with pytest.raises(lgp.InputError, match="must satisfy"):
        call()


def test_replacing_by_a_value_outside_its_support_is_refused():
    with pytest.raises(lgp.InputError, match="must satisfy"):
        lgp.replace(MODEL, {PATHS[-1]: -0.5})


def test_values_are_double_precision_whatever_they_were():
    assert lgp.RBF(lengthscale=np.float32(0.5)).lengthscale.dtype == np.float64
    assert lgp.RBF(lengthscale=3).lengthscale.dtype == np.float64


def test_a_parameter_of_a_users_own_module(x64):
    class Decay(Parametrised):
        rate: object = lgp.parameter(constraints.unit_interval, default=0.25)
        name: str = "decay"

    space = ParameterSpace(Decay())
    assert space.paths == ("rate",)
    np.testing.assert_allclose(space.to_model(jnp.zeros(1)).rate, 0.5)


def test_summary_says_value_support_and_state():
    space = ParameterSpace(MODEL, frozen=("likelihood",), priors={PATHS[1]: LogNormal(0.0, 1.0)})
    lines = {line.split()[0]: line for line in lgp.summary(MODEL, space).splitlines()}
    assert set(lines) == {"parameter", *PATHS}
    assert "LogNormal(0., 1.)" in lines[PATHS[1]]
    assert lines[PATHS[-1]].split() == [PATHS[-1], "0.1", "positive", "frozen"]
    assert "[0.5, 2." in lines[PATHS[0]]


def test_summary_has_one_line_a_parameter():
    class Deep(Parametrised):
        weights: Any = parameter()

    kernel = lgp.RBF(lengthscale=np.linspace(0.5, 795.0, 26))
    lines = lgp.summary(kernel).splitlines()
    assert lines[0].split() == ["parameter", "value", "support"]
    assert lines[1] == "lengthscale  26 values from 0.5 to 795  positive"
    assert len(lines) == 3
    assert "2 x 3 values from -1 to 3" in lgp.summary(Deep(np.linspace(-1.0, 3.0, 6).reshape(2, 3)))
    six = lgp.summary(lgp.RBF(lengthscale=np.full(6, 1e5 / 3))).splitlines()
    assert six[1].count("33333.3333") == 6


COMPOSED = [
    dist.LogNormal(np.zeros(2), 2.0),
    dist.Gamma(2.0, 3.0),
    dist.TruncatedNormal(low=0.0),
    dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.ExpTransform()),
    dist.HalfNormal(1.0).expand([2]),
    dist.Exponential(1.0).mask(True),
]


@pytest.mark.parametrize("prior", COMPOSED, ids=lambda prior: type(prior).__name__)
def test_priors_come_out_of_a_compiled_function_as_they_went_in(prior):
    space = ParameterSpace(lgp.RBF(lengthscale=[0.5, 0.5]), priors={"lengthscale": prior})
    again = jax.jit(lambda space: space)(space).priors[0]
    assert type(again) is type(prior)
    np.testing.assert_allclose(again.log_prob(0.7), prior.log_prob(0.7), rtol=1e-6)
    assert jax.tree.structure(space) == jax.tree.structure(jax.tree.map(lambda a: a, space))


def test_a_prior_that_is_no_distribution_is_refused():
    """In a process of its own, where annotations are not checked, as a user's is."""
    program = """
import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace
ParameterSpace(lgp.RBF(), priors={"lengthscale": 3.0})
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "InputError: The prior of lengthscale must be a distribution" in run.stderr


LAWS = {
    "Uniform": (Uniform(1.0, 2.0), 1, 2),
    "Uniform below zero": (Uniform(-3.0, 2.0), 0, 2),
    "Uniform nearly all below zero": (Uniform(-1000.0, 0.05), 0, 0.05),
    "truncated normal": (TruncatedNormal(5.0, 1.0, low=4.0, high=6.0), 4, 6),
    "left truncated": (LeftTruncatedDistribution(Normal(0.0, 1.0), low=3.0), 3, np.inf),
    "right truncated": (RightTruncatedDistribution(Normal(0.0, 1.0), high=0.5), 0, 0.5),
    "Pareto": (Pareto(3.0, 2.0), 3, np.inf),
    "LogUniform": (LogUniform(1.0, 2.0), 1, 2),
    "Beta": (Beta(2.0, 2.0), 0, 1),
    "Levy": (Levy(2.0, 1.0), 2, np.inf),
    "normal": (Normal(0.0, 1.0), 0, np.inf),
    "gamma": (Gamma(25.0, 4.0), 0, np.inf),
    "shifted uniform": (
        TransformedDistribution(Uniform(0.0, 1.0), AffineTransform(5.0, -3.0)),
        2,
        5,
    ),
    "square of a half-normal": (
        TransformedDistribution(HalfNormal(2.0), PowerTransform(2.0)),
        0,
        np.inf,
    ),
    "expanded": (Uniform(1.0, 2.0).expand([2]).to_event(1), 1, 2),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", LAWS)
class TestSupportsOfPriors:
    def test_unconstrained_vectors_stay_inside(self, name):
        law, low, high = LAWS[name]
        space = ParameterSpace(lgp.RBF(lengthscale=[0.3, 7.0]), priors={"lengthscale": law})
        for entries in (-30.0, -2.0, 0.0, 3.0, 30.0):
            value = np.asarray(space.to_model(jnp.full(3, entries)).lengthscale)
            assert np.all((low <= value) & (value <= high))
        assert ("lengthscale" in space.narrowed) == ((low, high) != (0, np.inf))

    def test_a_start_outside_is_moved_inside_and_one_inside_is_kept(self, name):
        law, low, high = LAWS[name]
        model, said = ParameterSpace(
            lgp.RBF(lengthscale=[1.5, 7.0]), priors={"lengthscale": law}
        ).inside()
        assert np.all((low < model.lengthscale) & (model.lengthscale < high))
        inside = (np.array([1.5, 7.0]) > low) & (np.array([1.5, 7.0]) < high)
        np.testing.assert_array_equal(model.lengthscale[inside], np.array([1.5, 7.0])[inside])
        assert len(said) == int(not inside.all())
        assert all("lengthscale was [1.5, 7. ], outside the support" in s for s in said)

    def test_the_density_is_that_of_the_prior_in_unconstrained_coordinates(self, name):
        """It integrates to what the law gives to the support, one where it gives all."""
        law, _, _ = LAWS[name]
        if law.event_dim:
            return
        space = ParameterSpace(lgp.RBF(), frozen=["variance"], priors={"lengthscale": law})
        line = jnp.linspace(-40, 40, 40_001)[:, None]
        mass = jnp.sum(jnp.exp(jax.vmap(space.log_prior)(line))) * 80 / 40_000
        halved = name in ("normal",)
        share = {
            "Uniform below zero": 0.4,
            "Uniform nearly all below zero": 5e-5,
            "right truncated": 0.2769,
        }.get(name, 0.5 if halved else 1)
        assert abs(mass - share) < 2e-3


@pytest.mark.parametrize(
    ("law", "says"),
    [
        (Poisson(3.0), r"is discrete \(PoissonDist|is discrete \(Poisson"),
        (Uniform(-2.0, -1.0), "holds no value that the parameter can have"),
        (Normal(np.zeros(3), 1.0), r"is of shape \(3,\), but the parameter of shape \(2,\)"),
        (stats.norm(), "must be a distribution of NumPyro"),
        ("wide", "must be a distribution of NumPyro"),
    ],
)
def test_a_prior_that_cannot_be_is_refused(law, says):
    with pytest.raises(lgp.InputError, match=says):
        check_prior("lengthscale", law, constraints.positive, np.ones(2))


@pytest.mark.usefixtures("x64")
def test_a_prior_may_be_written_with_lists():
    kernel, laws = lgp.RBF([1.0, 2.0]), (LogNormal([0.0, 1.0], 1.0), LogNormal(np.arange(2.0), 1.0))
    one, other = (
        ParameterSpace(kernel, priors={"lengthscale": law}).log_prior(jnp.ones(3)) for law in laws
    )
    assert one == other
