"""Fakes and clocks that ship with the project."""
