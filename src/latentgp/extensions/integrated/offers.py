"""Integration over hyper-parameters for a method that was chosen."""

from __future__ import annotations

from typing import Any

from latentgp.choosing.choice import Choice
from latentgp.extensions.integrated.method import Integrated, check_integrable


def integrating(choice: Choice, learned: bool) -> Choice:
    """The method that integrates over what a method learns; InputError if that cannot be."""
    if isinstance(choice.method, Integrated):
        return choice
    check_integrable(choice.method, learned)
    method: Any = choice.method
    return Choice(Integrated(method), f"{choice.reason}; hyper-parameters integrated over")
