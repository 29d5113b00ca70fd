"""Mixtures of Gaussians as posteriors, from values of log p(y | f) alone."""
