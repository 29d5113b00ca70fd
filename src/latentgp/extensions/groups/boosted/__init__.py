"""Prior means by regression trees, and by regressors of scikit-learn."""
