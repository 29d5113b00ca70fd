"""Methods of deep models as values."""
