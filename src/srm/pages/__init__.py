"""Text views of the engine's results: tables, lines of text and HTML pages."""
