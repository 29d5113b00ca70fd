"""Factorisations and streamed sums: everything numerical that is not about models."""
