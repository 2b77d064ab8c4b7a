"""Jobs spread over Spark tasks: verification, metrics, checkpoints, group sync."""
