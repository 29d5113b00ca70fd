"""Preparation of inference: default priors, initial models, residuals of a first fit."""
