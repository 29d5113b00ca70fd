"""Capabilities beside the core, each one folder; the core knows none of them."""
