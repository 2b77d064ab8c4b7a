"""Checkpoint emission, group offset sync and translation."""
