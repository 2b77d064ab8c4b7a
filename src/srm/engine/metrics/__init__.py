"""Aggregation of raw metrics into windows."""
