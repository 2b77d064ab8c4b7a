"""Comparison of two copies, and the ranges proven equal."""
