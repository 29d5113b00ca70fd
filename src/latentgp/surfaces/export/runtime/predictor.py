"""Predictions by traced programs: what an exported file runs."""

from __future__ import annotations

import numpy as np

ABOUT: dict = {}  # what the file says of the model
PROGRAMS: dict = {}  # functions of arrays
TESTS: dict = {}  # inputs, and what the library predicts for them
# Copied from here.


class PredictorError(ValueError):
    """Rows that cannot be predicted, in one sentence."""


def predict_f(X):
    """Means and variances of the latent functions, shape (N,), or (N, Q) for Q > 1."""
    mean, variance = ask(["latent"], checked_inputs(X), {})["latent"]
    if ABOUT["latents"] == 1:
        return mean[:, 0], variance[:, 0]
    return mean, variance


def predict(X, **side_information):
    """Predictions by name: "mean" and "variance" of y, or "probabilities" of classes.

    Args:
        X: inputs, shape (N, D).
        side_information: what the likelihood reads a row, shape (N,) each.
    """
    X = checked_inputs(X)
    side = checked_side(side_information, len(X))
    if has("probabilities", side):
        (found,) = ask(["probabilities"], X, side)["probabilities"]
        labels = ABOUT["classes"]
        more = {} if labels is None else {"label": np.asarray(labels)[np.argmax(found, axis=1)]}
        return {"probabilities": found, **more}
    mean, variance = ask(["moments"], X, side)["moments"]
    return {"mean": mean, "variance": variance}


def quantiles(X, probabilities, **side_information):
    """Quantiles of y at probabilities in (0, 1), shape (N, levels), or (N, P, levels)."""
    X, levels = checked_inputs(X), np.atleast_1d(np.asarray(probabilities, np.float64))
    if np.any((levels <= 0) | (levels >= 1)):
        raise PredictorError(f"probabilities must be between 0 and 1, got {levels.tolist()}.")
    side = checked_side(side_information, len(X))
    return ask(["quantiles"], X, side, levels)["quantiles"][0]


def has(question, side):
    """Whether the file answers a question."""
    return program_for(question, side) in PROGRAMS


def program_for(question, side):
    """Name of the program that answers a question with some side information."""
    return "_".join([question, *(["given", *sorted(side)] if side else [])])


def ask(questions, X, side, levels=()):
    """Answers to questions about every row, some rows at a time."""
    for question in questions:
        if question != "latent" and not has(question, side):
            raise PredictorError(
                f"The model has no {question} of its targets; ask for "
                + ("probabilities." if has("probabilities", side) else "predict_f.")
            )
    parts = [answers(questions, *piece, levels) for piece in pieces(X, side)]
    return {q: [np.concatenate(of_q) for of_q in zip(*(p[q] for p in parts))] for q in questions}  # noqa: B905


def pieces(X, side):
    """Rows that are predicted together, with how many of them are real."""
    width = ABOUT["rows_at_once"]
    for start in range(0, max(len(X), 1), width):
        rows = [a[start : start + width] for a in (X, *side.values())]
        real = len(rows[0])
        more = width - real if ABOUT["fixed"] else int(real == 0)
        if more:
            mode = "edge" if real else "constant"
            rows = [np.pad(a, [(0, more)] + [(0, 0)] * (a.ndim - 1), mode=mode) for a in rows]
        yield rows[0], dict(zip(side, rows[1:])), real  # noqa: B905


def answers(questions, X, side, real, levels):
    """Answers about the rows of a piece."""
    with np.errstate(all="ignore"):
        marginals = PROGRAMS["marginals"](X)
        rows = [side[name] for name in sorted(side)]
        found = {}
        for question in questions:
            if question == "latent":
                found[question] = PROGRAMS["latent"](*marginals)
                continue
            ends = [] if question != "quantiles" else [levels]
            program = PROGRAMS[program_for(question, side)]
            found[question] = in_pairs(program, [*marginals, *rows], *ends)
        return {question: [np.asarray(a)[:real] for a in of_q] for question, of_q in found.items()}


