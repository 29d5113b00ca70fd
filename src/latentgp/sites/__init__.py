"""The rules that make Gaussian sites: rows of the design's table."""
