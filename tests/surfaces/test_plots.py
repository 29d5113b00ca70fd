import datetime
import doctest
import subprocess
import sys
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.dates import num2date
from matplotlib.figure import Figure

import latentgp as lgp
from latentgp import plots
from latentgp.errors import InputError
from latentgp.posteriors.parts import Part
from latentgp.surfaces.evaluation.effects import Dependence, VarianceShares

pytestmark = pytest.mark.quick

generator = np.random.default_rng(0)
x = generator.uniform(size=30)
probabilities = generator.uniform(size=30)
labels = (generator.uniform(size=30) < probabilities).astype(int)

WEIGHTS = lgp.KernelWeights(
    ("a", "b"),
    ("0",),
    np.ones((1, 2)),
    np.full((1, 2), 0.2),
    np.full((1, 2), 0.6),
    np.full((1, 2), 1.4),
    0.95,
)

CHAINS = generator.normal(size=(4, 200))

FIELD = generator.uniform(0, 10, (200, 2))
VARIOGRAM = lgp.fields.variogram(FIELD, np.sin(FIELD[:, 0]), directions=[0, 90])
EXPECTED = lgp.fields.model_variogram(lgp.RBF(2.0), np.linspace(0, 4, 9), directions=[0, 90])

CURVE = Dependence(
    "dose",
    np.array([0.0, 1.0]),
    ("",),
    mean=np.zeros((2, 1)),
    lower=-np.ones((2, 1)),
    upper=np.ones((2, 1)),
    each=np.zeros((3, 2, 1)),
    level=0.95,
    draws=9,
)
SHARES = VarianceShares(
    ("age", "dose"),
    ("",),
    first=np.array([[0.1], [0.7]]),
    first_interval=np.array([[[0.0], [0.6]], [[0.2], [0.8]]]),
    total=np.array([[0.3], [0.9]]),
    total_interval=np.array([[[0.2], [0.8]], [[0.4], [1.0]]]),
    design_error=np.zeros((2, 1)),
    level=0.95,
    rows=8,
    draws=9,
)
BARS = ("relevance", "comparison", "kernel_weights", "variance_shares")
EVERY_PLOT = {
    "dependence": lambda ax: plots.dependence(ax, CURVE, y_label="pain"),
    "variance_shares": lambda ax: plots.variance_shares(ax, SHARES),
    "transform_histogram": lambda ax: plots.transform_histogram(ax, np.linspace(0, 1, 40)),
    "standardised_residuals": lambda ax: plots.standardised_residuals(ax, x, np.sin(9 * x)),
    "traces": lambda ax: plots.traces(ax, CHAINS, y_label="length-scale [m]"),
    "ranks": lambda ax: plots.ranks(ax, CHAINS),
    "kernel_weights": lambda ax: plots.kernel_weights(ax, WEIGHTS),
    "residual_map": lambda ax: plots.residual_map(ax, FIELD, np.sin(FIELD[:, 0])),
    "variogram": lambda ax: plots.variogram(ax, VARIOGRAM, EXPECTED, x_label="distance [km]"),
    "prediction_bands": lambda ax: plots.prediction_bands(
        ax, x, x, x - 1, x + 1, observed_x=[0, 1], observed_y=[0, 1], inducing_x=[0.5]
    ),
    "observed_against_predicted": lambda ax: plots.observed_against_predicted(
        ax, x, x + 0.1, x - 1, x + 1, target_label="strength [MPa]"
    ),
    "reliability_diagram": lambda ax: plots.reliability_diagram(ax, labels, probabilities),
    "interval_calibration": lambda ax: plots.interval_calibration(
        ax, [0.9, 0.5], [0.8, 0.4], rows=50
    ),
    "learning_curve": lambda ax: plots.learning_curve(ax, [-9.0, -2.0], seconds=[1, 2], label="a"),
    "comparison": lambda ax: plots.comparison(ax, ["ep", "laplace"], [0.3, 0.4], [0.01, np.nan]),
    "cost_front": lambda ax: plots.cost_front(ax, ["a", "b"], [2.0, 9.0], [0.4, 0.3], [0.01, 0.0]),
    "relevance": lambda ax: plots.relevance(ax, [1.0, 2.0, np.inf], ["age", "dose", "Größe"]),
    "hyperparameter": lambda ax: plots.hyperparameter(
        ax, lgp.HyperparameterMarginal.of(np.linspace(0.5, 2.0, 50), positive=True)
    ),
    "hyperparameter_prior": lambda ax: plots.hyperparameter_prior(
        ax, lgp.HyperparameterMarginal.of(np.geomspace(0.1, 9.0, 50), positive=True), 0.3
    ),
}


