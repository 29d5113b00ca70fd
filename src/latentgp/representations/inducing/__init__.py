"""Inducing variables: the sparse representation, its posterior, and how points are chosen."""
