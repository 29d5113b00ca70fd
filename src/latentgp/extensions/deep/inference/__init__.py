"""Deep models through random features: the family, steps on batches, and the posterior."""
