"""Sampling methods as values."""
