"""Export of posteriors: a predictor in NumPy alone, and StableHLO."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np
from jax import export
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.model_checks import check_points
from latentgp.modules import stored
from latentgp.posteriors.posterior import Posterior
from latentgp.runtime.writing import writing, written_whole
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.export.program import file_text
from latentgp.surfaces.export.trace import TracedPredictions, side_choices, trace
from latentgp.validation import checked_inputs, checked_side

Format = Literal["numpy", "stablehlo"]

_TEST_ROWS = 12
_TEST_LEVELS = (0.05, 0.5, 0.95)
_RESOLUTION = 8 * np.sqrt(np.finfo(float).eps)  # of variances, over the prior's [0004, 0013]


@stored
class Exported(NamedTuple):
    """Files written by an export.

    Attributes:
        predictor: the Python file; None if it was not asked for.
        stablehlo: programs by name: "marginals", and questions about marginals.
        deviation: largest difference of the Python file from the library at the test rows, over
            the scale of what is predicted; NaN without one.
    """

    predictor: Path | None
    stablehlo: dict[str, Path]
    deviation: float


def export_predictor(
    posterior: Posterior,
    folder: str | Path,
    *,
    formats: Sequence[Format] = ("numpy",),
    inputs: Any = None,
    classes: Any = None,
    quantiles: bool = True,
    tolerance: float = 1e-10,
    **side_information: Any,
) -> Exported:
    """Write a posterior's predictions as files that need no latentgp.

    "numpy" is one Python file, `predictor.py`, for Python 3.10 and NumPy: `predict_f(X)`,
    `predict(X, **side_information)`, `quantiles(X, probabilities)`. It holds the predictions at
    some inputs, with which `python predictor.py --self-test` compares its own. Latent variances
    are resolved to 1.2e-7 of the prior variance, and what they change by so little is no
    difference. "stablehlo" is a program a question, for `jax.export.deserialize` and other
    runtimes of StableHLO.

    Args:
        posterior: of any method.
        folder: where to write; it is made if need be.
        formats: which.
        inputs: rows to test with, shape (N, D); None takes rows near those of the posterior.
        classes: labels of the classes, in their order, for "label" among the predictions.
        quantiles: whether quantiles of y are in it. Without them draws of chains can be exported
            for likelihoods whose random numbers have no form in NumPy.
        tolerance: most that the file may differ from the library, over the scale of what is
            predicted.
        side_information: of the test rows, what the likelihood reads a row.

    Raises:
        InputError: formats that are none; predictions that cannot be traced, that have no form in
            NumPy, or that differ by more than the tolerance.

    Example:
        >>> import jax, latentgp as lgp, tempfile
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> exported = lgp.export_predictor(fit.posterior, tempfile.mkdtemp())
        >>> exported.predictor.name, exported.deviation < 1e-10
        ('predictor.py', True)
    """
    X = test_inputs(posterior) if inputs is None else inputs
    X = checked_inputs(X, posterior.latent_inputs())
    side = checked_side(posterior.model.likelihood, side_information, len(X))
    more = {} if classes is None else {"classes": np.asarray(classes).tolist()}
    own = {"tolerance": tolerance, "more": more, "quantiles": quantiles}
    return write(posterior, folder, formats, X, side, **own)


def write(
    posterior: Posterior,
    folder: str | Path,
    formats: Sequence[Format],
    X: Float[np.ndarray, "N D"],
    side: dict[str, np.ndarray],
    *,
    tolerance: float,
    more: dict[str, Any] | None = None,
    tests: dict[str, np.ndarray] | None = None,
    of_tables: bool = False,
    quantiles: bool = True,
) -> Exported:
    """Write the files, tested at some rows with side information.

    `more` is what else the file says of the model, `tests` what else it is tested by; it reads
    columns of any type if `of_tables`, and has quantiles of y if `quantiles`.
    """
    unknown = set(formats) - set(get_args(Format))
    if unknown or not formats:
        known = ", ".join(map(repr, get_args(Format)))
        raise InputError(f"formats must be some of {known}, got {tuple(formats)}.")
    folder = Path(folder)
    second_class = bool((more or {}).get("second_class"))
    traced = trace(posterior, second_class=second_class, quantiles=quantiles)
    text = ""
    if "numpy" in formats:
        about, rows = _told(posterior, traced, X, side)
        about |= {"tolerance": tolerance} | (more or {})
        text = file_text(traced, about, rows | (tests or {}), of_tables=of_tables)
    deviation = _checked(text, tolerance) if text else float("nan")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / "predictor.py" if text else None
    if path is not None:
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8")
    programs = _stablehlo(traced, folder) if "stablehlo" in formats else {}
    return Exported(path, programs, deviation)


def test_inputs(posterior: Posterior) -> Float[np.ndarray, "N D"]:
    """Inputs about as far apart as those that the posterior knows, on a deterministic spread."""
    places = np.asarray(_places(posterior), dtype=np.float64)
    low, high = (np.quantile(places, end, axis=0) for end in (0.05, 0.95))
    shares = np.random.default_rng(0).uniform(size=(_TEST_ROWS, places.shape[1]))
    whole = np.all(places == np.round(places), axis=0)
    found = low + shares * (high - low)
    found = np.where(whole, np.round(found), found)
    try:
        check_points(posterior.model.of_inputs, found)
    except InputError:  # of a kernel of whole times, between those of inducing points
        found = np.round(found)
    return found


def _places(posterior: Posterior) -> Any:
    """Inputs that the posterior knows; standard ones where it keeps none."""
    columns = posterior.latent_inputs()
    for leaf in jax.tree.leaves(posterior.components):
        if np.ndim(leaf) >= 2 and np.shape(leaf)[-1] == columns and np.shape(leaf)[-2] > 1:
            return np.reshape(leaf, (-1, columns))
    return np.linspace(-1.0, 1.0, 5)[:, None] * np.ones(columns)


@double_precision
def _told(
    posterior: Posterior,
    traced: TracedPredictions,
    X: Float[np.ndarray, "N D"],
    side: dict[str, np.ndarray],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Description of a posterior in a file, and test rows with the library's predictions."""
    likelihood = posterior.model.likelihood
    predictive = posterior.predict(X, **side)
    latent = predictive.latent_mean, predictive.latent_variance
    found: dict[str, tuple[np.ndarray, ...]] = {"latent": latent}
    known = {name.partition("_given_")[0] for name in traced.programs}
    if "probabilities" in known:
        found["probabilities"] = (predictive.probabilities,)
    if "moments" in known:
        found["moments"] = predictive.mean, predictive.variance
    if "quantiles" in known:
        found["quantiles"] = (predictive.quantiles(np.array(_TEST_LEVELS)),)
    tests = {f"{name}_{i}": a for name, parts in found.items() for i, a in enumerate(parts)}
    tests |= {"X": X, **{f"side_{name}": values for name, values in side.items()}}
    about = {
        "likelihood": type(likelihood).__name__,
        "columns": posterior.latent_inputs(),
        "latents": likelihood.latent_size,
        "classes": None,
        "side_information": sorted(set(chain(*side_choices(likelihood)))),
        "rows_at_once": traced.rows_at_once,
        "fixed": traced.fixed,
        "test_sides": sorted(side),
        "test_questions": list(found),
        "test_levels": list(_TEST_LEVELS),
        "resolution": _RESOLUTION * float(np.max(posterior.model.of_inputs.diagonal(X))),
    }
    return about, tests