def test_docstring_examples_hold():
    assert doctest.testmod(plots).failed == 0


@pytest.mark.always
def test_every_public_plot_is_in_the_list_above():
    others = {"parts", "save_figure", "check_picture_path", "maps", "field_maps", "field_draws"}
    others |= {"caterpillar"}  # of tests/surfaces/test_rankings.py
    assert set(EVERY_PLOT) | others == set(plots.__all__)


def test_variograms_of_other_directions_are_refused():
    other = lgp.fields.model_variogram(lgp.RBF(2.0), [1.0], directions=[45])
    with pytest.raises(InputError, match="give model_variogram the directions="):
        plots.variogram(None, VARIOGRAM, other)


def test_the_curve_of_a_model_begins_with_the_noise_and_the_band_is_drawn():
    found = lgp.fields.variogram(FIELD, np.sin(FIELD[:, 0]))
    curve = lgp.fields.model_variogram(lgp.RBF(2.0), [0.0, 1e-6, 1.0], noise_variance=0.3)
    ends = found.classical[0] - 0.1, found.classical[0] + 0.1
    ax = plots.variogram(None, found, curve, band=ends)
    (line,) = ax.get_lines()
    assert line.get_ydata()[0] == pytest.approx(0.3)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "95 % of tables that the model draws",
        "rows",
        "model",
    ]


def test_maps_have_a_panel_each_and_leave_far_cells_empty(tmp_path):
    places = np.concatenate([FIELD / 10, FIELD / 10 + 9])
    grid = lgp.fields.grid_over(places, cells=400)
    panels = {"east": grid.points[:, 0], "north": grid.points[:, 1]}
    own = plots.maps(grid, panels, places=places, labels=("x [m]", "y [m]"))
    shown = own.axes[0].get_images()[0].get_array()
    assert shown.mask[0, -1]
    assert shown[0, 0] < 1
    assert own.axes[0].get_images()[0].get_extent()[:2] == pytest.approx(
        [places[:, 0].min(), places[:, 0].max()]
    )
    for shared, scales in ((False, [1, 1]), (True, [0, 1])):
        axes = plots.maps(grid, panels, shared=shared).axes
        assert [len(ax.child_axes) for ax in axes] == scales
    assert plots.save_figure(own, tmp_path / "maps.png").stat().st_size > 1000


def test_residuals_of_many_rows_say_how_many_are_drawn():
    many = np.repeat(FIELD, 30, axis=0)
    ax = plots.residual_map(None, many, np.sin(many[:, 0]))
    assert ax.get_xlabel() == "east\n5,000 of 6,000 rows"


def test_parts_have_a_panel_each(tmp_path):
    trend, rest = Part(3 * x, 0.1 + 0 * x), Part(0.1 * x, 0.1 + 0 * x)
    figure = plots.parts(x, {"trend": trend, "rest": rest}, x_label="year", y_label="f [m]")
    first, last = figure.axes
    assert (first.get_title("left"), last.get_title("left")) == ("trend", "rest")
    assert (last.get_xlabel(), last.get_ylabel()) == ("year", "f [m]")
    assert plots.save_figure(figure, tmp_path / "parts.png").stat().st_size > 1000
    with pytest.raises(lgp.InputError, match="rows"):
        plots.parts(x[:-1], {"trend": trend})


@pytest.mark.parametrize("name", EVERY_PLOT)
@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_every_plot_returns_labelled_axes_and_saves(name, ending, tmp_path):
    ax = EVERY_PLOT[name](None)
    assert isinstance(ax, Axes)
    assert ax.get_xlabel()
    assert ax.get_ylabel() or name in BARS
    path = plots.save_figure(ax, tmp_path / "new folder" / f"{name}.{ending}")
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("name", EVERY_PLOT)
def test_every_plot_draws_on_given_axes(name):
    ax = Figure().add_subplot()
    assert EVERY_PLOT[name](ax) is ax


