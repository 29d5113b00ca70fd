"""Gaussian sites: the currency between likelihoods, rules and representations."""
