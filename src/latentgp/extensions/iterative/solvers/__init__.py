"""Linear systems of Gaussian processes by products alone: operators, solvers, preconditioners."""
