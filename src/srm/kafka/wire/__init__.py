"""Hot path frames: Fetch and Produce without copies."""
