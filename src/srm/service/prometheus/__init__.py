"""What the service tells Prometheus, and whoever reads its format."""
