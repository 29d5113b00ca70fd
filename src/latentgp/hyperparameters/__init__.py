"""Hyper-parameters: declared, named by path, frozen, given priors, flattened."""
