"""Consumer and producer that follow a move from one cluster to another."""
