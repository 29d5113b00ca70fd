"""Matrices near that of a linear system which are cheap to solve with: one file each."""
