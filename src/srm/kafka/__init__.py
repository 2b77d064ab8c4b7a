"""Adapters to real Kafka clusters."""
