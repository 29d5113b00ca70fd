"""Functions on a grid of frequencies: places in up to three dimensions without a matrix."""
