"""Latent functions of one time-like input as state-space processes."""
