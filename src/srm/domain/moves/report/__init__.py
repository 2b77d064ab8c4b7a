"""Report of a move, its evidence, schema and signature."""
