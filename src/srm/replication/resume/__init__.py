"""Exact positions after a restart: both logs walked side by side."""
