"""The terms of a formula in a report: fixed effects with standard errors, effects of groups."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from latentgp.kernels.parts import parts_of
from latentgp.likelihoods import Softmax
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.coefficients import GroupEffects
from latentgp.surfaces.estimators.terms import is_learned_apart
from latentgp.surfaces.evaluation import plots
from latentgp.surfaces.report.figures import WIDTH, picture
from latentgp.surfaces.report.page import Block, Figure, Section, Table, Text
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder
from latentgp.surfaces.tables.model import TableModel

_MOST_GROUPS = 40


def terms(model: TableModel) -> Section | None:
    """Tables of the coefficients; None without a formula, or one that has no such terms."""
    encoder = model.encoder
    if not isinstance(encoder, FormulaEncoder):
        return None
    blocks: list[Block] = []
    latents = _latents(model)
    if is_learned_apart(model.estimator.mean):
        blocks.append(Text("What the columns of fixed effects say is in the prior mean."))
    elif encoder.terms().linear:
        table = _rows(model.coefficients().table(), latents)
        caption = "On the scale of f, given the variances of groups, noise and kernel."
        if isinstance(model.estimator.model_.likelihood, Softmax):
            caption += (
                " One f a class: what is added to all of them changes no probability, so that rows "
                "tell of differences between classes, and standard errors of one class are wide."
            )
        heads = ("fixed effect", "estimate", "standard error", "95 % from", "to")
        blocks.append(Table(heads, table, caption))
    if encoder.varying:
        heads = ("coefficient that varies", "standard deviation")
        caption = (
            "Of the coefficient from place to place, on the scale of f over the column's unit; its "
            "values are given by TableModel.varying_coefficient."
        )
        blocks.append(Table(heads, _spreads(model, encoder, latents), caption))
    for column in encoder.with_effects:
        for name, effects in model.group_effects(column).items():
            table = effects.table()
            size = np.abs(np.asarray(effects.estimate)).reshape(len(table), -1).max(axis=1)
            shown = np.sort(np.argsort(-size, kind="stable")[:_MOST_GROUPS])
            caption = f"What each of {column!r} has more than others: {name}."
            if len(shown) < len(table):
                caption += (
                    f" The {len(shown)} of {len(table)} groups with the largest effects; all are "
                    f"given by latentgp coefficients MODEL --groups {shlex.quote(column)}."
                )
            if effects.estimate.ndim == 1:
                blocks.append(_ranking(column, name, effects, len(blocks)))
            heads = (column, "estimate", "standard error", "95 % from", "to")
            rows = _rows(table.iloc[shown], latents)
            blocks.append(Table(heads, rows, caption, folded=len(rows) > 8))
    if not blocks:
        return None
    return Section("terms", "What do the terms say?", [Text(f"{encoder.formula}"), *blocks])


def _ranking(column: str, name: str, effects: GroupEffects, number: int) -> Figure:
    """Groups in the order of an effect."""
    alt = f"Effects of {column}, {name}, from largest to smallest, with their intervals."
    told = (
        "Blue intervals leave out zero. Two groups whose intervals overlap much are not told "
        "apart, whatever their order."
    )
    drawn = plots.caterpillar({name: effects}, group=column, width=WIDTH)
    return picture(drawn, f"effects-{number}", alt, told)


@double_precision
def _spreads(
    model: TableModel, encoder: FormulaEncoder, latents: list[str]
) -> list[tuple[str, ...]]:
    """Prior standard deviations of the coefficients that vary, of each latent function."""
    kernel: Any = model.estimator.model_.kernel
    rows = []
    for q, own in enumerate(getattr(kernel, "each", (kernel,))):
        for name, (number, columns) in encoder.varying.items():
            at = np.zeros((1, len(encoder.feature_names)))
            at[0, list(columns)] = 1.0
            part = parts_of(own)[model.first_smooth + number]
            spread = float(np.sqrt(part.diagonal(at)[0]))
            shown = f"{name} [{latents[q]}]" if hasattr(kernel, "each") else name
            rows.append((shown, f"{spread:.4g}"))
    return rows


def _latents(model: TableModel) -> list[str]:
    """Names of the latent functions: the classes where each has one, numbers elsewhere."""
    size = model.estimator.model_.likelihood.latent_size
    classes = getattr(model.estimator, "classes_", ())
    return [str(name) for name in (classes if len(classes) == size else range(size))]


def _rows(table: Any, latents: list[str]) -> list[tuple[str, ...]]:
    """A row for each coefficient, or for each of every latent function."""
    values = table.to_numpy().reshape(len(table), -1, 4)
    several = values.shape[1] > 1
    return [
        (f"{name} [{latents[q]}]" if several else str(name), *(f"{v:.4g}" for v in values[row, q]))
        for q in range(values.shape[1])
        for row, name in enumerate(table.index)
    ]
