"""Precision, devices, compiled programs, rows in chunks, checkpoints, progress."""
