"""Report, evidence and signature of a move."""
