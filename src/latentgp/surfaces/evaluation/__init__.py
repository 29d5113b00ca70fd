"""Scores on held-out data, the plots drawn from them, and the comparison of estimators."""
