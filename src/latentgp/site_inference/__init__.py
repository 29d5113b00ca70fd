"""Inference by Gaussian sites."""
