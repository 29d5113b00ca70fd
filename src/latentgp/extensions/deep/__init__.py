"""Random features, and deep models of them."""
