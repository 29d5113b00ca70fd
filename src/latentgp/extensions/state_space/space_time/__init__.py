"""Latent functions of space and time as state-space processes at inducing points."""
