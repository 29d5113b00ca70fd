"""Options are declared once: signatures, documents and flags follow."""

import dataclasses
import inspect
import re

import pytest
from sklearn.base import clone
from typer.main import get_command

import latentgp as lgp
from latentgp.methods.options import FitOptions, SearchOptions, completed
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.options import FLAGS, OF_TABLES, EstimatorOptions

pytestmark = pytest.mark.quick

ESTIMATORS = [lgp.GPRegressor, lgp.GPCountRegressor, lgp.GPClassifier, lgp.GPOrdinalClassifier]


@pytest.mark.parametrize("function", [*ESTIMATORS, lgp.fit])
def test_every_argument_is_explained_once(function):
    text = function.__doc__.partition("Args:\n")[2].partition("\n\n")[0]
    explained = re.findall(r"^    (\w+): ", text, re.M)
    assert sorted(explained) == sorted(inspect.signature(function).parameters)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_estimators_have_the_options_of_fits(kind):
    signature = inspect.signature(kind)
    assert next(iter(signature.parameters)) == "kernel"
    for options in SearchOptions, EstimatorOptions:
        for field in dataclasses.fields(options):
            parameter = signature.parameters[field.name]
            assert (parameter.default, parameter.kind) == (field.default, parameter.KEYWORD_ONLY)
            assert "Annotated" not in parameter.annotation
    assert {field.name for field in dataclasses.fields(FitOptions)} < set(
        inspect.signature(lgp.fit).parameters
    )


def test_an_option_of_a_subclass_is_one_line():
    @dataclasses.dataclass(kw_only=True, eq=False, repr=False)
    class Seasonal(lgp.GPRegressor):
        """Regression with a season.

        Args:
            season: length of it.
            options: as in `GPRegressor`.
        """

        season: float = 1.0

    assert "    restarts: further runs" in (Seasonal.__doc__ or "")
    assert clone(Seasonal(season=2.0, restarts=1)).get_params(deep=False)["season"] == 2.0
    with pytest.raises(lgp.InputError, match="did you mean season"):
        Seasonal(saeson=2.0)


def test_a_document_keeps_its_own_entries():
    class Base:
        """Base.

        Args:
            a: of the base.
            b: of the base,
                in two lines.
        """

    text = """Of options.

    Args:
        options: as in `Base`.
        a: its own.
    """
    whole = "Of options.\n\nArgs:\n    b: of the base,\n        in two lines.\n    a: its own."
    assert completed(text, [Base]) == whole


def test_the_command_line_has_the_options_with_a_flag():
    known = {p.name: p for p in get_command(app).commands["fit"].params}
    for name in FLAGS:
        assert known[name].default == OF_TABLES.get(name, getattr(lgp.GPRegressor, name))
        assert known[name].help[0].isupper() or known[name].help.startswith('"')
