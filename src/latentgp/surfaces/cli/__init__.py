"""The command line."""

from latentgp.surfaces.cli.app import main

__all__ = ["main"]
