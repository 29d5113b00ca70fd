"""State-space forms of kernels: series, and series at points in space."""
