"""Commands of the embedded stack and the demo."""
