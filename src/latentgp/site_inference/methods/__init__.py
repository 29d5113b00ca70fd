"""Methods by sites as values."""
