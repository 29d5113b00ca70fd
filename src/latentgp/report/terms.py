"""The terms of a formula in a report: fixed effects with standard errors, effects of groups."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from latentgp.report.blocks import Block, Section, Table, Text
from latentgp.tables.formula.encoder import FormulaEncoder
from latentgp.tables.model import TableModel

_MOST_GROUPS = 40


def terms(model: TableModel) -> Section | None:
    """Tables of the coefficients; None without a formula, or one that has no such terms."""
    encoder = model.encoder
    if not isinstance(encoder, FormulaEncoder):
        return None
    blocks: list[Block] = []
    if encoder.terms().linear:
        table = _rows(model.coefficients().table())
        caption = (
            "On the scale of f, whose latent functions are numbered where there are several; given "
            "the variances of groups, noise and kernel."
        )
        heads = ("fixed effect", "estimate", "standard error", "95 % from", "to")
        blocks.append(Table(heads, table, caption))
    known = {term.column for term in encoder.terms().groups}
    first = len(encoder.feature_names) - len(encoder.groups)
    for place, column in enumerate(encoder.groups):
        if first + place not in known:
            continue
        for name, effects in model.group_effects(column.name).items():
            table = effects.table()
            size = np.abs(np.asarray(effects.estimate)).reshape(len(table), -1).max(axis=1)
            shown = np.sort(np.argsort(-size, kind="stable")[:_MOST_GROUPS])
            caption = f"What each of {column.name!r} has more than others: {name}."
            if len(shown) < len(table):
                caption += (
                    f" The {len(shown)} of {len(table)} groups with the largest effects; all are "
                    f"given by latentgp coefficients MODEL --groups {shlex.quote(column.name)}."
                )
            heads = (column.name, "estimate", "standard error", "95 % from", "to")
            rows = _rows(table.iloc[shown])
            blocks.append(Table(heads, rows, caption, folded=len(rows) > 8))
    if not blocks:
        return None
    return Section("terms", "What do the terms say?", [Text(f"{encoder.formula}"), *blocks])


def _rows(table: Any) -> list[tuple[str, ...]]:
    """A row for each coefficient, or for each of every latent function."""
    values = table.to_numpy().reshape(len(table), -1, 4)
    latents = values.shape[1]
    return [
        (str(name) + (f" [{q}]" if latents > 1 else ""), *(f"{v:.4g}" for v in values[row, q]))
        for q in range(latents)
        for row, name in enumerate(table.index)
    ]
