"""A simulated world: the data plane between two simulated clusters, in virtual time, by a seed.

Everything above the ports runs unchanged; nothing sleeps, no thread runs, and the same seed gives
the same history, byte for byte.
"""
