"""Algorithms: pure functions `init` and `step`, and the loops around them."""
