"""Integration over hyper-parameters: designs around the mode, and the density between points."""
