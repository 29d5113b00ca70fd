"""Numerical routines that know nothing of models: factorisations, quadrature, root finding."""
