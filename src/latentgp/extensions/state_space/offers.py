"""The state-space form that "auto" takes for long series."""

from __future__ import annotations

from latentgp.choosing.choice import Offer, usual_representation
from latentgp.models import LatentGP
from latentgp.representations import Inducing

_MOST_STATES = 12  # of a series, whose cost grows with their cube


def is_long_series(model: LatentGP, rows: int, inputs: int | None, n_inducing: int | None) -> bool:
    """Whether rows are many and the kernel's state is small, for one latent function."""
    many = n_inducing is None and isinstance(usual_representation(model, rows), Inducing)
    if inputs is None or not many or model.likelihood.latent_size > 1:
        return False
    from latentgp.extensions.state_space.kernels import has_small_state_space  # where rows are many

    return has_small_state_space(model.kernel, inputs, _MOST_STATES)


def long_series(
    model: LatentGP, rows: int, inputs: int | None, n_inducing: int | None
) -> Offer | None:
    """The offer for a long series; None for other rows."""
    if not is_long_series(model, rows, inputs, n_inducing):
        return None
    from latentgp.extensions.state_space.markov.representation import Markov  # likewise

    why = f"{rows} rows of one time-like column, in state-space form"
    return Offer(1, Markov(), why, ": the posterior is exact in O(N)")
