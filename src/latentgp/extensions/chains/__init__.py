"""Markov chain Monte Carlo: targets, samplers, and the loop that runs chains."""
