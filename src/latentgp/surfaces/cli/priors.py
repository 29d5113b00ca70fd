"""Laws written as text, such as LogNormal(0, 1): parsed, never run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from numpyro import distributions
from numpyro.distributions import Distribution

from latentgp.errors import InputError
from latentgp.surfaces.priors.statements import prior_from

_NAMES = ("LogNormal", "Normal", "HalfNormal", "Exponential", "Gamma", "InverseGamma", "Uniform")
_LAW = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*")


def priors_from(texts: Iterable[str]) -> dict[str, Distribution | None]:
    """Priors by the path of their parameter.

    Args:
        texts: each a path, "=", and a law of NumPyro's with numbers in its own order, "none", or
            "from" with the statements of `latentgp.prior_from`.

    Raises:
        InputError: none of these, or numbers that the law cannot have.

    Example:
        >>> priors = priors_from(["kernel.lengthscale=Gamma(2, 0.5)", "kernel.variance=none"])
        >>> float(priors["kernel.lengthscale"].rate), priors["kernel.variance"]
        (0.5, None)
        >>> stated = priors_from(["kernel.lengthscale=from(below=0.1, above=2, law=gamma)"])
        >>> type(stated["kernel.lengthscale"]).__name__
        'Gamma'
    """
    priors: dict[str, Distribution | None] = {}
    for text in texts:
        path, _, law = text.partition("=")
        priors[path.strip()] = None if law.strip() == "none" else _law_from(text, law)
    return priors


def _law_from(text: str, law: str) -> Distribution:
    found = _LAW.fullmatch(law)
    if found is not None and found[1] == "from":
        return _stated(text, found[2])
    if found is None or found[1] not in _NAMES:
        raise InputError(
            f"{text!r} is no prior: give a parameter's path, = and one of {', '.join(_NAMES)} with "
            "its numbers, such as kernel.lengthscale=LogNormal(0, 1), or none, or from(...) with "
            "statements such as below=0.1, above=2, probability=0.05"
        )
    kind = getattr(distributions, found[1])
    names = list(kind.arg_constraints)
    try:
        numbers = [float(number) for number in found[2].split(",")]
        if len(numbers) != len(names):
            raise ValueError(f"got {len(numbers)}")
        kind(*numbers, validate_args=True)
    except ValueError as error:
        needs = f"give {found[1]} the number(s) {', '.join(names)}"
        raise InputError(f"{text!r} is no prior ({error}): {needs}") from error
    return kind(*numbers)  # it need not check values too: a search may look outside its support


def _stated(text: str, statements: str) -> Distribution:
    known: dict[str, Any] = {}
    try:
        for statement in statements.split(","):
            name, _, value = (part.strip() for part in statement.partition("="))
            known[name] = value if name == "law" else float(value)
        return prior_from(**known)
    except (InputError, TypeError, ValueError) as error:
        raise InputError(
            f"{text!r} is no prior ({error}): give from(...) below=, above= or std_above= with "
            "numbers, and probability=, law= or dimension= if they are to be others"
        ) from error
