"""Comparison of Markov chains: R-hat at checkpoints, and samplers ranked by their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from latentgp.errors import refuse
from latentgp.extensions.chains.draws import FEWEST_DRAWS
from latentgp.posteriors.arviz_versions import import_arviz

__all__ = ["Ranking", "r_hat_at", "rank_samplers"]


def r_hat_at(draws: ArrayLike, checkpoints: Sequence[int]) -> Float[np.ndarray, "T *shape"]:
    """Rank-normalised split R-hat of the first draws of each chain (Vehtari et al. 2021, eq. 4).

    Args:
        draws: of C chains, S each, shape (C, S) or (C, S, ...).
        checkpoints: numbers of draws, each of 4 to S.

    Returns:
        R-hat at each checkpoint, of each quantity.

    Raises:
        InputError: fewer than two chains; a checkpoint outside its range.

    Example:
        >>> import numpy as np
        >>> draws = np.random.default_rng(0).normal(size=(4, 1000))
        >>> r_hat_at(draws, [100, 1000]).round(1)
        array([1., 1.])
    """
    chains = np.asarray(draws, np.float64)
    most = chains.shape[-1] if chains.ndim < 2 else chains.shape[1]
    outside = [number for number in checkpoints if not FEWEST_DRAWS <= number <= most]
    sentences = {
        f"draws has shape {chains.shape}: R-hat compares two chains at least, (chains, draws).": (
            chains.ndim < 2 or len(chains) < 2
        ),
        f"checkpoints holds {', '.join(map(str, outside))}, outside {FEWEST_DRAWS} to {most}, the "
        "draws of a chain.": outside,
    }
    refuse(sentences)
    arviz = import_arviz()
    parts = (arviz.convert_to_dataset(chains[:, :number]) for number in checkpoints)
    return np.array([arviz.rhat(part)["x"].values for part in parts])


class Ranking(NamedTuple):
    """Samplers from best to worst, and which differences are more than chance.

    Attributes:
        names: K samplers, by their median.
        medians: of their figures, shape (K,).
        p_values: of the two-sided test of each pair, shape (K, K); one on the diagonal.
        better: whether the first of a pair is better at the level asked for, shape (K, K).
    """

    names: tuple[str, ...]
    medians: Float[np.ndarray, "K"]
    p_values: Float[np.ndarray, "K K"]
    better: Bool[np.ndarray, "K K"]

    def __str__(self) -> str:
        """Names in their order: ">" where each is better than the next, "~" where that is open."""
        text = self.names[0]
        for place, name in enumerate(self.names[1:]):
            text += f" {'>' if self.better[place, place + 1] else '~'} {name}"
        return text


def rank_samplers(figures: Mapping[str, ArrayLike], *, level: float = 0.05) -> Ranking:
    """Rank samplers by Mann and Whitney's test of each pair (Filippone et al. 2013, section 4.1).

    Args:
        figures: of each sampler, one a run, larger ones better: the smallest effective sample size,
            say, or minus R-hat.
        level: of each test; pairs are not corrected for their number.

    Raises:
        InputError: fewer than two samplers, a sampler without figures, or one with NaN.

    Example:
        >>> ranking = rank_samplers({"slow": [3, 5, 4, 2, 6], "fast": [30, 41, 28, 39, 50]})
        >>> print(ranking)
        fast > slow
    """
    from scipy.stats import mannwhitneyu

    values = {name: np.ravel(np.asarray(own, np.float64)) for name, own in figures.items()}
    wrong = [name for name, own in values.items() if not own.size or np.isnan(own).any()]
    sentences = {
        f"figures has {len(figures)} samplers: two at least can be ranked.": len(figures) < 2,
        f"figures of {wrong} are empty or hold NaN: pass a number for each run.": wrong,
    }
    refuse(sentences)
    names = tuple(sorted(values, key=lambda name: -np.median(values[name])))
    size = len(names)
    p_values, better = np.ones((size, size)), np.zeros((size, size), bool)
    for first, second in combinations(range(size), 2):
        one, other = values[names[first]], values[names[second]]
        # Both of one value: no test, no difference.
        same = np.ptp(np.concatenate([one, other])) == 0
        p = 1.0 if same else float(mannwhitneyu(one, other, alternative="two-sided").pvalue)
        p_values[first, second] = p_values[second, first] = p
        better[first, second] = p < level
    return Ranking(names, np.array([np.median(values[name]) for name in names]), p_values, better)
