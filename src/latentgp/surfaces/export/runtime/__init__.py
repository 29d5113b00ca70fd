"""Text of exported files: functions of NumPy alone, copied into a file that needs them.

Nothing here imports JAX, SciPy or latentgp, and everything runs under Python 3.10.
"""
