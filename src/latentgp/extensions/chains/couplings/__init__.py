"""Couplings of latent functions and hyper-parameters: what is held while these move, one a file."""
