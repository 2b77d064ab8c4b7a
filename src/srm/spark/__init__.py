"""Spark sessions, the replicator application, metrics and verification."""
