"""Rules that make Gaussian sites of the rows of data: rows of the table of methods."""
