"""Moves of the latent functions given hyper-parameters, one a file."""
