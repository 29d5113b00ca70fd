"""The command line."""

from latentgp.cli.app import main

__all__ = ["main"]
