"""Bytes: what a source batch becomes on its way to the target."""
