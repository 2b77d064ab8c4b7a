"""Text views of the engine's results: tables, lines of text and HTML pages.

Commands, tasks and the demo share these functions and thus the same words for a move.
"""
