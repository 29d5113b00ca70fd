"""Nearest neighbours: each row given the few nearest of those that come before it."""
