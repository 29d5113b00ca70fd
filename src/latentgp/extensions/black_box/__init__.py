"""Mixtures of Gaussians from values of log p(y given f)."""
