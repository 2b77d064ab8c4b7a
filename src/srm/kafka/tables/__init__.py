"""Readers of compacted topics, raw logs and single records."""
