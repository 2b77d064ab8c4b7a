"""Airflow operators, triggers and links of srm: thin adapters over the engine."""
