"""Benchmark of the replicator beside MirrorMaker 2; see docs/benchmarks.md for the method."""
