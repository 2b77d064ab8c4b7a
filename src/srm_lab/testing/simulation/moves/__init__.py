"""A simulated world of moves: groups, producers, disasters and returns between two clusters.

The steps of moves, emission, group sync and settlement are the product's own, over the fakes.
"""
