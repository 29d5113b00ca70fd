"""Methods by solves as values."""