def test_pyplot_is_never_imported():
    code = (
        "import sys; from latentgp import plots; plots.learning_curve(None, [1.0, 2.0]);"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_band_follows_sorted_inputs():
    ax = plots.prediction_bands(None, [2, 0, 1], [4, 0, 1], [3, -1, 0], [5, 1, 2])
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
    np.testing.assert_array_equal(line.get_ydata(), [0, 1, 4])


MONTHS = pd.date_range("2015-01-01", periods=36, freq="MS")


@pytest.mark.parametrize(
    "dates",
    [
        MONTHS,
        pd.Series(MONTHS),
        MONTHS.values,
        MONTHS.values.astype("M8[D]"),
        MONTHS.tz_localize("UTC"),
        list(MONTHS.to_pydatetime()),
        [month.date() for month in MONTHS],
    ],
    ids=["index", "series", "numpy", "days", "with a zone", "datetimes", "dates"],
)
def test_dates_get_a_date_axis(dates):
    y = np.arange(36.0)
    ax = plots.prediction_bands(None, dates, y, y - 1, y + 1, observed_x=dates, observed_y=y)
    for line in ax.get_lines():
        assert num2date(line.get_xdata()[-1]).date() == datetime.date(2017, 12, 1)
    ax.figure.canvas.draw()
    assert {"2015", "2016", "2017"} <= {tick.get_text() for tick in ax.get_xticklabels()}


def test_dates_beside_numbers_are_refused():
    with pytest.raises(InputError, match="x holds dates and observed_x something else"):
        plots.prediction_bands(
            None, MONTHS[:2], [1, 2], [0, 1], [2, 3], observed_x=[1], observed_y=[1]
        )
    with pytest.raises(InputError, match=r"x holds NaN in 1 row"):
        plots.prediction_bands(None, [MONTHS[0], pd.NaT], [1, 2], [0, 1], [2, 3])


def test_an_unknown_ending_is_refused_before_anything_is_drawn():
    with pytest.raises(InputError, match="has no picture's ending: use one of"):
        plots.check_picture_path("bands.docx")
    assert plots.check_picture_path("a/bands.PDF").suffix == ".PDF"


@pytest.mark.parametrize(("observed", "place"), [([0.7, 0.95], 4), ([0.3, 0.8], 2)])
def test_the_legend_of_a_calibration_is_where_the_curve_is_not(observed, place):
    ax = plots.interval_calibration(None, [0.5, 0.9], observed)
    assert ax.get_legend()._loc == place  # lower right, upper left


def test_the_coverage_is_written_in_the_legend():
    ax = plots.observed_against_predicted(None, [0, 0, 0, 9], [0] * 4, [-1] * 4, [1] * 4)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["inside the 95 % interval: 75.0 %", "outside: 25.0 %"]


def test_constant_targets_and_single_rows_can_be_drawn(tmp_path):
    plots.save_figure(
        plots.observed_against_predicted(None, [1], [1], [1], [1]), tmp_path / "a.png"
    )
    plots.save_figure(plots.prediction_bands(None, [1], [1], [1], [1]), tmp_path / "b.png")
    plots.save_figure(plots.learning_curve(None, [-np.inf]), tmp_path / "c.png")
    plots.save_figure(plots.reliability_diagram(None, [1], [1.0]), tmp_path / "d.png")


def test_relevance_is_sorted_and_says_what_is_left_out():
    ax = plots.relevance(None, [1.0, 0.5, 2.0], ["a", "b", "c"], at_most=2)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["b", "a"]
    assert [bar.get_width() for bar in ax.patches] == [2.0, 1.0]
    assert "2 most relevant of 3" in ax.get_xlabel()


def test_weights_have_a_row_for_each_kernel_and_a_mark_for_each_class(tmp_path):
    mean = np.array([[0.8, 0.2, 1.0], [0.5, 0.4, 0.1]])
    weights = lgp.KernelWeights(
        ("a", "b", "c"), ("yes", "no"), mean, 0.1 * mean, 0.5 * mean, 2 * mean, 0.9
    )
    ax = plots.kernel_weights(None, weights, true=mean)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c"]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["yes", "no", "known"]
    assert [len(lines.get_segments()) for lines in ax.collections] == [3, 3]
    np.testing.assert_array_equal(ax.get_lines()[0].get_xdata(), mean[0])
    plots.save_figure(ax, tmp_path / "weights.png")
    with pytest.raises(InputError, match=r"true has shape \(3, 2\)"):
        plots.kernel_weights(None, weights, true=mean.T)
    lines = str(weights).splitlines()
    assert lines[1].split() == ["yes", "a", "0.8", "0.08", "0.4", "1.6"]
    assert len(lines) == 7


def test_learning_curves_are_compared_on_one_axes_and_the_start_is_cut():
    ax = plots.learning_curve(None, [-1e6, *np.linspace(-20, -10, 20)], label="one")
    plots.learning_curve(ax, np.linspace(-40, -12, 20), label="two")
    assert -60 < ax.get_ylim()[0] < -35
    assert len({line.get_color() for line in ax.get_lines()}) == 2
    whole = plots.learning_curve(None, np.linspace(-40, -12, 20))
    assert whole.get_ylim()[0] < -40


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plots.prediction_bands(None, [0, 1], [0], [0], [0]), "x has 2 rows, mean has 1"),
        (lambda: plots.prediction_bands(None, [[0]], [0], [0], [0]), "x has shape"),
        (
            lambda: plots.prediction_bands(None, [0], [0], [0], [0], observed_x=[1]),
            "only one of observed_x and observed_y",
        ),
        (lambda: plots.observed_against_predicted(None, [0], [0], [1], [0]), "lower end above"),
        (lambda: plots.interval_calibration(None, [95], [0.9]), r"nominal leaves \[0, 1\]"),
        (lambda: plots.relevance(None, [0.0]), "not positive"),
        (lambda: plots.relevance(None, [1.0], ["a", "b"]), "2 names for 1 inputs"),
        (lambda: plots.learning_curve(None, [1.0, 2.0], seconds=[1.0]), "seconds has 1 rows"),
        (lambda: plots.save_figure(plots.relevance(None, [1.0]), "picture.xyz"), "picture.xyz"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("draw", [plots.traces, plots.ranks])
@pytest.mark.parametrize("draws", [np.zeros(5), np.zeros((2, 0)), np.full((2, 3), np.nan)])
def test_pictures_of_chains_refuse_what_is_no_chain(draw, draws):
    with pytest.raises(InputError, match="draws"):
        draw(None, draws)


def test_ranks_of_a_chain_of_its_own_are_apart():
    """All ranks of the highest chain are above those of the others."""
    draws = np.concatenate([CHAINS, 10 + CHAINS[:1]])
    ax = plots.ranks(None, draws, bins=5)
    counts = [patch.get_data().values for patch in ax.patches]
    np.testing.assert_array_equal(counts[-1], [0, 0, 0, 0, 200])


def test_ranks_need_a_bin():
    with pytest.raises(InputError, match="bins"):
        plots.ranks(None, CHAINS, bins=0)


def test_maps_of_one_place_of_a_line_and_of_nothing():
    for places in ([[2.0, 3.0]], [[0.0, 1.0], [5.0, 1.0]]):
        grid = lgp.fields.grid_over(places, cells=6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = plots.maps(grid, {"one": np.ones(len(grid.points))})
        left, right, low, high = figure.axes[0].images[0].get_extent()
        assert right > left
        assert high > low
    with pytest.raises(InputError, match="maps needs panels"):
        plots.maps(grid, {})
    with pytest.raises(InputError, match="a colour map for each, got 2 and 1"):
        plots.maps(grid, dict.fromkeys("ab", np.ones(len(grid.points))), colours=("viridis",))
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    data = lgp.Data([[0.0, 1.0], [1.0, 2.0]], [0.0, 1.0])
    fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
    with pytest.raises(InputError, match="columns must be two of the 2 inputs"):
        plots.field_maps(fit.posterior, data.X, columns=(0, 5))
