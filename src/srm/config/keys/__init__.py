"""Declarations of the configuration keys."""
