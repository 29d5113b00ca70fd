"""Numerical routines: factorisations, quadrature, root finding."""
