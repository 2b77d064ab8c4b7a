"""The replicator as a Spark application."""
