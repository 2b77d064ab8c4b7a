"""Raw metrics, latencies of checkpoints, and sliding windows."""
