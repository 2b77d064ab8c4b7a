"""The srm and srm-control commands."""
