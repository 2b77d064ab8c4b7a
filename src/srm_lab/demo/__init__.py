"""The demonstration: real applications that move between two clusters and back, and the proof."""