def in_pairs(program, arguments, levels=None):
    """A program's outputs; with levels those of two at a time, side by side."""
    if levels is None:
        return program(*arguments)
    found = []
    for start in range(0, len(levels), 2):
        pair = levels[start : start + 2]
        (own,) = program(*arguments, np.resize(pair, 2))
        found.append(np.asarray(own)[..., : len(pair)])
    return [np.concatenate(found, axis=-1)]


def checked_inputs(X):
    """Inputs as finite numbers, shape (N, D); one column may be a vector."""
    X = as_numbers("X", X)
    columns = ABOUT["columns"]
    if X.shape[:1] == (0,):
        return np.zeros((0, columns))
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim != 2:
        raise PredictorError(f"X must have shape (rows, columns), got shape {X.shape}; reshape it.")
    if X.shape[1] != columns:
        raise PredictorError(
            f"X has {X.shape[1]} columns but the model was fitted to {columns}; "
            "give the same columns as for the fit."
        )
    return X


def checked_side(given, size):
    """Side information that the likelihood reads, one number a row."""
    known = ABOUT["side_information"]
    for name in given:
        if name not in known:
            raise PredictorError(
                f"The model reads no per-row {name!r} (it knows: {', '.join(known) or 'none'}); "
                "leave it out."
            )
    side = {name: as_numbers(name, values) for name, values in given.items()}
    for name, values in side.items():
        if values.shape != (size,):
            raise PredictorError(
                f"{name} must have one number a row, shape ({size},), got shape {values.shape}."
            )
    return side


def as_numbers(name, values):
    """Finite numbers in double precision."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise PredictorError(f"{name} must hold numbers; convert it.") from None
    if not np.isfinite(array).all():
        raise PredictorError(f"{name} has NaN or infinity; leave out or fill such rows.")
    return array


def deviation():
    """Largest difference from what the library predicts for the test rows, over its scale."""
    side = {name: TESTS[f"side_{name}"] for name in ABOUT["test_sides"]}
    worst = 0.0
    for question in ABOUT["test_questions"]:
        levels = np.asarray(ABOUT["test_levels"] if question == "quantiles" else ())
        sides = {} if question == "latent" else side
        found, near = twice(lambda: ask([question], TESTS["X"], sides, levels)[question])  # noqa: B023
        for place, (own, other) in enumerate(zip(found, near)):  # noqa: B905
            worst = max(worst, difference(own, TESTS[f"{question}_{place}"], other))
    return worst


def twice(predictions):
    """Predictions, and those at variances of the latent functions greater by their resolution."""
    own = PROGRAMS["marginals"]

    def raised(X):
        mean, variance = own(X)
        return mean, variance + ABOUT["resolution"]

    found = predictions()
    PROGRAMS["marginals"] = raised
    try:
        return found, predictions()
    finally:
        PROGRAMS["marginals"] = own


def difference(found, expected, near):
    """Largest difference, over the largest of what is expected; infinite where one is no number.

    What is found and what is near differ by what is not resolved, which is no difference.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    scale = np.max(np.abs(expected), where=np.isfinite(expected), initial=0.0) or 1.0
    with np.errstate(invalid="ignore"):
        unresolved = np.nan_to_num(np.abs(near - found), nan=0.0, posinf=0.0)
    apart = np.abs(found - np.where(same, found, expected)) - unresolved
    apart = np.where(same, 0.0, np.maximum(apart, 0.0)) / scale
    return float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0.0))


def self_test(measured=deviation):
    """Print the largest deviation from the library; the exit status, 1 if it is too large."""
    worst, most = measured(), ABOUT["tolerance"]
    said = "agrees" if worst <= most else "DOES NOT AGREE"
    print(f"largest deviation {worst:.2e}, tolerance {most:.0e}: {said} with latentgp")
    return int(not worst <= most)
