"""Snapshots of flows and moves, and the answers made from them."""
