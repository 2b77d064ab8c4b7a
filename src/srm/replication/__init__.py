"""The data plane: record batches copied from source to target partitions."""
