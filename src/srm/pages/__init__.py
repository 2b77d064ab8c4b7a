"""What srm shows to people, from the engine's results: tables and lines of text, HTML pages.

Commands, tasks and the demo show a move with the same words by the same functions.
"""
