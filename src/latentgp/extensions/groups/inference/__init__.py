"""Inference on the fixed effects of mixed models."""
