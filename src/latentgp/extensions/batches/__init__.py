"""Inference from mini-batches: natural gradients, step sizes, subsampling of classes."""
