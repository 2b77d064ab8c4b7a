"""The offset map: runs, their blocks and index, and lookups both ways."""
