"""Evidence of a report: counts, acknowledgements and approvals."""
