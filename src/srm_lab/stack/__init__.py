"""Embedded Kafka clusters, Airflow and Spark for demo, exploration and tests."""
