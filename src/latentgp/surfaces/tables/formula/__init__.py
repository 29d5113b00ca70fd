"""Formulas of mixed models, such as y ~ x1 + gp(x2, x3) + (1 | clinic)."""
