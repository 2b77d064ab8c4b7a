"""Metrics of the service in Prometheus' formats."""
