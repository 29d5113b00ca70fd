"""Moves of hyper-parameters with the coordinates of the latent functions held, one a file."""
