"""Records of flows in Kafka: driver and slot logs, map cleaning, pauses, returned logs."""
