"""Integration over hyper-parameters for a method that was chosen."""

from __future__ import annotations

from typing import Any

from latentgp.choosing.choice import Choice
from latentgp.errors import InputError
from latentgp.extensions.integrated.method import NOTHING_TO_INTEGRATE, Integrated, check_integrable


def integrating(choice: Choice, learned: bool) -> Choice:
    """The method that integrates over the hyper-parameters of one chosen.

    Raises:
        InputError: nothing is learned, or a method without sites.
    """
    if isinstance(choice.method, Integrated):
        return choice
    if not learned:
        raise InputError(NOTHING_TO_INTEGRATE)
    check_integrable(choice.method)
    method: Any = choice.method
    return Choice(Integrated(method), f"{choice.reason}; hyper-parameters integrated over")
