"""Comparison of source and copy."""
