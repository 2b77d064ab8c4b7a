"""Writers of the pages in docs/ that are made from tables and helps."""
