"""Copies that another process takes over: their end, their seal, their position."""
