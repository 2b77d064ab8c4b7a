"""Benchmark of the replicator and MirrorMaker 2; see docs/benchmarks.md for the method."""
