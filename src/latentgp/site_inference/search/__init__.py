"""Site inference: updates, their acceleration, and the search for hyper-parameters."""
