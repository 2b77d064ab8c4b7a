"""Airflow operators and triggers of srm: thin adapters over the engine."""
