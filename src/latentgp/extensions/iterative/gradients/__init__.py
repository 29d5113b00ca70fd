"""Hyper-parameters learned and sampled by solves with the covariance of the targets."""
