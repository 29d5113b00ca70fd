"""All rows by products with the kernel matrix: solvers, preconditioners, stochastic gradients."""
