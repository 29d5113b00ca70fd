"""The latent functions at all rows, by products with the Gram matrix and linear solves alone."""
