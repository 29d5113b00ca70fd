"""Posteriors of the latent functions, and the predictive distributions they give."""