def _checked(text: str, tolerance: float) -> float:
    """Deviation of a file from the library, which must not be too large."""
    module: Any = ModuleType("latentgp_exported")
    sys.modules[module.__name__] = module  # where its classes look for it
    try:
        exec(compile(text, "predictor.py", "exec"), vars(module))
        worst = getattr(module, "whole_deviation", module.deviation)()
    finally:
        del sys.modules[module.__name__]
    if not worst <= tolerance:
        raise InputError(
            f"The exported file differs from the library by {worst:.1e} of the scale of what is "
            f"predicted, more than tolerance={tolerance:.0e}, as the posterior is ill-conditioned; "
            f"give tolerance={10 ** np.ceil(np.log10(worst) + 0.5):.0e} if that will do."
        )
    return worst


@double_precision
def _stablehlo(traced: TracedPredictions, folder: Path) -> dict[str, Path]:
    """One file a program."""
    if find_spec("flatbuffers") is None:
        raise InputError('"stablehlo" needs the package flatbuffers; install latentgp[export].')
    found = {}
    for name, closed in traced.programs.items():
        function = jax.jit(jaxpr_as_fun(closed))
        arguments = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
        program = export.export(function, platforms=("cpu", "cuda"))(*arguments)
        path = folder / f"{name}.stablehlo"
        with written_whole(path) as partial:
            partial.write_bytes(program.serialize())
        found[name] = path
    return found
