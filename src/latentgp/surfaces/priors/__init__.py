"""Priors of hyper-parameters, as `fit(priors=...)` takes them."""
