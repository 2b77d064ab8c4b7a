"""State of flows in Kafka: writers, the log of the driver, what a slot follows."""
