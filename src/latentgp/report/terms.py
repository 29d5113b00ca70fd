"""The terms of a formula in a report: fixed effects with standard errors, effects of groups."""

from __future__ import annotations

from typing import Any

from latentgp.report.blocks import Block, Section, Table, Text
from latentgp.tables.formula_encoder import FormulaEncoder
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
        caption = "On the scale of f; given the variances of groups, noise and kernel."
        heads = ("fixed effect", "estimate", "standard error", "95 % from", "to")
        blocks.append(Table(heads, table, caption))
    known = {term.column for term in encoder.terms().groups}
    first = len(encoder.feature_names) - len(encoder.groups)
    for place, column in enumerate(encoder.groups):
        if first + place not in known:
            continue
        for name, effects in model.group_effects(column.name).items():
            rows = _rows(effects.table())[:_MOST_GROUPS]
            caption = f"What each of {column.name!r} has more than others: {name}."
            heads = (column.name, "estimate", "standard error", "95 % from", "to")
            blocks.append(Table(heads, rows, caption, folded=len(rows) > 8))
    if not blocks:
        return None
    return Section("terms", "What do the terms say?", [Text(f"{encoder.formula}"), *blocks])


def _rows(table: Any) -> list[tuple[str, ...]]:
    columns = table.columns[:4]  # of the first latent function
    return [
        (str(name), *(f"{value:.4g}" for value in values))
        for name, values in zip(table.index, table[columns].to_numpy(), strict=True)
    ]
